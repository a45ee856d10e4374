"""What is done to a gradient before it is shared: N gradients -> N gradients, row by row."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.types import Grads
from leakgauge.gradients.flattening import flatten

BLOCK_BYTES = 2**20
"""Of the rows that are flattened at once: more leave the cache."""


class Transform(Protocol):
    """Gradients, leaf ``[N, *p]`` -> gradients of the same names and shapes; new tensors.

    Row i depends on row i of every leaf and on ``rngs[i]`` alone, so that it does not matter how
    many rows come at once. A transform that draws nothing does not look at ``rngs``.
    """

    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        """Transform N gradients, with a generator for each."""
        ...


@runtime_checkable
class Knowing(Protocol):
    """A transform that can make use of the secrets of the gradients: the defender knows them."""

    def knowing(self, secret: Tensor) -> Transform:
        """The transform for N gradients with the secrets ``[N]``, int64 codes."""
        ...


def knowing(transform: Transform, secret: Tensor) -> Transform:
    """``transform`` told of the secrets ``[N]``; itself where it has no use for them."""
    return transform.knowing(secret) if isinstance(transform, Knowing) else transform


@dataclass(frozen=True)
class Identity:
    """Nothing is done.

    >>> Identity()({"w": torch.ones(1, 2)}, [])
    {'w': tensor([[1., 1.]])}
    """

    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        """The same gradients."""
        return dict(grads)


@dataclass(frozen=True)
class Chain:
    """One transform after the other; a row's generator runs on through all of them.

    >>> from leakgauge.defenses import ClipNorm, Sign
    >>> Chain((ClipNorm(1.0), Sign()))({"w": torch.tensor([[3.0, -4.0]])}, [])
    {'w': tensor([[ 1., -1.]])}
    """

    transforms: tuple[Transform, ...]

    def __post_init__(self) -> None:
        for transform in self.transforms:
            require(callable(transform), f"{transform!r} in a chain is no transform")

    def knowing(self, secret: Tensor) -> "Chain":
        """The chain of the same transforms, told of the secrets ``[N]``."""
        return Chain(tuple(knowing(transform, secret) for transform in self.transforms))

    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        """All of them, in order."""
        found: Grads = dict(grads)
        for transform in self.transforms:
            found = transform(found, rngs)
        return found


def scaled(grads: Grads, factors: Tensor) -> Grads:
    """Row i of every leaf times ``factors[i]``."""
    return {name: leaf * alike(factors, leaf) for name, leaf in grads.items()}


def alike(values: Tensor, leaf: Tensor) -> Tensor:
    """``values [N]`` shaped so that they meet the rows of ``leaf [N, *p]``."""
    return values.view(-1, *[1] * (leaf.dim() - 1))


def over_rows(grads: Grads, function: Callable[[Tensor, slice], Tensor]) -> Grads:
    """``function(flat [n, D], rows) -> [n, D]`` for some rows at a time, in their own leaves."""
    out = {name: torch.empty_like(leaf) for name, leaf in grads.items()}
    for rows in _blocks(grads):
        flat = function(flatten({name: leaf[rows] for name, leaf in grads.items()}), rows)
        parts = torch.split(flat, [leaf[0].numel() for leaf in out.values()], dim=1)
        for leaf, part in zip(out.values(), parts, strict=True):
            leaf[rows] = part.reshape(-1, *leaf.shape[1:])
    return out


def drawn(
    grads: Grads,
    rngs: Sequence[torch.Generator],
    draw: Callable[[Tensor, torch.Generator], Tensor],
) -> dict[str, Tensor]:
    """``draw(row, rngs[i])``, of the row's shape, for each row of each leaf."""
    for name, leaf in grads.items():
        require(
            len(leaf) == len(rngs),
            f"{name!r} is {list(leaf.shape)} with {len(rngs)} generators; expected one for each "
            "of its rows",
        )
    out = {name: torch.empty_like(leaf) for name, leaf in grads.items()}
    for row, rng in enumerate(rngs):
        for leaf in out.values():
            leaf[row] = draw(leaf[row], rng)
    return out


def _blocks(grads: Grads) -> Iterator[slice]:
    count = len(next(iter(grads.values()), ()))
    if count:
        each = sum(leaf[0].numel() * leaf.element_size() for leaf in grads.values())
        size = max(4, BLOCK_BYTES // max(1, each))
        for first in range(0, count, size):
            yield slice(first, min(first + size, count))
