"""The command that would say more than this answer."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from leakgauge.core.checks import InputError
from leakgauge.membership.catalog import DEFAULT
from leakgauge.membership.report.verdict import Verdict
from leakgauge.membership.spec import MembershipSpec
from leakgauge.report.levels import LEAKS
from leakgauge.runs.question import Question
from leakgauge.runs.repeat import repeat_audit
from leakgauge.runs.spec import NONE, declared, make_spec

DEFENSE = "dpsgd:clip=1,noise=1"
"""To try first: it bounds what any single record changes."""

OWN = ("size", "at_risk", "checkpoint", "members", "non_members")
"""Settings that ``leakgauge audit`` takes by ``--set`` alone."""


def next_command(settings: Mapping[str, Any], judged: Sequence[Verdict], question: Question) -> str:
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
