"""Turns the figures of all checkpoints into measurements: curves, their peak, and ranks."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import scipy
from scipy import special

from leakgauge.results.measurements import (
    ACCUMULATED,
    HEADLINE,
    MOST,
    CellContext,
    Estimate,
    Measurement,
)
from leakgauge.results.statistics import at_most, student_t
from leakgauge.tokens.metrics import (
    GAP,
    INFORMATION,
    MODEL,
    PLACEBO,
    PSNR,
    RANKS_BOUND,
    RANKS_GAP,
    is_ignorant,
    of_critic,
)
from leakgauge.tokens.run.measuring import CheckpointFigure
from leakgauge.tokens.settings import BOUNDS, PAPER
from leakgauge.tokens.spec import TimelineSpec

BLOCKS = 8
"""Largest number of blocks of held-out records per interval; fewer widen it more."""

FEWEST_RANKED = 4
"""Smallest number of checkpoints for the interval of a rank correlation."""

FigureByStep = Mapping[int, CheckpointFigure]
"""Figures by sub-epoch."""


FiguresOfSteps = Mapping[int, Sequence[CheckpointFigure]]
"""All figures by sub-epoch."""


def summarised(
    spec: TimelineSpec,
    cell: CellContext,
    figures: FiguresOfSteps,
    planted: Mapping[str, str],
) -> Iterator[Measurement]:
    """Yield the measurements of one defense from its figures by sub-epoch.

    ``planted`` holds details of the largest bound, if it shows no leak.
    """
    for step, several in figures.items():
        for one in several:
            yield cell.measurement(
                one.metric,
                one.estimate,
                round=step,
                chance=one.chance,
                adversary=one.adversary,
                details={**one.details, "step": str(step)},
                theory=_theory(one),
            )
    for one in figures[max(figures)]:  # the utility of the final model, as in all questions
        family, _, metric = one.metric.partition(": ")
        if family == MODEL:
            yield cell.measurement(metric, one.estimate, round=ACCUMULATED, chance=one.chance)
    curves = _curves(figures)
    yield from _peak(spec, cell, curves, planted)
    yield from _ranks(spec, cell, curves)


def _curves(figures: FiguresOfSteps) -> Mapping[str, FigureByStep]:
    curves: dict[str, dict[int, CheckpointFigure]] = {}
    for step, several in figures.items():
        for one in several:
            curves.setdefault(one.metric, {})[step] = one
    return curves


@dataclass(frozen=True)
class Peak:
    """The largest held-out bound of a training.

    Attributes:
        step: its sub-epoch.
        token: token of its critic.
        method: estimator of its critic.
        looks: number of bounds of which it is the largest.
        bound: the bound, with an interval widened for the choice.
        ignorant: whether a constant critic did best.
    """

    step: int
    token: str
    method: str
    looks: int
    bound: Estimate
    ignorant: bool


def peak_of(spec: TimelineSpec, figures: FiguresOfSteps) -> Peak | None:
    """Return the largest held-out bound; None without any."""
    return _largest(spec, _curves(figures))


def _largest(spec: TimelineSpec, curves: Mapping[str, FigureByStep]) -> Peak | None:
    candidates = [one for one in spec.estimator if one in BOUNDS and one != PAPER]
    methods = candidates or list(spec.estimator)
    looks = [
        (one.estimate.value, -step, token, method)
        for token in spec.token
        for method in methods
        for step, one in curves.get(of_critic(INFORMATION, token, method), {}).items()
    ]
    if not looks:
        return None
    _, back, token, method = max(looks)
    found = curves[of_critic(INFORMATION, token, method)][-back]
    bound = widened(found.estimate, len(looks))
    return Peak(-back, token, method, len(looks), bound, is_ignorant(found.details))


def _peak(
    spec: TimelineSpec,
    cell: CellContext,
    curves: Mapping[str, FigureByStep],
    planted: Mapping[str, str],
) -> Iterator[Measurement]:
    """Yield the figures of the largest bound, with intervals widened for the choice."""
    top = _largest(spec, curves)
    if top is None:
        return
    for name, looked in ((INFORMATION, top.looks), (PLACEBO, top.looks), (GAP, 1)):
        found = curves.get(of_critic(name, top.token, top.method), {}).get(top.step)
        if found is None:
            continue
        own = planted if name == INFORMATION else {}
        details = {**found.details, "step": str(top.step), "looks": str(looked), **own}
        most = math.inf if found.most is None else found.most
        yield cell.measurement(
            name,
            at_most(widened(found.estimate, looked), most),
            round=HEADLINE,
            adversary=found.adversary,
            details=details,
            theory=_theory(found),
        )


def _theory(figure: CheckpointFigure) -> dict[str, float]:
    return {} if figure.most is None else {MOST: figure.most}


def widened(estimate: Estimate, looks: int) -> Estimate:
    """Return an estimate with an interval valid for the largest of several (Bonferroni).

    The interval is assumed to be Student's t over at most ``BLOCKS`` blocks.

    >>> widened(Estimate(1.0, 0.5, 1.5, 100), 1).low
    0.5
    >>> round(widened(Estimate(1.0, 0.5, 1.5, 100), 6).low, 3)
    0.231
    """
    if looks <= 1:
        return estimate
    level = 1 - (1 - estimate.confidence) / looks
    factor = student_t(BLOCKS - 1, level) / student_t(BLOCKS - 1, estimate.confidence)
    low = estimate.value - factor * (estimate.value - estimate.low)
    high = estimate.value + factor * (estimate.high - estimate.value)
    largest = float(np.finfo(np.float64).max)
    return replace(estimate, low=max(low, -largest), high=min(high, largest))


def _ranks(
    spec: TimelineSpec, cell: CellContext, curves: Mapping[str, FigureByStep]
) -> Iterator[Measurement]:
    """Yield the rank correlations of bound and gap with the attack over checkpoints."""
    attack = curves.get(PSNR, {})
    kinds = ((RANKS_BOUND, INFORMATION), (RANKS_GAP, GAP))
    for token, method, (kind, name) in product(spec.token, spec.estimator, kinds):
        curve = curves.get(of_critic(name, token, method), {})
        steps = sorted(curve.keys() & attack.keys())
        ours, theirs = ([one[step].estimate.value for step in steps] for one in (curve, attack))
        found = rank_correlation(ours, theirs)
        if found is not None:
            yield cell.measurement(
                of_critic(kind, token, method),
                found,
                round=ACCUMULATED,
                adversary=f"{token}, {method}",
                details={"token": token, "estimator": method},
            )


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> Estimate | None:
    """Return Spearman's correlation with Fisher's interval; None for few or equal values.

    >>> found = rank_correlation([1, 2, 3, 4, 5], [2, 1, 4, 3, 5])
    >>> round(found.value, 2), found.n
    (0.8, 5)
    """
    count = len(first)
    if count < FEWEST_RANKED or min(len(set(first)), len(set(second))) < 2:
        return None
    value = float(scipy.stats.spearmanr(first, second).statistic)
    reach = float(special.ndtri(0.975)) * 1.03 / math.sqrt(count - 3)
    middle = math.atanh(max(-1 + 1e-9, min(1 - 1e-9, value)))
    low, high = math.tanh(middle - reach), math.tanh(middle + reach)
    return Estimate(value, min(low, value), max(high, value), count)
