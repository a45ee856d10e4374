"""The command that would say more than this answer."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from leakgauge.inversion.methods import STRONGEST, reported_traits
from leakgauge.inversion.spec import InversionSpec
from leakgauge.report.section import Level
from leakgauge.runs.repeat import repeat_command
from leakgauge.runs.spec import NONE, declared, make_spec

LEAKS = ("strong", "clear", "weak")
LONGER = 10
"""How many times as many iterations to try where nothing was rebuilt."""

COMMAND = "invert"


def next_command(settings: Mapping[str, Any], level: Level) -> str:
    """Return the command to run next; empty where none would say more.

    Rebuilt records call for a defense. Records that were not rebuilt call for a longer search.

    Args:
        settings: of the run, with those of an ``InversionSpec``.
        level: the verdict without a defense.

    >>> next_command({"data": "my.csv", "label": "income"}, "strong")
    'leakgauge invert my.csv --label income --defense dpsgd:clip=2,noise=0.1'
    """
    known = declared(InversionSpec)
    spec = make_spec(InversionSpec, {key: settings[key] for key in settings if key in known})
    assert isinstance(spec, InversionSpec)
    several = spec.epochs > 1 or spec.ladder
    if spec.update is not None or set(spec.defense) != {NONE} or several:
        return ""
    traits = [reported_traits(text) for text in spec.method or (STRONGEST,)]
    if level in LEAKS:
        defense = "dpsgd:clip=2,noise=0.1" if spec.local_steps == 1 else "prune:rate=0.99"
        method = spec.method if any(one.adapts for one in traits) else ()
        return repeat_command(COMMAND, replace(spec, defense=(NONE, defense), method=method))
    if not any(one.searches for one in traits) or spec.iterations is None:
        return ""
    return repeat_command(COMMAND, replace(spec, iterations=LONGER * spec.iterations))
