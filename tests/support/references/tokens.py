"""Estimators, means and U-statistics as their papers write them: one sum after the other."""

import itertools
import math

import numpy as np


def infonce(groups):
    """The mean over groups of van den Oord's bound; ``groups`` are scores ``[K, K]``."""
    values = []
    for scores in groups:
        k = len(scores)
        for i in range(k):
            negatives = sum(math.exp(scores[i][j]) for j in range(k)) / k
            values.append(scores[i][i] - math.log(negatives))
    return sum(values) / len(values)


def _pairs(groups, clip=math.inf):
    """All matched scores, and the exponentials of all others."""
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
    """Mean score of pairs, minus the mean of exp(score - 1) over all others."""
    matched, others = _pairs(groups)
    return matched - others / math.e


def smile(groups, clip=5.0):
    """Donsker-Varadhan with scores of negatives within the clip."""
    matched, others = _pairs(groups, clip)
    return matched - math.log(others)


def mine(groups):
    """Donsker-Varadhan with one partner a pair: the token of the next row."""
    matched, partners = [], []
    for scores in groups:
        k = len(scores)
        matched += [scores[i][i] for i in range(k)]
        partners += [math.exp(scores[i][(i + 1) % k]) for i in range(k)]
    return sum(matched) / len(matched) - math.log(sum(partners) / len(partners))


def jensen_shannon(scores):
    """-softplus(-s) over pairs, minus softplus(s) over all others."""
    k = len(scores)
    matched = sum(-math.log1p(math.exp(-scores[i][i])) for i in range(k)) / k
    others = [math.log1p(math.exp(scores[i][j])) for i in range(k) for j in range(k) if i != j]
    return matched - sum(others) / len(others)


def gap(scores):
    """Mean matched and mean mismatched score."""
    k = len(scores)
    matched = [scores[i][i] for i in range(k)]
    others = [scores[i][j] for i in range(k) for j in range(k) if i != j]
    return sum(matched) / k, sum(others) / len(others)


def hsic(k, other):
    """Unbiased HSIC: a U-statistic over ordered quadruples of different records.

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
    """Unbiased HSIC of two kernels, over the root of those of each with itself."""
    k, other = np.asarray(k), np.asarray(other)
    return hsic(k, other) / math.sqrt(hsic(k, k) * hsic(other, other))
