"""What each defense of a run buys, and what it costs: privacy against utility."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_lowercase

from leakgauge.inference.report.cells import Cell, utility
from leakgauge.inference.report.verdict import level_of
from leakgauge.report.wording import interval, number, percent
from leakgauge.results.measurements import ACCUMULATED, Estimate, Measurement

NONE, STATIC, ADAPTIVE = "none", "static", "adaptive"

CAUTION = (
    "A low AUROC of a static adversary alone is no protection: an adversary that knows the defense "
    "may still tell. An AUROC below 0.5 is a shift of features, not privacy."
)


@dataclass(frozen=True)
class Row:
    """One defense of a game.

    Attributes:
        number: its marker in the chart; 0 for no defense.
        accuracy: the model's, trained under it.
        found: the AUROC (``Cell.whole``) by (knowledge, adversary).
    """

    number: int
    defense: str
    accuracy: Measurement | None
    found: Mapping[tuple[str, str], Measurement]

    @property
    def knowledge(self) -> str:
        """Of the adversary that counts: where there is no defense, there is nothing to know."""
        return STATIC if self.defense == NONE else ADAPTIVE

    @property
    def worst(self) -> Measurement | None:
        """The highest AUROC over the adversaries that know the defense."""
        found = [one for (knowledge, _), one in self.found.items() if knowledge == self.knowledge]
        return max(found, key=lambda record: record.estimate.value, default=None)


@dataclass(frozen=True)
class Point:
    """One (defense, knowledge, adversary) of the chart."""

    mark: str
    kind: str
    accuracy: Estimate
    auroc: Estimate


@dataclass(frozen=True)
class Panel:
    """The defenses of one game, side by side.

    Attributes:
        adversaries: letter in the chart -> name; the letter is empty for a single adversary.
        rows: no defense first, where it was measured.
    """

    game: str
    adversaries: Mapping[str, str]
    rows: Sequence[Row]

    @property
    def points(self) -> list[Point]:
        """Everything with both figures."""
        letters = {name: letter for letter, name in self.adversaries.items()}
        return [
            Point(
                f"{row.number}{letters[adversary]}",
                NONE if row.defense == NONE else knowledge,
                row.accuracy.estimate,
                record.estimate,
            )
            for row in self.rows
            if row.accuracy is not None
            for (knowledge, adversary), record in row.found.items()
        ]

    @property
    def majorities(self) -> list[float]:
        """The accuracy of always naming the most frequent class."""
        return sorted({row.accuracy.chance for row in self.rows if row.accuracy is not None})

    @property
    def reading(self) -> str:
        """Which rounds the figures are of."""
        rounds = {record.round for row in self.rows for record in row.found.values()}
        if rounds == {ACCUMULATED}:
            return "all rounds together"
        return "all rounds together; where nothing was accumulated, the last round"

    @property
    def undrawn(self) -> list[str]:
        """The defenses that have no place in the chart, as their accuracy is missing."""
        return [row.defense for row in self.rows if row.accuracy is None]


def panels(tests: Sequence[Cell], records: Sequence[Measurement]) -> list[Panel]:
    """One panel a game that has a defense; none for a run without defenses."""
    accuracy = {(record.game, record.defense): record for record in utility(records)}
    made = []
    for game in dict.fromkeys(test.game for test in tests):
        found: dict[str, dict[tuple[str, str], Measurement]] = {}
        for test in tests:
            record = test.whole("auroc")
            if test.game == game and record is not None:
                found.setdefault(test.defense, {})[test.knowledge, test.adversary] = record
        defended = [name for name in found if name != NONE]
        if not defended:
            continue
        rows = [
            Row(i, name, accuracy.get((game, name)), found[name])
            for i, name in enumerate([NONE, *defended])
            if name in found
        ]
        names = list(dict.fromkeys(name for row in rows for _, name in row.found))
        made.append(Panel(game, _lettered(names), rows))
    return made


def answer(panel: Panel) -> str:
    """Which defense lowers the AUROC of the strongest adaptive adversary, and at which cost."""
    out = {row.defense: why for row in panel.rows if (why := _left_out(panel, row))}
    rows = [row for row in panel.rows if row.defense != NONE and row.defense not in out]
    if not rows:
        return f"This run does not show that any defense protects.{_told(out)}"
    best = min(rows, key=_height)
    bare = next((r for r in panel.rows if r.defense == NONE and r.defense not in out), None)
    if bare is None:
        said = (
            f"The AUROC of the strongest adaptive adversary shown is lowest under "
            f"`{best.defense}`: {_auroc(best)}; there is no undefended test to compare it with."
        )
    elif _height(best) >= _height(bare):
        said = (
            f"No defense lowers the AUROC of the strongest adaptive adversary shown: it is "
            f"{_auroc(bare)} without a defense and at best {_auroc(best)} under `{best.defense}`"
            f"{_cost(bare, best)}."
        )
    else:
        said = (
            f"{_how(bare, best)} the AUROC of the strongest adaptive adversary shown: from "
            f"{_auroc(bare)} without a defense to {_auroc(best)}{_cost(bare, best)}."
        )
    alike = [row for row in rows if row is not best and not _clearly(best, row)]
    if alike:
        names = ", ".join(f"`{row.defense}`" for row in alike)
        said += f" Its interval overlaps with that of {names}: between these it does not decide."
    return said + _told(out)


def chosen(panel: Panel) -> str:
    """How the figures of the answer were chosen."""
    of = f" over the {len(panel.adversaries)} adversaries" if len(panel.adversaries) > 1 else ""
    return (
        f"How this was chosen: for each defense the worst case{of} is shown, the highest AUROC of "
        "an adaptive adversary (without a defense there is nothing to know, and the highest of all "
        "stands). Of these the lowest was taken. Both were chosen by the figures shown, which the "
        "intervals do not cover. A stronger adversary may find more."
    )


def _left_out(panel: Panel, row: Row) -> str:
    """Why a defense cannot be compared; empty where it can."""
    met = {name for knowledge, name in row.found if knowledge == row.knowledge}
    if not met:
        return "no adaptive adversary was tried" if row.defense != NONE else "not measured"
    if len(met) < len(panel.adversaries):
        return "not every adversary was tried"
    if row.worst is not None and level_of(row.worst.estimate, row.worst.chance) == "below":
        return "its adversaries did worse than guessing, so the test does not count"
    return ""


def _told(out: Mapping[str, str]) -> str:
    if not out:
        return ""
    return " Not compared: " + "; ".join(f"`{name}` ({why})" for name, why in out.items()) + "."


def _how(bare: Row, best: Row) -> str:
    if _clearly(best, bare):
        return f"`{best.defense}` most lowers"
    return f"No defense clearly (the intervals overlap), and `{best.defense}` most, lowers"


def _cost(bare: Row, best: Row) -> str:
    if bare.accuracy is None or best.accuracy is None:
        return "; what it costs in test accuracy was not measured"
    before, after = bare.accuracy.estimate, best.accuracy.estimate
    lost = round(100 * (before.value - after.value), 1)
    cost = f"a cost of {lost:.1f} percentage points" if lost > 0 else "no cost"
    if lost > 0 and not _apart(after, before):
        cost += ", within the intervals"
    if after.low <= best.accuracy.chance:
        cost += ", and not shown to be more than always naming the most frequent class gives"
    return (
        f"; the model's test accuracy goes from {_share(before)} to {_share(after)}, which is "
        f"{cost}"
    )


def _clearly(lower: Row, upper: Row) -> bool:
    """Whether the intervals of the worst cases lie apart."""
    if lower.worst is None or upper.worst is None:
        return False
    return _apart(lower.worst.estimate, upper.worst.estimate)


def _apart(lower: Estimate, upper: Estimate) -> bool:
    return lower.high < upper.low


def _height(row: Row) -> float:
    return row.worst.estimate.value if row.worst is not None else 1.0


def _auroc(row: Row) -> str:
    if row.worst is None:
        return "not measured"
    estimate = row.worst.estimate
    return f"{number(estimate.value)} ({interval(estimate)}; {row.worst.adversary})"


def _share(estimate: Estimate) -> str:
    ends = f"{percent(estimate.low)} to {percent(estimate.high)}"
    return f"{percent(estimate.value)} ({ends})"


def _lettered(names: Sequence[str]) -> dict[str, str]:
    if len(names) == 1:
        return {"": names[0]}
    last = len(ascii_lowercase)
    return {(ascii_lowercase[i] if i < last else f".{i + 1}"): n for i, n in enumerate(names)}
