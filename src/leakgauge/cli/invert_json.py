"""The figures of attempts to rebuild records, as ``leakgauge invert --json`` prints them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from leakgauge.inversion.metrics.table import COLUMNS, LABEL_ACCURACY
from leakgauge.inversion.report.wording import attempt
from leakgauge.inversion.run.scoring import Rebuilt
from leakgauge.inversion.run.spec import EXACT, InversionCell
from leakgauge.results.measurements import Estimate, Measurement

EACH = ("psnr", "ssim", "lpips", COLUMNS)


def title(cell: InversionCell) -> str:
    """An attempt in a few words."""
    return attempt(cell.method, cell.defense, cell.knowledge)


def as_json(
    attempts: Sequence[tuple[InversionCell, Rebuilt, Sequence[Measurement]]], report: Path
) -> dict[str, Any]:
    """The first attempt's figures, and all of them where there are several."""
    each = [_told(*one) for one in attempts]
    several = {"results": each} if len(each) > 1 else {}
    return {**each[0], **several, "report": str(report)}


def _told(cell: InversionCell, rebuilt: Rebuilt, records: Sequence[Measurement]) -> dict[str, Any]:
    figures = {
        record.metric: record.estimate for record in records if not isinstance(record.round, int)
    }
    return {
        "method": cell.method,
        "defense": cell.defense,
        "knowledge": cell.knowledge,
        "images": cell.images,
        "iterations": 0 if cell.method == EXACT else cell.settings.iterations,
        "psnr": _ends(figures.get("psnr")),
        "ssim": _ends(figures.get("ssim")),
        "lpips": _ends(figures.get("lpips")),
        "label_accuracy": _value(figures.get(LABEL_ACCURACY)),
        "columns": {
            name.removeprefix(f"{COLUMNS}: "): one.value
            for name, one in figures.items()
            if name.startswith(f"{COLUMNS}: ")
        },
        "matching": {
            name.removeprefix("matching_"): one.value
            for name, one in figures.items()
            if name.startswith("matching_")
        },
        "joint_matching": cell.matching,
        "single_epochs": [
            float(scores["psnr"].mean()) for scores in rebuilt.rounds.values() if "psnr" in scores
        ],
        "chance": rebuilt.chance,
        "seconds_per_iteration": rebuilt.seconds_per_iteration,
        "warnings": list(rebuilt.warnings),
        "per_image": [
            {name: float(rebuilt.scores[name][at]) for name in EACH if name in rebuilt.scores}
            for at in range(len(rebuilt.truth))
        ],
    }


def _ends(estimate: Estimate | None) -> dict[str, float] | None:
    if estimate is None:
        return None
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


def _value(estimate: Estimate | None) -> float | None:
    return None if estimate is None else estimate.value
