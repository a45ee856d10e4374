"""Utility of a trained model, with intervals: R², macro F1, balanced accuracy, AUROC.

All but the AUROC are functions of sums over records, so a resample of blocks needs only the sums
of blocks. ``block [n]`` groups the records, for example by user; ``rng`` draws ``replicates``
resamples of blocks. The confidence is 95 %.
"""

from collections.abc import Callable

import numpy as np
from numpy.random import Generator

from leakgauge.results.intervals import bootstrap_interval, draw_blocks
from leakgauge.results.measurements import Estimate
from leakgauge.results.roc import auroc
from leakgauge.results.statistics import SHARE, Bools, Floats, Ints

ScalarOf = Callable[[Floats], Floats]
"""Maps sums over records ``[b, s, k]`` to a figure ``[b]``."""

ROUNDING = 1e-12
"""Relative size below which a difference of two sums is only rounding."""


def r2(
    truth: Floats, predicted: Floats, block: Ints, *, rng: Generator, replicates: int = 1000
) -> Estimate | None:
    """Return R² (the explained share of the variance), averaged over the numbers ``[n, k]``.

    Returns:
        An estimate of at most 1; predicting the mean of the labels gives 0. None if a label is
        constant, or all records belong to one block.
    """
    truth = truth.astype(np.float64)
    centred = truth - truth.mean(axis=0)
    if (centred == 0).all(axis=0).any() or len(np.unique(block)) < 2:
        return None
    error = (truth - predicted) ** 2
    parts = np.stack([np.ones_like(centred), centred, centred**2, error], axis=1)
    return _estimate(parts, _r2, block, rng, replicates)


def macro_f1(
    truth: Bools, predicted: Bools, block: Ints, *, rng: Generator, replicates: int = 1000
) -> Estimate:
    """Return the mean of the labels' F1, where a label that is never true nor predicted has 0.

    Truth and prediction have shape ``[n, k]``. With a single block the interval is 0 to 1.
    """
    both = (truth & predicted).astype(np.float64)
    parts = np.stack([both, truth.astype(np.float64) + predicted], axis=1)
    return _estimate(parts, _f1, block, rng, replicates)


def balanced_accuracy(
    truth: Ints, predicted: Ints, block: Ints, *, rng: Generator, replicates: int = 1000
) -> Estimate:
    """Return the mean over classes of the recall: the share of a class's records predicted right.

    With a single block the interval is 0 to 1. A resample without a class takes the mean over the
    others.

    Args:
        truth: codes of classes ``[n]``; classes without records do not count.
        predicted: ``[n]``.
    """
    having = truth[:, None] == np.unique(truth)
    right = having & (predicted == truth)[:, None]
    parts = np.stack([right, having], axis=1).astype(np.float64)
    return _estimate(parts, _recall, block, rng, replicates)


CELLS = 2_000_000
"""Weights of records held in memory at once."""


def class_auroc(
    positive: Bools, score: Floats, block: Ints, *, rng: Generator, replicates: int = 1000
) -> Estimate | None:
    """Return the area under the ROC of each class against all others, as the mean over classes.

    Args:
        positive: whether a record has the class ``[n, k]``; one column suffices for two classes.
        score: ``[n, k]``, higher if the class is more probable.

    Returns:
        An estimate over the classes that some records have and others do not; None without such a
        class, or if all records belong to one block.
    """
    names, index = np.unique(block, return_inverse=True)
    mixed = [column for column in range(positive.shape[1]) if len(set(positive[:, column])) == 2]
    if not mixed or len(names) < 2:
        return None
    value = float(np.mean([auroc(positive[:, one], score[:, one]) for one in mixed]))
    drawn = draw_blocks(len(names), replicates, rng)
    chunks = np.array_split(drawn, -(-len(drawn) * len(index) // CELLS))
    again = [
        np.mean([auroc(positive[:, one], score[:, one], some[:, index]) for one in mixed], axis=0)
        for some in chunks
    ]
    ends = bootstrap_interval(value, np.concatenate(again), blocks=len(names))
    return Estimate(value, *ends, n=len(positive))


def _recall(sums: Floats) -> Floats:
    right, having = np.moveaxis(sums, 1, 0)
    found: Floats = (right / np.maximum(having, 1)).sum(axis=1) / (having > 0).sum(axis=1)
    return found


def _r2(sums: Floats) -> Floats:
    count, linear, squared, error = np.moveaxis(sums, 1, 0)
    variation = squared - linear**2 / count
    several = variation > ROUNDING * squared  # else a resample holds one value alone: no figure
    found: Floats = (1 - error / np.where(several, variation, np.nan)).mean(axis=1)
    return found


def _f1(sums: Floats) -> Floats:
    both, either = np.moveaxis(sums, 1, 0)
    found: Floats = (2 * both / np.maximum(either, 1)).mean(axis=1)
    return found


def _estimate(
    parts: Floats, statistic: ScalarOf, block: Ints, rng: Generator, replicates: int
) -> Estimate:
    """Return a figure of records ``[n, s, k]`` with an interval that resamples blocks."""
    names, index = np.unique(block, return_inverse=True)
    sums = np.zeros((len(names), *parts.shape[1:]))
    np.add.at(sums, index, parts)
    value = float(statistic(sums.sum(axis=0)[None])[0])
    if len(names) < 2:
        return Estimate(value, *SHARE, n=len(parts))
    drawn = draw_blocks(len(names), replicates, rng)
    again = statistic(np.tensordot(drawn, sums, axes=1))
    low, high = bootstrap_interval(value, again, blocks=len(names))
    return Estimate(value, low, high, n=len(parts))
