"""The command that would make the answer about a guarantee better."""

import shlex
from collections.abc import Mapping
from typing import Any

from leakgauge.guarantee.report.audited import AuditedGuarantee
from leakgauge.guarantee.spec import CRAFTED, QUESTION, RANDOM, GuaranteeSpec
from leakgauge.runs.spec import declared

MORE = 4
"""How many times the trials a saturated audit should run."""

_ALWAYS = ("attribute", "clip", "noise")


def next_command(audited: AuditedGuarantee) -> str:
    """Return the command to run next; empty where no change of settings would show more.

    A broken promise needs a second seed, a saturated audit more trials, a random record a
    crafted one.
    """
    settings = dict(audited.settings)
    if audited.violated:
        return _command(settings | {"seed": settings["seed"] + 1})
    if audited.saturated:
        return _command(settings | {"trials": MORE * settings["trials"]})
    if settings["canary"] == RANDOM:
        return _command(settings | {"canary": CRAFTED})
    return ""


def _command(settings: Mapping[str, Any]) -> str:
    words = ["leakgauge", QUESTION, str(settings["table"])]
    for name, one in declared(GuaranteeSpec).items():
        value = settings.get(name)
        default = list(one.default) if one.kind is tuple else one.default
        if name in settings and (name in _ALWAYS or value != default):
            words += _option(one.flag, value)
    return shlex.join(words)


def _option(flag: str, value: Any) -> list[str]:
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    if isinstance(value, Mapping):
        value = [f"{name}={item}" for name, item in value.items()]
    return [word for item in (value if isinstance(value, list) else [value])
            for word in (flag, str(item))]  # fmt: skip
