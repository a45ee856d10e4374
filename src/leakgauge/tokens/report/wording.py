"""The meaning of the figures, in sentences for non-specialist readers."""

import math
import re
from collections.abc import Mapping
from dataclasses import replace

from leakgauge.report.levels import LEAKS
from leakgauge.report.section import Level
from leakgauge.report.wording import number, percent
from leakgauge.results.measurements import Estimate, Measurement
from leakgauge.results.scores import smallest_detectable
from leakgauge.tokens.metrics import INFORMATION, RANKS_BOUND, RANKS_GAP, is_ignorant, smallest_seen
from leakgauge.tokens.report.rows import Course, InformationCurve
from leakgauge.tokens.settings import BOUNDS
from leakgauge.tokens.words import (
    IN_EVALUATION,
    ORACLE,
    ORACLE_BLIND,
    ORACLE_SAW,
    ORACLE_SEES,
    ORACLE_UNKNOWN,
    PLANTED,
    STREAM,
)

FAR = 1e4
"""Largest figure printed in digits, as a critic's bound can diverge."""


def figure(value: float) -> str:
    """Return a figure with three decimals, or in words if it is very large.

    >>> figure(0.25), figure(-1e300)
    ('0.250', 'below \u221210,000')
    """
    if abs(value) < FAR:
        return number(value)
    return "above 10,000" if value > 0 else "below \u221210,000"


def ends(estimate: Estimate) -> str:
    """Return the two ends of an interval."""
    return f"{figure(estimate.low)} to {figure(estimate.high)}"


def kind_of(estimator: str) -> str:
    """Return the kind of an estimator's held-out figure.

    >>> kind_of("infonce"), kind_of("smile")
    ('lower bound', 'estimate')
    """
    return "lower bound" if estimator in BOUNDS else "estimate"


def verdict(course: Course, level: Level) -> str:
    """Return sentences on the largest leak, or on the smallest that the run could have seen."""
    one = course.peak
    if one is None:
        return "No critic was evaluated on held-out batches."
    text = _found(one, level)
    if course.is_defended:
        text = f"The defense is `{course.defense}`. {text}"
    modes = one.details.get(IN_EVALUATION)
    if modes is None:
        return text
    return (
        f"{text} Assumed: the model trains in training mode ({modes}), and these gradients are of "
        f"evaluation mode; those that were sent may leak more, and `pairs` `{STREAM}` takes them."
    )


def _found(one: Measurement, level: Level) -> str:
    what, step = one.details["estimator"], one.details["step"]
    if level == "unknown":
        return (
            f"The placebo, gradients of other batches, also shows information at sub-epoch {step}; "
            "so the figures of this run do not describe the data. Bring more records."
        )
    if level in LEAKS:
        text = (
            f"Gradients leak most at sub-epoch {step}: {_who(one)} finds a held-out "
            f"{kind_of(what)} of {figure(one.estimate.value)} nats ({_interval(one)}) on the "
            "mutual information of a batch's gradient and its data features"
        )
        return f"{text}. {_beyond(one)}"
    text = (
        f"No leak is found by {_who(one)}: the largest held-out {kind_of(what)} is "
        f"{figure(one.estimate.value)} nats ({_interval(one)})."
    )
    return " ".join(filter(None, (text, _could_have_seen(one), of_oracle(one.details))))


def _could_have_seen(one: Measurement) -> str:
    """Return a sentence on the leaks that the critic of a figure without a leak could have seen."""
    if is_ignorant(one.details):
        return (
            "But no critic did better than a constant one in "
            f"{one.details['iterations allowed']} iterations, so this run does not say what it "
            "could have seen; one that learns longer, or from more records, may find a leak."
        )
    seen = smallest_seen(one.details)
    if seen is not None and math.isinf(seen):
        return (
            "But the same critic sees no leak that is planted in these pairs, of up to "
            f"{figure(max(PLANTED))} nats, so this run does not say what it could have seen; "
            "more records, or a critic that learns longer, may show a leak."
        )
    if seen is not None:
        least = max(seen, smallest(one.estimate))
        return (
            f"Leaks that are planted in these pairs are seen from {figure(seen)} nats on, "
            f"and the smallest such leak that this run could have seen is about {figure(least)} "
            "nats."
        )
    return (
        "The smallest leak that this run could have seen is about "
        f"{figure(smallest(one.estimate))} nats (with 80 % power)."
    )


def of_oracle(details: Mapping[str, str]) -> str:
    """Return sentences on what an oracle finds where a critic finds no leak."""
    found = re.sub(r"-(?=\d)", "\u2212", details.get(ORACLE, ""))
    saw = details.get(ORACLE_SAW)
    who = "an adversary that knows the model and the candidate batches"
    channel = "takes the defense for an offset, a factor and Gaussian noise"
    if saw == ORACLE_SEES[1]:
        return (
            f"{who.capitalize()} recognises batches by their gradients: {found}. So the "
            f"gradients leak, and the critic has not learned how. {FEWER}"
        )
    if saw == ORACLE_BLIND[1]:
        return f"{who.capitalize()} and {channel} does not recognise them either: {found}. {FEWER}"
    if saw == ORACLE_UNKNOWN[1]:
        return f"Whether {who} recognises them is not known: {found}."
    return FEWER


