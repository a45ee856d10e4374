"""An inversion method of another package: one file, one entry point or ``MODULE:NAME``."""

from dataclasses import dataclass
from typing import ClassVar

from leakgauge.core.types import Task
from leakgauge.inversion.methods import Method, Traits
from leakgauge.inversion.observed import AttackOptions, Knowledge, ObservedUpdates, Reconstruction


@dataclass(frozen=True)
class Middle(Method):
    """Guesses that every value is at the same place between its limits.

    Args:
        place: share of the way from the lowest to the highest value.
    """

    place: float = 0.5

    traits: ClassVar[Traits] = Traits(does="guesses the middle of each value.", uses_labels=False)

    def rebuild(
        self, task: Task, seen: ObservedUpdates, known: Knowledge, options: AttackOptions
    ) -> Reconstruction:
        """Return the same record for each record behind each update."""
        record = known.low + self.place * (known.high - known.low)
        targets = len(next(iter(seen.grads.values())))
        return Reconstruction.direct(record.expand(targets, *seen.shape).clone())
