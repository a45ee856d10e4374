"""Records grouped into the tests that made them, in the order in which they were written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leakgauge.core.checks import InputError
from leakgauge.inference.metrics import LEAKAGE
from leakgauge.results.measurements import ACCUMULATED, Measurement
from leakgauge.results.scores import ACCURACY


@dataclass(frozen=True)
class Cell:
    """One test: a game, a defense, what the adversary knew of it, and the adversary.

    Attributes:
        figures: the records by (metric, round).
    """

    game: str
    defense: str
    knowledge: str
    adversary: str
    figures: Mapping[tuple[str, int | str], Measurement]

    @property
    def title(self) -> str:
        """The test in a few words.

        >>> Cell("property", "none", "static", "forest", {}).title
        'Property inference, forest adversary'
        """
        words = [f"{self.game.capitalize()} inference", f"{self.adversary} adversary"]
        if self.defense != "none":
            words.append(f"defense {self.defense}")
            words.append(f"{self.knowledge} knowledge")
        return ", ".join(words)

    @property
    def metrics(self) -> list[str]:
        """The metrics that were measured, the known ones first."""
        found = dict.fromkeys(metric for metric, _ in self.figures)
        return [m for m in LEAKAGE if m in found] + [m for m in found if m not in LEAKAGE]

    @property
    def rounds(self) -> list[int]:
        """The single rounds, ascending."""
        return sorted({when for _, when in self.figures if isinstance(when, int)})

    def has(self, when: int | str) -> bool:
        """Whether a round (or a sum of them) was scored."""
        return any(when == found for _, found in self.figures)

    def at(self, metric: str, when: int | str) -> Measurement | None:
        """The record of ``metric`` in a round, or None where there is none."""
        return self.figures.get((metric, when))

    def single(self, metric: str) -> list[Measurement]:
        """The records of ``metric`` in each single round, by round."""
        found = (self.at(metric, when) for when in self.rounds)
        return [record for record in found if record is not None]

    def used(self, *, step: int = 1) -> dict[str, str]:
        """What was used, exactly; round by round where it differs, as an automatic choice may.

        Args:
            step: every how manieth round is told.
        """
        whole = self.whole("auroc")
        said = dict(whole.details) if whole is not None else {}
        rounds = {record.round: dict(record.details) for record in self.single("auroc")}
        if all(details == said for details in rounds.values()):
            return said
        return said | {
            f"round {when}": ", ".join(details.values())
            for when, details in [*rounds.items()][::step]
            if details
        }

    def whole(self, metric: str) -> Measurement | None:
        """The accumulated record; where nothing was accumulated, the last round's.

        Which of them it is does not depend on the figures, so nothing is picked by its result.
        """
        return self.at(metric, ACCUMULATED) or next(iter(self.single(metric)[::-1]), None)


def cells(records: Sequence[Measurement]) -> list[Cell]:
    """The tests behind the records, in the order of their first record.

    Raises:
        InputError: two records are the same figure of the same test.
    """
    grouped: dict[tuple[str, str, str, str], dict[tuple[str, int | str], Measurement]] = {}
    for record in records:
        if record.metric == ACCURACY:
            continue
        key = (record.game, record.defense, record.knowledge, record.adversary)
        figures = grouped.setdefault(key, {})
        figure = (record.metric, record.round)
        if figure in figures:
            name = f"{record.metric}, round {record.round}, of {' / '.join(key)}"
            raise InputError(f"two records hold {name}; a report shows the records of one run")
        figures[figure] = record
    return [Cell(*key, figures) for key, figures in grouped.items()]


def utility(records: Sequence[Measurement]) -> list[Measurement]:
    """The trained model's accuracy: the last record of each game and defense."""
    found: dict[tuple[str, str], Measurement] = {}
    for record in records:
        if record.metric == ACCURACY:
            found[record.game, record.defense] = record
    return list(found.values())
