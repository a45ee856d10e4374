"""Calibrate an adversary on held-out shadow records.

An adversary is overconfident about the records that it was fitted on, so others calibrate it: the
shadow records are split into folds, by user if the data name users; the attack is fitted
on all folds but one and scores batches of that one. The same shadow records and the same seed give
the same folds and batches in every round, so their scores can be compared over
the rounds.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from leakgauge.core.rng import stream
from leakgauge.core.types import Grads
from leakgauge.inference.adversaries.adversary import with_prior
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.results.statistics import Floats, Ints

ScoreFunction = Callable[[Grads], Floats]
"""Maps n gradients, leaves ``[n, *p]``, to log-odds ``[n, m]`` up to a constant per row."""

BEYOND = 1000.0
"""Mean log-odds, in nats, that no calibrated adversary reaches."""


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Log-odds of held-out shadow batches, and the truth.

    Attributes:
        log_odds: ``[n, m]``, natural logs up to a constant per row, under a uniform prior.
        secret: ``[n]``, the truth.
    """

    log_odds: Floats
    secret: Ints

    def by_secret(self) -> "HeldOut":
        """Return these log-odds by secret, comparable with other batches of the same secrets."""
        order = np.argsort(self.secret, kind="stable")
        return HeldOut(self.log_odds[order], self.secret[order])

    def scaled(self, slope: float) -> "HeldOut":
        """Return these log-odds times ``slope``."""
        return HeldOut(slope * self.log_odds, self.secret)


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A fitted attack with log-odds that one slope calibrates.

    Attributes:
        details: the settings and the fitted values in one line.
        score: returns the log-odds before the slope.
        slope: factor of the log-odds.
        log_prior: ``[m]``.
        held_out: scaled log-odds of held-out shadow batches.
    """

    details: str
    score: ScoreFunction
    slope: float
    log_prior: Floats
    held_out: HeldOut

    def log_posterior(self, seen: Grads) -> Floats:
        """Return log posteriors ``[n, m]`` for gradients with leaves ``[n, *p]``."""
        return with_prior(self.slope * self.score(seen), self.log_prior)


@dataclass(frozen=True, eq=False)
class HeldOutFold:
    """One fold of the shadow records; all rows are indices into them.

    Attributes:
        rest: the records to fit on ``[k]``; the batches share no record and no user with them.
        batches: the batches to score ``[n, B]``, bootstrapped from the fold.
        secret: the secrets of the batches ``[n]``, balanced.
    """

    rest: Ints
    batches: Ints
    secret: Ints


def held_out_folds(shadow: Shadow, *, folds: int, batches: int) -> Iterator[HeldOutFold]:
    """Split the shadow records and draw held-out batches, ``batches`` over all folds.

    They depend on the shadow records and ``shadow.held_out_seed`` alone, not on the attack.
    """
    rng = stream(shadow.held_out_seed, "folds")
    for rest, fold in shadow.fold_rows(folds, rng=rng):
        rows, secret = shadow.only(fold).draw(batches // folds, rng=rng)
        yield HeldOutFold(rest, fold[rows], secret)


def hold_out(
    shadow: Shadow, fit: Callable[[Shadow], ScoreFunction], *, folds: int, batches: int
) -> HeldOut:
    """Fit on the rest of each fold, and score the batches of the fold."""
    scores, truth = [], []
    for part in held_out_folds(shadow, folds=folds, batches=batches):
        score = fit(shadow.only(part.rest))
        scores += [score(grads) for grads in shadow.held_out_gradients(part.batches)]
        truth.append(part.secret)
    return HeldOut(np.concatenate(scores), np.concatenate(truth))


def calibrate(
    settings: object,
    fit: Callable[[Shadow], ScoreFunction],
    shadow: Shadow,
    log_prior: Floats,
    *,
    folds: int,
    batches: int,
) -> Calibrated:
    """Fit one slope on held-out shadow records, then the attack ``settings`` on all."""
    held_out = hold_out(shadow, fit, folds=folds, batches=batches)
    slope = fit_slope(held_out)
    details = f"{settings!r}, slope {slope:.3f}"
    return Calibrated(details, fit(shadow), slope, log_prior, held_out.scaled(slope))


def log_loss(held_out: HeldOut, slope: float = 1.0) -> float:
    """Return the mean of ``-log softmax(slope * log_odds)`` at the true secrets, in nats.

    >>> round(log_loss(HeldOut(np.zeros((5, 4)), np.zeros(5, dtype=np.int64))), 4)
    1.3863
    """
    scaled = slope * held_out.log_odds
    chosen = scaled[np.arange(len(scaled)), held_out.secret]
    return float((special.logsumexp(scaled, axis=1) - chosen).mean())


def fit_slope(held_out: HeldOut, *, most: float = 10.0) -> float:
    """Return s in [0, most] so that ``softmax(s * log_odds)`` is calibrated on held-out batches.

    It has no intercept, which a small shadow set does not determine. The truth is smoothed, so
    that batches that are all classified correctly do not make the adversary more confident than
    their number warrants.

    References:
        Guo et al., ICML 2017 (temperature scaling, s = 1 / T).

    >>> truth = np.arange(1000) % 2
    >>> right = np.arange(1000) % 10 > 0  # 9 of 10 are correct: odds of 9
    >>> odds = np.where(right == (truth == 1), 6.0, -6.0)
    >>> scored = HeldOut(np.stack([0 * odds, odds], axis=1), truth)
    >>> round(fit_slope(scored) * 6, 2), round(float(np.log(9)), 2)
    (2.18, 2.2)
    """
    truth = smoothed_truth(held_out.secret, held_out.log_odds.shape[1])

    def loss(slope: float) -> float:
        log_probability = special.log_softmax(slope * held_out.log_odds, axis=1)
        return -float((truth * log_probability).sum() / len(truth))

    # Where log-odds are in the thousands their slope is small, and the search must be as fine.
    mean = np.abs(held_out.log_odds - held_out.log_odds.mean(axis=1, keepdims=True)).mean()
    upper = min(most, BEYOND / mean) if mean > 0 else most
    best = optimize.minimize_scalar(
        loss, bounds=(0.0, upper), method="bounded", options={"xatol": 1e-6 * upper}
    )
    return float(best.x)


def smoothed_truth(secret: Ints, values: int) -> Floats:
    """Return target probabilities ``[n, m]``: all but 1 / (k + 2) for the truth, k batches a value.

    References:
        Platt, Probabilistic outputs for support vector machines, 1999, section 2.2.

    >>> smoothed_truth(np.array([0, 1]), 2).round(4).tolist()
    [[0.6667, 0.3333], [0.3333, 0.6667]]
    """
    doubt = 1 / (len(secret) / values + 2)
    truth = np.full((len(secret), values), doubt / (values - 1))
    truth[np.arange(len(secret)), secret] = 1 - doubt
    return truth


def two_sided(decision: NDArray[np.floating]) -> Floats:
    """Return a classifier's decision function ``[n]`` or ``[n, m]`` as log-odds ``[n, m]``.

    Decisions do not round to 0 or 1 as probabilities do, so no log is infinite.

    >>> two_sided(np.array([3.0])).tolist()
    [[-1.5, 1.5]]
    """
    log_odds: Floats = decision.astype(np.float64)
    return log_odds if log_odds.ndim == 2 else log_odds[:, None] * np.array([-0.5, 0.5])


def smoothed_votes(share: Floats, trees: int) -> Floats:
    """Return the log of the posterior mean under a Jeffreys prior, with T trees as T votes.

    Args:
        share: shares of the votes ``[n, m]``.
        trees: T, number of trees.

    >>> np.exp(smoothed_votes(np.array([[1.0, 0.0]]), 50)).round(4).tolist()
    [[0.9902, 0.0098]]
    """
    return np.asarray(np.log((trees * share + 0.5) / (trees + 0.5 * share.shape[1])))
