"""The slope of a matched gradient by a difference of two plain ones: below the floor of 7/3.

With g(x) the gradient of the loss l in the weights w, and v that of the objective in g, the slope
of the objective in x is ``d/dx <g(x), v>``, and that is the derivative of ``dl/dx`` at w along v.
Two ordinary passes give it: ``(dl/dx at w + e v) - (dl/dx at w)``, over e. A convolution runs 5
times, where a plain gradient runs it 3 times and differentiating twice 7 times.

Where a unit of a ReLU crosses zero between the two, the difference would see a jump that no
derivative has; so the second pass takes each such unit as the first one found it.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from leakgauge.inversion.fast import recorded, slope_in_inputs
from leakgauge.inversion.kinks import Kinks
from leakgauge.types import Grads, Params, Task

STEP = 3e-5
"""Of the largest relative change of a weight matrix. Rounding asks for more, curvature for less: an
untrained ResNet has logits of tens, and a softmax that bends at once."""

SMALLEST = 0.1
"""Of the mean size of all weights: a layer of smaller ones counts as this large, or one that begins
at zero would leave no room for the step of any other."""

Compare = Callable[[Grads, int], Tensor]
"""The objective: the gradient ``[1, *p]`` of a row, differentiable, and the row -> ``[1]``."""


def matched_by_difference(
    task: Task, params: Params, x: Tensor, y: Tensor, compare: Compare, *, step: float = STEP
) -> Tensor:
    """The objective at each of N batches ``x [N, B, ...]``, ``[N]``; differentiable in ``x`` once.

    Its value is exact. Its slope is off by ``step`` times the curvature and by the rounding over
    ``step``: in single precision some thousandths.

    Args:
        task: the model and its loss.
        params: all trainable parameters by name, leaf ``[*p]``; constants here.
        x: batches; no slope is made where it does not require a gradient.
        y: targets ``[N, B]`` int64; constants.
        compare: the objective.
        step: relative size of the step in the weights.
    """
    params = {name: value.detach() for name, value in params.items()}
    with _all_digits():
        rows = [_row(task, params, x[n], y[n], compare, n, step) for n in range(len(x))]
    values = torch.stack([value for value, _ in rows])
    if not x.requires_grad:
        return values
    slopes = torch.stack([slope for _, slope in rows if slope is not None])
    return values + ((x - x.detach()) * slopes).flatten(1).sum(1)


def _row(
    task: Task, params: Params, x: Tensor, y: Tensor, compare: Compare, row: int, step: float
) -> tuple[Tensor, Tensor | None]:
    kinks, wanted = Kinks(), x.requires_grad
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        grads, before = recorded(task, params, x, y, kinks)
        found = {name: value.requires_grad_() for name, value in grads.items()}
        (value,) = compare(found, row)
        if not wanted:
            return value.detach(), None
        along = torch.autograd.grad(value, list(found.values()), allow_unused=True)
        names = [name for name, v in zip(found, along, strict=True) if v is not None]
        ways = [v[0] for v in along if v is not None]
        size = _size([params[name] for name in names], ways, step)
        for name, way in zip(names, ways, strict=True):  # in place: such stacks are large
            torch.add(params[name], way, alpha=size, out=way)
        moved = {**params, **dict(zip(names, ways, strict=True))}
        after = slope_in_inputs(task, moved, x, y, kinks.again())
    return value.detach(), (after - before) / size


def _size(weights: list[Tensor], ways: list[Tensor], step: float) -> float:
    """What moves the weights by ``step`` of themselves, in the layer that moves most."""
    pairs = [(w, v) for w, v in zip(weights, ways, strict=True) if w.dim() > 1] or list(
        zip(weights, ways, strict=True)
    )
    of_weights = torch.stack(torch._foreach_norm([w for w, _ in pairs]))
    of_ways = torch.stack(torch._foreach_norm([v for _, v in pairs]))
    roots = of_weights.new_tensor([math.sqrt(w.numel()) for w, _ in pairs])
    usual = torch.linalg.vector_norm(of_weights) / torch.linalg.vector_norm(roots)
    least = (SMALLEST * usual * roots).clamp(min=torch.finfo(of_weights.dtype).tiny)
    largest = float((of_ways / of_weights.maximum(least)).max())
    return step / largest if largest > 0 else step


@contextmanager
def _all_digits() -> Iterator[None]:
    """Products on a GPU in full single precision: TF32 rounds by more than ``STEP``."""
    own = torch.backends.cudnn.conv, torch.backends.cuda.matmul  # type: ignore[attr-defined]
    before = [one.fp32_precision for one in own]
    for one in own:
        one.fp32_precision = "ieee"
    try:
        yield
    finally:
        for one, was in zip(own, before, strict=True):
            one.fp32_precision = was
