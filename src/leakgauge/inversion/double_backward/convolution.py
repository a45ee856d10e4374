"""A convolution with gradients that can be differentiated at the price of ordinary kernels.

Plain double backward makes autograd compute cotangents that are not needed, and runs some of the
others as convolutions of odd shapes. Here every pass is one forward, input-gradient or
weight-gradient kernel: 7 passes for a matched gradient; a plain gradient takes 3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from leakgauge.gradients.watching import overruns

_KERNELS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


@dataclass(frozen=True)
class Geometry:
    """Stride, padding on both sides, dilation of the kernel's points, and groups of channels.

    The first three have one number for each axis of space.
    """

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @classmethod
    def read(
        cls, weight: Tensor, stride: Any, padding: Any, dilation: Any, groups: int
    ) -> "Geometry | None":
        """Return the geometry from PyTorch's arguments; None for uneven padding."""
        space = weight.dim() - 2
        dilations = _each(dilation, space)
        if isinstance(padding, str):
            sides = zip(dilations, weight.shape[2:], strict=True)
            total = [far * (side - 1) for far, side in sides]
            if padding == "same" and any(zeros % 2 for zeros in total):
                return None
            padding = [zeros // 2 if padding == "same" else 0 for zeros in total]
        return cls(_each(stride, space), _each(padding, space), dilations, groups)

    def outputs(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return ``[R, O, ...]`` for ``x [R, I, ...]``, ``weight [O, I / groups, ...]``."""
        kernel = _KERNELS[len(self.stride)]
        return kernel(x, weight, bias, self.stride, self.padding, self.dilation, self.groups)

    def input_gradient(self, dy: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """Return ``[R, I, ...]`` from ``dy [R, O, ...]``; only the shape of ``x`` is used."""
        return self._backward(dy, x, weight, 0)

    def weight_gradient(self, dy: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """Return ``[O, I / groups, ...]``, summed over rows; only ``weight.shape`` is used."""
        if overruns(x, weight, self.stride):
            dy, x = dy.contiguous(), x.contiguous()
        return self._backward(dy, x, weight, 1)

    def _backward(self, dy: Tensor, x: Tensor, weight: Tensor, which: int) -> Tensor:
        result: Tensor = torch.ops.aten.convolution_backward(
            *(dy, x, weight, None, self.stride, self.padding, self.dilation),
            *(False, [0] * len(self.stride), self.groups, [which == 0, which == 1, False]),
        )[which]
        return result


def _each(value: Any, space: int) -> tuple[int, ...]:
    """Return a whole number for each axis of space."""
    values = [value] if isinstance(value, int) else [int(one) for one in value]
    return tuple(values * space if len(values) == 1 else values)


def view(x: Tensor, *shape: Any, **given: Any) -> Tensor:
    """Return ``x.view(...)``; with innermost channels, it may have to copy."""
    try:
        result: Tensor = x.view(*shape, **given)
    except RuntimeError:
        result = x.reshape(*shape, **given)
    return result


def inward(value: Tensor, wide: bool) -> Tensor:
    """Return the values contiguous; with the channels of images innermost if ``wide``."""
    return value.contiguous(memory_format=torch.channels_last) if wide else value.contiguous()


def wide(x: Tensor, weight: Tensor) -> bool:
    """Return whether innermost channels save more time than the change of layout costs.

    They do on CPUs in single precision, if images hold more numbers than the kernel, or if the
    kernel has its channels innermost already.
    """
    if x.dim() != 4 or x.device.type != "cpu" or x.dtype == torch.float64:
        return False
    point = weight.is_contiguous() and weight.is_contiguous(memory_format=torch.channels_last)
    return x.numel() >= weight.numel() or channels_innermost(x if point else weight)


def channels_innermost(value: Tensor) -> bool:
    """Return whether a tensor of four axes has its second one innermost in memory."""
    inner: bool = value.is_contiguous(memory_format=torch.channels_last)
    return inner and not value.is_contiguous()


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    """Return rows ``x`` convolved with a constant kernel, twice differentiable in ``x``."""
    result: Tensor = _Convolve.apply(x, weight, bias, geometry)  # type: ignore[no-untyped-call]
    return result


def weight_gradients(
    dy: Tensor, x: Tensor, weight: Tensor, geometry: Geometry, targets: int
) -> Tensor:
    """Return the kernel's gradient for each target, ``[N, *weight.shape]``, once differentiable.

    ``dy [N * B, O, ...]`` is the gradient in the outputs, target after target, and ``x`` are the
    inputs ``[N * B, I, ...]``. Only the shape of the kernel ``weight`` is used.
    """
    if not torch.is_grad_enabled():
        return _each_kernel(dy, x, weight, geometry, targets)
    given = dy, x, weight, geometry, targets
    result: Tensor = _WeightGradients.apply(*given)  # type: ignore[no-untyped-call]
    return result


def lasting(leaf: Tensor, axes: int = 4) -> Tensor:
    """Return kernels ``[O, I, h, w]`` in the layout that a search can use as it is.

    It is innermost channels, on CPUs in single precision. A leaf that has not as many ``axes``
    stays; 5 are those of a stack ``[N, O, I, h, w]``.
    """
    if leaf.dim() != axes or leaf.device.type != "cpu" or leaf.dtype == torch.float64:
        return leaf
    return leaf.movedim(-3, -1).contiguous().movedim(-1, -3)


def laid_out(gradient: Tensor, weight: Tensor) -> Tensor:
    """Return a kernel's gradient with its channels innermost if the kernel's are."""
    return inward(gradient, channels_innermost(weight))


def _each_kernel(dy: Tensor, x: Tensor, weight: Tensor, how: Geometry, targets: int) -> Tensor:
    rows = zip(_parts(dy, targets), _parts(x, targets), strict=True)
    result = [laid_out(how.weight_gradient(*row, weight), weight) for row in rows]
    if targets > 1 and channels_innermost(weight):
        return torch.stack([one.movedim(1, -1) for one in result]).movedim(-1, 2)
    return result[0][None] if targets == 1 else torch.stack(result)


def _parts(rows: Tensor, targets: int) -> Sequence[Tensor]:
    return [rows] if targets == 1 else rows.chunk(targets)


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, how: Geometry) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.how = how
        return how.outputs(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        dy = inward(dy, wide(x, weight))
        if not torch.is_grad_enabled():
            return ctx.how.input_gradient(dy, x, weight), None, None, None
        # Detached because only its shape is used: autograd would compute a gradient of zero.
        result = _InputGradient.apply(dy, x.detach(), weight, ctx.how)  # type: ignore[no-untyped-call]
        return result, None, None, None


class _InputGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dy: Tensor, x: Tensor, weight: Tensor, how: Geometry) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.how = how
        return how.input_gradient(dy, x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        (weight,) = ctx.saved_tensors
        return ctx.how.outputs(cotangent, weight), None, None, None


class _WeightGradients(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, dy: Tensor, x: Tensor, weight: Tensor, how: Geometry, targets: int
    ) -> Tensor:
        ctx.save_for_backward(dy, x)
        ctx.how = how
        return _each_kernel(dy, x, weight, how, targets)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        dy, x = ctx.saved_tensors
        targets = len(cotangent)
        kernels = [inward(kernel, wide(x, kernel)) for kernel in cotangent]
        rows = list(zip(_parts(dy, targets), _parts(x, targets), kernels, strict=True))
        to_dy = to_x = None
        if ctx.needs_input_grad[0]:
            to_dy = _joined([ctx.how.outputs(one_x, kernel) for _, one_x, kernel in rows])
        if ctx.needs_input_grad[1]:
            to_x = _joined([ctx.how.input_gradient(*row) for row in rows])
        return to_dy, to_x, None, None, None


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
