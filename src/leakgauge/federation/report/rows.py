"""The measurements of a run by question, round and client."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leakgauge.federation.metrics import LOSS, PROPERTY_AUROC, PSNR
from leakgauge.federation.words import ASKS, MEMBERSHIP, PROPERTY, RECONSTRUCTION
from leakgauge.results.measurements import Measurement
from leakgauge.results.scores import AUROC

HEADLINES: Mapping[str, tuple[str, ...]] = {
    RECONSTRUCTION: (PSNR, LOSS),
    MEMBERSHIP: (AUROC,),
    PROPERTY: (PROPERTY_AUROC,),
}
"""The figures that the report shows of each question; the first that was measured."""


@dataclass(frozen=True)
class Table:
    """One question's figure by round and client.

    Attributes:
        ask: the question.
        metric: of the figures.
        mean: over all updates.
        cells: by round and client.
        extra: other figures over all updates, by metric.
    """

    ask: str
    metric: str
    mean: Measurement
    cells: Mapping[tuple[int, str], Measurement]
    extra: Mapping[str, Measurement]

    @property
    def rounds(self) -> list[int]:
        """The rounds, ascending."""
        return sorted({number for number, _ in self.cells})

    @property
    def clients(self) -> list[str]:
        """The clients, in the order of the measurements."""
        return list(dict.fromkeys(client for _, client in self.cells))

    @property
    def highest(self) -> tuple[tuple[int, str], Measurement]:
        """The update with the highest figure."""
        return max(self.cells.items(), key=lambda one: one[1].estimate.value)


def tables(measurements: Sequence[Measurement]) -> list[Table]:
    """Return the table of each question that was measured, in their order."""
    found = []
    for ask in ASKS:
        mine = [one for one in measurements if one.game == ask]
        over_all = {one.metric: one for one in mine if not isinstance(one.round, int)}
        metric = next((name for name in HEADLINES[ask] if name in over_all), None)
        if metric is None:
            continue
        cells = {
            (one.round, one.metric.partition(": ")[2]): one
            for one in mine
            if isinstance(one.round, int) and one.metric.partition(": ")[0] == metric
        }
        extra = {name: one for name, one in over_all.items() if name != metric}
        found.append(Table(ask, metric, over_all[metric], cells, extra))
    return found