FEWER = (
    "Another critic, token or layer, or more records, may find more: of one network's late "
    "gradients 8,000 records showed 0.00 nats, and 40,000 showed 0.45."
)
"""What an estimate may miss that finds no leak: LeNet on CIFAR-10 after 100 sub-epochs (seed 0)."""


def _beyond(one: Measurement) -> str:
    """Return a sentence on what the estimate may miss."""
    if is_limited(one.details):
        return (
            f"The estimate is limited by its sample: `{one.details['estimator']}` cannot exceed "
            f"{one.details['limit, nats']} nats, the log of the batches that it compares, and the "
            "interval comes near. The data may leak more."
        )
    if one.details["estimator"] in BOUNDS:
        return "More may leak."
    return "It is not a bound, and may be too large."


def smallest(estimate: Estimate) -> float:
    """Return the smallest bound that such a run detects with 80 % power.

    The interval of a constant critic starts at 0, so its upper half counts twice.

    >>> round(smallest(Estimate(0.0, 0.0, 0.1, 100)), 3)
    0.143
    """
    reach = max(estimate.high - estimate.value, estimate.value - estimate.low)
    return smallest_detectable(replace(estimate, low=-reach, high=reach), 0.0)


def _who(one: Measurement) -> str:
    return f"`{one.details['estimator']}` with the `{one.details['token']}` token"


def _interval(one: Measurement) -> str:
    return (
        f"{percent(one.estimate.confidence)} interval {ends(one.estimate)}, widened for the choice "
        f"among {one.details['looks']} figures"
    )


def is_limited(details: Mapping[str, str]) -> bool:
    """Return whether the sample may limit an estimate with these details."""
    return details.get("limited by its sample") == "yes"


def trend(course: Course) -> str:
    """Return the course of the leading bound; empty for fewer than two checkpoints."""
    curve = course.leading
    if curve is None or len(curve.steps) < 2:
        return ""
    values = {step: one.estimate.value for step, one in curve.figures[INFORMATION].items()}
    first, last = curve.steps[0], curve.steps[-1]
    top = max(curve.steps, key=lambda step: values[step])
    shape = f"it rises until sub-epoch {top} and falls after it"
    if top in (first, last):
        shape = f"it is largest at the {'first' if top == first else 'last'} checkpoint"
    return (
        f"The bound of {curve.title} goes from {figure(values[first])} nats at sub-epoch {first} "
        f"to {figure(values[last])} at sub-epoch {last}; {shape}."
    )


def limited_steps(curve: InformationCurve) -> str:
    """Return a sentence on checkpoints with an estimate limited by its sample; else empty."""
    found = [step for step in curve.steps if is_limited(curve.about(step))]
    if not found:
        return ""
    limit = curve.about(found[0])["limit, nats"]
    steps = ", ".join(map(str, found))
    return (
        f"At sub-epochs {steps} the estimate is limited by its sample: it cannot exceed {limit} "
        "nats, and the data may leak more."
    )


def ignorant_steps(curve: InformationCurve) -> str:
    """Return a sentence on checkpoints with a constant best critic; else empty."""
    found = [step for step in curve.steps if is_ignorant(curve.about(step))]
    if not found:
        return ""
    return (
        f"At sub-epochs {', '.join(map(str, found))} no critic did better on the stopping batches "
        "than a constant one; the figures there are 0 by that choice."
    )


def ranks_of_attack(curve: InformationCurve, course: Course) -> str:
    """Return a sentence on the rank correlation of bound and gap with the attack."""
    named = ((RANKS_BOUND, "the bound"), (RANKS_GAP, "the critic gap"))
    known = [(curve.ranks[kind].estimate, what) for kind, what in named if kind in curve.ranks]
    if not known:
        return ""
    texts = [f"{figure(one.value)} ({ends(one)}) for {what}" for one, what in known]
    first = _first_of_attack(course)
    attack = "the attack" if first is None else f"`{first.adversary}`"
    return (
        f"Over {known[0][0].n} checkpoints the rank correlation with the PSNR of {attack} "
        f"is {' and '.join(texts)} of {curve.title}. Only the order of checkpoints is compared."
    )


def _first_of_attack(course: Course) -> Measurement | None:
    return next((one for steps in course.attack.values() for one in steps.values()), None)


def about_attack(course: Course) -> str:
    """Return a sentence on the attack, and on the attacks of the paper."""
    first = _first_of_attack(course)
    if first is None:
        return ""
    return (
        f"`{first.adversary}` with {first.details['iterations']} iterations rebuilds "
        f"{first.estimate.n} images, each from the gradient of a batch of one; labels are "
        f"{first.details['labels']}. It replaces the paper's attacks: DLG on CIFAR-10, and a "
        "guided diffusion model on CelebA-HQ, which is not available here."
    )
