"""A record of bounded length that always spans the whole run."""

from collections.abc import Iterator
from typing import Any


class Thinned:
    """Keeps every s-th entry; s doubles where more than ``most`` would be kept.

    Args:
        most: entries that are kept, besides the last one.

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
