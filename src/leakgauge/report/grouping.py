"""Measurements grouped by the test that produced them, in the order of the file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from leakgauge.core.checks import InputError
from leakgauge.results.measurements import ACCUMULATED, CHOSEN, Measurement, rounds_of

UNDEFENDED = "none"
"""The name of no defense in measurements."""


@dataclass(frozen=True)
class Test:
    """One test: a game, a defense, the adversary's knowledge of it, and the adversary.

    Attributes:
        figures: the measurements by (metric, round).
        values: the AUROC of each value of the secret against all others, by name; where measured.
    """

    __test__ = False  # pytest looks for classes of this name

    game: str
    defense: str
    knowledge: str
    adversary: str
    figures: Mapping[tuple[str, int | str], Measurement]
    values: Mapping[str, Measurement] = field(default_factory=dict)

    @property
    def who(self) -> str:
        """The adversary and the defense in a few words.

        >>> Test("property", "sign", "adaptive", "forest", {}).who
        'forest, sign, adaptive'
        """
        undefended = self.defense == UNDEFENDED
        return (
            self.adversary if undefended else f"{self.adversary}, {self.defense}, {self.knowledge}"
        )

    @property
    def metrics(self) -> list[str]:
        """The measured metrics, in the order of the measurements."""
        return list(dict.fromkeys(metric for metric, _ in self.figures))

    @property
    def rounds(self) -> list[int]:
        """The single rounds, ascending."""
        return sorted({when for _, when in self.figures if isinstance(when, int)})

    @property
    def first(self) -> list[int | str]:
        """The sums of the first rounds, by their number."""
        sums = {when: rounds_of(when) or 0 for _, when in self.figures}
        return sorted((when for when, count in sums.items() if count), key=lambda one: sums[one])

    def has(self, when: int | str) -> bool:
        """Return whether figures of a round (or of a sum of rounds) exist."""
        return any(when == other for _, other in self.figures)

    def at(self, metric: str, when: int | str = ACCUMULATED) -> Measurement | None:
        """Return the measurement of ``metric`` in a round; None without one."""
        return self.figures.get((metric, when))

    def single(self, metric: str) -> list[Measurement]:
        """Return the measurements of ``metric`` in each single round, by round."""
        each = (self.at(metric, when) for when in self.rounds)
        return [one for one in each if one is not None]

    def added_up(self, metric: str) -> list[tuple[int, Measurement]]:
        """Return the plain sums of the first rounds, each with their number, up to all rounds.

        A single round is its own sum. Empty if no sum between one and all rounds was measured.
        """
        if not self.first or not self.rounds:
            return []
        sums = {1: self.at(metric, 1), self.rounds[-1]: self.at(metric)}
        sums |= {rounds_of(one) or 0: self.at(metric, one) for one in self.first}
        return [
            (count, one)
            for count, one in sorted(sums.items(), key=itemgetter(0))
            if one is not None
        ]

    def whole(self, metric: str) -> Measurement | None:
        """Return the measurement over all rounds; without one, that of the last round.

        It is the reading that shadow data favour, or else the plain sum. The choice does
        not depend on the figures, so it does not select a favourable result.
        """
        whole = self.at(metric, CHOSEN) or self.at(metric, ACCUMULATED)
        return whole or next(iter(self.single(metric)[::-1]), None)


def group_tests(measurements: Sequence[Measurement], *, without: Sequence[str] = ()) -> list[Test]:
    """Return the tests that produced the measurements, in the order of their first one.

    Args:
        measurements: measurements of one question in one run.
        without: metrics to leave out, such as those of the model.

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
