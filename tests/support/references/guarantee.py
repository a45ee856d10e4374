"""Audits literally as in the paper: one release, threshold or count at a time."""

import itertools
import math

import torch

from support.references.gradients import loop


def gradient(task, params, x, y):
    """Return the flat gradient of one record, by plain autograd."""
    found = loop(task, params, x[None, None], y[None, None])
    return torch.cat([leaf.flatten() for leaf in found.values()])


def clipped(flat, clip):
    norm = math.sqrt(float(flat.square().sum()))
    return flat * min(1.0, clip / norm) if norm > 0 else flat


def largest_epsilon(null, alternative, delta):
    """Return the largest in-sample epsilon over both orders and all thresholds between scores."""
    values = sorted({*null, *alternative})
    cuts = [values[0] - 1, *((a + b) / 2 for a, b in itertools.pairwise(values))]
    best = 0.0
    for cut in cuts:
        fpr = sum(score > cut for score in null) / len(null)
        fnr = sum(score <= cut for score in alternative) / len(alternative)
        for one, other, n in ((fnr, fpr, len(null)), (fpr, fnr, len(alternative))):
            if 1 - delta - one > 0:
                best = max(best, math.log((1 - delta - one) / max(other, 1 / n)))
    return best
