"""Perturbs weights along the slope of an objective in their gradient.

The gradients of a network, the observed ones and its weights are often larger than all else
that a step touches, and memory is slow. Where the objective is a cosine distance, its slope is a
sum of the two gradients, so that the slope's norm is known before the slope is made, and each
gradient is read twice.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import compress

import torch
from torch import Tensor

from leakgauge.core.types import Grads, Params
from leakgauge.inversion.search.objective import Objective, cosine_distance, stretches

_SMALLEST = 0.1
"""Share of the mean size of all weights. A layer of smaller weights counts as this large: else one
that begins at zero would allow no step in any layer."""

_CANCELLED = 1e-3
"""A square of a sum that is this small beside its terms is mostly rounding."""


class WeightPerturbation:
    """An objective, and the weights perturbed along its slope v in the gradient.

    Args:
        objective: distance of gradients from the observed ones.
        params: the weights by name, leaf ``[*p]``.
        observed: gradients of T targets, leaf ``[T, *p]``.
        step: relative change of the weights in the layer that changes most.
    """

    def __init__(self, objective: Objective, params: Params, observed: Grads, step: float) -> None:
        self._objective, self._params, self._step = objective, params, step
        targets = range(len(next(iter(observed.values()))))
        self._observed = [
            {n: value[row : row + 1] for n, value in observed.items()} for row in targets
        ]
        self._room = _room(params)
        known = stretches(objective, observed)
        self._names = None if known is None else list(known)
        # Of each target, one for each name.
        self._stretches = torch.stack(list(known.values()), 1).tolist() if known else []
        compared = self._names or []
        self._theirs = [_floats([_dot(own[n], own[n]) for n in compared]) for own in self._observed]

    def value(self, grads: Grads, row: int) -> Tensor:
        """Return the objective of ``grads``, leaf ``[1, *p]``, against the target ``row``."""
        value: Tensor
        (value,) = self._objective(grads, self._observed[row])
        return value

    def __call__(self, grads: Grads, row: int) -> tuple[Tensor, dict[str, Tensor], float]:
        """Return the value, the weights ``w + size * v``, leaf ``[*p]``, and the size.

        v is the slope of the objective in the gradient ``grads``.
        """
        perturb = self._differentiated if self._names is None else self._summed
        value, changed, size = perturb(grads, row)
        return value, {**self._params, **changed}, size

    def _differentiated(self, grads: Grads, row: int) -> tuple[Tensor, dict[str, Tensor], float]:
        grads = {name: value.detach().requires_grad_() for name, value in grads.items()}
        with torch.enable_grad():
            value = self.value(grads, row)
        slopes = torch.autograd.grad(value, list(grads.values()), allow_unused=True)
        along = {n: v[0] for n, v in zip(grads, slopes, strict=True) if v is not None}
        squares = _floats([_dot(v, v) for v in along.values()])
        size = self._size(dict(zip(along, squares, strict=True)))
        changed = {name: torch.add(self._params[name], v, alpha=size) for name, v in along.items()}
        return value.detach(), changed, size

    def _summed(self, grads: Grads, row: int) -> tuple[Tensor, dict[str, Tensor], float]:
        """For a layer of weight u, ``v = u (a * observed + b * grads)`` with numbers a and b."""
        names, weights = self._names or [], self._stretches[row]
        pairs = [(grads[name], self._observed[row][name]) for name in names]
        # Together for each layer, while it is in the cache.
        sums = _floats([_dot(one, other) for one, observed in pairs for other in (observed, one)])
        dots, ours, theirs = sums[::2], sums[1::2], self._theirs[row]
        value, a, b = _cosine(weights, dots, ours, theirs)
        squares = {}
        for name, u, pair, *of_layer in zip(names, weights, pairs, dots, ours, theirs, strict=True):
            squares[name] = u * u * _square(a, b, pair, *of_layer)
        size = self._size(squares)
        changed = {}
        for name, u, (one, observed) in zip(names, weights, pairs, strict=True):
            weight = torch.add(self._params[name], observed[0], alpha=size * u * a)
            changed[name] = weight.add_(one[0], alpha=size * u * b)
        return pairs[0][0].new_tensor(value), changed, size

    def _size(self, squares: Mapping[str, float]) -> float:
        """The step size whose largest relative change is ``step``, by the squared norms of v."""
        chosen = [name for name in squares if self._params[name].dim() > 1] or list(squares)
        largest = max(math.sqrt(squares[name]) / self._room[name] for name in chosen)
        return self._step / largest if largest > 0 else self._step


def _cosine(
    weights: Sequence[float], dots: Sequence[float], ours: Sequence[float], theirs: Sequence[float]
) -> tuple[float, float, float]:
    """The cosine distance, its derivative in the inner product, and twice that in our square."""
    of_layers = torch.tensor([dots, ours, theirs], dtype=torch.float64)
    totals = (of_layers @ torch.tensor(weights, dtype=torch.float64)).requires_grad_()
    with torch.enable_grad():
        value = cosine_distance((totals[:1], totals[1:2], totals[2:]))
    (slopes,) = torch.autograd.grad(value, totals)
    by_dot, by_ours, _ = slopes.tolist()
    return value.item(), by_dot, 2 * by_ours


def _square(
    a: float, b: float, pair: tuple[Tensor, Tensor], dot: float, ours: float, theirs: float
) -> float:
    """``|a * observed + b * grads|^2``, from known products where they do not cancel."""
    terms = a * a * theirs, b * b * ours, 2 * a * b * dot
    total = sum(terms)
    if total > _CANCELLED * sum(abs(term) for term in terms):
        return total
    grads, observed = pair
    way = a * observed + b * grads
    return float(_dot(way, way))


def _room(params: Params) -> dict[str, float]:
    """The norm of each weight, at least a share of the mean one."""
    norms = [math.sqrt(square) for square in _floats([_dot(p, p) for p in params.values()])]
    matrices = [p.dim() > 1 for p in params.values()]
    counted = matrices if any(matrices) else [True] * len(matrices)
    of_all = math.hypot(*compress(norms, counted))
    numbers = sum(p.numel() for p in compress(params.values(), counted))
    least = _SMALLEST * of_all / math.sqrt(max(numbers, 1))
    return {
        name: max(norm, least * math.sqrt(p.numel()), torch.finfo(p.dtype).tiny)
        for (name, p), norm in zip(params.items(), norms, strict=True)
    }


def _dot(one: Tensor, other: Tensor) -> Tensor:
    return torch.dot(one.flatten(), other.flatten())


def _floats(values: list[Tensor]) -> list[float]:
    """The values, read together: each reading waits for a GPU."""
    return torch.stack(values).tolist() if values else []
