"""The command that would make the answer about a guarantee better."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from leakgauge.guarantee.report.audited import AuditedGuarantee
from leakgauge.guarantee.spec import CRAFTED, QUESTION, RANDOM, GuaranteeSpec
from leakgauge.runs.repeat import repeat_command
from leakgauge.runs.spec import declared, make_spec

MORE = 4
"""How many times the trials of a saturated audit the next one should have."""


def next_command(audited: AuditedGuarantee) -> str:
    """Return the command to run next; empty where no change of settings would show more.

    A broken promise needs a second seed, a saturated audit more trials, a random record a
    crafted one.
    """
    spec = _spec(audited.settings)
    if audited.violated:
        spec = replace(spec, seed=spec.seed + 1)
    elif audited.saturated:
        spec = replace(spec, trials=MORE * spec.trials)
    elif spec.canary == RANDOM:
        spec = replace(spec, canary=CRAFTED)
    else:
        return ""
    return repeat_command(QUESTION, spec)


def _spec(settings: Mapping[str, Any]) -> GuaranteeSpec:
    known = {name: value for name, value in settings.items() if name in declared(GuaranteeSpec)}
    spec = make_spec(GuaranteeSpec, {**known, "data": str(settings["table"])})
    return cast(GuaranteeSpec, spec)
