"""Transforms of gradients before a client shares them, row by row."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.types import Grads
from leakgauge.defenses.simulated import DefendedGuess, slope_of
from leakgauge.gradients.flattening import alike, flatten

BLOCK_BYTES = 2**20
"""Bytes of the rows that are flattened at once; more rows leave the cache."""

Objective = Callable[[Grads, Grads], Tensor]
"""Maps gradients of guesses and sent gradients, leaf ``[N, *p]``, to distances ``[N]``."""


class Transform(ABC):
    """A transform of gradients before a client sends them, with its traits.

    Row i of the result depends on row i of every leaf and on ``rngs[i]`` alone, so the result does
    not depend on the number of rows in a call. A transform without randomness ignores ``rngs``.

    Training, adversaries and certificates read the properties. A subclass overrides those that
    differ from the defaults, which guarantee nothing.
    """

    @abstractmethod
    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        """Return N transformed gradients, leaf ``[N, *p]``, as new tensors of the same shapes.

        Args:
            grads: gradients by parameter name.
            rngs: a generator for each of the N rows.
        """

    def knowing(self, secret: Tensor) -> "Transform":
        """Return the transform of a defender who knows the secrets ``[N]`` (int64)."""
        return self

    @property
    def is_identity(self) -> bool:
        """Whether gradients pass unchanged."""
        return False

    @property
    def keeps_size(self) -> bool:
        """Whether a gradient keeps its norm, noise aside; an attacker may then match it."""
        return False

    @property
    def clip_norm(self) -> float | None:
        """The l2 norm above which it scales a gradient down, if that is all it does; else None."""
        return None

    @property
    def noise_variance(self) -> float:
        """Variance of the independent Gaussian noise on each coordinate of the result."""
        return 0.0

    @property
    def adds_noise(self) -> bool:
        """Whether any coordinate gets Gaussian noise."""
        return self.noise_variance > 0

    def without_noise(self) -> "Transform":
        """Return the transform without the noise of ``noise_variance``."""
        return self

    def centre(self, grads: Grads) -> Grads:
        """Return N gradients that results lie around: what it does, without its randomness.

        A transform that draws anything but the noise of ``noise_variance`` overrides it.
        """
        return self.without_noise()(grads, [])

    def check(self, names: Sequence[str]) -> None:
        """Refuse a model with parameters ``names``, in order, that it cannot transform.

        Raises:
            InputError: it changes some layers, and one of them is not there.
        """
        return

    @property
    def parts(self) -> tuple["Transform", ...]:
        """The transforms that it consists of, in order."""
        return (self,)

    def adapt(self, objective: Objective) -> Objective | None:
        """Return the objective of an attacker who knows the transform.

        Gradient inversion compares the gradient of a guess with the defended gradient. An attacker
        who knows the transform compares only the part that passes, by a differentiable function.
        By default it applies ``centre`` to the gradient of the guess, if that can be computed.

        Args:
            objective: objective of an attacker who does not know the transform.

        Returns:
            The adapted objective, or None if no attack adapts. Noise needs no change here.
        """
        if self._slope is None:
            return None
        return DefendedGuess(objective, self.centre, type(self).__name__, slope=self._slope)

    @property
    def is_known(self) -> bool:
        """Whether an attack knows it: it says so in ``adapt``, or its ``centre`` is computed."""
        return not self._adapts_by_default or self._slope is not None

    @property
    def _adapts_by_default(self) -> bool:
        """Whether an attack that knows it can only compute it: ``adapt`` is the default."""
        return type(self).adapt is Transform.adapt

    @cached_property
    def _slope(self) -> bool | None:
        """Tried once: a search on some layers adapts in each of its iterations."""
        return slope_of(self.centre)


@dataclass(frozen=True)
class Identity(Transform):
    """Leaves gradients as they are.

    >>> Identity()({"w": torch.ones(1, 2)}, [])
    {'w': tensor([[1., 1.]])}
    """

    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        """Return the gradients unchanged."""
        return dict(grads)

    is_identity = True
    keeps_size = True

    def adapt(self, objective: Objective) -> Objective:
        """Return ``objective`` itself."""
        return objective


@dataclass(frozen=True)
class Chain(Transform):
    """Applies transforms in order; a row's generator runs on through all of them.

    >>> from leakgauge.defenses import ClipNorm, SignTransform
    >>> Chain((ClipNorm(1.0), SignTransform()))({"w": torch.tensor([[3.0, -4.0]])}, [])
    {'w': tensor([[ 1., -1.]])}
    """

    transforms: tuple[Transform, ...]

    def __post_init__(self) -> None:
        for transform in self.transforms:
            require_transform(transform, "in a chain")

    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        """Return the gradients after all transforms, in order."""
        sent: Grads = dict(grads)
        for transform in self.transforms:
            sent = transform(sent, rngs)
        return sent

    def centre(self, grads: Grads) -> Grads:
        """Return the gradients after what each transform does without its randomness."""
        sent: Grads = dict(grads)
        for transform in self.transforms:
            sent = transform.centre(sent)
        return sent

    def knowing(self, secret: Tensor) -> "Chain":
        """Return the chain whose transforms know the secrets ``[N]``."""
        return Chain(tuple(transform.knowing(secret) for transform in self.transforms))

    @property
    def is_identity(self) -> bool:
        """Whether every transform leaves gradients as they are."""
        return all(transform.is_identity for transform in self.transforms)

    @property
    def keeps_size(self) -> bool:
        """Whether every transform keeps the norm."""
        return all(transform.keeps_size for transform in self.transforms)

    @property
    def noise_variance(self) -> float:
        """Sum of the variances of the transforms' noise."""
        return sum(transform.noise_variance for transform in self.transforms)

    @property
    def adds_noise(self) -> bool:
        """Whether any of the transforms adds noise."""
        return any(transform.adds_noise for transform in self.transforms)

    def check(self, names: Sequence[str]) -> None:
        """Refuse a model that one of the transforms refuses."""
        for transform in self.transforms:
            transform.check(names)

    def without_noise(self) -> "Chain":
        """Return the chain of the transforms without their noise."""
        return Chain(tuple(transform.without_noise() for transform in self.transforms))

    def adapt(self, objective: Objective) -> Objective | None:
        """Return the comparison of defended guesses if a user wrote one of them; else None.

        No attack adapts to several of the built-in transforms.
        """
        return super().adapt(objective) if self._has_default else None

    @property
    def is_known(self) -> bool:
        """Whether an attack knows all of them."""
        if self._has_default:
            return self._slope is not None
        return all(one.is_known for one in self.parts)

    @property
    def _has_default(self) -> bool:
        return any(one._adapts_by_default for one in self.parts)

    @property
    def parts(self) -> tuple[Transform, ...]:
        """The transforms of the chain and of the chains in it."""
        return tuple(part for transform in self.transforms for part in transform.parts)


