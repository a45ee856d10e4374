"""The defense that lowers leakage most, and its cost in utility, in sentences."""

from leakgauge.inference.catalog import PANEL
from leakgauge.inference.report.defenses import DefenseTable, InferenceDefenseRow
from leakgauge.report.levels import level_of
from leakgauge.report.section import DefenseEffect
from leakgauge.report.utility import Words, words_of
from leakgauge.report.wording import interval, number
from leakgauge.results.measurements import Estimate
from leakgauge.runs.spec import NONE


def answer(table: DefenseTable) -> str:
    """Return a sentence about the defense with the lowest worst-case AUROC, and its cost."""
    out = "; ".join(
        f"`{row.defense}` ({why})" for row in table.rows if (why := _why_left_out(table, row))
    )
    not_compared = f" Not compared: {out}." if out else ""
    best, bare = _best(table), next(iter(_comparable(table, defended=False)), None)
    if not _ranks(table):
        return (
            f"A single adversary ({next(iter(table.adversaries.values()))}) cannot rank defenses: "
            "another one may break the defense that stops it. Leave out --adversary to rank them "
            "with a panel of adversaries."
        )
    if best is None:
        return f"This run does not show that any defense protects.{not_compared}"
    if bare is None:
        text = (
            f"The AUROC of the strongest adversary is lowest under `{best.defense}`: "
            f"{_auroc(best)}; an undefended test for comparison is missing."
        )
    elif _height(best) >= _height(bare):
        text = (
            f"No defense lowers the AUROC of the strongest adversary: it is "
            f"{_auroc(bare)} without a defense and at best {_auroc(best)} under `{best.defense}`"
            f"{_cost(bare, best)}."
        )
    else:
        doubt = "" if _clearly(best, bare) else ". The intervals overlap, so this may be chance"
        text = (
            f"`{best.defense}` most lowers the AUROC of the strongest adversary: from "
            f"{_auroc(bare)} without a defense to {_auroc(best)}{doubt}{_cost(bare, best)}."
        )
    return text + _alike(table, best) + not_compared


def effect(table: DefenseTable) -> DefenseEffect | None:
    """Return the effect of the best defense; None if no defense can be compared."""
    best = _best(table)
    return None if best is None or not _ranks(table) else DefenseEffect(best.defense, answer(table))


def how_chosen(table: DefenseTable) -> str:
    """Return how the figures of ``answer`` were chosen."""
    if not _ranks(table):
        return ""
    worst = "the highest AUROC, adaptive or static"
    if PANEL in table.adversaries.values():
        worst = "the stronger of two: the adaptive and the static adversary that shadow data favour"
    return (
        "How this was chosen: each defense is represented by its worst case over the "
        f"{len(table.adversaries)} adversaries, {worst}. The defense with the lowest of these is "
        "named. Both choices look at the figures, which the intervals do not cover. A stronger "
        "adversary may find more."
    )


def _ranks(table: DefenseTable) -> bool:
    """Return whether several adversaries were tried, which a ranking needs."""
    return len(table.adversaries) > 1


def _comparable(table: DefenseTable, *, defended: bool) -> list[InferenceDefenseRow]:
    rows = [row for row in table.rows if (row.defense != NONE) == defended]
    return [row for row in rows if not _why_left_out(table, row)]


def _best(table: DefenseTable) -> InferenceDefenseRow | None:
    return min(_comparable(table, defended=True), key=_height, default=None)


def _alike(table: DefenseTable, best: InferenceDefenseRow) -> str:
    others = [row for row in _comparable(table, defended=True) if row is not best]
    names = ", ".join(f"`{row.defense}`" for row in others if not _clearly(best, row))
    if not names:
        return ""
    return f" Its interval overlaps with that of {names}: the run does not decide between these."


def _why_left_out(table: DefenseTable, row: InferenceDefenseRow) -> str:
    tried = {name for knowledge, name in row.aurocs if knowledge == row.knowledge}
    if not tried:
        return "no adaptive adversary was tried" if row.defense != NONE else "not measured"
    # The panel chooses others without a defense than with one; its figure stands for them.
    if PANEL not in tried and len(tried) < len(table.adversaries):
        return "not every adversary was tried"
    one = row.informed
    if one is not None and level_of(one.estimate, one.chance) == "below":
        return "its adversaries did worse than guessing, so the test does not count"
    return ""


def _cost(bare: InferenceDefenseRow, best: InferenceDefenseRow) -> str:
    if bare.utility is None or best.utility is None:
        return "; what it costs in utility was not measured"
    before, after, words = bare.utility.estimate, best.utility.estimate, words_of(best.utility)
    lost = words.loss(before.value - after.value)
    cost = f"a cost of {lost}" if lost else "no cost"
    if lost and not after.high < before.low:
        cost += ", within the intervals"
    if after.low <= best.utility.chance:
        cost += f", and the model does not provably beat always {words.constant}"
    return (
        f"; the model's test {words.name} changes from {_with_ends(before, words)} to "
        f"{_with_ends(after, words)}, which is {cost}"
    )


def _clearly(lower: InferenceDefenseRow, upper: InferenceDefenseRow) -> bool:
    """Return whether the intervals of the worst cases are disjoint."""
    if lower.worst is None or upper.worst is None:
        return False
    return lower.worst.estimate.high < upper.worst.estimate.low


def _height(row: InferenceDefenseRow) -> float:
    return row.worst.estimate.value if row.worst is not None else 1.0


def _auroc(row: InferenceDefenseRow) -> str:
    if row.worst is None:
        return "not measured"
    estimate, who = row.worst.estimate, row.worst.adversary
    unaware = row.worst is not row.informed
    words = f"{who}, unaware of the defense" if unaware else who
    return f"{number(estimate.value)} ({interval(estimate)}; {words})"


def _with_ends(estimate: Estimate, words: Words) -> str:
    return f"{words.figure(estimate.value)} ({words.ends(estimate)})"
