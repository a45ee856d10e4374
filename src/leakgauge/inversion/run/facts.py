"""Figures of single records and other facts of attempts, beside the measurements."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from leakgauge.core.checks import InputError, require
from leakgauge.core.files import read_text, write_text
from leakgauge.inversion.metrics.table import COLUMNS, LPIPS, PSNR, SSIM
from leakgauge.inversion.run.attempt import Attempt
from leakgauge.inversion.run.rebuilt import Rebuilt
from leakgauge.inversion.run.scoring import iterations_of
from leakgauge.results.statistics import mean_estimate

FACTS_FILE = "attempts.json"

EACH_RECORD = (PSNR, SSIM, LPIPS, COLUMNS)
"""Metrics of which the figure of each single record is kept."""


def facts_of(attempt: Attempt, rebuilt: Rebuilt) -> dict[str, Any]:
    """Return the facts of an attempt that its measurements do not hold, as plain values."""
    return {
        "iterations": iterations_of(attempt),
        "warnings": list(rebuilt.warnings),
        "chance": dict(rebuilt.chance),
        "baselines": {
            name: {
                metric: _plain(values) for metric, values in scores.items() if metric in EACH_RECORD
            }
            for name, scores in rebuilt.baselines.items()
        },
        "best_guess": rebuilt.best_guess,
        "rung": attempt.rung,
        "single_epochs": [
            float(scores[PSNR].mean()) for scores in rebuilt.rounds.values() if PSNR in scores
        ],
        "per_image": [
            {
                name: float(rebuilt.scores[name][at])
                for name in EACH_RECORD
                if name in rebuilt.scores
            }
            for at in range(rebuilt.count)
        ],
    }


def _plain(values: Tensor) -> dict[str, float]:
    """The mean over the records, with its interval."""
    one = mean_estimate(values.double().numpy())
    return {"value": one.value, "low": one.low, "high": one.high}


def keep_facts(folder: Path, facts: Sequence[dict[str, Any]]) -> None:
    """Write the facts of each attempt, in their order."""
    write_text(folder / FACTS_FILE, json.dumps(list(facts)))


def read_facts(folder: Path, attempts: int) -> list[dict[str, Any]]:
    """Read the facts of each attempt.

    Args:
        folder: of the finished question.
        attempts: their number.

    Raises:
        InputError: the file is missing, damaged, or of another run.
    """
    path = folder / FACTS_FILE
    try:
        facts = json.loads(read_text(path))
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is damaged ({error}); run the command again") from error
    sound = isinstance(facts, list) and all(isinstance(one, dict) for one in facts)
    require(
        sound and len(facts) == attempts,
        f"{path} does not belong to these {attempts} attempts; run the command again",
    )
    whole: list[dict[str, Any]] = facts
    return whole
