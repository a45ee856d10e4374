"""How finely the weights of an update are given."""

import torch

from leakgauge.core.precision import precision_of
from leakgauge.training.update import Update


def digits_of(update: Update) -> float:
    """Return the spacing of the weights behind an update, relative to them.

    A client that sent a change rounded the weights that it received. Weights of bfloat16 keep their
    spacing where they were cast to float32.

    >>> before, after = {"w": torch.ones(100)}, {"w": torch.randn(100)}
    >>> digits_of(Update("weights", after, before)) == torch.finfo(torch.float32).eps
    True
    """
    sent = update.values if update.kind == "weights" else update.before
    return torch.finfo(precision_of(sent.values())).eps
