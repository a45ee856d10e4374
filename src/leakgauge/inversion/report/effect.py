"""The defense that lowered the similarity of rebuilt records most."""

from collections.abc import Sequence

from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.inversion.metrics.table import PSNR
from leakgauge.inversion.report.levels import worst
from leakgauge.report.grouping import Test
from leakgauge.report.section import DefenseEffect
from leakgauge.report.wording import percent, short
from leakgauge.results.measurements import Measurement
from leakgauge.runs.spec import NONE

_COST = "This question does not measure what the defense costs in accuracy."


def effect_of(tests: Sequence[Test]) -> DefenseEffect | None:
    """Return what the best defense changed; None without a defense or without a baseline.

    Each side is judged by the attempt that came nearest to the truth. Against a defense these are
    the attempts that adapt to it, where one does, and the others.
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
    defense: str,
    before: Measurement,
    after: Measurement,
    against: Sequence[Test],
    *,
    helps: bool,
) -> str:
    tried = any(test.knowledge == ADAPTIVE for test in against)
    attacker = "an attacker that knows it" if tried else "an attacker that does not know it"
    name, old, new = _figure(before)[0], _figure(before)[1], _figure(after)[1]
    if helps:
        change = f"lowers {name} from {old} to {new}"
    else:
        change = f"does not clearly lower {name}: it is {old} without a defense and {new} with it"
    return f"`{defense}` {change}, against {attacker}. {_COST}"


def _figure(one: Measurement) -> tuple[str, str]:
    """The metric's name in a sentence, and its value."""
    if one.metric == PSNR:
        return "PSNR", f"{short(one.estimate.value)} dB"
    return "the share of right columns", percent(one.estimate.value)
