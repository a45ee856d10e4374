"""The figures of an audited guarantee as plain values."""

import math
from pathlib import Path
from typing import Any

from leakgauge.guarantee.metrics import DISTANCE_OVER_CLIP, EPSILON, GAUSSIAN, IN_SAMPLE
from leakgauge.guarantee.report.audited import AuditedGuarantee, audited_guarantee
from leakgauge.runs.question import Answer

NAMES = {"estimate": EPSILON, "gaussian": GAUSSIAN, "in_sample": IN_SAMPLE}
"""The metrics of the three estimates, by their names in the JSON."""


def as_json(answer: Answer, folder: Path) -> dict[str, Any]:
    """Return settings and figures by name; None stands for an interval without an upper end."""
    audited = audited_guarantee(answer.run.settings, answer.measurements)
    kind, _, domain = str(audited.settings["canary"]).partition("-")
    return {
        **audited.settings,
        "canary": kind,
        "domain": domain or None,
        "values": audited.values,
        "distance_over_clip": audited.figures[DISTANCE_OVER_CLIP].estimate.value,
        "epsilon": {
            **{name: _ends(audited, metric) for name, metric in NAMES.items()},
            **audited.theory,
        },
        "saturated": audited.saturated,
        "violated": audited.violated,
    }


def _ends(audited: AuditedGuarantee, metric: str) -> dict[str, float | None]:
    estimate, high = audited.figures[metric].estimate, audited.upper_end(metric)
    return {
        "value": estimate.value,
        "low": estimate.low,
        "high": high if math.isfinite(high) else None,
    }
