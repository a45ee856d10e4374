"""Usable (V-)information of gradients about a property, from calibrated attacks."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from leakgauge.inference.adversaries.adversary import with_prior
from leakgauge.inference.adversaries.calibration import HeldOut, smoothed_truth
from leakgauge.results.information import NATS, entropy, information_lower_bound
from leakgauge.results.measurements import Estimate
from leakgauge.results.scores import ScoredTrials

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Calibration:
    """A slope for the log-odds, and a shift for each value.

    Attributes:
        slope: factor of the log-odds, at least 0; with 0 only the shifts remain.
        shift: shift of each value ``[m]``, the first one 0.
    """

    slope: float
    shift: Floats

    def __call__(self, log_odds: Floats, log_prior: Floats) -> Floats:
        """Return log posteriors ``[n, m]`` of log-odds ``[n, m]`` under a prior ``[m]``."""
        return with_prior(self.slope * log_odds + self.shift, log_prior)


def calibrate(held_out: HeldOut) -> Calibration:
    """Return the calibration with the least log loss on balanced held-out batches.

    The truth is smoothed, so that a few batches without an error do not make the attack surer than
    their number warrants.

    Args:
        held_out: log-odds ``[n, m]`` of balanced batches, and the truth.

    References:
        Platt, Probabilistic outputs for support vector machines, 1999, section 2.2.

    >>> truth = np.arange(1000) % 2
    >>> odds = np.where((np.arange(1000) // 2 % 10 > 0) == (truth == 1), 6.0, -6.0)
    >>> found = calibrate(HeldOut(np.stack([0 * odds, odds], axis=1), truth))
    >>> round(6 * found.slope, 2)  # 9 of 10 are right, which is what odds of 9 express
    2.18
    """
    n, m = held_out.log_odds.shape
    centred = held_out.log_odds - held_out.log_odds.mean(axis=1, keepdims=True)
    width = float(np.abs(centred).mean()) or 1.0
    scaled, truth = centred / width, smoothed_truth(held_out.secret, m)

    def loss(at: Floats) -> tuple[float, Floats]:
        log_probability = special.log_softmax(at[0] * scaled + np.append(0.0, at[1:]), axis=1)
        apart = np.exp(log_probability) - truth
        slopes = np.append((apart * scaled).sum(), apart[:, 1:].sum(axis=0))
        return float(-(truth * log_probability).sum() / n), slopes / n

    bounds = [(0.0, None), *[(None, None)] * (m - 1)]
    best = optimize.minimize(loss, np.eye(m)[0], jac=True, method="L-BFGS-B", bounds=bounds)
    return Calibration(float(best.x[0]) / width, np.append(0.0, best.x[1:]))


def gain(halves: tuple[HeldOut, HeldOut]) -> float:
    """Return the mean gain over guessing on each half, calibrated on the other, in nats.

    The batches of both halves draw on different records. With a gain of 0 or less the attack is
    better ignored (optional ignorance).

    Args:
        halves: balanced held-out batches.

    References:
        Xu et al., A theory of usable information under computational constraints, ICLR 2020,
        definition 1.
    """
    first, second = halves
    gains = [_mean_gain(calibrate(one), other) for one, other in ((first, second), (second, first))]
    return float(np.average(gains, weights=[len(second.secret), len(first.secret)]))


def joined(halves: tuple[HeldOut, HeldOut]) -> HeldOut:
    """Return the batches of both halves."""
    return HeldOut(
        np.concatenate([one.log_odds for one in halves]),
        np.concatenate([one.secret for one in halves]),
    )


def _mean_gain(calibration: Calibration, held_out: HeldOut) -> float:
    m = held_out.log_odds.shape[1]
    log_posterior = calibration(held_out.log_odds, np.full(m, -np.log(m)))
    at_truth = log_posterior[np.arange(len(held_out.secret)), held_out.secret]
    return float(at_truth.mean() + np.log(m))


BITS, SHARE = "bits", "share"
UNITS = (BITS, NATS, SHARE)

VOTES_CAP_BITS = float(1 + np.log2(special.expit(1.0)))
"""Largest V-information of two values under a softmax over shares of votes: 0.548 bits."""


def v_information(
    trials: ScoredTrials,
    log_prior: Floats,
    *,
    ignorant: bool = False,
    rng: np.random.Generator,
    replicates: int = 1000,
    confidence: float = 0.95,
) -> Estimate:
    """Return the empirical V-information in nats, with an interval that resamples blocks.

    It is the mean over the trials of ``log f[g](p) - log f[0](p)``: the calibrated posterior at
    the truth against the prior. Its expectation is the entropy of the property plus the mean log
    posterior at the truth (Eq. 7). The paper fixes the prior to 1/2.

    A value below 0 means that this attack is wrong about these trials. The information itself is at
    least 0, as the family may ignore the gradients (Xu et al., proposition 1), and so is the
    interval's upper end.

    Args:
        trials: trials with the attack's calibrated log posteriors under the prior.
        log_prior: log P(p) ``[m]``.
        ignorant: whether guessing did better on held-out data. The value is then 0, and the
            interval ends at the upper end of the attack's own.
        rng: generator of the resamples.
        replicates: number of resamples.
        confidence: level of the two-sided interval.

    References:
        Mo et al., 2021, Eq. 7 and 13; Xu et al., ICLR 2020.

    >>> lp = np.log([[0.9, 0.1], [0.1, 0.9]] * 50)
    >>> trials = ScoredTrials(np.arange(100) % 2, lp, np.arange(100) // 2)
    >>> found = v_information(trials, np.log([0.5, 0.5]), rng=np.random.default_rng(0))
    >>> round(found.value, 4)  # log 2 + log 0.9
    0.5878
    """
    found = information_lower_bound(
        trials, log_prior, rng=rng, replicates=replicates, confidence=confidence
    )
    found = replace(found, high=max(0.0, found.high))
    return replace(found, value=0.0, low=0.0) if ignorant else found


def in_unit(nats: Estimate, unit: str, log_prior: Floats) -> Estimate:
    """Return an information in bits, in nats, or as a share of the property's entropy."""
    by = {NATS: 1.0, BITS: 1 / np.log(2), SHARE: 1 / entropy(log_prior)}[unit]
    return replace(nats, value=nats.value * by, low=nats.low * by, high=nats.high * by, unit=unit)


def softmax_over_votes(share: Floats) -> Floats:
    """Return log posteriors ``[n, m]``, the log softmax of the shares of the votes.

    Eq. 8 is a softmax of the attack's output, and the paper does not say what a forest's is. With
    shares of votes, a forest that is always sure gives a probability of 0.731, and the
    V-information of two values is at most 0.548 bits. Probabilities of another attack get a second
    softmax.

    Args:
        share: shares of the votes ``[n, m]``, from 0 to 1.

    References:
        Mo et al., 2021, Eq. 8 and the text below it.

    >>> softmax_over_votes(np.array([[0.0, 1.0]])).round(3).tolist()
    [[-1.313, -0.313]]
    """
    log: Floats = special.log_softmax(share, axis=1)
    return log
