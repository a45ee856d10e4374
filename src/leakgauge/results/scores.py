"""Scores of an adversary's posteriors, with intervals that resample whole blocks of trials.

Every score is a function of the trials' true secrets, the adversary's log posteriors and a weight
for each trial. Trials of different blocks share no record. If trials share users and no blocks
exist, the jackknife leaves out each user in turn; ``results.intervals`` explains both. If batches
are drawn from all records, it leaves out each record in turn (``results.overlap``). ``rng`` draws
``replicates`` resamples; ``confidence`` is two-sided.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from scipy import special

from leakgauge.core.checks import require
from leakgauge.results.few_errors import auroc_interval, rate_interval, tpr_interval
from leakgauge.results.intervals import bootstrap_interval, draw_blocks, jackknife_interval
from leakgauge.results.measurements import Estimate
from leakgauge.results.overlap import Overlap
from leakgauge.results.roc import area, auroc_influence, best_rate, cumulative, resampled_auroc
from leakgauge.results.statistics import Bools, Floats, Ints

AUROC = "auroc"
TPR_AT_1_FPR = "tpr_at_1_fpr"
SUCCESS = "success"
ADVANTAGE = "advantage"
ACCURACY = "accuracy"
TRAIN_ACCURACY = "train_accuracy"
BALANCED_ACCURACY = "balanced_accuracy"
R2 = "r2"
MACRO_F1 = "macro_f1"
TASK_AUROC = "task_auroc"
LABELS_ALONE = "auroc_labels_alone"
FEATURES_ALONE = "auroc_features_alone"
BEYOND_LABELS = "auroc_beyond_labels_alone"
BEYOND_FEATURES = "auroc_beyond_features_alone"
MOST_AT_RISK = "success_most_at_risk"
WORST_VALUE = "auroc_worst_value"
INFORMATION = "information_nats"


@dataclass(frozen=True, eq=False)
class ScoredTrials:
    """True secrets of trials and the posteriors that an adversary gives them.

    Attributes:
        truth: the secrets ``[n]``, codes below m.
        log_posterior: natural log of the adversary's posterior ``[n, m]``.
        block: block of each trial ``[n]``; trials of different blocks share no record and no user.
        users: users ``[n, m]`` of each trial, if trials share users and no blocks exist; else None.
        overlap: records or users that trials share, if batches are drawn from all records and no
            blocks exist; else None.
    """

    truth: Ints
    log_posterior: Floats
    block: Ints
    users: Ints | None = None
    overlap: Overlap | None = None

    def __post_init__(self) -> None:
        bad = int((~np.isfinite(self.log_posterior)).any(axis=1).sum())
        require(
            bad == 0,
            f"{bad} of {len(self.truth)} log posteriors are not finite; smooth the probabilities, "
            "so that no value is ruled out for certain",
        )

    def without_each_user(self) -> Iterator[Bools]:
        """Yield for each user the trials ``[n]`` that are not about this user."""
        assert self.users is not None
        for user in np.unique(self.users):
            yield (self.users != user).all(axis=1)

    def resampled_blocks(self, replicates: int, rng: Generator) -> tuple[Ints, Floats]:
        """Return each trial's block ``[n]``, from 0, and how often resamples draw each ``[r, k]``.

        Raises:
            InputError: all trials belong to one block.
        """
        names, index = np.unique(self.block, return_inverse=True)
        require(
            len(names) >= 2, "all trials draw on the same records; an interval needs two blocks"
        )
        return index, draw_blocks(len(names), replicates, rng)

    def log_odds(self, value: int) -> Floats:
        """Return the log-odds ``[n]`` of secret ``value`` against all others.

        Probabilities would round to 1 and make ties where they saturate.
        """
        others = np.delete(self.log_posterior, value, axis=1)
        odds: Floats = self.log_posterior[:, value] - special.logsumexp(others, axis=1)
        return odds


def hits(trials: ScoredTrials) -> Floats:
    """Return 1 for each trial with a correct most probable secret, 1/k for a tie of k values.

    >>> lp = np.log([[0.5, 0.5], [0.9, 0.1]])
    >>> hits(ScoredTrials(np.array([0, 1]), lp, np.array([0, 1]))).tolist()
    [0.5, 0.0]
    """
    top = trials.log_posterior == trials.log_posterior.max(axis=1, keepdims=True)
    true = top[np.arange(len(trials.truth)), trials.truth]
    shared: Floats = true / top.sum(axis=1)
    return shared


def _one_against_rest(trials: ScoredTrials) -> Iterator[tuple[Bools, Floats]]:
    """Yield (positive trials, log-odds) for each value; for two values only value 1."""
    m = trials.log_posterior.shape[1]
    for value in [1] if m == 2 else range(m):
        yield trials.truth == value, trials.log_odds(value)


def figures(trials: ScoredTrials) -> dict[str, float]:
    """Return AUROC, TPR at 1 % FPR and success rate (Li et al., CCS 2024, section 5.1.2).

    With more than two values, AUROC and TPR are means over the values, one against the rest.
    """
    masses = [cumulative(*each, None) for each in _one_against_rest(trials)]
    return {
        AUROC: float(np.mean([area(*mass) for mass in masses])),
        TPR_AT_1_FPR: float(np.mean([best_rate(*mass, 0.01) for mass in masses])),
        SUCCESS: float(hits(trials).mean()),
    }


def each_value(
    trials: ScoredTrials, *, rng: Generator, replicates: int = 1000, confidence: float = 0.95
) -> list[Estimate]:
    """Return the AUROC of each value against all others, with block-bootstrap intervals.

    The trials belong to at least two blocks, or share records; the jackknife over records then
    gives the intervals. An interval is at least that for few errors.
    """
    estimates = []
    index, drawn = (
        trials.resampled_blocks(replicates, rng)
        if trials.overlap is None
        else (trials.block, np.empty((0, 0)))
    )
    for value in range(trials.log_posterior.shape[1]):
        part = trials.truth == value, trials.log_odds(value)
        auroc = float(area(*cumulative(*part, None)))
        if trials.overlap is None:
            again = resampled_auroc(*part, index, drawn)
            ends = bootstrap_interval(auroc, again, blocks=drawn.shape[1], confidence=confidence)
        else:
            ends = trials.overlap.interval(auroc, auroc_influence(*part), confidence)
        if 0 < auroc < 1:
            ends = _widest(ends, auroc_interval(*part, trials.overlap or index, confidence))
        estimates.append(Estimate(auroc, *ends, int(part[0].sum()), confidence))
    return estimates


def advantage(success: float, majority: float) -> float:
    """Return the success above that of guessing the most probable secret, scaled to 0 to 1.

    An adversary worse than guessing has an advantage of 0, as in the paper; its success rate shows
    how much worse it is.

    >>> advantage(0.75, 0.5), advantage(0.4, 0.5)
    (0.5, 0.0)

    References:
        Li et al., CCS 2024, section 5.1.2: max(p - p*, 0) / (1 - p*).
    """
    return max(success - majority, 0.0) / (1.0 - majority)


def roc(
    trials: ScoredTrials, *, floor: float = 1e-3, points: int = 60
) -> tuple[tuple[float, float], ...]:
    """Return ROC points (FPR, TPR) on a logarithmic grid of FPR from ``floor`` to 1.

    With more than two values, the curve is the mean over the values, one against the rest.
    """
    grid = np.append(0.0, np.geomspace(floor, 1.0, points))
    masses = [cumulative(*each, None) for each in _one_against_rest(trials)]
    tpr = np.mean([[best_rate(*mass, limit) for limit in grid] for mass in masses], axis=0)
    return tuple(zip(grid.tolist(), tpr.tolist(), strict=True))


def score(
    trials: ScoredTrials,
    *,
    majority: float,
    rng: Generator,
    replicates: int = 1000,
    confidence: float = 0.95,
) -> dict[str, Estimate]:
    """Return the four scores of Li et al., section 5.1.2, with intervals.

    They resample blocks, and are at least those for few errors; that of the TPR covers the
    threshold, too (``results.few_errors``). If trials share users, the intervals are those of the
    jackknife over users; if they share records, it is over records, and the intervals are at least
    those for few errors, too. The TPR at 1 % FPR is left out with fewer than 100 negatives.

    Args:
        trials: trials of at least two blocks, or about at least two users that no trial always has.
        majority: prior probability of the most probable secret (the success of guessing).

    Returns:
        ``{"auroc", "tpr_at_1_fpr", "success", "advantage"}``, all within 0 and 1.
    """
    values = figures(trials)
    if any(not shows_rate(one, 0.01) for one, _ in _one_against_rest(trials)):
        del values[TPR_AT_1_FPR]
    ends = _ends(trials, values, confidence, rng, replicates)
    n = len(trials.truth)
    estimates = {
        metric: Estimate(value, *ends[metric], n, confidence) for metric, value in values.items()
    }
    value, low, high = (advantage(one, majority) for one in (values[SUCCESS], *ends[SUCCESS]))
    gain = Estimate(value, low, high, n, confidence)
    return {**estimates, ADVANTAGE: gain}


def _ends(
    trials: ScoredTrials,
    values: Mapping[str, float],
    confidence: float,
    rng: Generator,
    replicates: int,
) -> dict[str, tuple[float, float]]:
    """Return the interval of each metric."""
    if trials.users is not None:
        without = [
            figures(ScoredTrials(trials.truth[one], trials.log_posterior[one], trials.block[one]))
            for one in trials.without_each_user()
        ]
        left = {metric: np.array([one[metric] for one in without]) for metric in values}
        return {
            metric: jackknife_interval(value, left[metric], confidence=confidence)
            for metric, value in values.items()
        }
    if trials.overlap is not None:
        ends = {
            metric: trials.overlap.interval(values[metric], influence, confidence)
            for metric, influence in influences(trials).items()
        }
        return _widened(trials, values, ends, trials.overlap, confidence)
    index, drawn = trials.resampled_blocks(replicates, rng)
    again, blocks = resampled_figures(replace(trials, block=index), drawn), drawn.shape[1]
    ends = {
        metric: bootstrap_interval(values[metric], replicates, blocks=blocks, confidence=confidence)
        for metric, replicates in again.items()
    }
    return _widened(trials, values, ends, index, confidence)


def _widened(
    trials: ScoredTrials,
    values: Mapping[str, float],
    ends: dict[str, tuple[float, float]],
    shared: Ints | Overlap,
    confidence: float,
) -> dict[str, tuple[float, float]]:
    """Return intervals that are at least those for few errors, and that of the TPR."""
    parts = [(*each, shared) for each in _one_against_rest(trials)]
    if 0 < values[AUROC] < 1:
        of_values = [auroc_interval(*part, confidence) for part in parts]
        ends[AUROC] = _widest(ends[AUROC], _mean(of_values))
    ends[SUCCESS] = _widest(ends[SUCCESS], rate_interval(hits(trials), shared, confidence))
    if TPR_AT_1_FPR in values:
        ends[TPR_AT_1_FPR] = _mean([tpr_interval(*part, 0.01, confidence) for part in parts])
    return ends


def shows_rate(positive: Bools, fpr: float) -> bool:
    """Return whether there are 1 / fpr negatives: fewer show no false positive rate so small.

    >>> shows_rate(np.arange(99) < 0, 0.01), shows_rate(np.arange(100) < 0, 0.01)
    (False, True)
    """
    return bool((~positive).sum() * fpr >= 1 - 1e-9)


def _widest(*intervals: tuple[float, float]) -> tuple[float, float]:
    lows, highs = zip(*intervals, strict=True)
    return min(lows), max(highs)


def _mean(intervals: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the interval of a mean, as if all errors were correlated."""
    low, high = np.mean(intervals, axis=0).tolist()
    return low, high


