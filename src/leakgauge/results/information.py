"""A lower bound of the information about the secret, from an adversary's posteriors."""

import math

import numpy as np
from scipy import special

from leakgauge.results.intervals import bootstrap_interval, jackknife_interval
from leakgauge.results.measurements import Estimate
from leakgauge.results.scores import ScoredTrials
from leakgauge.results.statistics import Floats

NATS = "nats"


def information_lower_bound(
    trials: ScoredTrials,
    log_prior: Floats,
    *,
    rng: np.random.Generator,
    replicates: int = 1000,
    confidence: float = 0.95,
) -> Estimate:
    """Return H(a) minus the adversary's cross-entropy, in nats: I(a; gradient) is at least as much.

    It is the mean over the trials of the log posterior at the truth minus the log prior there.
    Secrets are drawn from the prior, so the second mean is -H(a) in expectation; with it, an
    adversary that repeats the prior has exactly 0. A value below 0 shows that the adversary is
    overconfident; it is not raised to 0.

    The interval resamples blocks of trials; if these draw on the same users or records, the
    jackknife leaves out each in turn.

    Args:
        trials: trials with posteriors under the prior; each is scaled to sum to 1.
        log_prior: log P(a) of the game, ``[m]``.
        rng: draws the resamples.
        replicates: number of resamples.
        confidence: two-sided.

    Raises:
        InputError: all trials belong to one block.

    References:
        Li et al., CCS 2024, section 6.3; Barber and Agakov, The IM Algorithm, 2003.

    >>> lp = np.log([[0.9, 0.1], [0.1, 0.9]] * 50)
    >>> trials = ScoredTrials(np.arange(100) % 2, lp, np.arange(100) // 2)
    >>> found = information_lower_bound(trials, np.log([0.5, 0.5]), rng=np.random.default_rng(0))
    >>> round(found.value, 4)  # log 2 + log 0.9
    0.5878
    """
    rows = np.arange(len(trials.truth))
    posterior = special.log_softmax(trials.log_posterior, axis=1)
    gains = posterior[rows, trials.truth] - log_prior[trials.truth]
    value, most = float(gains.mean()), entropy(log_prior)
    bounds = (min(value, -most), most)
    if trials.users is not None:
        without = np.array([gains[rest].mean() for rest in trials.without_each_user()])
        if np.ptp(without) > 0:  # Only the upper end has a limit.
            bounds = (-math.inf, most)
        ends = jackknife_interval(value, without, confidence=confidence, bounds=bounds)
        return Estimate(value, *ends, len(gains), confidence, NATS)
    if trials.overlap is not None:
        added = gains - value if np.ptp(gains) > 0 else np.zeros(len(gains))
        bounds = (-math.inf, most) if added.any() else bounds
        ends = trials.overlap.interval(value, added, confidence, bounds)
        return Estimate(value, *ends, len(gains), confidence, NATS)
    index, drawn = trials.resampled_blocks(replicates, rng)
    resampled = (drawn @ np.bincount(index, weights=gains)) / (drawn @ np.bincount(index))
    ends = bootstrap_interval(
        value, resampled, blocks=drawn.shape[1], confidence=confidence, bounds=bounds
    )
    return Estimate(value, *ends, len(gains), confidence, NATS)


def entropy(log_prior: Floats) -> float:
    """Return the entropy H(a) of a prior in nats.

    >>> round(entropy(np.log([0.5, 0.5])), 4)
    0.6931
    """
    return float(-(np.exp(log_prior) * log_prior).sum())
