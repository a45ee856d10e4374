"""Scores of an adversary's posteriors, each with an interval that knows about shared records.

Every score is a function of the trials' true secrets, the adversary's log posteriors and a weight
for each trial. The interval resamples whole *blocks* of trials: trials of one block draw their
batches from the same records, trials of different blocks share none (see ``inference.games``), so
the blocks are what is independent. Resampling single trials instead would treat one record that
stands in many batches as many records, and give intervals that are too narrow.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

from leakgauge.core.checks import require
from leakgauge.results.measurements import Estimate

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

AUROC = "auroc"
TPR_AT_1_FPR = "tpr_at_1_fpr"
SUCCESS = "success"
ADVANTAGE = "advantage"
ACCURACY = "accuracy"
METRICS = (AUROC, TPR_AT_1_FPR, SUCCESS, ADVANTAGE)

MAX_WEIGHTS = 4_000_000
"""Bootstrap weights that are held at once."""


@dataclass(frozen=True, eq=False)
class Judged:
    """Trials that were judged.

    Attributes:
        truth: the secrets ``[n]``, codes below m.
        log_posterior: natural log of the adversary's posterior ``[n, m]``.
        block: ``[n]``; trials of different blocks share no record (and no person).
    """

    truth: Ints
    log_posterior: Floats
    block: Ints

    def __post_init__(self) -> None:
        bad = int((~np.isfinite(self.log_posterior)).any(axis=1).sum())
        require(
            bad == 0,
            f"{bad} of {len(self.truth)} log posteriors are not finite; smooth the probabilities, "
            "so that no value is ruled out for certain",
        )

    def log_odds(self, value: int) -> Floats:
        """The log-odds ``[n]`` of secret ``value`` against all others.

        Log-odds rather than probabilities, which round to 1 and make ties where they saturate.
        """
        others = np.delete(self.log_posterior, value, axis=1)
        odds: Floats = self.log_posterior[:, value] - special.logsumexp(others, axis=1)
        return odds


# --- pure scores; weights [..., n] give one value for each leading index --------------------------


def _tie_ends(sorted_score: Floats) -> Ints:
    """The last position of each run of equal scores."""
    return np.flatnonzero(np.append(np.diff(sorted_score) != 0, True))


def _cumulative(
    positive: NDArray[np.bool_], score: Floats, weights: Floats | None
) -> tuple[Floats, Floats]:
    """Weights of the negatives and of the positives at or above each distinct score, from 0 on.

    Both have shape ``[..., g + 1]`` for g distinct scores, highest score first. Not yet divided
    by their sums: whole numbers add up exactly, and a perfect area is then exactly 1.
    """
    weights = np.ones(len(score)) if weights is None else weights
    order = np.argsort(-score, kind="stable")
    ends = _tie_ends(score[order])
    sorted_weights = weights[..., order]
    masses = []
    for member in (~positive[order], positive[order]):
        mass = np.cumsum(sorted_weights * member, axis=-1)[..., ends]
        masses.append(np.concatenate([np.zeros((*mass.shape[:-1], 1)), mass], axis=-1))
    return masses[0], masses[1]


def _area(negatives: Floats, positives: Floats) -> Floats:
    won = np.sum(np.diff(negatives) * (positives[..., 1:] + positives[..., :-1]) / 2, axis=-1)
    with np.errstate(invalid="ignore"):
        area: Floats = won / (negatives[..., -1] * positives[..., -1])
    return area


def _best(negatives: Floats, positives: Floats, limit: float) -> Floats:
    accepted = negatives <= limit * negatives[..., -1:] + 1e-9
    most = np.max(np.where(accepted, positives, 0.0), axis=-1)
    with np.errstate(invalid="ignore"):
        best: Floats = most / positives[..., -1]
    return np.where(negatives[..., -1] > 0, best, np.nan)


def auroc(
    positive: NDArray[np.bool_], score: Floats, weights: Floats | None = None
) -> NDArray[np.float64]:
    """Area under the ROC: P(score of a positive > score of a negative), ties count half.

    Args:
        positive: ``[n]``, which trials are positive.
        score: ``[n]``, higher for positives.
        weights: ``[..., n]`` or None for all ones.

    Returns:
        ``[...]``; nan where a class has no weight.

    >>> negatives, positives = np.arange(100), np.arange(100) + 9.5
    >>> label = np.repeat([False, True], 100)
    >>> round(float(auroc(label, np.concatenate([negatives, positives]))), 6)
    0.5905
    """
    return _area(*_cumulative(positive, score, weights))


def tpr_at_fpr(
    positive: NDArray[np.bool_], score: Floats, fpr: float, weights: Floats | None = None
) -> NDArray[np.float64]:
    """The largest true positive rate of a threshold whose false positive rate is at most ``fpr``.

    No interpolation between thresholds: trials of equal score are accepted together. nan where a
    class has no weight.

    >>> label = np.repeat([False, True], 100)
    >>> score = np.concatenate([np.arange(100), np.arange(100) + 9.5])
    >>> float(tpr_at_fpr(label, score, 0.01))
    0.11
    """
    return _best(*_cumulative(positive, score, weights), fpr)


def hits(judged: Judged) -> Floats:
    """1 where the most probable secret is the true one; a tie of k that holds it counts 1/k.

    >>> lp = np.log([[0.5, 0.5], [0.9, 0.1]])
    >>> hits(Judged(np.array([0, 1]), lp, np.array([0, 1]))).tolist()
    [0.5, 0.0]
    """
    top = judged.log_posterior == judged.log_posterior.max(axis=1, keepdims=True)
    true = top[np.arange(len(judged.truth)), judged.truth]
    shared: Floats = true / top.sum(axis=1)
    return shared


def _one_against_rest(judged: Judged) -> Iterator[tuple[NDArray[np.bool_], Floats]]:
    """(which trials are positive, their log-odds) for each value; for two values value 1 alone."""
    m = judged.log_posterior.shape[1]
    for value in [1] if m == 2 else range(m):
        yield judged.truth == value, judged.log_odds(value)


def figures(judged: Judged, weights: Floats | None = None) -> dict[str, Floats]:
    """AUROC, TPR at 1 % FPR and success rate (Li et al., CCS 2024, section 5.1.2).

    AUROC and TPR are means over the secrets, one against the rest, where there are more than two.

    Args:
        judged: the trials.
        weights: of the trials ``[..., n]``, or None for all ones.

    Returns:
        Each ``[...]``.
    """
    weights = np.ones(len(judged.truth)) if weights is None else weights
    areas, rates = [], []
    for positive, log_odds in _one_against_rest(judged):
        masses = _cumulative(positive, log_odds, weights)
        areas.append(_area(*masses))
        rates.append(_best(*masses, 0.01))
    return {
        AUROC: np.mean(areas, axis=0),
        TPR_AT_1_FPR: np.mean(rates, axis=0),
        SUCCESS: (weights @ hits(judged)) / weights.sum(axis=-1),
    }


def advantage(success: float, majority: float) -> float:
    """Success above always guessing the most probable secret, scaled to at most 1.

    >>> advantage(0.75, 0.5)
    0.5

    References:
        Li et al., CCS 2024, section 5.1.2.
    """
    return (success - majority) / (1.0 - majority)


def roc(
    judged: Judged, *, floor: float = 1e-3, points: int = 60
) -> tuple[tuple[float, float], ...]:
    """ROC points (FPR, TPR) on a logarithmic grid of FPR from ``floor`` to 1.

    Macro-averaged over the secrets, one against the rest, where there are more than two.
    """
    grid = np.append(0.0, np.geomspace(floor, 1.0, points))
    masses = [_cumulative(pos, score, None) for pos, score in _one_against_rest(judged)]
    tpr = np.mean([[_best(*mass, limit) for limit in grid] for mass in masses], axis=0)
    return tuple(zip(grid.tolist(), tpr.tolist(), strict=True))


# --- intervals ------------------------------------------------------------------------------------


def bootstrap_interval(
    value: float,
    replicates: Floats,
    *,
    blocks: int,
    confidence: float = 0.95,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> tuple[float, float]:
    """Percentile interval from block-bootstrap replicates, honest for few blocks and at a bound.

    The percentiles are widened as a t interval with ``blocks - 1`` degrees of freedom is (expanded
    percentile interval; Hesterberg 2015, "What teachers should know about the bootstrap"). Where
    every replicate is the same (no block showed a single error, or all said the same), the
    bootstrap sees no spread; the interval then reaches as far as ``unseen``.

    Args:
        value: the estimate on all trials.
        replicates: ``[b]``, the estimate on resampled blocks; nan are left out.
        blocks: how many blocks were resampled.
        confidence: two-sided.
        bounds: the smallest and largest possible value.

    Raises:
        InputError: there are fewer than two blocks, or no replicate has a value.

    >>> low, high = bootstrap_interval(1.0, np.ones(1000), blocks=100)
    >>> round(low, 4), high
    (0.9638, 1.0)
    """
    replicates = replicates[np.isfinite(replicates)]
    require(
        blocks >= 2 and len(replicates) > 0,
        f"{blocks} groups of trials are too few to resample; bring more trials, or more records",
    )
    tail = (1 - confidence) / 2
    t = special.stdtrit(blocks - 1, 1 - tail)
    widened = special.ndtr(-np.sqrt(blocks / (blocks - 1)) * t)
    low, high = np.quantile(replicates, [widened, 1 - widened])
    if low == high:
        reach = unseen(blocks, confidence) * (bounds[1] - bounds[0])
        low, high = max(bounds[0], value - reach), min(bounds[1], value + reach)
    return min(float(low), value), max(float(high), value)


def unseen(n: int, confidence: float = 0.95) -> float:
    """The largest share of exceptions of which n may well show none (Clopper-Pearson, two-sided).

    >>> round(unseen(8), 4), round(unseen(100), 4)
    (0.3694, 0.0362)
    """
    return float(1 - ((1 - confidence) / 2) ** (1 / n))


def draw_blocks(count: int, replicates: int, rng: np.random.Generator) -> Floats:
    """How often each of ``count`` blocks is drawn, ``[replicates, count]``."""
    return rng.multinomial(count, np.full(count, 1 / count), size=replicates).astype(np.float64)


def score(
    judged: Judged,
    *,
    majority: float,
    rng: np.random.Generator,
    replicates: int = 1000,
    confidence: float = 0.95,
) -> dict[str, Estimate]:
    """All four scores of Li et al., section 5.1.2, with block-bootstrap intervals.

    Args:
        judged: the trials; at least two blocks.
        majority: the prior probability of the most probable secret (what a guess achieves).
        rng: draws the resamples.
        replicates: number of resamples.
        confidence: of the two-sided intervals.

    Returns:
        ``{"auroc", "tpr_at_1_fpr", "success", "advantage"}``; all but the advantage lie in [0, 1].
    """
    names, index = np.unique(judged.block, return_inverse=True)
    require(len(names) >= 2, "all trials draw on the same records; an interval needs two blocks")
    drawn = draw_blocks(len(names), replicates, rng)
    chunk = max(1, MAX_WEIGHTS // len(index))  # so that many trials do not need much memory
    parts = [figures(judged, drawn[i : i + chunk, index]) for i in range(0, replicates, chunk)]
    estimates = {}
    for metric, value in figures(judged).items():
        low, high = bootstrap_interval(
            float(value),
            np.concatenate([part[metric] for part in parts]),
            blocks=len(names),
            confidence=confidence,
        )
        estimates[metric] = Estimate(float(value), low, high, len(index), confidence)
    success = estimates[SUCCESS]
    gain = replace(
        success,
        value=advantage(success.value, majority),
        low=advantage(success.low, majority),
        high=advantage(success.high, majority),
    )
    return {**estimates, ADVANTAGE: gain}


def share(
    correct: NDArray[np.bool_],
    block: Ints,
    *,
    rng: np.random.Generator,
    replicates: int = 1000,
    confidence: float = 0.95,
) -> Estimate:
    """The share of true bits ``[n]``; its interval resamples ``block`` ``[n]`` (say, persons)."""
    values = correct.astype(np.float64)
    _, index = np.unique(block, return_inverse=True)
    size = np.bincount(index).astype(np.float64)
    right = np.bincount(index, weights=values)
    drawn = draw_blocks(len(size), replicates, rng)
    value = float(values.mean())
    if len(size) < 2:  # one person tells nothing about others
        return Estimate(value, 0.0, 1.0, n=len(values), confidence=confidence)
    low, high = bootstrap_interval(
        value, (drawn @ right) / (drawn @ size), blocks=len(size), confidence=confidence
    )
    return Estimate(value, low, high, n=len(values), confidence=confidence)


def chance(truth: Ints, majority: float) -> dict[str, float]:
    """What each metric shows on average where nothing leaks.

    With n negatives, floor(n / 100) of them may be accepted at 1 % FPR, and a positive lies above
    the next one with probability (floor(n / 100) + 1) / (n + 1): more than 1 % where n is small.

    Args:
        truth: the secrets ``[n]`` of the trials.
        majority: as for ``score``.

    >>> chance(np.arange(5000) % 2, 0.5)["tpr_at_1_fpr"].__round__(5)
    0.0104
    """
    counts = np.bincount(truth)
    negatives = [len(truth) - count for count in (counts[1:] if len(counts) == 2 else counts)]
    accepted = np.mean([(n // 100 + 1) / (n + 1) for n in negatives])
    return {AUROC: 0.5, TPR_AT_1_FPR: float(accepted), SUCCESS: majority, ADVANTAGE: 0.0}


def smallest_detectable(estimate: Estimate, chance: float, *, power: float = 0.8) -> float:
    """The smallest true value above chance that a test like this one would have shown.

    Shown means: the interval lies above chance, with probability ``power``. Normal approximation
    with the standard error that the interval implies.

    >>> round(smallest_detectable(Estimate(0.5, 0.48, 0.52, n=100), 0.5), 4)
    0.5286
    """
    z = special.ndtri((1 + estimate.confidence) / 2)
    error = (estimate.high - estimate.low) / (2 * z)
    return float(chance + (z + special.ndtri(power)) * error)
