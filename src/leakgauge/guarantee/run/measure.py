"""The measurements of an audited guarantee."""

import json
import math
from dataclasses import replace

from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.guarantee.filter import claim_of
from leakgauge.guarantee.game import AuditResult
from leakgauge.guarantee.mechanism import DPSGDMechanism
from leakgauge.guarantee.metrics import (
    APART,
    CLAIMED,
    DIRECTION,
    DISTANCE_OVER_CLIP,
    EPSILON,
    GAUSSIAN,
    GAUSSIAN_TEST,
    HELD_OUT_RATIO,
    IN_SAMPLE,
    LAPLACE_TEST,
    ODD,
    PER_ATTRIBUTE_RATIO,
    TRAINING,
)
from leakgauge.guarantee.pair import NeighbourPair
from leakgauge.guarantee.run.preparing import GuaranteePrepared
from leakgauge.guarantee.spec import QUESTION
from leakgauge.guarantee.theory import Theory
from leakgauge.privacy.estimate import Errors, epsilon_gaussian_dp
from leakgauge.results.measurements import CellContext, Estimate, Measurement
from leakgauge.results.statistics import histogram_of

BINS = 60

TURNED = {"turned": "smaller scores suggest another value"}
"""The detail of figures from scores that are turned round."""


def measurements_of(
    prepared: GuaranteePrepared, pair: NeighbourPair, result: AuditResult
) -> list[Measurement]:
    """Return one measurement per figure."""
    spec, claim = prepared.spec, prepared.claimed
    stated = claim_of(spec.mechanism)
    promised = {**_theory(result), **({CLAIMED: stated.epsilon} if stated is not None else {})}
    figures = _figures(result, promised.get("mechanism_exact", 0.0))
    scores = histogram_of(result.null, result.alternative, BINS)
    context = CellContext(
        question=QUESTION,
        game=prepared.attribute,
        dataset=prepared.source.name,
        label=prepared.label,
        secret=prepared.attribute,
        defense=f"dpsgd:clip={claim.clip:g},noise={claim.noise:g}"
        if isinstance(claim, DPSGDMechanism)
        else spec.mechanism,
        knowledge=ADAPTIVE,
        adversary=spec.statistic,
        seed=spec.seed,
    )
    details = values_in_details(pair.attribute.values) | _assumed(result)
    return [
        context.measurement(
            name,
            estimate,
            details=details,
            theory=promised if name == EPSILON else {},
            histogram=scores if name == EPSILON else None,
        )
        for name, estimate in figures.items()
    ]


def _assumed(result: AuditResult) -> dict[str, str]:
    """Return what holds for the figures of a result, as a measurement keeps it."""
    odd = {ODD: f"the scores are not those of {result.law} noise"} if result.odd else {}
    other = {} if result.theory.neighbours else {APART: "the audited pair are no neighbours"}
    read = {DIRECTION: result.direction} if result.direction else {}
    return {**(TURNED if result.turned else {}), **odd, **other, **read}


def values_in_details(values: tuple[str, ...]) -> dict[str, str]:
    """Return the record's own value and the new ones as a measurement keeps them.

    >>> values_in_details(("f", "m"))
    {'first': 'f', 'second': 'm'}
    >>> values_in_details(("a", "b", "c"))
    {'first': 'a', 'others': '["b", "c"]'}
    """
    first, *others = values
    if len(others) == 1:
        return {"first": first, "second": others[0]}
    return {"first": first, "others": json.dumps(others, ensure_ascii=False)}


def _figures(result: AuditResult, promised: float) -> dict[str, Estimate]:
    """Return every figure by metric.

    Without a wrong trial an interval has no upper end; the promise for the worst record replaces
    it. A ratio is the paper's yardstick (its classic epsilon over N) divided by an estimate: the
    paper's, or the one with a threshold from other trials. It is left out if the estimate may be
    0.
    """
    apart = result.distance_over_clip
    shown = {EPSILON: result.estimate, **_by_law(result), IN_SAMPLE: result.in_sample}
    figures = {name: _bounded(one, promised) for name, one in shown.items()}
    theory = result.theory
    if not isinstance(theory, Theory):
        return figures
    figures[DISTANCE_OVER_CLIP] = Estimate(apart, apart, apart, 1)
    for name, of in ((PER_ATTRIBUTE_RATIO, IN_SAMPLE), (HELD_OUT_RATIO, EPSILON)):
        one = figures[of]
        if one.low > 0:
            ends = (one.value, one.high, one.low)
            value, low, high = (theory.per_attribute_classic / end for end in ends)
            figures[name] = Estimate(value, low, high, one.n)
    return figures


def _by_law(result: AuditResult) -> dict[str, Estimate]:
    """Return the estimates that use what is known of the noise, by metric."""
    found: dict[str, Estimate | None] = {
        GAUSSIAN: result.gaussian if result.law == DPSGDMechanism.law else None,
        GAUSSIAN_TEST: result.whole,
        LAPLACE_TEST: result.laplace,
    }
    if result.theory.releases > 1:
        found[TRAINING] = result.composed(result.theory.releases)
    return {name: one for name, one in found.items() if one is not None}


def _bounded(estimate: Estimate, promised: float) -> Estimate:
    if math.isfinite(estimate.high):
        return estimate
    return replace(estimate, high=max(estimate.value, promised))


def _theory(result: AuditResult) -> dict[str, float]:
    """Return the finite epsilons that are known without a measurement, by name."""
    half = result.trials // 2
    no_errors = epsilon_gaussian_dp(Errors(0, 0, half, half), result.delta)
    promises = {name: getattr(one, "value", one) for name, one in vars(result.theory).items()}
    for name in ("near", "releases", "neighbours"):
        promises.pop(name)
    if result.theory.releases == 1:
        promises.pop("training")
    known = {
        "largest_showable": result.largest_showable.value,
        "largest_showable_low": result.largest_showable.low,
        "largest_showable_gaussian_low": no_errors.low,
        **promises,
    }
    return {name: value for name, value in known.items() if math.isfinite(value)}
