"""The kinds of layers whose weights' gradients follow from inputs and output gradients.

Each kind gives its outputs ``[R, ...]`` from ``x [R, ...]``, and the gradients of weight and bias,
``[N, *p]``, from the inputs and the gradient in the outputs. The rows of all targets lie one after
the other, ``R = N * B``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from leakgauge.inversion.double_backward.convolution import (
    Geometry,
    convolve,
    inward,
    weight_gradients,
    wide,
)


@dataclass(frozen=True, eq=False)
class Known:
    """A tensor of the model: the name of its gradient, and its value.

    Attributes:
        name: of a trainable parameter; None for one that is frozen, and for buffers.
        value: ``[*p]``, the same for all targets.
    """

    name: str | None
    value: Tensor


@dataclass(frozen=True, eq=False)
class Convolution:
    """A convolution with one weight and geometry."""

    weight: Known
    bias: Known | None
    geometry: Geometry

    def outputs(self, x: Tensor) -> Tensor:
        """Return the layer's outputs ``[R, ...]``."""
        weight, bias = self.weight.value, _value(self.bias)
        if weight.requires_grad or (bias is not None and bias.requires_grad):
            return self.geometry.outputs(x, weight, bias)
        inner = wide(x, weight)
        return convolve(inward(x, inner), inward(weight, inner), bias, self.geometry)

    def gradients(self, dy: Tensor, x: Tensor, targets: int) -> tuple[Tensor, Tensor]:
        """Return the gradients of weight and bias, ``[N, *p]``."""
        weight = self.weight.value.detach()  # Its shape alone counts.
        inner = wide(x, weight)
        of_weight = weight_gradients(
            inward(dy, inner), inward(x, inner), weight, self.geometry, targets
        )
        return of_weight, split_targets(dy, targets).flatten(3).sum((1, 3))


@dataclass(frozen=True, eq=False)
class Linear:
    """A linear layer on the last axis."""

    weight: Known
    bias: Known | None

    def outputs(self, x: Tensor) -> Tensor:
        """Return the layer's outputs ``[R, ...]``."""
        return F.linear(x, self.weight.value, _value(self.bias))

    def gradients(self, dy: Tensor, x: Tensor, targets: int) -> tuple[Tensor, Tensor]:
        """Return the gradients of weight and bias, ``[N, *p]``."""
        rows = dy.reshape(targets, -1, dy.shape[-1])
        return rows.mT @ x.reshape(targets, -1, x.shape[-1]), rows.sum(1)


@dataclass(frozen=True, eq=False)
class Normalisation:
    """BatchNorm in eval mode: a scale and a shift of each channel."""

    weight: Known
    bias: Known | None
    mean: Tensor
    inverse: Tensor

    def outputs(self, x: Tensor) -> Tensor:
        """Return the layer's outputs ``[R, ...]``."""
        scale = self.weight.value * self.inverse
        shift = -self.mean * scale if self.bias is None else self.bias.value - self.mean * scale
        return torch.addcmul(_channels(shift, x), x, _channels(scale, x))

    def gradients(self, dy: Tensor, x: Tensor, targets: int) -> tuple[Tensor, Tensor]:
        """Return the gradients of weight and bias, ``[N, *p]``."""
        dy, x = split_targets(dy, targets), split_targets(x, targets)
        space = [axis for axis in range(1, x.dim()) if axis != 2]
        centred = x - _channels(self.mean, x[0])
        return (dy * centred).sum(space) * self.inverse, dy.sum(space)


Layer = Convolution | Linear | Normalisation


def _value(known: Known | None) -> Tensor | None:
    return None if known is None else known.value


def split_targets(rows: Tensor, targets: int) -> Tensor:
    """``[N, B, ...]`` from the rows ``[N * B, ...]`` of all targets."""
    return rows.view(targets, -1, *rows.shape[1:])


def _channels(value: Tensor, x: Tensor) -> Tensor:
    """``value [C]``, to be broadcast against ``x [R, C, ...]``."""
    return value.view(-1, *[1] * (x.dim() - 2))


def _convolution(
    known: Mapping[int, Known],
    input: Tensor,  # noqa: A002
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Layer | None:
    both = _both_known(known, weight, bias)
    if both is None or input.dim() != weight.dim():
        return None
    geometry = Geometry.read(weight, stride, padding, dilation, groups)
    # Without one, the padding is uneven; plain autograd does it.
    return None if geometry is None else Convolution(*both, geometry)


def _linear(
    known: Mapping[int, Known],
    input: Tensor,  # noqa: A002
    weight: Tensor,
    bias: Tensor | None = None,
) -> Layer | None:
    both = _both_known(known, weight, bias)
    return Linear(*both) if both is not None and input.dim() > 1 else None


def _batch_norm(
    known: Mapping[int, Known],
    input: Tensor,  # noqa: A002
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Layer | None:
    mean, variance = known.get(id(running_mean)), known.get(id(running_var))
    both = None if weight is None else _both_known(known, weight, bias)
    if training or both is None or mean is None or variance is None:
        return None
    return Normalisation(*both, mean.value, (variance.value + eps).rsqrt())


RECOGNISED: dict[Any, Callable[..., Layer | None]] = {
    F.conv1d: _convolution,
    F.conv2d: _convolution,
    F.conv3d: _convolution,
    F.linear: _linear,
    F.batch_norm: _batch_norm,
}


def _both_known(
    known: Mapping[int, Known], weight: Tensor, bias: Tensor | None
) -> tuple[Known, Known | None] | None:
    """Weight and bias as known tensors, or None where the model made one of them itself."""
    first, second = known.get(id(weight)), known.get(id(bias))
    if first is None or (bias is not None and second is None):
        return None
    return first, second
