"""The slope of a matched gradient by a difference of two plain ones: below the floor of 7/3.

With g(x) the gradient of the loss l in the weights w, and v that of the objective in g, the slope
of the objective in x is ``d/dx <g(x), v>``, and that is the derivative of ``dl/dx`` at w along v.
Two ordinary passes give it: ``(dl/dx at w + e v) - (dl/dx at w)``, over e. A convolution runs 5
times, where a plain gradient runs it 3 times and differentiating twice 7 times.

Where a unit of a ReLU crosses zero between the two, the difference would see a jump that no
derivative has; so the second pass uses the ReLU masks of the first.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from leakgauge.core.types import Grads, Params, Task
from leakgauge.inversion.double_backward.first_order import first_order_gradients, first_order_slope
from leakgauge.inversion.double_backward.perturbation import WeightPerturbation
from leakgauge.inversion.double_backward.relu_masks import ReluMaskReplay
from leakgauge.inversion.double_backward.substitution import ParameterSlots
from leakgauge.inversion.search.objective import Objective

STEP = 3e-5
"""Largest relative change of a weight matrix. Rounding calls for more, curvature for less: an
untrained ResNet has logits of tens, and a softmax that saturates soon."""


class Difference:
    """The objective at batches ``x [N, B, ...]``, ``[N]``; differentiable once, in ``x``.

    Its value is exact. Its slope is off by ``step`` times the curvature and by the rounding over
    ``step``: in single precision some thousandths.

    Args:
        task: the model and its loss; neither the model nor its mode may change afterwards.
        params: all trainable parameters by name, leaf ``[*p]``; constants here.
        objective: distance of gradients from the observed ones.
        observed: gradients of T targets, leaf ``[T, *p]``.
        step: relative size of the step in the weights.
    """

    def __init__(
        self,
        task: Task,
        params: Params,
        objective: Objective,
        observed: Grads,
        *,
        step: float = STEP,
    ) -> None:
        self._task = task
        self._params = {name: value.detach() for name, value in params.items()}
        self._slots = ParameterSlots(task.model)
        self._perturb = WeightPerturbation(objective, self._params, observed, step)

    def __call__(self, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        """The objective at ``x`` with targets ``y [N, B]`` int64, for the targets ``rows [N]``.

        No slope is computed where ``x`` does not require a gradient.
        """
        with _all_digits():
            given = zip(x, y, rows.tolist(), strict=True)
            pairs = [self._row(one, target, row) for one, target, row in given]
        values = torch.stack([value for value, _ in pairs])
        if not x.requires_grad:
            return values
        slopes = torch.stack([slope for _, slope in pairs if slope is not None])
        return values + ((x - x.detach()) * slopes).flatten(1).sum(1)

    def _row(self, x: Tensor, y: Tensor, row: int) -> tuple[Tensor, Tensor | None]:
        masks, x = ReluMaskReplay(), x.detach().requires_grad_(x.requires_grad)
        grads, before = first_order_gradients(self._task, self._slots, self._params, x, y, masks)
        if before is None:
            return self._perturb.value(grads, row), None
        value, weights, size = self._perturb(grads, row)
        after = first_order_slope(self._task, self._slots, weights, x, y, masks.replay())
        return value, (after - before) / size


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
