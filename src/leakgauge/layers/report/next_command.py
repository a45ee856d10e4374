"""The command that would say more than this answer."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from leakgauge.core.checks import InputError
from leakgauge.inference.spec import InferenceSpec
from leakgauge.layers.report.rows import Advice
from leakgauge.layers.spec import LayersSpec
from leakgauge.layers.words import FAMILY, HIDE
from leakgauge.runs.question import Question
from leakgauge.runs.repeat import repeat_audit
from leakgauge.runs.spec import declared, make_spec

PRUNE = "prune:rate=0.99"
"""To try where hiding was advised: it needs no enclave."""


def next_command(settings: Mapping[str, Any], advice: Advice | None, question: Question) -> str:
    """Return the command that tries to defend the layers where hiding them was advised.

    Args:
        settings: of the run.
        advice: of the run; None without one.
        question: of the run.
    """
    if advice is None or advice.protect != HIDE or not advice.layers:
        return ""
    if not (settings.get("data") or settings.get("task")):
        return ""
    known = declared(LayersSpec)
    given = {key: settings[key] for key in settings if key in known}
    if settings.get("task"):
        given.pop("label", None)  # the task has its own
    try:
        spec = make_spec(LayersSpec, given)
    except InputError:  # a run of other settings than this version has
        return ""
    assert isinstance(spec, LayersSpec)
    attacks = () if spec.adversary == FAMILY else spec.adversary
    tried = replace(spec, protect=PRUNE, adversary=attacks)
    return repeat_audit("audit", {question.name: (question, tried)}, InferenceSpec)
