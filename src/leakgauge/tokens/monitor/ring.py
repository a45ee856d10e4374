"""The last pairs of data features and gradients, in bounded memory."""

import torch
from torch import Tensor


class Ring:
    """The last ``window`` rows; a new one takes the place of the oldest.

    Args:
        window: rows that are kept, at most.

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
        """Memory that the rows take."""
        return 0 if self._kept is None else self._kept.nbytes

    def add(self, row: Tensor) -> None:
        """Add a row ``[d]``."""
        if self._kept is None:
            self._kept = torch.empty(self._window, len(row))
        self._kept[self._count % self._window].copy_(row)
        self._count += 1

    def rows(self) -> Tensor:
        """Return a copy of the rows ``[n, d]``, the oldest first."""
        assert self._kept is not None, "no row was added"
        first = self._count % self._window if self._count > self._window else 0
        return torch.cat([self._kept[first : len(self)], self._kept[:first]])
