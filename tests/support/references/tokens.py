"""Estimators, means and U-statistics literally as in their papers: one sum at a time."""

import itertools
import math

import numpy as np


def infonce(groups):
    """Return the mean over groups of van den Oord's bound; ``groups`` are scores ``[K, K]``."""
    values = []
    for scores in groups:
        k = len(scores)
        for i in range(k):
            negatives = sum(math.exp(scores[i][j]) for j in range(k)) / k
            values.append(scores[i][i] - math.log(negatives))
    return sum(values) / len(values)


def _pairs(groups, clip=math.inf):
    """Return the mean matched score, and the mean exponential of all others."""
    matched, others = [], []
    for scores in groups:
        for i in range(len(scores)):
            for j in range(len(scores)):
                if i == j:
                    matched.append(scores[i][j])
                else:
                    others.append(math.exp(max(-clip, min(clip, scores[i][j]))))
    return sum(matched) / len(matched), sum(others) / len(others)


def nwj(groups):
    """Return the mean score of pairs, minus the mean of exp(score - 1) over all others."""
    matched, others = _pairs(groups)
    return matched - others / math.e


def smile(groups, clip=5.0):
    """Return the Donsker-Varadhan bound with clipped scores of negatives."""
    matched, others = _pairs(groups, clip)
    return matched - math.log(others)


def mine(groups):
    """Return the Donsker-Varadhan bound with the token of the next row as only partner."""
    matched, partners = [], []
    for scores in groups:
        k = len(scores)
        matched += [scores[i][i] for i in range(k)]
        partners += [math.exp(scores[i][(i + 1) % k]) for i in range(k)]
    return sum(matched) / len(matched) - math.log(sum(partners) / len(partners))


def jensen_shannon(scores):
    """Return the mean of -softplus(-s) over pairs, minus that of softplus(s) over all others."""
    k = len(scores)
    matched = sum(-math.log1p(math.exp(-scores[i][i])) for i in range(k)) / k
    others = [math.log1p(math.exp(scores[i][j])) for i in range(k) for j in range(k) if i != j]
    return matched - sum(others) / len(others)


def gap(scores):
    """Return the mean matched and the mean mismatched score."""
    k = len(scores)
    matched = [scores[i][i] for i in range(k)]
    others = [scores[i][j] for i in range(k) for j in range(k) if i != j]
    return sum(matched) / k, sum(others) / len(others)


def hsic(k, other):
    """Return unbiased HSIC: a U-statistic over ordered quadruples of different records.

    References:
        Gretton et al., Measuring statistical dependence with Hilbert-Schmidt norms, 2005; Song et
        al., JMLR 2012.
    """
    n = len(k)
    total = 0.0
    for i, j, q, r in itertools.permutations(range(n), 4):
        total += k[i, j] * (other[i, j] + other[q, r] - 2 * other[i, q])
    return total / math.perm(n, 4)


def aligned(k, other):
    """Return unbiased HSIC of two kernels, normalised by the HSIC of each with itself."""
    k, other = np.asarray(k), np.asarray(other)
    return hsic(k, other) / math.sqrt(hsic(k, k) * hsic(other, other))
