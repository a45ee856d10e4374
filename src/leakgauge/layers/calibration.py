"""Calibration of an attack's log-odds on batches that it was not fitted on."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from leakgauge.inference.adversaries.adversary import with_prior
from leakgauge.inference.adversaries.calibration import HeldOut, smoothed_truth

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Calibration:
    """A slope for the log-odds, and a shift for each value.

    Attributes:
        slope: 0 or more; 0 leaves the shifts alone.
        shift: ``[m]``, the first one 0.
    """

    slope: float
    shift: Floats

    def __call__(self, log_odds: Floats, log_prior: Floats) -> Floats:
        """Return log posteriors ``[n, m]`` of log-odds ``[n, m]`` under a prior ``[m]``."""
        return with_prior(self.slope * log_odds + self.shift, log_prior)


def calibrate(held_out: HeldOut) -> Calibration:
    """Return the calibration with the least log loss on balanced held-out batches.

    The truth is smoothed, so that batches that are all judged right do not make the attack surer
    than their number warrants.

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
    """Return how much better than guessing each half is judged, calibrated on the other, in nats.

    The batches of both halves draw on different records. A gain of 0 or less says that the
    attack is better left unheard (optional ignorance).

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


def _mean_gain(calibration: Calibration, judged: HeldOut) -> float:
    m = judged.log_odds.shape[1]
    log_posterior = calibration(judged.log_odds, np.full(m, -np.log(m)))
    at_truth = log_posterior[np.arange(len(judged.secret)), judged.secret]
    return float(at_truth.mean() + np.log(m))
