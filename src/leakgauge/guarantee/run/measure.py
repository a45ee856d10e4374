"""The measurements of an audited guarantee."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.core.versions import versions
from leakgauge.guarantee.estimate import Errors, epsilon_gaussian_dp
from leakgauge.guarantee.game import AuditResult
from leakgauge.guarantee.metrics import (
    DISTANCE_OVER_CLIP,
    EPSILON,
    GAUSSIAN,
    IN_SAMPLE,
    PER_ATTRIBUTE_RATIO,
)
from leakgauge.guarantee.pair import Pair
from leakgauge.guarantee.spec import QUESTION, GuaranteeSpec, claimed
from leakgauge.results.measurements import ACCUMULATED, Estimate, Histogram, Measurement

BINS = 60


def measurements_of(
    spec: GuaranteeSpec, data: str, pair: Pair, result: AuditResult
) -> list[Measurement]:
    """Return one measurement per figure.

    Args:
        spec: resolved.
        data: name of the data.
        pair: the audited record.
        result: of its audit.
    """
    promised = _theory(result)
    figures = _figures(result, promised["mechanism_exact"])
    first, second = pair.attribute.values
    dpsgd = claimed(spec)
    return [
        Measurement(
            question=QUESTION,
            game=str(spec.attribute),
            dataset=data,
            label=str(spec.label),
            secret=str(spec.attribute),
            defense=f"dpsgd:clip={dpsgd.clip:g},noise={dpsgd.noise:g}",
            knowledge=ADAPTIVE,
            adversary=spec.statistic,
            metric=name,
            round=ACCUMULATED,
            seed=spec.seed,
            estimate=estimate,
            chance=0.0,
            details={"first": first, "second": second},
            theory=promised if name == EPSILON else {},
            histogram=histogram(result) if name == EPSILON else None,
            versions=versions(),
        )
        for name, estimate in figures.items()
    ]


def histogram(result: AuditResult) -> Histogram:
    """Return the judged scores under both hypotheses, over common bins of equal width."""
    both = np.concatenate([result.null, result.alternative])
    edges = np.histogram_bin_edges(both, BINS)
    null, alternative = (
        tuple(int(count) for count in np.histogram(scores, edges)[0])
        for scores in (result.null, result.alternative)
    )
    return Histogram(tuple(float(f"{edge:.6g}") for edge in edges), null, alternative)


def _figures(result: AuditResult, promised: float) -> dict[str, Estimate]:
    """Every figure by metric.

    Where no trial went wrong an interval has no upper end; the promise for the worst record takes
    its place. The ratio is the paper's yardstick (its classic epsilon over N) divided by its
    estimate; it is left out where that estimate may be 0.
    """
    apart = result.distance_over_clip
    figures = {
        EPSILON: _bounded(result.estimate, promised),
        GAUSSIAN: _bounded(result.gaussian, promised),
        IN_SAMPLE: _bounded(result.in_sample, promised),
        DISTANCE_OVER_CLIP: Estimate(apart, apart, apart, 1),
    }
    paper, yardstick = figures[IN_SAMPLE], result.theory.per_attribute_classic
    if paper.low > 0:
        value, low, high = (yardstick / end for end in (paper.value, paper.high, paper.low))
        figures[PER_ATTRIBUTE_RATIO] = Estimate(value, low, high, paper.n)
    return figures


def _bounded(estimate: Estimate, promised: float) -> Estimate:
    if math.isfinite(estimate.high):
        return estimate
    return replace(estimate, high=max(estimate.value, promised))


def _theory(result: AuditResult) -> Mapping[str, float]:
    """Epsilons that are known without a measurement, by name."""
    half = result.trials // 2
    no_errors = epsilon_gaussian_dp(Errors(0, 0, half, half), result.delta)
    promises = {name: getattr(one, "value", one) for name, one in vars(result.theory).items()}
    return {
        "largest_showable": result.largest_showable.value,
        "largest_showable_low": result.largest_showable.low,
        "largest_showable_gaussian_low": no_errors.low,
        **promises,
    }
