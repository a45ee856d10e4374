"""Features and gradients of shadow batches that the attacks of one round share."""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from leakgauge.core.types import Grads
from leakgauge.inference.adversaries.views import View

Features = NDArray[np.float32]
V = TypeVar("V")


class Shared:
    """Cache of features and gradients of shadow batches.

    Values that do not fit into ``max_bytes`` are computed again, with the same result.

    Args:
        views: views of the attacks of a round, which share one pass over the gradients; read at
            first use.
        max_bytes: bound on the cached features; half of it bounds the cached gradients.
    """

    def __init__(self, views: Iterable[View] = (), *, max_bytes: int = 0) -> None:
        self._asked = views
        self._max_bytes = max_bytes
        self._features: dict[tuple[str, View], Features] = {}
        self._gradients: dict[str, list[Grads]] = {}

    @functools.cached_property
    def _views(self) -> tuple[View, ...]:
        return tuple(dict.fromkeys(self._asked))

    def made(self, kind: type[V]) -> V | None:
        """Return the view of a kind that was made for the parameters of this round, if any."""
        return next((one for one in self._views if isinstance(one, kind)), None)

    def features(
        self, key: str, view: View, make: Callable[[], Iterable[Grads]], count: int
    ) -> Features:
        """Return the features ``[n, D]`` of batches.

        Args:
            key: name of the batches.
            view: maps gradients to features.
            make: yields the gradients of the batches, chunk by chunk in order.
            count: n, number of batches.
        """
        if (key, view) in self._features:
            return self._features[key, view]
        asked = (view, *(one for one in self._views if one != view)) if self._views else (view,)
        seen = features_of(make(), asked, count)
        for one, features in zip(asked, seen, strict=True):
            held = sum(kept.nbytes for kept in self._features.values())
            if one in self._views and held + features.nbytes <= self._max_bytes:
                self._features[key, one] = features
        return seen[0]

    def gradients(self, key: str, make: Callable[[], Iterable[Grads]]) -> Iterator[Grads]:
        """Yield the gradients of the batches ``key``, chunk by chunk."""
        if key in self._gradients:
            yield from self._gradients[key]
            return
        kept: list[Grads] | None = []
        held = sum(_bytes(chunk) for chunks in self._gradients.values() for chunk in chunks)
        for chunk in make():
            held += _bytes(chunk)
            if kept is not None and held <= self._max_bytes // 2:
                kept.append(chunk)
            else:
                kept = None
            yield chunk
        if kept is not None:
            self._gradients[key] = kept


class Recorded(Shared):
    """Reduced gradients of shadow batches, which all attacks use in place of whole ones.

    The gradient of each batch is computed once, for any number of attacks and views.

    Args:
        keep: reduces gradients with leaves ``[n, *p]``, by parameter name.
    """

    def __init__(self, keep: Callable[[Grads], Grads]) -> None:
        super().__init__()
        self._keep = keep
        self._kept: dict[str, Grads] = {}

    def record(self, key: str, kept: Grads) -> None:
        """Store the reduced gradients of the batches ``key``."""
        self._kept[key] = kept

    def features(
        self, key: str, view: View, make: Callable[[], Iterable[Grads]], count: int
    ) -> Features:
        """Return the features ``[n, D]`` of reduced gradients; see ``Shared.features``."""
        (features,) = features_of(self.gradients(key, make), [view], count)
        return features

    def gradients(self, key: str, make: Callable[[], Iterable[Grads]]) -> Iterator[Grads]:
        """Yield the reduced gradients of the batches ``key``."""
        if key not in self._kept:
            self._kept[key] = joined([self._keep(chunk) for chunk in make()])
        yield self._kept[key]


def joined(chunks: Sequence[Grads]) -> Grads:
    """Return the concatenated gradients of all chunks."""
    return {name: torch.cat([chunk[name] for chunk in chunks]) for name in chunks[0]}


def features_of(chunks: Iterable[Grads], views: Sequence[View], count: int) -> list[Features]:
    """Return the features ``[count, D]`` of gradients for each view, without copies."""
    whole: list[Features] = []
    first = 0
    for grads in chunks:
        seen = [view(grads).cpu().numpy() for view in views]
        whole = whole or [np.empty((count, one.shape[1]), dtype=one.dtype) for one in seen]
        rows = slice(first, first + len(seen[0]))
        for all_, one in zip(whole, seen, strict=True):
            all_[rows] = one
        first = rows.stop
    return whole


def _bytes(grads: Grads) -> int:
    return sum(leaf.numel() * leaf.element_size() for leaf in grads.values())
