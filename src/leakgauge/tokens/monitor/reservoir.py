"""Some of the records that a loop trained on, in bounded memory."""

import numpy as np
import torch
from torch import Tensor

MAX_BYTES = 2**28
"""Memory of the records, whatever their number."""


class Reservoir:
    """The last records that the loop gave.

    Recent records, and not a sample of all: an estimate at a checkpoint then asks about data that
    the model met shortly before.

    Args:
        size: records that are kept, at most.
        batches: but at least those of so many batches.

    Attributes:
        batch_size: records of the largest batch.

    >>> kept = Reservoir(3)
    >>> kept.add(torch.arange(4.0)[:, None], torch.arange(4))
    >>> kept.add(torch.tensor([[9.0]]), torch.tensor([9]))
    >>> kept.arrays()[1].tolist()
    [9, 2, 3]
    """

    def __init__(self, size: int, *, batches: int = 0) -> None:
        self._size, self._batches = size, batches
        self._count = 0
        self.batch_size = 0
        self._x: Tensor | None = None
        self._y: Tensor | None = None

    def __len__(self) -> int:
        return min(self._count, self._size)

    def add(self, x: Tensor, y: Tensor) -> None:
        """Add a batch ``x [n, ...]``, ``y [n, ...]``; other shapes than before are left out."""
        if len(x) == 0 or len(x) != len(y):
            return
        x, y = x.detach().cpu(), y.detach().cpu()
        if self._x is None or self._y is None:
            each = max(1, (x.nbytes + y.nbytes) // len(x))
            wanted = max(self._size, self._batches * len(x))
            self._size = max(1, min(wanted, MAX_BYTES // each))
            self._x = torch.empty(self._size, *x.shape[1:], dtype=x.dtype)
            self._y = torch.empty(self._size, *y.shape[1:], dtype=y.dtype)
        if x.shape[1:] != self._x.shape[1:] or y.shape[1:] != self._y.shape[1:]:
            return
        x, y = x[-self._size :], y[-self._size :]
        places = (torch.arange(len(x)) + self._count) % self._size
        self._x[places], self._y[places] = x, y
        self._count += len(x)
        self.batch_size = max(self.batch_size, len(x))

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Return copies of the records and their targets."""
        assert self._x is not None, "no batch was added"
        assert self._y is not None
        kept = len(self)
        return self._x[:kept].numpy().copy(), self._y[:kept].numpy().copy()
