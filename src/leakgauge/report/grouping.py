"""Measurements grouped into the tests that made them, in the order in which they were written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leakgauge.core.checks import InputError
from leakgauge.results.measurements import ACCUMULATED, Measurement


@dataclass(frozen=True)
class Test:
    """One test: a game, a defense, the adversary's knowledge of it, and the adversary.

    Attributes:
        figures: the measurements by (metric, round).
    """

    __test__ = False  # pytest looks for classes of this name

    game: str
    defense: str
    knowledge: str
    adversary: str
    figures: Mapping[tuple[str, int | str], Measurement]

    @property
    def metrics(self) -> list[str]:
        """The metrics that were measured, in the order of the measurements."""
        return list(dict.fromkeys(metric for metric, _ in self.figures))

    @property
    def rounds(self) -> list[int]:
        """The single rounds, ascending."""
        return sorted({when for _, when in self.figures if isinstance(when, int)})

    def has(self, when: int | str) -> bool:
        """Return whether a round (or a sum of them) was scored."""
        return any(when == other for _, other in self.figures)

    def at(self, metric: str, when: int | str = ACCUMULATED) -> Measurement | None:
        """Return the measurement of ``metric`` in a round, or None where there is none."""
        return self.figures.get((metric, when))

    def single(self, metric: str) -> list[Measurement]:
        """Return the measurements of ``metric`` in each single round, by round."""
        each = (self.at(metric, when) for when in self.rounds)
        return [one for one in each if one is not None]

    def whole(self, metric: str) -> Measurement | None:
        """Return the accumulated measurement; where nothing was accumulated, the last round's.

        Which of them it is does not depend on the figures, so nothing is picked by its result.
        """
        return self.at(metric) or next(iter(self.single(metric)[::-1]), None)


def group_tests(measurements: Sequence[Measurement], *, without: Sequence[str] = ()) -> list[Test]:
    """Return the tests behind the measurements, in the order of their first measurement.

    Args:
        measurements: of one question in one run.
        without: metrics that are left out, such as those of the model.

    Raises:
        InputError: two measurements are the same figure of the same test.
    """
    grouped: dict[tuple[str, str, str, str], dict[tuple[str, int | str], Measurement]] = {}
    for one in measurements:
        if one.metric in without:
            continue
        key = (one.game, one.defense, one.knowledge, one.adversary)
        figures = grouped.setdefault(key, {})
        figure = (one.metric, one.round)
        if figure in figures:
            name = f"{one.metric}, round {one.round}, of {' / '.join(key)}"
            raise InputError(f"two measurements hold {name}; a report shows those of one run")
        figures[figure] = one
    return [Test(*key, figures) for key, figures in grouped.items()]
