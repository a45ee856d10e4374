"""Buffers of bounded memory: the last pairs, the last records, and a thinned history."""

from collections import deque
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
    """The last records of the loop, in copies of its batches.

    It keeps recent records, not a sample of all, so that an estimate at a checkpoint measures data
    that the model saw shortly before. A copied batch is never written again, so an estimate takes
    it without another copy, which would cost the loop more than all of its steps' copies.

    Args:
        size: largest number of kept records, unless ``batches`` need more.
        batches: smallest number of kept batches.

    Attributes:
        batch_size: number of records of the largest batch.
        last: number of records of the last batch.

    >>> kept = Reservoir(3)
    >>> kept.add(torch.arange(4.0)[:, None], torch.arange(4))
    >>> kept.add(torch.tensor([[9.0]]), torch.tensor([9]))
    >>> [y.tolist() for _, y in kept.batches()]
    [[2, 3], [9]]
    """

    def __init__(self, size: int, *, batches: int = 0) -> None:
        self._size, self._batches = size, batches
        self._count = 0
        self.batch_size = self.last = 0
        self._kept: deque[tuple[Tensor, Tensor]] = deque()

    def __len__(self) -> int:
        return min(self._count, self._size)

    def add(self, x: Tensor, y: Tensor) -> None:
        """Add a batch ``x [n, ...]``, ``y [n, ...]``; batches of another shape are ignored."""
        if len(x) == 0 or len(x) != len(y):
            return
        if not self._kept:
            each = max(1, (x.nbytes + y.nbytes) // len(x))
            wanted = max(self._size, self._batches * len(x))
            self._size = max(1, min(wanted, MAX_BYTES // each))
        first_x, first_y = self._kept[0] if self._kept else (x, y)
        if x.shape[1:] != first_x.shape[1:] or y.shape[1:] != first_y.shape[1:]:
            return
        x, y = x[-self._size :], y[-self._size :]
        self._kept.append((_copy(x, first_x.dtype), _copy(y, first_y.dtype)))
        self._count += len(x)
        while self._count - len(self._kept[0][0]) >= self._size:
            self._count -= len(self._kept.popleft()[0])
        self.batch_size, self.last = max(self.batch_size, len(x)), len(x)

    def batches(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the records and their targets, oldest first; nobody may write them."""
        kept = [(x.numpy(), y.numpy()) for x, y in self._kept]
        (x, y), more = kept[0], max(0, self._count - self._size)
        return [(x[more:], y[more:]), *kept[1:]]


def _copy(values: Tensor, dtype: torch.dtype) -> Tensor:
    return values.detach().to("cpu", dtype, copy=True)


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
