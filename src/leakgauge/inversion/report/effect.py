"""The defense that lowered similarity most, and the command to run next."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.inversion.methods import STRONGEST, reported_traits
from leakgauge.inversion.metrics.table import PSNR, TOKEN_ACCURACY
from leakgauge.inversion.report.levels import worst
from leakgauge.inversion.spec import InversionSpec
from leakgauge.report.grouping import Test
from leakgauge.report.levels import LEAKS
from leakgauge.report.section import DefenseEffect, Level
from leakgauge.report.wording import percent, short
from leakgauge.results.measurements import Measurement
from leakgauge.runs.repeat import repeat_command, spec_of_run
from leakgauge.runs.spec import NONE

LONGER = 10
"""Factor of the iterations to try next if no record was rebuilt."""

_COST = "This question does not measure what the defense costs in accuracy."


def effect_of(tests: Sequence[Test]) -> DefenseEffect | None:
    """Return what the best defense changed; None without a defense or without a baseline.

    The attempt that came nearest to the truth counts on each side. Against a defense, attempts that
    adapt to it and attempts that do not are both included.
    """
    baseline = _nearest([test for test in tests if test.defense == NONE])
    defenses = dict.fromkeys(test.defense for test in tests if test.defense != NONE)
    nearest = {name: _nearest([t for t in tests if t.defense == name]) for name in defenses}
    measured = {name: one for name, one in nearest.items() if one is not None}
    if baseline is None or not measured:
        return None
    best = min(measured, key=lambda name: measured[name].estimate.value)
    against = [test for test in tests if test.defense == best]
    helps = measured[best].estimate.high < baseline.estimate.low
    return DefenseEffect(best, _text(best, baseline, measured[best], against, helps=helps))


def _nearest(tests: list[Test]) -> Measurement | None:
    return worst(tests)[1].figure if tests else None


def _text(
    defense: str, before: Measurement, after: Measurement, against: Sequence[Test], *, helps: bool
) -> str:
    tried = any(test.knowledge == ADAPTIVE for test in against)
    attacker = "an attacker that knows it" if tried else "an attacker that does not know it"
    (name, old), (_, new) = _figure(before), _figure(after)
    if helps:
        change = f"lowers {name} from {old} to {new}"
    else:
        change = f"does not clearly lower {name}: it is {old} without a defense and {new} with it"
    return f"`{defense}` {change}, against {attacker}. {_COST}"


def _figure(one: Measurement) -> tuple[str, str]:
    """Return the metric's name as in a sentence, and its value as text."""
    if one.metric == PSNR:
        return "PSNR", f"{short(one.estimate.value)} dB"
    parts = "tokens" if one.metric == TOKEN_ACCURACY else "columns"
    return f"the share of right {parts}", percent(one.estimate.value)


def next_command(settings: Mapping[str, Any], level: Level) -> str:
    """Return the command to run next; empty if none would add information.

    Rebuilt records call for a defense. Records that were not rebuilt call for a longer search.

    Args:
        settings: settings of the run, which include those of an ``InversionSpec``.
        level: level of leakage without a defense.

    >>> next_command({"data": "my.csv", "label": "income"}, "strong")
    'leakgauge invert my.csv --label income --defense dpsgd:clip=2,noise=0.1'
    """
    spec = spec_of_run(settings, InversionSpec)
    if spec is None or not spec.data or set(spec.defense) != {NONE}:
        return ""
    if spec.epochs > 1 or spec.ladder:
        return ""
    traits = [reported_traits(text) for text in spec.method or (STRONGEST,)]
    if level in LEAKS:
        defense = "dpsgd:clip=2,noise=0.1" if spec.local_steps == 1 else "prune:rate=0.99"
        method = spec.method if any(one.adapts for one in traits) else ()
        return repeat_command("invert", replace(spec, defense=(NONE, defense), method=method))
    if not any(one.searches for one in traits) or spec.iterations is None:
        return ""
    return repeat_command("invert", replace(spec, iterations=LONGER * spec.iterations))
