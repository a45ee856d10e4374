"""The effect of each defense on leakage and utility, and the command that tries one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from leakgauge.membership.catalog import DEFAULT
from leakgauge.membership.report.tests import leading
from leakgauge.membership.report.verdict import MembershipVerdict
from leakgauge.membership.spec import MembershipSpec
from leakgauge.report.grouping import UNDEFENDED, Test
from leakgauge.report.levels import LEAKS
from leakgauge.report.section import DefenseEffect
from leakgauge.report.utility import utilities, words_of
from leakgauge.report.wording import number
from leakgauge.results.measurements import Measurement
from leakgauge.results.scores import AUROC
from leakgauge.runs.question import Question
from leakgauge.runs.repeat import repeat_audit, spec_of_run
from leakgauge.runs.spec import NONE


@dataclass(frozen=True)
class MembershipDefenseRow:
    """The headlines under one defense.

    Attributes:
        defense: its name.
        aurocs: the AUROC of the headline by knowledge.
        utility: utility of the model, or None.
    """

    defense: str
    aurocs: dict[str, Measurement]
    utility: Measurement | None

    @property
    def worst(self) -> Measurement:
        """The higher AUROC of the adaptive and the static attacker."""
        return max(self.aurocs.values(), key=lambda one: one.estimate.value)


def defense_rows(
    tests: Sequence[Test], measurements: Sequence[Measurement]
) -> list[MembershipDefenseRow]:
    """Return one row for each defense; empty without defenses."""
    found: dict[str, dict[str, Measurement]] = {}
    for test in leading(tests):
        one = test.whole(AUROC)
        if one is not None:
            found.setdefault(test.defense, {})[test.knowledge] = one
    if set(found) <= {UNDEFENDED}:
        return []
    utility = {one.defense: one for one in utilities(measurements)}
    return [MembershipDefenseRow(name, aurocs, utility.get(name)) for name, aurocs in found.items()]


def effect(rows: Sequence[MembershipDefenseRow]) -> DefenseEffect | None:
    """Return the effect and cost of the best defense, or None if none can be compared."""
    bare = next((row for row in rows if row.defense == UNDEFENDED), None)
    defended = [row for row in rows if row.defense != UNDEFENDED]
    if bare is None or not defended:
        return None
    best = min(defended, key=lambda row: row.worst.estimate.value)
    before, after = bare.worst.estimate.value, best.worst.estimate.value
    text = (
        f"`{best.defense}` most lowers the AUROC of the strongest attacker, from "
        f"{number(before)} without a defense to {number(after)}"
        if after < before
        else f"No defense lowers the AUROC: it is {number(before)} without one, and at best "
        f"{number(after)} under `{best.defense}`"
    )
    return DefenseEffect(best.defense, f"{text}{_cost(bare, best)}.")


def _cost(bare: MembershipDefenseRow, best: MembershipDefenseRow) -> str:
    if bare.utility is None or best.utility is None:
        return ""
    words = words_of(bare.utility)
    lost = words.loss(bare.utility.estimate.value - best.utility.estimate.value)
    return f"; it costs {lost} of {words.name}" if lost else f"; it costs no {words.name}"


DEFENSE = "dpsgd:clip=1,noise=1"
"""First defense to try: it bounds the influence of a single record."""

OWN = ("size", "at_risk", "checkpoint", "members", "non_members")
"""Settings that ``leakgauge audit`` takes by ``--set`` alone."""


def next_command(
    settings: Mapping[str, Any], verdicts: Sequence[MembershipVerdict], question: Question
) -> str:
    """Return the command with a defense if an undefended model leaks; empty otherwise."""
    spec = spec_of_run(settings, MembershipSpec)
    if spec is None or spec.checkpoint or set(spec.defense) != {NONE}:
        return ""
    if not any(one.level in LEAKS for one in verdicts):
        return ""
    attacks = () if spec.adversary == DEFAULT else spec.adversary
    tried = replace(spec, defense=(NONE, DEFENSE), adversary=attacks)
    return repeat_audit("audit", {question.name: (question, tried)}, MembershipSpec, without=OWN)
