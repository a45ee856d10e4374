"""The meaning of the figures, in sentences for non-specialist readers."""

from collections.abc import Sequence

from leakgauge.layers.catalog import HIDE
from leakgauge.layers.metrics import INFORMATION, INFORMATION_SHARE, SIZE
from leakgauge.layers.report.rows import PRINTED, Advice, LayerRow, correlation_rows, most_exposed
from leakgauge.report.levels import LEAKS
from leakgauge.report.section import Level
from leakgauge.report.wording import interval, number, percent
from leakgauge.results.measurements import Measurement
from leakgauge.results.scores import AUROC, smallest_detectable


def where(rows: Sequence[LayerRow], level: Level, one: Measurement) -> str:
    """Return a sentence on the layer that leaks most, and on all layers together."""
    estimate = one.estimate
    together = (
        f"an attack that sees all layers has an AUROC of {number(estimate.value)} "
        f"({percent(estimate.confidence)} interval {interval(estimate)}; guessing gives "
        f"{number(one.chance)})"
    )
    top = most_exposed(rows)
    if level not in LEAKS or top is None:
        least = smallest_detectable(estimate, one.chance)
        return (
            f"No leak of `{one.secret}` is seen: {together}. The smallest leak that this test can "
            f"see is an AUROC of {number(least)} (with 80 % power); a stronger adversary may find "
            "more."
        )
    usable = top.figures[INFORMATION_SHARE].estimate
    auroc = top.figures[AUROC].estimate
    return (
        f"Layer `{top.name}` ({top.kind}) gives most of `{one.secret}` away: an attack can use "
        f"{percent(max(0.0, usable.value))} of its entropy, with an AUROC of "
        f"{number(auroc.value)} ({interval(auroc)}); {together}."
    )


_MORE = "name a smaller `under`, or bring more records"


def advice_text(advice: Advice, rows: Sequence[LayerRow]) -> str:
    """Return the advice, and the advantage that an attack adapted to it keeps."""
    done = "Hide" if advice.protect == HIDE else f"Use `{advice.protect}` on"
    left = (
        f"advantage {number(advice.before.value)} before, {number(advice.after.value)} after "
        f"({interval(advice.after)})"
    )
    if not advice.layers:
        whole = f"{number(advice.before.value)} ({interval(advice.before)})"
        if advice.holds:
            return (
                f"No layer needs protection to keep the advantage under {advice.under:g}: "
                f"it is {whole}."
            )
        return (
            f"The attacker's own batches show no layer to protect, but on private batches the "
            f"advantage is {whole}, more than {advice.under:g}: {_MORE}."
        )
    names = ", ".join(f"`{name}`" for name in advice.layers)
    if len(advice.layers) == len(rows):
        text = f"{done} all layers ({names}): no smaller set is enough; {left}."
    else:
        text = f"{done} {names}; {left}, by an attack that was fitted without them."
        if advice.protect != HIDE:
            text = f"{done} {names}; {left}, by an attack that knows the defense."
    if not advice.holds:
        text += (
            f" The advice does not hold: more than {advice.under:g} is left. The attacker's own "
            f"batches showed less; {_MORE}."
        )
    return text


def about_measures(measurements: Sequence[Measurement]) -> str:
    """Return a sentence on whether sensitivity predicts the attack better than layer size."""
    found = {name: (one, partial) for name, one, partial in correlation_rows(measurements)}
    if INFORMATION not in found or PRINTED not in found or SIZE not in found:
        return ""
    usable, sensitive, size = (found[name][0] for name in (INFORMATION, PRINTED, SIZE))
    values = [one.estimate.value for one in (usable, sensitive, size)]
    follows = (
        "the sensitivity ranks these layers better than their size does"
        if values[1] > values[2]
        else "the sensitivity ranks these layers no better than their size does: do not choose "
        "layers by it"
    )
    return (
        f"Over the layers of this run, the correlation with the AUROC is {number(values[0])} for "
        f"V-information, {number(values[1])} for the printed F-norm sensitivity and "
        f"{number(values[2])} for the number of parameters; {follows}."
    )
