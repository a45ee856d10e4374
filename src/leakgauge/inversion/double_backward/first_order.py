"""Plain first-order gradients on fast memory layouts, and the ReLU masks of a run to replay."""
# ruff: noqa: A001, A002 - the arguments are named as torch names them.

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from leakgauge.core.checks import InputError, require
from leakgauge.core.types import Params, Task
from leakgauge.core.user_code import first_line
from leakgauge.inversion.double_backward.convolution import inward, laid_out, view, wide
from leakgauge.inversion.double_backward.substitution import ParameterSlots


class ReluMaskReplay:
    """Masks of ReLUs and leaky ReLUs, in the order of a model's calls.

    Other functions that are not smooth, such as max-pooling, run unchanged.
    """

    def __init__(self, masks: Iterable[Tensor] = ()) -> None:
        self._masks = list(masks)
        self._at: int | None = None

    @property
    def masks(self) -> tuple[Tensor, ...]:
        """The recorded masks, of which another ``ReluMaskReplay`` can be made."""
        return tuple(self._masks)

    def replay(self) -> "ReluMaskReplay":
        """Return the recorded masks, for a second run of the model."""
        self._at = 0
        return self

    def finish(self) -> None:
        """Refuse a second run that took fewer masks than the first one made."""
        _require_same(self._at == len(self._masks))

    def run(self, func: Any, args: tuple[Any, ...], given: Mapping[str, Any]) -> Tensor | None:
        """Return the outputs of a ReLU; None for any other call."""
        read = _KNOWN.get(func)
        if read is None:
            return None
        x, slope, inplace = read(*args, **given)
        if self._at is None:
            # A ReLU's outputs give its mask, and autograd keeps them anyway.
            before = x.detach().clone() if slope and inplace else x.detach()
            first: Tensor = func(*args, **given)
            self._masks.append(before if slope else first.detach())
            return first
        _require_same(self._at < len(self._masks) and self._masks[self._at].shape == x.shape)
        mask, self._at = self._masks[self._at], self._at + 1
        # The kernel of autograd: x where the mask is positive, slope times x elsewhere.
        outputs: Tensor = torch.ops.aten.leaky_relu_backward(x, mask, slope, False)
        return x.copy_(outputs) if inplace else outputs


def _require_same(same: bool) -> None:
    require(same, "the model does not compute the same in a second run; choose slope=exact")


Call = tuple[Tensor, float, bool]
"""The input of a ReLU, its slope below 0, and whether it works in place."""


def _relu(input: Tensor, inplace: bool = False) -> Call:
    return input, 0.0, inplace


def _inplace(input: Tensor) -> Call:
    return input, 0.0, True


def _leaky(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Call:
    return input, negative_slope, inplace


_KNOWN: dict[Any, Callable[..., Call]] = {
    **dict.fromkeys((F.relu, torch.relu, Tensor.relu), _relu),
    **dict.fromkeys((torch.relu_, Tensor.relu_), _inplace),
    F.leaky_relu: _leaky,
}


def first_order_gradients(
    task: Task,
    slots: ParameterSlots,
    params: Params,
    x: Tensor,
    y: Tensor,
    masks: ReluMaskReplay | None = None,
) -> tuple[dict[str, Tensor], Tensor | None]:
    """Return the gradient of one batch in the weights, leaf ``[1, *p]``, and in ``x [B, ...]``.

    Args:
        task: the model and its loss.
        slots: parameter slots of the model.
        params: all trainable parameters by name, leaf ``[*p]``.
        x: records; without ``requires_grad``, the second result is None.
        y: targets ``[B]``.
        masks: recorder of the ReLU masks.
    """
    leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
    inputs = [*leaves.values(), x] if x.requires_grad else list(leaves.values())
    with torch.enable_grad():
        loss = _loss(task, slots, leaves, x, y, masks)
        require(loss.requires_grad, "the loss does not depend on any trainable parameter")
        slopes = _slopes(loss, inputs)
    of_weights = zip(leaves, slopes[: len(leaves)], strict=True)
    grads = {name: laid_out(value, params[name])[None] for name, value in of_weights}
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
        return _slopes(_loss(task, slots, params, x, y, masks), [x])[0]


def _slopes(loss: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    try:
        return torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)
    except RuntimeError as error:
        if "inplace operation" in str(error):
            raise InputError(
                "the model changes in place what its gradient needs; use operations that are not "
                f"in place: {first_line(error)}"
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

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func is F.conv2d:
            return self._convolution(*args, **given)
        if func is Tensor.view:
            return view(*args, **given)
        masked = None if self.masks is None else self.masks.run(func, args, given)
        return func(*args, **given) if masked is None else masked

    def _convolution(self, input: Tensor, weight: Tensor, *args: Any, **given: Any) -> Tensor:
        if id(weight) in self.kernels:
            inner = wide(input, weight)
            input, weight = inward(input, inner), inward(weight, inner)
        return F.conv2d(input, weight, *args, **given)
