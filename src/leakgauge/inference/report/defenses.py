"""Comparison of the defenses of a game: leakage against the model's utility."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_lowercase

from leakgauge.core.knowledge import ADAPTIVE, STATIC
from leakgauge.inference.report.titles import leading
from leakgauge.report.grouping import Test
from leakgauge.report.utility import Words, utilities, words_of
from leakgauge.results.measurements import ACCUMULATED, CHOSEN, Estimate, Measurement
from leakgauge.runs.spec import NONE

CAUTION = (
    "A low AUROC of a static adversary does not show protection: an adversary that knows the "
    "defense may still infer the secret. An AUROC below 0.5 is a shift of features, not privacy."
)


@dataclass(frozen=True)
class InferenceDefenseRow:
    """One defense of a game.

    Attributes:
        number: marker in the chart; 0 without a defense.
        defense: name of the defense.
        utility: utility of the model trained with it; None if not measured.
        aurocs: AUROC over all rounds by (knowledge, adversary).
        leading: keys of the figures that support the answer.
    """

    number: int
    defense: str
    utility: Measurement | None
    aurocs: Mapping[tuple[str, str], Measurement]
    leading: Collection[tuple[str, str]] = ()

    @property
    def knowledge(self) -> str:
        """Adaptive; static without a defense."""
        return STATIC if self.defense == NONE else ADAPTIVE

    @property
    def informed(self) -> Measurement | None:
        """AUROC of the informed adversary that shadow data favour.

        It is the highest one if shadow data do not compare the adversaries.
        """
        return self._highest(self.knowledge)

    @property
    def worst(self) -> Measurement | None:
        """AUROC of the stronger one of ``informed`` and of its unaware counterpart."""
        return self._highest(STATIC, ADAPTIVE)

    def _highest(self, *knowledge: str) -> Measurement | None:
        known = [self.aurocs[key] for key in self.leading if key[0] in knowledge]
        return max(known, key=lambda one: one.estimate.value, default=None)


@dataclass(frozen=True)
class Point:
    """A point of the chart: one defense, knowledge and adversary.

    Attributes:
        mark: number of the defense and letter of the adversary.
        kind: knowledge of the adversary, or ``"none"`` without a defense.
        utility: utility of the model.
        leakage: figure of the adversary.
    """

    mark: str
    kind: str
    utility: Estimate
    leakage: Estimate


@dataclass(frozen=True)
class DefenseTable:
    """The defenses of one game.

    Attributes:
        game: name of the game.
        adversaries: names by letter in the chart; the letter is empty for a single adversary.
        rows: rows of the defenses; the undefended one, if measured, is first.
    """

    game: str
    adversaries: Mapping[str, str]
    rows: Sequence[InferenceDefenseRow]

    @property
    def points(self) -> list[Point]:
        """Points of all figures in rows with a measured utility."""
        letters = {name: letter for letter, name in self.adversaries.items()}
        return [
            Point(
                f"{row.number}{letters[adversary]}",
                NONE if row.defense == NONE else knowledge,
                row.utility.estimate,
                one.estimate,
            )
            for row in self.rows
            if row.utility is not None
            for (knowledge, adversary), one in row.aurocs.items()
        ]

    @property
    def words(self) -> Words | None:
        """Words for the model's figures, if there are any."""
        return next((words_of(row.utility) for row in self.rows if row.utility is not None), None)

    @property
    def constants(self) -> list[float]:
        """Utilities of the best constant answers."""
        return sorted({row.utility.chance for row in self.rows if row.utility is not None})

    @property
    def reading(self) -> str:
        """Rounds that the figures cover, in words."""
        rounds = {one.round for row in self.rows for one in row.aurocs.values()}
        if rounds == {ACCUMULATED}:
            return "all rounds together"
        if rounds == {CHOSEN}:
            return "for each adversary the reading that shadow data favour"
        return "all rounds together; without a sum, the last round"

    @property
    def undrawn(self) -> list[str]:
        """Defenses that are not in the chart because the figure of their model is missing."""
        return [row.defense for row in self.rows if row.utility is None]


def defense_tables(
    tests: Sequence[Test], measurements: Sequence[Measurement]
) -> list[DefenseTable]:
    """Return one table per game with a defense; empty without defenses."""
    utility = {(one.game, one.defense): one for one in utilities(measurements)}
    tables = []
    for game in dict.fromkeys(test.game for test in tests):
        aurocs = _aurocs(tests, game)
        defended = [name for name in aurocs if name != NONE]
        if not defended:
            continue
        leads = {name: list(each) for name, each in _aurocs(leading(tests), game).items()}
        rows = [
            InferenceDefenseRow(
                number, name, utility.get((game, name)), aurocs[name], leads.get(name, ())
            )
            for number, name in enumerate([NONE, *defended])
            if name in aurocs
        ]
        names = list(dict.fromkeys(name for row in rows for _, name in row.aurocs))
        tables.append(DefenseTable(game, _lettered(names), rows))
    return tables


def _aurocs(tests: Sequence[Test], game: str) -> dict[str, dict[tuple[str, str], Measurement]]:
    aurocs: dict[str, dict[tuple[str, str], Measurement]] = {}
    for test in tests:
        one = test.whole("auroc")
        if test.game == game and one is not None:
            aurocs.setdefault(test.defense, {})[test.knowledge, test.adversary] = one
    return aurocs


def _lettered(names: Sequence[str]) -> dict[str, str]:
    if len(names) == 1:
        return {"": names[0]}
    last = len(ascii_lowercase)
    return {(ascii_lowercase[i] if i < last else f".{i + 1}"): n for i, n in enumerate(names)}
