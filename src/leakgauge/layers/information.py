"""The empirical V-information of gradients about a property: what an attacker can use of them."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

from leakgauge.results.information import NATS, entropy, information_lower_bound
from leakgauge.results.measurements import Estimate
from leakgauge.results.scores import ScoredTrials

Floats = NDArray[np.float64]

BITS, SHARE = "bits", "share"
UNITS = (BITS, NATS, SHARE)

VOTES_CAP_BITS = float(1 + np.log2(special.expit(1.0)))
"""The largest V-information of two values that a softmax over votes can show: 0.548 bits."""


def v_information(
    judged: ScoredTrials,
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

    A value below 0 says that this attack misjudges these trials. The information itself is at least
    0, as the family may ignore the gradients (Xu et al., proposition 1), so the interval's upper
    end is, too.

    Args:
        judged: the trials with the attack's calibrated log posteriors under the prior.
        log_prior: log P(p) ``[m]``.
        ignorant: whether the attack is not heard, as held-out data say that guessing does better:
            the value is 0 then, and the interval goes up to what the attack could have had.
        rng: draws the resamples.
        replicates: number of resamples.
        confidence: of the two-sided interval.

    References:
        Mo et al., 2021, Eq. 7 and 13; Xu et al., ICLR 2020.

    >>> lp = np.log([[0.9, 0.1], [0.1, 0.9]] * 50)
    >>> judged = ScoredTrials(np.arange(100) % 2, lp, np.arange(100) // 2)
    >>> found = v_information(judged, np.log([0.5, 0.5]), rng=np.random.default_rng(0))
    >>> round(found.value, 4)  # log 2 + log 0.9
    0.5878
    """
    found = information_lower_bound(
        judged, log_prior, rng=rng, replicates=replicates, confidence=confidence
    )
    found = replace(found, high=max(0.0, found.high))
    return replace(found, value=0.0, low=0.0) if ignorant else found


def in_unit(nats: Estimate, unit: str, log_prior: Floats) -> Estimate:
    """Return an information in bits, in nats, or as a share of the property's entropy."""
    by = {NATS: 1.0, BITS: 1 / np.log(2), SHARE: 1 / entropy(log_prior)}[unit]
    return replace(nats, value=nats.value * by, low=nats.low * by, high=nats.high * by, unit=unit)


def softmax_over_votes(share: Floats) -> Floats:
    """Return log posteriors ``[n, m]``: the log softmax of the shares of the votes, as printed.

    A forest that is always sure then says 0.731, and the V-information of two values ends at 0.548
    bits: the paper takes votes for logits.

    Args:
        share: of the votes ``[n, m]``, from 0 to 1.

    References:
        Mo et al., 2021, Eq. 8 and the text below it.

    >>> softmax_over_votes(np.array([[0.0, 1.0]])).round(3).tolist()
    [[-1.313, -0.313]]
    """
    log: Floats = special.log_softmax(share, axis=1)
    return log
