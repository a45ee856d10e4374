"""Recognises the weight decay of a step of SGD from weights whose gradient is 0.

Such weights, of units that no record of the batch switches on or of words that it lacks, only
shrink: all by one factor, to the last digit. Weights with a gradient change by other factors.
"""

from dataclasses import dataclass

import torch

from leakgauge.training.digits import digits_of
from leakgauge.training.update import Update

FEWEST = 30
"""Fewest weights that shrink by one factor."""

CLEAR = 20
"""Smallest relative change that is measured, in units of the number format's epsilon: below, many
changes are the same few units of the last digit."""

AROUND = 50
"""Half the width of the neighbourhood, in units of epsilon, in which fewer other weights lie. Among
weights with a gradient, as many would be expected in about 1 / 80 of it."""


@dataclass(frozen=True)
class Shrinking:
    """Weights that shrink by one factor.

    Attributes:
        share: relative size of the change, above 0.
        count: number of these weights.
    """

    share: float
    count: int


def shrinking(update: Update) -> Shrinking | None:
    """Return the factor by which many weights shrink alike; None where they do not."""
    after = update.after()
    eps = digits_of(update)
    each = []
    for name, before in update.before.items():
        change = (after[name] - before).double()
        weight = before.double()
        moved = (-change / weight)[weight != 0].flatten()
        each.append(moved[(moved > CLEAR * eps) & (moved < 0.5)])
    shares = torch.cat(each).sort().values
    if len(shares) < FEWEST:
        return None
    # Rounding moves each share by half an epsilon at most.
    ends = torch.searchsorted(shares, shares + 1.2 * eps, right=True)
    counts = ends - torch.arange(len(shares), device=shares.device)
    at = int(counts.argmax())
    first, count = float(shares[at]), int(counts[at])
    near = (shares > first - AROUND * eps) & (shares < first + AROUND * eps)
    if count < FEWEST or int(near.sum()) > 2 * count:
        return None
    return Shrinking(float(shares[at : at + count].median()), count)
