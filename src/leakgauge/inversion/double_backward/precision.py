"""Gradients of a model in bfloat16: half of the memory traffic, and twice the arithmetic.

A search by signs uses only the sign of each number of its slope, so it tolerates the noise.
"""

import copy

import torch
from torch import Tensor

from leakgauge.core.types import Grads, Params, Task
from leakgauge.gradients.probing import explained
from leakgauge.inversion.double_backward.gradients import differentiable_gradients


class Rounded:
    """``differentiable_gradients`` in bfloat16, of records and to gradients in their own precision.

    A layer's gradient is off by a hundredth or two of its norm in a net of three convolutions, by
    up to a quarter in an untrained ResNet20. The loss is taken in the records' own precision.

    Args:
        task: the model and its loss; the model is copied.
        params: all trainable parameters by name, leaf ``[*p]``.
        x: some records ``[B, ...]``, for a trial.

    Raises:
        InputError: the model does not run in bfloat16.
    """

    def __init__(self, task: Task, params: Params, x: Tensor) -> None:
        model = copy.deepcopy(task.model).to(torch.bfloat16)
        self._task = Task(model, lambda outputs, y: task.mean_loss(outputs.to(x.dtype), y))
        self._params = {name: value.to(torch.bfloat16) for name, value in params.items()}
        with torch.no_grad(), explained("the model refuses bfloat16; set precision=full"):
            model(x.to(torch.bfloat16))

    def __call__(self, x: Tensor, y: Tensor) -> Grads:
        """Leaf ``[N, *p]`` for batches ``x [N, B, ...]``, differentiable in ``x`` and ``y``."""
        grads = differentiable_gradients(self._task, self._params, x.to(torch.bfloat16), y)
        return {name: value.to(x.dtype) for name, value in grads.items()}
