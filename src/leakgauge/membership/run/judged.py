"""What an attack said, and how it is kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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


def encoded(judged: Sequence[Judged]) -> Kept:
    """Return what an attack said of each participant as arrays and plain values."""
    arrays: dict[str, Floats] = {}
    about: dict[str, dict[str, Any]] = {}
    for number, one in enumerate(judged):
        arrays |= {f"targets {number}": one.targets, f"validation {number}": one.validation}
        about[str(number)] = {"seconds": one.seconds, "details": one.details}
    return arrays, about


def decoded(kept: Kept) -> list[Judged]:
    """Return what ``encoded`` made plain."""
    arrays, about = kept
    return [
        Judged(
            arrays[f"targets {number}"],
            arrays[f"validation {number}"],
            one["seconds"],
            one["details"],
        )
        for number, one in about.items()
    ]
