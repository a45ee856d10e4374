"""What an attack said, and how it is kept."""

from dataclasses import dataclass

from leakgauge.membership.adversaries.adversary import Floats
from leakgauge.runs.stages import Kept


@dataclass(frozen=True, eq=False)
class Judged:
    """What one attack said.

    Attributes:
        targets: log odds of membership of the targets ``[n]``, members first.
        validation: likewise of the validation records; a choice looks at them.
        seconds: computing time.
        details: repr of the attack.
    """

    targets: Floats
    validation: Floats
    seconds: float
    details: str


def encoded(judged: Judged) -> Kept:
    """Return it as arrays and plain values."""
    arrays = {"targets": judged.targets, "validation": judged.validation}
    return arrays, {"seconds": judged.seconds, "details": judged.details}


def decoded(kept: Kept) -> Judged:
    """Return what ``encoded`` made plain."""
    arrays, about = kept
    return Judged(arrays["targets"], arrays["validation"], about["seconds"], about["details"])
