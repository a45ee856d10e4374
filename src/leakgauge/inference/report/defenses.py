"""The defenses of a game beside one another: leakage against the model's utility."""

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
    "A low AUROC of a static adversary alone is no protection: an adversary that knows the defense "
    "may still infer the secret. An AUROC below 0.5 is a shift of features, not privacy."
)


@dataclass(frozen=True)
class InferenceDefenseRow:
    """One defense of a game.

    Attributes:
        number: its marker in the chart; 0 for no defense.
        defense: its name.
        utility: of the model that is trained under it; None where it was not measured.
        aurocs: the AUROC over all rounds by (knowledge, adversary).
        leading: those of them that the answer stands on.
    """

    number: int
    defense: str
    utility: Measurement | None
    aurocs: Mapping[tuple[str, str], Measurement]
    leading: Collection[tuple[str, str]] = ()

    @property
    def knowledge(self) -> str:
        """The knowledge that counts; without a defense only static adversaries exist."""
        return STATIC if self.defense == NONE else ADAPTIVE

    @property
    def worst(self) -> Measurement | None:
        """The AUROC of the adversary that knows the defense and that shadow data favour.

        The highest, where no shadow data compare the adversaries.
        """
        known = [self.aurocs[key] for key in self.leading if key[0] == self.knowledge]
        return max(known, key=lambda one: one.estimate.value, default=None)


@dataclass(frozen=True)
class Point:
    """One (defense, knowledge, adversary) of the chart.

    Attributes:
        mark: number of the defense and letter of the adversary.
        kind: knowledge of the adversary, or ``"none"`` without a defense.
        utility: of the model.
        leakage: what the adversary reaches.
    """

    mark: str
    kind: str
    utility: Estimate
    leakage: Estimate


@dataclass(frozen=True)
class DefenseTable:
    """The defenses of one game.

    Attributes:
        game: its name.
        adversaries: letter in the chart -> name; the letter is empty for a single adversary.
        rows: no defense first, where it was measured.
    """

    game: str
    adversaries: Mapping[str, str]
    rows: Sequence[InferenceDefenseRow]

    @property
    def points(self) -> list[Point]:
        """Every AUROC whose row has a figure of the model."""
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
        """How to speak of the model's figures; None where there are none."""
        return next((words_of(row.utility) for row in self.rows if row.utility is not None), None)

    @property
    def constants(self) -> list[float]:
        """The figures of the best constant answer."""
        return sorted({row.utility.chance for row in self.rows if row.utility is not None})

    @property
    def reading(self) -> str:
        """The rounds that the figures cover."""
        rounds = {one.round for row in self.rows for one in row.aurocs.values()}
        if rounds == {ACCUMULATED}:
            return "all rounds together"
        if rounds == {CHOSEN}:
            return "for each adversary the reading that shadow data favour"
        return "all rounds together; where nothing was accumulated, the last round"

    @property
    def undrawn(self) -> list[str]:
        """The defenses that the chart lacks, as the figure of their model is missing."""
        return [row.defense for row in self.rows if row.utility is None]


def defense_tables(
    tests: Sequence[Test], measurements: Sequence[Measurement]
) -> list[DefenseTable]:
    """Return one table per game that has a defense; none for a run without defenses."""
    utility = {(one.game, one.defense): one for one in utilities(measurements)}
    tables = []
    for game in dict.fromkeys(test.game for test in tests):
        aurocs = _aurocs(tests, game)
        defended = [name for name in aurocs if name != NONE]
        if not defended:
            continue
        leads = _leading(tests, game)
        rows = [
            InferenceDefenseRow(number, name, utility.get((game, name)), aurocs[name], leads[name])
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


def _leading(tests: Sequence[Test], game: str) -> dict[str, list[tuple[str, str]]]:
    leads: dict[str, list[tuple[str, str]]] = {}
    for test in tests:
        leads.setdefault(test.defense, [])
    for test in leading(tests):
        if test.game == game and test.whole("auroc") is not None:
            leads[test.defense].append((test.knowledge, test.adversary))
    return leads


def _lettered(names: Sequence[str]) -> dict[str, str]:
    if len(names) == 1:
        return {"": names[0]}
    last = len(ascii_lowercase)
    return {(ascii_lowercase[i] if i < last else f".{i + 1}"): n for i, n in enumerate(names)}
