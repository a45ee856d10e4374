"""The command that would make the answer better."""

import shlex
from collections.abc import Mapping
from typing import Any

from leakgauge.inversion.spec import InversionSpec
from leakgauge.inversion.words import EXACT
from leakgauge.report.section import Level
from leakgauge.runs.spec import declared

LEAKS = ("strong", "clear", "weak")
LONGER = 10
"""Times as many iterations where nothing was rebuilt."""


def next_command(settings: Mapping[str, Any], level: Level) -> str:
    """Return the command to run next; empty where none would say more.

    Rebuilt records call for a defense. Records that were not rebuilt call for a longer search.

    Args:
        settings: of the run.
        level: the verdict without a defense.
    """
    if settings.get("update") is not None or settings["defense"] or settings["epochs"] > 1:
        return ""
    if level in LEAKS:
        single = settings["local_steps"] == 1
        defense = "dpsgd:clip=2,noise=0.1" if single else "prune:rate=0.99"
        return command_line({**settings, "defense": [defense]})
    if settings["method"] == [EXACT] or not settings["iterations"]:
        return ""
    return command_line({**settings, "iterations": LONGER * settings["iterations"]})


def command_line(settings: Mapping[str, Any]) -> str:
    """Return ``leakgauge invert`` with the settings that are not at their defaults, quoted.

    >>> command_line({"data": "my.csv", "label": "income", "defense": ["sign"], "epochs": 1})
    'leakgauge invert my.csv --label income --defense sign'
    """
    words = ["leakgauge", "invert", str(settings["data"])]
    for name, one in declared(InversionSpec).items():
        value = settings.get(name)
        if one.setting.option and name != "data" and value not in (None, [], {}, one.default):
            words += _option(one.flag, value, one.default)
    return shlex.join(words)


def _option(flag: str, value: Any, default: Any) -> list[str]:
    if value is True:
        return [flag]
    if isinstance(value, Mapping):
        value = [f"{name}={number}" for name, number in value.items()]
    values = value if isinstance(value, list) else [value]
    if tuple(values) == default:
        return []
    return [word for one in values for word in (flag, str(one))]
