"""The slope of a matched gradient from two plain gradients: below the floor of 7/3.

With g(x) the gradient of the loss l in the weights w, and v that of the objective in g, the slope
of the objective in x is ``d/dx <g(x), v>``, and that is the derivative of ``dl/dx`` at w along v.
Two ordinary passes give it: ``(dl/dx at w + e v) - (dl/dx at w)``, over e. A convolution runs 5
times; a plain gradient runs it 3 times, and differentiating twice 7 times.

If a unit of a ReLU crossed zero between the two, the difference would see a jump that no derivative
has; so the second pass uses the ReLU masks of the first.

The gradients of a network, the observed ones and its weights are often larger than all else
that a step touches, and memory is slow. If the objective is a cosine distance, its slope is a
sum of the two gradients, so the slope's norm is known before the slope is computed, and each
gradient is read twice.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from itertools import compress
from typing import cast

import torch
from torch import Tensor

from leakgauge.core.precision import full_precision
from leakgauge.core.types import Grads, Params, Task
from leakgauge.inversion.double_backward.first_order import (
    ReluMaskReplay,
    first_order_gradients,
    first_order_slope,
)
from leakgauge.inversion.double_backward.products import in_memory_order
from leakgauge.inversion.double_backward.recording import Computation, Recording, with_slopes
from leakgauge.inversion.double_backward.substitution import ParameterSlots
from leakgauge.inversion.search.objective import PRESENT, Objective, stretches

_SMALLEST = 0.1
"""Smallest size of a layer's weights that counts, relative to the mean size of all weights. Without
it, a layer that begins at zero would allow no step in any layer."""

_CANCELLED = 1e-3
"""Smallest square of a sum, relative to its terms, that is not mostly rounding."""


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
        rows = range(len(next(iter(observed.values()))))
        self._observed = [{n: leaf[r : r + 1] for n, leaf in observed.items()} for r in rows]
        self._rooms = lru_cache(maxsize=1)(partial(_rooms, params, _room(params)))
        known = stretches(objective, observed)
        self._names = None if known is None else list(known)
        self._read = known is not None and reads_cheaply(next(iter(params.values())).device)
        # For each target, one stretch per name.
        self._stretches = torch.stack(list(known.values()), 1).tolist() if known else []
        compared = (self._names or []) if self._read else []
        self._theirs = [
            _floats([_dot(own[n][0], own[n][0]) for n in compared]) for own in self._observed
        ]

    def value(self, grads: Grads, row: int) -> Tensor:
        """Return the objective of ``grads``, leaf ``[1, *p]``, against the target ``row``."""
        value: Tensor
        (value,) = self._objective(grads, self._observed[row])
        return value

    def __call__(self, grads: Grads, row: int) -> tuple[Tensor, dict[str, Tensor], Tensor | float]:
        """Return the value, the weights ``w + size * v``, leaf ``[*p]``, and the size.

        v is the slope of the objective in the gradient ``grads``.
        """
        perturb = self._summed if self._read else self._differentiated
        value, changed, size = perturb(grads, row)
        return value, {**self._params, **changed}, size

    def _differentiated(self, grads: Grads, row: int) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """Serve any objective, and read no number: a GPU stops for each reading."""
        grads = {name: value.detach().requires_grad_() for name, value in grads.items()}
        with torch.enable_grad():
            value = self.value(grads, row)
        slopes = torch.autograd.grad(value, list(grads.values()), allow_unused=True)
        along = {n: v[0] for n, v in zip(grads, slopes, strict=True) if v is not None}
        ways, own = list(along.values()), [self._params[name] for name in along]
        largest = (torch.stack(torch._foreach_norm(ways)) / self._rooms(tuple(along))).max()
        size = torch.where(largest > 0, self._step / largest, self._step)
        moved = torch._foreach_add(own, torch._foreach_mul(ways, size))
        return value.detach(), dict(zip(along, moved, strict=True)), size

    def _summed(self, grads: Grads, row: int) -> tuple[Tensor, dict[str, Tensor], float]:
        """Use ``v = u (a * observed + b * grads)`` for a layer of weight u, with numbers a, b."""
        names, weights = self._names or [], self._stretches[row]
        pairs = [(grads[name], self._observed[row][name]) for name in names]
        # Together for each layer, while it is in the cache.
        sums = _floats(
            [_dot(one[0], other[0]) for one, observed in pairs for other in (observed, one)]
        )
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
        """Return the size with largest relative change ``step``; ``squares`` are those of v."""
        rooms = zip(squares.values(), self._rooms(tuple(squares)).tolist(), strict=True)
        largest = max(math.sqrt(square) / room for square, room in rooms)
        return self._step / largest if largest > 0 else self._step


def reads_cheaply(device: torch.device) -> bool:
    """Return whether reading a number costs nothing; on a CPU memory costs time, not waiting."""
    return device.type == "cpu"


def _cosine(
    weights: Sequence[float], dots: Sequence[float], ours: Sequence[float], theirs: Sequence[float]
) -> tuple[float, float, float]:
    """Return ``cosine_distance``, its slope in the dot product, and twice that in our square."""
    layers = zip(weights, dots, ours, theirs, strict=True)
    parts = [(u * dot, u * own, u * other) for u, dot, own, other in layers]
    dot, own, other = map(sum, zip(*parts, strict=True))
    if other <= PRESENT:
        return 0.0, 0.0, 0.0
    if own <= PRESENT:
        return 1.0, 0.0, 0.0
    root = 1 / math.sqrt(own * other)
    return 1 - dot * root, -root, dot * root / own


def _square(
    a: float, b: float, pair: tuple[Tensor, Tensor], dot: float, ours: float, theirs: float
) -> float:
    """Return ``|a * observed + b * grads|^2``, from known products unless they cancel."""
    terms = a * a * theirs, b * b * ours, 2 * a * b * dot
    total = sum(terms)
    if total > _CANCELLED * sum(abs(term) for term in terms):
        return total
    grads, observed = pair
    way = a * observed + b * grads
    return float(_dot(way, way))


def _rooms(params: Params, norms: Mapping[str, float], names: tuple[str, ...]) -> Tensor:
    """Return the norm of each named weight; infinite if its change does not count."""
    matrices = [params[name].dim() > 1 for name in names]
    counts = matrices if any(matrices) else [True] * len(names)
    rooms = [norms[n] if one else math.inf for n, one in zip(names, counts, strict=True)]
    return next(iter(params.values())).new_tensor(rooms)


def _room(params: Params) -> dict[str, float]:
    """Return the norm of each weight, at least a share of the mean norm."""
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
    """Return the inner product of two leaves ``[*p]``."""
    own, same = one[None], other[None]
    return torch.dot(in_memory_order(own, own)[0], in_memory_order(same, own)[0])


def _floats(values: list[Tensor]) -> list[float]:
    """Return the values, read together: each reading waits for a GPU."""
    return torch.stack(values).tolist() if values else []


STEP = 3e-5
"""Largest relative change of a weight matrix. Rounding needs a larger one, curvature a smaller
one: an untrained ResNet has logits of tens, and a softmax that saturates soon."""


class Difference:
    """The objective at batches ``x [N, B, ...]``, ``[N]``; differentiable once, in ``x``.

    Its value is exact. Its slope is off by ``step`` times the curvature and by the rounding over
    ``step``: in single precision a few thousandths.

    Args:
        task: the model and its loss; neither the model nor its mode may change afterwards.
        params: all trainable parameters by name, leaf ``[*p]``; constants here.
        objective: distance of gradients from the observed ones.
        observed: gradients of T targets, leaf ``[T, *p]``.
        step: relative size of the step in the weights.
        recorded: whether both runs of the model are recorded, for many calls.
    """

    def __init__(
        self,
        task: Task,
        params: Params,
        objective: Objective,
        observed: Grads,
        step: float = STEP,
        *,
        recorded: bool = False,
    ) -> None:
        self._task = task
        self._params = {name: value.detach() for name, value in params.items()}
        self._slots = ParameterSlots(task.model)
        self._perturb = WeightPerturbation(objective, self._params, observed, step)
        self._first: Computation = Recording(self._first_run) if recorded else self._first_run
        self._second: Computation = Recording(self._second_run) if recorded else self._second_run
        # A search passes the same rows again, and a GPU stops when they are read.
        self._numbers = lru_cache(maxsize=1)(Tensor.tolist)

    def __call__(self, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        """Return the objective at ``x``, with labels ``y [N, B]`` int64 and targets ``rows [N]``.

        No slope is computed if ``x`` does not require a gradient.
        """
        with full_precision():
            given = zip(x.detach(), y, self._numbers(rows), strict=True)
            if not x.requires_grad:
                return torch.stack([self._value(*one) for one in given])
            values, slopes = zip(*[self._row(*one) for one in given], strict=True)
        return with_slopes(torch.stack(values), [torch.stack(slopes)], [x])

    def _value(self, x: Tensor, y: Tensor, row: int) -> Tensor:
        grads, _ = first_order_gradients(self._task, self._slots, self._params, x, y)
        return self._perturb.value(grads, row)

    def _row(self, x: Tensor, y: Tensor, row: int) -> tuple[Tensor, Tensor]:
        before, *rest = self._first(x, y)
        grads = dict(zip(self._params, rest, strict=False))
        value, weights, size = self._perturb(grads, row)
        (after,) = self._second(x, y, *weights.values(), *rest[len(grads) :])
        return value, (after - before) / size

    def _first_run(self, x: Tensor, y: Tensor) -> Sequence[Tensor]:
        """Return the slope in the records, the gradients of the weights, and the masks."""
        masks, x = ReluMaskReplay(), x.detach().requires_grad_()
        given = self._task, self._slots, self._params, x, y, masks
        grads, before = first_order_gradients(*given)
        return cast(Tensor, before), *grads.values(), *masks.masks

    def _second_run(self, x: Tensor, y: Tensor, *rest: Tensor) -> Sequence[Tensor]:
        """Return the slope in the records at other weights, with the masks of the first run."""
        weights = dict(zip(self._params, rest, strict=False))
        masks, x = ReluMaskReplay(rest[len(weights) :]).replay(), x.detach().requires_grad_()
        after = first_order_slope(self._task, self._slots, weights, x, y, masks)
        masks.finish()
        return (after,)
