"""The number of batches that a client's BatchNorm layers counted."""

from collections.abc import Mapping

from torch import Tensor

COUNT = "num_batches_tracked"
"""Last word of the name of such a count in a state dict."""


def batches_counted(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> int | None:
    """Return how many batches BatchNorm layers counted between two states; None if unknown.

    Layers in training mode count each forward pass, which is a step of local training. Layers
    that did not count are left out, such as frozen ones; others must agree.

    Args:
        before: tensors before the training, by name.
        after: tensors after it.

    >>> import torch
    >>> batches_counted({"1.num_batches_tracked": torch.tensor(5)},
    ...                 {"1.num_batches_tracked": torch.tensor(9)})
    4
    """
    counts = {
        int(after[name]) - int(leaf)
        for name, leaf in before.items()
        if name.rpartition(".")[2] == COUNT and name in after
    } - {0}
    only = counts.pop() if len(counts) == 1 else None
    return only if only is not None and only > 0 else None
