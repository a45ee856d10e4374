"""Settings of a monitor, and the names of its entries; imports no torch."""

from collections.abc import Sequence
from dataclasses import dataclass

from leakgauge.core.checks import require, require_choice, require_count, require_positive
from leakgauge.tokens.words import CHECKPOINT, PAIRS

STEP, CHEAP, ALERT = "step", "cheap", "alert"

BOUND, IN_SAMPLE, PLACEBO = "information_nats", "in_sample", "placebo"
GAP, GAP_IN_SAMPLE, GAP_PLACEBO = "critic_gap", "gap_in_sample", "placebo_gap"
LIMIT, LIMITED = "limit_nats", "limited"
ESTIMATOR, TOKEN = "estimator", "token"

MEAN, SUM = "mean", "sum"
REDUCTIONS = (MEAN, SUM)
"""Reductions of a loss over the records of a batch."""

ADVICE = "advice"

AUTO = "auto"
"""Pairs at a checkpoint if the loop shows its records and its loss, else the loop's own."""

BATCHES = 80
"""Number of batches of recent records kept for estimates at checkpoints.

An estimate needs 40 batches of different records, and loops may draw a record twice."""

LINEAR, LINEAR_PLACEBO = "linear_gaussian", "linear_gaussian_placebo"
UNSEEN, LINEAR_UNSEEN = "unseen_below_nats", "linear_gaussian_unseen_below_nats"


@dataclass(frozen=True, kw_only=True)
class MonitorSettings:
    """Settings of a monitor: the arguments of ``Monitor`` with the same names and meaning.

    Raises:
        InputError: a value is out of its range.
    """

    every: int = 10
    checkpoints: int | Sequence[int] = 500
    pairs: str = AUTO
    records: int = 16
    gather: int = 2
    window: int = 1000
    width: int = 256
    reduction: str = MEAN
    waiting: int = 1
    wait: float | None = None
    alert: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("every", "records", "gather", "window", "width", "waiting"):
            require_count(getattr(self, name), name)
        require_choice(self.pairs, "pairs", (AUTO, *PAIRS))
        require_choice(self.reduction, "reduction", REDUCTIONS)
        if self.wait is not None:
            require(self.wait >= 0, f"wait is {self.wait:g}; expected seconds, 0 or more")
        if self.alert is not None:
            require_positive(self.alert, "alert")
        steps = [self.checkpoints] if isinstance(self.checkpoints, int) else self.checkpoints
        for step in steps:
            whole = isinstance(step, int) and not isinstance(step, bool)
            require(whole and step >= 0, f"a checkpoint is {step!r}; expected a step, 0 or more")

    @property
    def estimates(self) -> bool:
        """Whether any step has an estimate."""
        return bool(self.checkpoints)

    @property
    def gathers(self) -> bool:
        """Whether pairs of the loop are gathered."""
        return self.estimates and self.pairs != CHECKPOINT

    def is_cheap(self, step: int) -> bool:
        """Return whether the cheap measure is due at a step."""
        return step % self.every == 0

    def is_gathered(self, step: int) -> bool:
        """Return whether a step gives a pair of the stream."""
        return self.gathers and step % self.gather == 0

    def is_recorded(self, step: int) -> bool:
        """Return whether the records of a step are read from its pass.

        >>> watch = MonitorSettings(checkpoints=500)
        >>> [step for step in range(1200) if watch.is_recorded(step)] == [
        ...     *range(421, 501), *range(921, 1001)]
        True
        """
        if not self.estimates or self.pairs != AUTO:
            return False
        if isinstance(self.checkpoints, int):
            return (-step % self.checkpoints if step else self.checkpoints) < BATCHES
        return any(0 <= one - step < BATCHES for one in self.checkpoints)

    def is_checkpoint(self, step: int) -> bool:
        """Return whether an estimate is due at a step.

        >>> [step for step in range(1200) if MonitorSettings(checkpoints=500).is_checkpoint(step)]
        [500, 1000]
        """
        if isinstance(self.checkpoints, int):
            return step > 0 and self.checkpoints > 0 and step % self.checkpoints == 0
        return step in self.checkpoints
