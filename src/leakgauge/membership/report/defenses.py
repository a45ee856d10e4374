"""What each defense is worth: leakage to attackers who know it or not, and its cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from leakgauge.core.checks import InputError
from leakgauge.core.knowledge import ADAPTIVE
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
from leakgauge.runs.repeat import repeat_audit
from leakgauge.runs.spec import NONE, declared, make_spec


@dataclass(frozen=True)
class MembershipDefenseRow:
    """The headlines under one defense.

    Attributes:
        defense: its name.
        aurocs: the AUROC of the headline by knowledge.
        utility: of the model; None where none was measured.
    """

    defense: str
    aurocs: dict[str, Measurement]
    utility: Measurement | None

    @property
    def worst(self) -> Measurement:
        """That of the adaptive attacker; without a defense, that of the only one."""
        return self.aurocs.get(ADAPTIVE) or next(iter(self.aurocs.values()))


def defense_rows(
    tests: Sequence[Test], measurements: Sequence[Measurement]
) -> list[MembershipDefenseRow]:
    """Return one row for each defense; empty where no defense was played."""
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
    """Return what the best defense changes and costs; None where none can be compared."""
    bare = next((row for row in rows if row.defense == UNDEFENDED), None)
    defended = [row for row in rows if row.defense != UNDEFENDED]
    if bare is None or not defended:
        return None
    best = min(defended, key=lambda row: row.worst.estimate.value)
    before, after = bare.worst.estimate.value, best.worst.estimate.value
    if after >= before:
        return DefenseEffect(
            best.defense,
            f"No defense lowers the AUROC: it is {number(before)} without one, and at best "
            f"{number(after)} under `{best.defense}`{_cost(bare, best)}.",
        )
    return DefenseEffect(
        best.defense,
        f"`{best.defense}` lowers the AUROC of the attacker that knows it most: from "
        f"{number(before)} without a defense to {number(after)}{_cost(bare, best)}.",
    )


def _cost(bare: MembershipDefenseRow, best: MembershipDefenseRow) -> str:
    if bare.utility is None or best.utility is None:
        return ""
    words = words_of(bare.utility)
    lost = words.loss(bare.utility.estimate.value - best.utility.estimate.value)
    return f"; it costs {lost} of {words.name}" if lost else f"; it costs no {words.name}"


DEFENSE = "dpsgd:clip=1,noise=1"
"""To try first: it bounds what any single record changes."""

OWN = ("size", "at_risk", "checkpoint", "members", "non_members")
"""Settings that ``leakgauge audit`` takes by ``--set`` alone."""


def next_command(
    settings: Mapping[str, Any], judged: Sequence[MembershipVerdict], question: Question
) -> str:
    """Return the command with a defense where an undefended model leaks; empty otherwise.

    Args:
        settings: of the run.
        judged: the verdicts of the headlines.
        question: of the run.
    """
    if settings.get("checkpoint") or not (settings.get("data") or settings.get("task")):
        return ""
    known = declared(MembershipSpec)
    given = {key: settings[key] for key in settings if key in known}
    if settings.get("task"):
        given.pop("label", None)  # the task has its own
    try:
        spec = make_spec(MembershipSpec, given)
    except InputError:  # a run of other settings than this version has
        return ""
    assert isinstance(spec, MembershipSpec)
    if set(spec.defense) != {NONE} or not any(one.level in LEAKS for one in judged):
        return ""
    attacks = () if spec.adversary == DEFAULT else spec.adversary
    tried = replace(spec, defense=(NONE, DEFENSE), adversary=attacks)
    asked = {question.name: (question, tried)}
    return repeat_audit("audit", asked, MembershipSpec, without=OWN)
