"""Files for the report besides the measurements: facts of attempts, and private records."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from safetensors.torch import save_file
from torch import Tensor

from leakgauge.core.checks import InputError, require
from leakgauge.core.files import read_text, write_text
from leakgauge.core.types import Column, Schema
from leakgauge.data.decode import column_hits, decode, number_text
from leakgauge.inversion.metrics.table import (
    CELLS,
    COLUMNS,
    LPIPS,
    METRICS,
    PSNR,
    SEQUENCES,
    SSIM,
    TOKEN_ACCURACY,
)
from leakgauge.inversion.run.attempt import Attempt
from leakgauge.inversion.run.rebuilt import Rebuilt
from leakgauge.inversion.tableak.cells import same_cells
from leakgauge.report.facts import plain_interval
from leakgauge.results.measurements import PICTURES_FILE, ROWS_FILE
from leakgauge.results.statistics import mean_estimate

FACTS_FILE = "attempts.json"

EACH_RECORD = (PSNR, SSIM, LPIPS, COLUMNS, CELLS, TOKEN_ACCURACY, SEQUENCES)
"""Metrics that are kept for each single record."""

MOST_RECORDS = 64
"""Records that are kept for the report, at most."""

MOST_PIXELS = 500_000
"""Pixels of all kept images of one attempt, at most."""

TRUTH = "truth"


def keep_records(folder: Path, schema: Schema | None, rebuilt: Sequence[Rebuilt]) -> None:
    """Write the true records and those of each attempt.

    Images go to ``pictures.safetensors``: uint8 ``[n, c, h, w]`` by the names ``"truth"``, ``"0"``,
    ``"1"``, ... in the order of the attempts. Rows of tables, and token sequences by position, go
    to ``rows.json`` by the same names: the text of each column for each true record; in an attempt,
    pairs of text and whether it is right. A method that says how sure it is of a cell adds whether
    the value is near (right by TabLeak's rule) and its confidence, from 0 to 1.

    Args:
        folder: for the files.
        schema: columns of a table; None for other records.
        rebuilt: records of the attempts.
    """
    if not rebuilt[0].truth.is_floating_point():
        _keep_tokens(folder, rebuilt)
    elif schema is None:
        _keep_pictures(folder, rebuilt)
    else:
        _keep_rows(folder, schema, rebuilt)


def _keep_pictures(folder: Path, rebuilt: Sequence[Rebuilt]) -> None:
    parts = {TRUTH: rebuilt[0].truth, **{str(at): one.x for at, one in enumerate(rebuilt)}}
    # A page of a few MB can hold this many.
    count = min(MOST_RECORDS, max(1, MOST_PIXELS // parts[TRUTH][0, 0].numel()))
    bytes_ = {
        name: (255 * x[:count]).round().clamp(0, 255).to(torch.uint8).cpu().contiguous()
        for name, x in parts.items()
    }
    save_file(bytes_, folder / PICTURES_FILE)


def _keep_rows(folder: Path, schema: Schema, rebuilt: Sequence[Rebuilt]) -> None:
    truth = rebuilt[0].truth[:MOST_RECORDS]
    rows: dict[str, Any] = {TRUTH: _texts(truth, schema)}
    for at, one in enumerate(rebuilt):
        x = one.x[:MOST_RECORDS]
        hits = column_hits(x, truth, schema)
        more = _sureness(one, schema)
        rows[str(at)] = [
            {
                name: (text, bool(hits[name][row]), *more(row, place))
                for place, (name, text) in enumerate(texts.items())
            }
            for row, texts in enumerate(_texts(x, schema, rebuilt=True))
        ]
    write_text(folder / ROWS_FILE, json.dumps(rows))


def _sureness(one: Rebuilt, schema: Schema) -> Callable[[int, int], tuple[Any, ...]]:
    """Return what is kept of a cell's confidence by row and column: nothing where it is unknown."""
    if one.confidence is None:
        return lambda row, place: ()
    near = same_cells(one.x, one.truth, schema).tolist()
    sure = one.confidence.double().tolist()
    return lambda row, place: (near[row][place], round(sure[row][place], 3))


def _keep_tokens(folder: Path, rebuilt: Sequence[Rebuilt]) -> None:
    truth = rebuilt[0].truth[:MOST_RECORDS].tolist()
    rows: dict[str, Any] = {TRUTH: [_positions(map(str, one)) for one in truth]}
    for at, one in enumerate(rebuilt):
        rows[str(at)] = [
            _positions(
                ("?" if token < 0 else str(token), token == real)
                for token, real in zip(found, true, strict=True)
            )
            for found, true in zip(one.x[:MOST_RECORDS].tolist(), truth, strict=True)
        ]
    write_text(folder / ROWS_FILE, json.dumps(rows))


def _positions(values: Iterable[Any]) -> dict[str, Any]:
    return {f"token {at}": value for at, value in enumerate(values, start=1)}


def _texts(x: Tensor, schema: Schema, *, rebuilt: bool = False) -> list[dict[str, str]]:
    """Return the columns of encoded records ``[n, D]`` as a reader writes them."""
    rows = decode(x, schema).to_dict("records")
    columns = schema.columns
    return [{one.name: _text(row[one.name], one, rebuilt) for one in columns} for row in rows]


def _text(value: Any, column: Column, rebuilt: bool) -> str:
    if pd.isna(value):
        return "(missing)"
    if column.kind != "number":
        return str(value)
    return number_text(value, column, rebuilt=rebuilt)


def facts_of(attempt: Attempt, rebuilt: Rebuilt) -> dict[str, Any]:
    """Return the facts of an attempt that its measurements do not hold, as plain values."""
    scores = rebuilt.scores
    return {
        "iterations": attempt.attack.iterations,
        "warnings": list(rebuilt.warnings),
        "chance": dict(rebuilt.chance),
        "baselines": {
            name: {
                metric: plain_interval(
                    mean_estimate(values.double().numpy(), bounds=METRICS[metric].bounds)
                )
                for metric, values in guess.items()
                if metric in EACH_RECORD
            }
            for name, guess in rebuilt.baselines.items()
        },
        "best_guess": rebuilt.best_guess,
        "rung": attempt.rung,
        "single_epochs": [
            float(epoch[PSNR].mean()) for epoch in rebuilt.rounds.values() if PSNR in epoch
        ],
        "per_image": [
            {name: float(scores[name][at]) for name in EACH_RECORD if name in scores}
            for at in range(rebuilt.count)
        ],
    }


def keep_facts(folder: Path, facts: Sequence[dict[str, Any]]) -> None:
    """Write the facts of each attempt, in their order."""
    write_text(folder / FACTS_FILE, json.dumps(list(facts)))


def read_facts(folder: Path, attempts: int) -> list[dict[str, Any]]:
    """Read the facts of each attempt.

    Args:
        folder: folder of the finished question.
        attempts: number of attempts.

    Raises:
        InputError: the file is missing, damaged, or of another run.
    """
    path = folder / FACTS_FILE
    text = read_text(path)
    try:
        facts: list[dict[str, Any]] = json.loads(text)
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}); run the command again") from error
    sound = isinstance(facts, list) and all(isinstance(one, dict) for one in facts)
    require(
        sound and len(facts) == attempts,
        f"{path} does not belong to these {attempts} attempts; run the command again",
    )
    return facts