def require_transform(value: object, where: str) -> None:
    """Refuse a value that is not a ``Transform``.

    >>> require_transform(3, "in a chain")
    Traceback (most recent call last):
    leakgauge.core.checks.InputError: 3 in a chain is not a transform; subclass Transform
    """
    message = f"{value!r} {where} is not a transform; subclass Transform"
    require(isinstance(value, Transform), message)


def cut_at(leaf: Tensor, limit: Tensor) -> Tensor:
    """Return the coordinates of a leaf ``[N, *p]``, none larger than the row's ``limit [N]``.

    >>> cut_at(torch.tensor([[3.0, -4.0]]), torch.tensor([3.5]))
    tensor([[ 3.0000, -3.5000]])
    """
    bound = alike(limit, leaf)
    return torch.minimum(torch.maximum(leaf, -bound), bound)


def smallest_sent(leaf: Tensor) -> Tensor:
    """Return the smallest size other than 0 of each row ``[N]``; the largest float if all are 0."""
    sizes = torch.where(leaf != 0, leaf.abs(), torch.finfo(leaf.dtype).max)
    return sizes.reshape(len(leaf), -1).amin(dim=1)


def over_rows(grads: Grads, function: Callable[[Tensor, slice], Tensor]) -> Grads:
    """Return leaves of ``function(flat [n, D], rows) -> [n, D]``, computed block by block."""
    out = {name: torch.empty_like(leaf) for name, leaf in grads.items()}
    for rows in _blocks(grads):
        flat = function(flatten({name: leaf[rows] for name, leaf in grads.items()}), rows)
        parts = torch.split(flat, [leaf[0].numel() for leaf in out.values()], dim=1)
        for leaf, part in zip(out.values(), parts, strict=True):
            leaf[rows] = part.reshape(-1, *leaf.shape[1:])
    return out


def drawn(
    grads: Grads, rngs: Sequence[torch.Generator], draw: Callable[[Tensor, torch.Generator], Tensor]
) -> dict[str, Tensor]:
    """Return ``draw(row, rngs[i])``, of the row's shape, for each row of each leaf."""
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
