"""Continual observation: one adversary a round, Bayes over the rounds (Li et al., section 4.2)."""

import numpy as np
from numpy.typing import NDArray
from scipy import special


def accumulate(
    log_posteriors: NDArray[np.float64], log_prior: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Combine the rounds' posteriors as if the rounds were independent given the secret.

    ``P(a | g_1 .. g_R)`` is proportional to ``P(a) prod_r P(a | g_r) / P(a)`` (Eq. 1 to 4). Where
    one batch is seen in every round the rounds are dependent: the product is then overconfident,
    and can rank worse than its best round.

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
    log_ratios = log_posteriors - log_prior
    joint = log_ratios.sum(axis=0) + log_prior
    posterior: NDArray[np.float64] = joint - special.logsumexp(joint, axis=1, keepdims=True)
    return posterior
