"""Estimates the mutual information of data features and gradients on held-out pairs."""

import itertools
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.rng import torch_stream
from leakgauge.results.measurements import Estimate
from leakgauge.results.statistics import at_most, mean_estimate
from leakgauge.tokens.estimators import estimator, jackknife
from leakgauge.tokens.fitting import CriticScores, FittedCritic, fit
from leakgauge.tokens.networks import FLAT
from leakgauge.tokens.settings import CriticSettings
from leakgauge.tokens.sources import Pairs, PairSource, PairSplit, split_pairs
from leakgauge.tokens.words import INFONCE

NEAR = 0.9
"""Share of an estimator's limit from which an interval counts as limited by its sample."""

GROUP = 256
"""Group size for plain vectors; InfoNCE cannot exceed its log."""

FEWEST = 3
"""Smallest number of blocks of held-out pairs for an interval."""


@dataclass(frozen=True)
class Information:
    """A critic's estimate of the mutual information of features and gradients.

    All figures except ``in_sample`` and ``gap_in_sample`` are computed on unseen pairs. It is the
    estimate of one critic: the information itself can be larger.

    Attributes:
        bound: estimate in nats, with an interval over blocks of held-out pairs, which ends at
            ``limit`` at the latest. It is a lower bound in the mean for InfoNCE, NWJ and MINE, but
            not for SMILE.
        in_sample: estimate on the pairs that the critic learned from, in nats.
        critic_gap: matched minus mismatched score; not an information (section 4.2.1).
        gap_in_sample: critic gap on the pairs that the critic learned from, as in the paper.
        matched: mean score of matched pairs (appendix B).
        mismatched: mean score of mismatched pairs.
        limit: largest value of the estimator, in nats.
        iterations: iterations of the critic; 0 if a constant critic did better on the stopping
            pairs. The held-out figures are then 0, with the upper ends of the fitted critic.
    """

    bound: Estimate
    in_sample: float
    critic_gap: Estimate
    gap_in_sample: float
    matched: Estimate
    mismatched: Estimate
    limit: float
    iterations: int

    @property
    def is_limited(self) -> bool:
        """Whether the sample, not the data, may limit the estimate."""
        return self.bound.high >= NEAR * self.limit


def estimate_information(
    parts: PairSplit,
    settings: CriticSettings,
    *,
    seed: int,
    matched: bool = True,
    device: torch.device | str = "cpu",
) -> Information:
    """Fit a critic on some pairs, stop it by others, and evaluate it on a third part.

    Args:
        parts: pairs of the three parts.
        settings: settings of the estimate.
        seed: seed of all random draws.
        matched: False for the placebo, gradients of other data, with figures of about 0.
        device: device of the computation.

    Raises:
        InputError: too few held-out pairs for an interval, or one that is not finite.

    References:
        Privacy Tokens, Algorithm 1, here with separate fitting and evaluation.
    """
    for source in (parts.reporting, parts.stopping)[: 2 if settings.patience else 1]:
        _check_blocks(source, settings, seed)
    fitted = fit(parts, settings, seed=seed, matched=matched, device=device)
    held_out = fitted.evaluate(parts.reporting, torch_stream(seed, "report"), matched=matched)
    known = fitted.evaluate(parts.fitting, torch_stream(seed, "in-sample"), matched=matched)
    return _information(fitted, held_out, known)


def mutual_information(
    x: Tensor,
    y: Tensor,
    *,
    seed: int = 0,
    settings: CriticSettings | None = None,
    by: str = INFONCE,
) -> Information:
    """Return a critic's estimate of the mutual information of two samples.

    Args:
        x: sample ``[N, a]``; 60 % of the rows fit, 20 % stop, and 20 % report.
        y: sample ``[N, b]`` with the same rows; rows are independent.
        seed: seed of all random draws.
        settings: settings of the estimate; None takes those for vectors without an encoder.
        by: estimator if ``settings`` is None.

    Raises:
        InputError: shapes differ, a value is not finite, or there are too few rows.

    >>> x = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0))
    >>> found = mutual_information(x, x, seed=0, settings=vectors(group=25, iterations=300))
    >>> found.bound.low > 1, round(found.limit, 2)
    (True, 3.22)
    """
    require(
        x.dim() == y.dim() == 2 and len(x) == len(y),
        f"x is {list(x.shape)}, y is {list(y.shape)}; expected [N, a] and [N, b]",
    )
    require(
        bool(x.isfinite().all() and y.isfinite().all()), "a value is not finite; leave out its row"
    )
    chosen = settings or vectors(by, group=max(8, min(GROUP, len(x) // 40)))
    parts = split_pairs(Pairs(x.float(), {"y": y.float()}))
    return estimate_information(parts, chosen, seed=seed)


def vectors(by: str = INFONCE, **changed: float) -> CriticSettings:
    """Return settings for plain vectors: no encoder, and all held-out pairs are evaluated."""
    plain = CriticSettings(
        estimator=by,
        token=FLAT,
        dropout=0.0,
        iterations=3000,
        batch=256,
        group=GROUP,
        lr=3e-4,
        patience=12,
        check_every=50,
        evaluated=10**6,
    )
    return replace(plain, **changed)  # type: ignore[arg-type]


def _check_blocks(source: PairSource, settings: CriticSettings, seed: int) -> None:
    blocks = source.groups(settings.group, settings.evaluated, torch_stream(seed, "check"))
    found = sum(1 for _ in itertools.islice(blocks, FEWEST))
    require(
        found >= FEWEST,
        f"the held-out pairs make {found} groups of {settings.group}; expected "
        f"{FEWEST} or more: bring more pairs, or smaller groups",
    )


def _information(fitted: FittedCritic, held_out: CriticScores, known: CriticScores) -> Information:
    measure = estimator(fitted.settings.estimator)
    limit = measure.limit(held_out.group)
    bound = at_most(replace(jackknife(held_out.parts, measure), n=held_out.pairs), limit)
    matched, mismatched, gap = (
        replace(mean_estimate(values.numpy()), n=held_out.pairs)
        for values in (*held_out.gaps.T, held_out.gaps[:, 0] - held_out.gaps[:, 1])
    )
    means = known.gaps.mean(0)
    if fitted.iterations == 0:
        start = replace(matched, value=measure.start, low=measure.start, high=measure.start)
        matched = mismatched = start
        bound = replace(bound, value=0.0, low=0.0, high=max(0.0, bound.high))
        gap = replace(gap, value=0.0, low=min(0.0, gap.low), high=max(0.0, gap.high))
    return Information(
        bound=bound,
        in_sample=float(measure.value(known.parts)),
        critic_gap=gap,
        gap_in_sample=float(means[0] - means[1]),
        matched=matched,
        mismatched=mismatched,
        limit=limit,
        iterations=fitted.iterations,
    )
