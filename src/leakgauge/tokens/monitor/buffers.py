"""Buffers of bounded memory: the last pairs, the last records, and a thinned history."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor


class Ring:
    """The last ``window`` rows; a new row replaces the oldest.

    Args:
        window: largest number of kept rows.

    >>> ring = Ring(2)
    >>> for number in (1.0, 2.0, 3.0):
    ...     ring.add(torch.full((1,), number))
    >>> ring.rows()[:, 0].tolist()
    [2.0, 3.0]
    """

    def __init__(self, window: int) -> None:
        self._window, self._count = window, 0
        self._kept: Tensor | None = None

    def __len__(self) -> int:
        return min(self._count, self._window)

    @property
    def bytes(self) -> int:
        """Memory of the rows, in bytes."""
        return 0 if self._kept is None else self._kept.nbytes

    def add(self, row: Tensor) -> None:
        """Add a row ``[d]``."""
        if self._kept is None:
            self._kept = torch.empty(self._window, len(row))
        torch.select(self._kept, 0, self._count % self._window).copy_(row)
        self._count += 1

    def rows(self) -> Tensor:
        """Return a copy of the rows ``[n, d]``, oldest first."""
        assert self._kept is not None, "no row was added"
        first = self._count % self._window if self._count > self._window else 0
        return torch.cat([self._kept[first : len(self)], self._kept[:first]])


MAX_BYTES = 2**28
"""Largest memory of the records, in bytes."""


class Reservoir:
    """The last records of the loop.

    It keeps recent records, not a sample of all, so that an estimate at a checkpoint measures data
    that the model saw shortly before.

    Args:
        size: largest number of kept records, unless ``batches`` need more.
        batches: smallest number of kept batches.

    Attributes:
        batch_size: number of records of the largest batch.
        last: number of records of the last batch.

    >>> kept = Reservoir(3)
    >>> kept.add(torch.arange(4.0)[:, None], torch.arange(4))
    >>> kept.add(torch.tensor([[9.0]]), torch.tensor([9]))
    >>> kept.arrays()[1].tolist()
    [2, 3, 9]
    """

    def __init__(self, size: int, *, batches: int = 0) -> None:
        self._size, self._batches = size, batches
        self._count = 0
        self.batch_size = self.last = 0
        self._x: Tensor | None = None
        self._y: Tensor | None = None

    def __len__(self) -> int:
        return min(self._count, self._size)

    def add(self, x: Tensor, y: Tensor) -> None:
        """Add a batch ``x [n, ...]``, ``y [n, ...]``; batches of another shape are ignored."""
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
        start = self._count % self._size
        before = min(len(x), self._size - start)  # the rest goes to the front
        for kept, new in ((self._x, x), (self._y, y)):
            kept[start : start + before] = new[:before]
            kept[: len(x) - before] = new[before:]
        self._count += len(x)
        self.batch_size, self.last = max(self.batch_size, len(x)), len(x)

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Return copies of the records and their targets, oldest first."""
        assert self._x is not None, "no batch was added"
        assert self._y is not None
        first = max(0, self._count - self._size)
        order = (first + torch.arange(len(self))) % self._size
        return self._x[order].numpy(), self._y[order].numpy()


class Thinned:
    """Keeps every s-th entry of a history; s doubles if more than ``most`` would be kept.

    Args:
        most: largest number of kept entries, without the last one.

    >>> kept = Thinned(4)
    >>> for number in range(100):
    ...     kept.add({"step": number})
    >>> [one["step"] for one in kept]
    [0, 32, 64, 96, 99]
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: list[dict[str, Any]] = []
        self._last: dict[str, Any] | None = None
        self._seen, self._stride = 0, 1

    def add(self, entry: dict[str, Any]) -> None:
        """Add an entry at the end."""
        if self._seen % self._stride == 0:
            self._kept.append(entry)
            if len(self._kept) > self._most:
                self._kept = self._kept[::2]
                self._stride *= 2
        self._seen += 1
        self._last = entry

    def __iter__(self) -> Iterator[dict[str, Any]]:
        yield from self._kept
        if self._last is not None and (not self._kept or self._kept[-1] is not self._last):
            yield self._last

    def __len__(self) -> int:
        return sum(1 for _ in self)