def resampled_figures(trials: ScoredTrials, drawn: Floats) -> dict[str, Floats]:
    """Return AUROC and success ``[r]`` of resamples that draw each block ``drawn [r, k]`` times."""
    parts = [(*each, trials.block, drawn) for each in _one_against_rest(trials)]
    right = np.bincount(trials.block, weights=hits(trials))
    return {
        AUROC: np.mean([resampled_auroc(*part) for part in parts], axis=0),
        SUCCESS: (drawn @ right) / (drawn @ np.bincount(trials.block)),
    }


def influences(trials: ScoredTrials) -> dict[str, Floats]:
    """Return what each trial adds to AUROC and success ``[n]``; the mean of each is 0."""
    of_values = [auroc_influence(*each) for each in _one_against_rest(trials)]
    right = hits(trials)
    return {AUROC: np.mean(of_values, axis=0), SUCCESS: right - right.mean()}


def chance(truth: Ints, majority: float) -> dict[str, float]:
    """Return the expected value of each metric without a leak.

    With n negatives, floor(n / 100) of them may be accepted at 1 % FPR, and a positive lies above
    the next one with probability (floor(n / 100) + 1) / (n + 1): more than 1 % for small n.

    Args:
        truth: secrets ``[n]`` of the trials.
        majority: prior probability of the most probable secret.

    >>> chance(np.arange(5000) % 2, 0.5)["tpr_at_1_fpr"].__round__(5)
    0.0104
    """
    counts = np.bincount(truth)
    negatives = [len(truth) - count for count in (counts[1:] if len(counts) == 2 else counts)]
    accepted = np.mean([(n // 100 + 1) / (n + 1) for n in negatives])
    return {AUROC: 0.5, TPR_AT_1_FPR: float(accepted), SUCCESS: majority, ADVANTAGE: 0.0}


def smallest_detectable(estimate: Estimate, chance: float, *, power: float = 0.8) -> float:
    """Return the smallest true value above chance that a test with this interval detects.

    A test detects a value if its interval lies above chance with probability ``power``. The normal
    approximation uses the standard error that the interval implies.

    >>> round(smallest_detectable(Estimate(0.5, 0.48, 0.52, n=100), 0.5), 4)
    0.5286
    """
    z = special.ndtri((1 + estimate.confidence) / 2)
    error = (estimate.high - estimate.low) / (2 * z)
    return float(chance + (z + special.ndtri(power)) * error)
