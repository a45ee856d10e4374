"""Gradients that are not differentiated again: ordinary autograd, on fast memory layouts."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from leakgauge.core.checks import InputError, require
from leakgauge.core.types import Params, Task
from leakgauge.gradients.probing import one_line
from leakgauge.inversion.double_backward.convolution import inward, view, wide
from leakgauge.inversion.double_backward.relu_masks import ReluMaskReplay
from leakgauge.inversion.double_backward.substitution import ParameterSlots


def first_order_gradients(
    task: Task,
    slots: ParameterSlots,
    params: Params,
    x: Tensor,
    y: Tensor,
    masks: ReluMaskReplay | None = None,
) -> tuple[dict[str, Tensor], Tensor | None]:
    """The gradient of one batch in the weights, leaf ``[1, *p]``, and in ``x [B, ...]``.

    Args:
        task: the model and its loss.
        slots: of its model.
        params: all trainable parameters by name, leaf ``[*p]``.
        x: records; there is no gradient in them where they do not require it.
        y: targets ``[B]``.
        masks: records the masks of the ReLUs.
    """
    leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
    inputs = [*leaves.values(), x] if x.requires_grad else list(leaves.values())
    with torch.enable_grad():
        loss = _loss(task, slots, leaves, x, y, masks)
        require(loss.requires_grad, "the loss does not depend on any trainable parameter")
        slopes = _slopes(loss, inputs)
    of_weights = zip(leaves, slopes[: len(leaves)], strict=True)
    grads = {name: value.contiguous()[None] for name, value in of_weights}
    return grads, slopes[-1] if x.requires_grad else None


def first_order_slope(
    task: Task,
    slots: ParameterSlots,
    params: Params,
    x: Tensor,
    y: Tensor,
    masks: ReluMaskReplay | None = None,
) -> Tensor:
    """Return the gradient of a batch's loss in ``x [B, ...]`` alone, with the recorded masks."""
    with torch.enable_grad():
        loss = _loss(task, slots, params, x, y, masks)
        return _slopes(loss, [x])[0]


def _slopes(loss: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    try:
        return torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)
    except RuntimeError as error:
        if "inplace operation" in str(error):
            raise InputError(
                "the model changes in place what its gradient needs; use operations that are not "
                f"in place: {one_line(error)}"
            ) from error
        raise


def _loss(
    task: Task,
    slots: ParameterSlots,
    params: Params,
    x: Tensor,
    y: Tensor,
    masks: ReluMaskReplay | None,
) -> Tensor:
    values = {**params, **slots.own_buffers()}
    return slots.loss(task, values, x, y, _Layouts(values.values(), masks))


class _Layouts(TorchFunctionMode):
    """Gives convolutions with ``kernels`` a fast layout; ``masks`` runs the ReLUs."""

    def __init__(self, kernels: Iterable[Tensor], masks: ReluMaskReplay | None) -> None:
        super().__init__()
        self.kernels = {id(kernel) for kernel in kernels}
        self.masks = masks

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        if func is F.conv2d:
            return self._convolution(*args, **given)
        if func is Tensor.view:
            return view(*args, **given)
        masked = None if self.masks is None else self.masks.run(func, args, given)
        return func(*args, **given) if masked is None else masked

    def _convolution(
        self,
        input: Tensor,  # noqa: A002
        weight: Tensor,
        *args: Any,
        **given: Any,
    ) -> Tensor:
        if id(weight) in self.kernels:
            inner = wide(input, weight)
            input, weight = inward(input, inner), inward(weight, inner)  # noqa: A001
        return F.conv2d(input, weight, *args, **given)
