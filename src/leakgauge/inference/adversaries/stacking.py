"""Sums over the rounds: the plain one of the paper, and one with weights from shadow data.

If the batch of a trial is the same in every round, the rounds are dependent given the secret, and
the plain product over rounds (``accumulate``) counts the same information many times. Held-out
shadow batches show the dependence, if every round scores the same ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from leakgauge.core.checks import require, require_positive
from leakgauge.inference.adversaries.adversary import Adversary, Attack, with_prior
from leakgauge.inference.adversaries.calibration import HeldOut, fit_slope, hold_out, smoothed_truth
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.results.statistics import Floats, Ints


def accumulate(log_posteriors: Floats, log_prior: Floats) -> Floats:
    """Combine the posteriors of the rounds, assuming independence given the secret.

    ``P(a | g_1 .. g_R)`` is proportional to ``P(a) prod_r P(a | g_r) / P(a)`` (Eq. 1 to 4). If
    one batch is observed in every round, the rounds are dependent: the product is then
    overconfident, and can rank worse than its best round.

    Args:
        log_posteriors: ``[R, n, m]``, natural logs.
        log_prior: ``[m]``.

    Returns:
        ``[n, m]``.

    >>> once = np.log([[[0.8, 0.2]]])
    >>> uniform = np.log([0.5, 0.5])
    >>> np.exp(accumulate(np.concatenate([once, once]), uniform)).round(4)
    array([[0.9412, 0.0588]])
    """
    return with_prior((log_posteriors - log_prior).sum(axis=0), log_prior)


def held_out_scores(
    attack: Attack,
    fitted: Adversary,
    shadow: Shadow,
    *,
    folds: int = 3,
    batches: int = 2000,
    rng: np.random.Generator,
) -> HeldOut:
    """Return log-odds of held-out shadow batches, the same ones in every round.

    An adversary that was calibrated on these batches has them in ``held_out``; otherwise the
    attack (or its ``of_fold``) is fitted once more for each fold.

    Args:
        attack: the settings.
        fitted: the same attack, fitted on all of the shadow.
        shadow: shadow of this round.
        folds: number of folds of the shadow records.
        batches: number of held-out batches over all folds.
        rng: generator of the fits.
    """
    known = getattr(fitted, "held_out", None)
    own = getattr(attack, "folds", folds), getattr(attack, "batches", batches)
    if isinstance(known, HeldOut) and own == (folds, batches):
        return known
    uniform = np.full(shadow.values, -np.log(shadow.values))
    lighter: Callable[[int], Attack] | None = getattr(attack, "of_fold", None)
    of_fold = attack if lighter is None else lighter(folds)
    return hold_out(
        shadow,
        lambda part: of_fold.fit(part, uniform, rng=rng).log_posterior,
        folds=folds,
        batches=batches,
    )


@dataclass(frozen=True)
class Stack:
    """Non-negative weights of the rounds, by logistic regression on their log-odds.

    The regression has no intercept. Weights of nearly equal rounds are poorly determined; the
    penalty shrinks them to their mean, not to 0.

    Attributes:
        penalty: factor of half the sum of squared deviations of the weights from their mean,
            relative to the mean log loss in nats.
    """

    penalty: float = 0.01

    def __post_init__(self) -> None:
        require_positive(self.penalty, "penalty")

    def fit(self, held_out: Sequence[HeldOut]) -> Floats:
        """Return the weights ``[R]``.

        Args:
            held_out: log-odds of each round for the same batches in the same order.
        """
        secret = _same_secret(held_out)
        log_odds = np.stack([one.log_odds for one in held_out])
        log_odds = log_odds - log_odds.mean(axis=2, keepdims=True)
        truth = smoothed_truth(secret, log_odds.shape[2])

        def loss(weights: Floats) -> tuple[float, Floats]:
            log_probability = special.log_softmax(np.tensordot(weights, log_odds, 1), axis=1)
            apart = weights - weights.mean()
            value = -(truth * log_probability).sum() / len(secret)
            slope = ((np.exp(log_probability) - truth) * log_odds).sum(axis=(1, 2)) / len(secret)
            return value + self.penalty / 2 * apart @ apart, slope + self.penalty * apart

        start = np.full(len(held_out), 1 / len(held_out))
        bounds = [(0.0, None)] * len(held_out)
        best = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
        return np.asarray(best.x)


def pool(held_out: Sequence[HeldOut], shares: Sequence[float] | None = None) -> Floats:
    """Return weights ``[M]`` with which the log-odds of M adversaries count by their shares.

    Each adversary's log-odds are scaled by the slope that calibrates them, so that one without
    knowledge counts for nothing; the mean of all is scaled once more. A regression would need one
    weight for each adversary. Few shadow records do not determine them: it then prefers the one
    that happens to rank the held-out batches best.

    Args:
        held_out: log-odds of each adversary for the same batches in the same order.
        shares: share of each adversary ``[M]``, with a sum of 1; None for equal ones.
    """
    secret = _same_secret(held_out)
    each = np.full(len(held_out), 1 / len(held_out)) if shares is None else np.asarray(shares)
    slopes = each * np.array([fit_slope(one) for one in held_out])
    mean = np.tensordot(slopes, np.stack([one.log_odds for one in held_out]), 1)
    return np.asarray(slopes * fit_slope(HeldOut(mean, secret)))


def _same_secret(held_out: Sequence[HeldOut]) -> Ints:
    secret = held_out[0].secret
    require(
        all(np.array_equal(one.secret, secret) for one in held_out),
        "the rounds scored different held-out batches; score the same ones in every round",
    )
    return secret


def cross_weighted(held_out: Sequence[HeldOut], stack: Stack, *, parts: int = 3) -> HeldOut:
    """Return weighted sums of held-out batches, with weights fitted on other batches.

    Their ranking is therefore that of unseen batches. The batches of a secret are split in their
    order, which is that of the folds.

    Args:
        held_out: log-odds of each round for the same batches in the same order.
        stack: settings of the weights.
        parts: number of parts of the cross-validation.
    """
    secret = held_out[0].secret
    rank = np.empty(len(secret), dtype=np.int64)
    for value in np.unique(secret):
        rows = np.flatnonzero(secret == value)
        rank[rows] = np.arange(len(rows)) * parts // len(rows)
    sums = np.empty_like(held_out[0].log_odds)
    for part in range(parts):
        rest, rows = rank != part, rank == part
        others = [HeldOut(one.log_odds[rest], secret[rest]) for one in held_out]
        weights = stack.fit(others)
        sums[rows] = np.tensordot(weights, np.stack([one.log_odds[rows] for one in held_out]), 1)
    return HeldOut(sums, secret)


def accumulate_weighted(log_posteriors: Floats, log_prior: Floats, weights: Floats) -> Floats:
    """Combine the posteriors of the rounds with a weight for each round.

    ``P(a | g_1 .. g_R)`` is proportional to ``P(a) prod_r (P(a | g_r) / P(a)) ** w_r``; weights of
    1 give ``accumulate``.

    Args:
        log_posteriors: ``[R, n, m]``, natural logs.
        log_prior: ``[m]``.
        weights: ``[R]``.

    Returns:
        ``[n, m]``.

    >>> twice_the_same = np.log([[[0.8, 0.2]], [[0.8, 0.2]]])
    >>> uniform = np.log([0.5, 0.5])
    >>> np.exp(accumulate_weighted(twice_the_same, uniform, np.array([0.5, 0.5]))).round(4)
    array([[0.8, 0.2]])
    """
    return with_prior(np.tensordot(weights, log_posteriors - log_prior, 1), log_prior)
