"""A noise schedule proposed from the curve of the bound."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from leakgauge.report.levels import LEAKS
from leakgauge.report.section import Level
from leakgauge.results.measurements import Estimate
from leakgauge.tokens.metrics import INFORMATION
from leakgauge.tokens.report.rows import Curve

LEAST = 0.1
"""Of the largest multiplier, for a phase in which nothing was found: another attack may."""

NO_GUARANTEE = (
    "The schedule is advice from one critic's lower bounds. It is no guarantee: differential "
    "privacy is accounted from the noise of every step, and a bound near 0 is no proof that a "
    "phase leaks nothing."
)


@dataclass(frozen=True)
class Phase:
    """A part of the training, and how much noise it would get.

    Attributes:
        start: the checkpoint at which it begins, in sub-epochs.
        end: the checkpoint at which it ends; None for the rest of the training.
        multiplier: of the noise, 1 where the bound is largest.
        bound: at its start.
    """

    start: int
    end: int | None
    multiplier: float
    bound: Estimate

    @property
    def title(self) -> str:
        """Its sub-epochs.

        >>> Phase(5, None, 1.0, Estimate(1.0, 0.5, 1.5, 10)).title
        'from 5'
        """
        return f"from {self.start}" if self.end is None else f"{self.start} to {self.end}"


def schedule(curve: Curve | None, level: Level) -> list[Phase]:
    """Return a multiplier of the noise for each phase, proportional to the bound at its start.

    Args:
        curve: of the largest bound.
        level: of that bound; without a leak nothing is proposed.

    References:
        Privacy Tokens, section 4.2.2, which proposes noise by the stage of the training as future
        work, and no numbers.
    """
    if curve is None or level not in LEAKS or len(curve.steps) < 2:
        return []
    bounds = {step: curve.figures[INFORMATION][step].estimate for step in curve.steps}
    largest = max(one.value for one in bounds.values())
    ends: Sequence[int | None] = [end for _, end in pairwise(curve.steps)]
    return [
        Phase(step, end, max(LEAST, bounds[step].value / largest), bounds[step])
        for step, end in zip(curve.steps, [*ends, None], strict=True)
    ]
