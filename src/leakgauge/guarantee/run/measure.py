"""The measurements of an audited guarantee."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace

from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.guarantee.filter import claim_of, is_filter
from leakgauge.guarantee.game import AuditResult
from leakgauge.guarantee.metrics import (
    CLAIMED,
    DISTANCE_OVER_CLIP,
    EPSILON,
    GAUSSIAN,
    HELD_OUT_RATIO,
    IN_SAMPLE,
    PER_ATTRIBUTE_RATIO,
)
from leakgauge.guarantee.pair import NeighbourPair
from leakgauge.guarantee.run.preparing import GuaranteePrepared
from leakgauge.guarantee.spec import QUESTION
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
    stated = claim_of(prepared.spec.mechanism)
    promised = {**_theory(result), **({CLAIMED: stated.epsilon} if stated is not None else {})}
    figures = _figures(result, promised["mechanism_exact"])
    scores = histogram_of(result.null, result.alternative, BINS)
    spec, claim = prepared.spec, prepared.claimed
    context = CellContext(
        question=QUESTION,
        game=prepared.attribute,
        dataset=prepared.source.name,
        label=prepared.label,
        secret=prepared.attribute,
        defense=spec.mechanism
        if is_filter(spec.mechanism)
        else f"dpsgd:clip={claim.clip:g},noise={claim.noise:g}",
        knowledge=ADAPTIVE,
        adversary=spec.statistic,
        seed=spec.seed,
    )
    details = values_in_details(pair.attribute.values) | (TURNED if result.turned else {})
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
    figures = {
        EPSILON: _bounded(result.estimate, promised),
        GAUSSIAN: _bounded(result.gaussian, promised),
        IN_SAMPLE: _bounded(result.in_sample, promised),
        DISTANCE_OVER_CLIP: Estimate(apart, apart, apart, 1),
    }
    yardstick = result.theory.per_attribute_classic
    for name, of in ((PER_ATTRIBUTE_RATIO, IN_SAMPLE), (HELD_OUT_RATIO, EPSILON)):
        one = figures[of]
        if one.low > 0:
            value, low, high = (yardstick / end for end in (one.value, one.high, one.low))
            figures[name] = Estimate(value, low, high, one.n)
    return figures


def _bounded(estimate: Estimate, promised: float) -> Estimate:
    if math.isfinite(estimate.high):
        return estimate
    return replace(estimate, high=max(estimate.value, promised))


def _theory(result: AuditResult) -> Mapping[str, float]:
    """Return the epsilons that are known without a measurement, by name."""
    half = result.trials // 2
    no_errors = epsilon_gaussian_dp(Errors(0, 0, half, half), result.delta)
    promises = {name: getattr(one, "value", one) for name, one in vars(result.theory).items()}
    return {
        "largest_showable": result.largest_showable.value,
        "largest_showable_low": result.largest_showable.low,
        "largest_showable_gaussian_low": no_errors.low,
        **promises,
    }
