"""The gauge of an AUROC between guessing and always right."""

from leakgauge.report.levels import CLEAR_AUROC, STRONG_AUROC
from leakgauge.results.measurements import Estimate

_ENDS = (0.4, 1.0)
"""The AUROCs at the two ends of a gauge."""


def gauge(auroc: Estimate, chance: float) -> dict[str, str]:
    """Return the CSS lengths of a gauge by name, for the macro ``gauge``.

    >>> gauge(Estimate(0.7, 0.6, 0.8, 100), 0.5)["value"]
    '50.00%'
    """
    return {
        "from": _along(min(chance, auroc.value)),
        "to": _along(max(chance, auroc.value)),
        "low": _along(auroc.low),
        "high": _along(auroc.high),
        "value": _along(auroc.value),
        "chance": _along(chance),
        "clear": _along(CLEAR_AUROC),
        "strong": _along(STRONG_AUROC),
    }


def _along(value: float) -> str:
    """The place of an AUROC, as a CSS length."""
    low, high = _ENDS
    return f"{100 * min(1.0, max(0.0, (value - low) / (high - low))):.2f}%"
