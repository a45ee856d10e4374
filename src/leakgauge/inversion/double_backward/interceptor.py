"""Intercepts the layers of a running model, and computes the gradients of their weights afterwards.

An intercepted layer computes its normal outputs, from weights that are constants to autograd. Its
weights' gradients follow from its inputs x and the gradient dy in its outputs, which autograd
computes anyway, by one cheap formula for each kind of layer; differentiated, that formula costs two
kernels.

Each kind gives its outputs ``[R, ...]`` from ``x [R, ...]``, and the gradients of weight and bias,
``[N, *p]``. The rows of all targets lie one after the other, ``R = N * B``.
"""
# ruff: noqa: A002 - the arguments are named as torch names them.

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode

from leakgauge.core.checks import InputError
from leakgauge.inversion.double_backward.convolution import (
    Geometry,
    convolve,
    inward,
    view,
    weight_gradients,
    wide,
)


@dataclass(frozen=True, eq=False)
class ModelTensor:
    """A tensor of the model: the name of its gradient, and its value.

    Attributes:
        name: name of a trainable parameter; None for frozen parameters and buffers.
        value: value ``[*p]``, the same for all targets.
    """

    name: str | None
    value: Tensor


Known = Mapping[int, ModelTensor]
"""Tensors of the model by the ``id`` of the object that its layers receive."""


@dataclass(frozen=True, eq=False)
class Convolution:
    """A convolution with one weight and geometry."""

    weight: ModelTensor
    bias: ModelTensor | None
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
        weight = self.weight.value.detach()  # Only its shape is used.
        inner = wide(x, weight)
        rows = inward(dy, inner), inward(x, inner)
        of_weight = weight_gradients(*rows, weight, self.geometry, targets)
        return of_weight, split_targets(dy, targets).flatten(3).sum((1, 3))


@dataclass(frozen=True, eq=False)
class LinearLayer:
    """A linear layer on the last axis."""

    weight: ModelTensor
    bias: ModelTensor | None

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

    weight: ModelTensor
    bias: ModelTensor | None
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


SupportedLayer = Convolution | LinearLayer | Normalisation


def _value(known: ModelTensor | None) -> Tensor | None:
    return None if known is None else known.value


def split_targets(rows: Tensor, targets: int) -> Tensor:
    """Return ``[N, B, ...]`` from the rows ``[N * B, ...]`` of all targets."""
    return rows.view(targets, -1, *rows.shape[1:])


def _channels(value: Tensor, x: Tensor) -> Tensor:
    """Return ``value [C]`` in a shape that broadcasts against ``x [R, C, ...]``."""
    return value.view(-1, *[1] * (x.dim() - 2))


def _convolution(
    known: Known,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> SupportedLayer | None:
    both = _both_known(known, weight, bias)
    if both is None or input.dim() != weight.dim():
        return None
    geometry = Geometry.read(weight, stride, padding, dilation, groups)
    # None for uneven padding, which plain autograd handles.
    return None if geometry is None else Convolution(*both, geometry)


def _linear(
    known: Known, input: Tensor, weight: Tensor, bias: Tensor | None = None
) -> SupportedLayer | None:
    both = _both_known(known, weight, bias)
    return LinearLayer(*both) if both is not None and input.dim() > 1 else None


def _batch_norm(
    known: Known,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> SupportedLayer | None:
    mean, variance = known.get(id(running_mean)), known.get(id(running_var))
    both = None if weight is None else _both_known(known, weight, bias)
    if training or both is None or mean is None or variance is None:
        return None
    return Normalisation(*both, mean.value, (variance.value + eps).rsqrt())


RECOGNISED: dict[Any, Callable[..., SupportedLayer | None]] = {
    **dict.fromkeys((F.conv1d, F.conv2d, F.conv3d), _convolution),
    F.linear: _linear,
    F.batch_norm: _batch_norm,
}


def _both_known(
    known: Known, weight: Tensor, bias: Tensor | None
) -> tuple[ModelTensor, ModelTensor | None] | None:
    """Return weight and bias as known tensors, or None if the model computed one of them."""
    first, second = known.get(id(weight)), known.get(id(bias))
    if first is None or (bias is not None and second is None):
        return None
    return first, second


@dataclass(frozen=True, eq=False)
class _Call:
    """One call of an intercepted layer."""

    layer: SupportedLayer
    x: Tensor
    version: int
    edge: GradientEdge

    def gradients(self, dy: Tensor, targets: int) -> dict[str, Tensor]:
        if self.x._version != self.version:
            raise InputError(
                "the model changes the input of a layer in place afterwards, so it has no "
                "gradient; use operations that are not in place"
            )
        values = self.layer.gradients(dy, self.x, targets)
        pairs = zip((self.layer.weight, self.layer.bias), values, strict=True)
        return {known.name: value for known, value in pairs if known is not None and known.name}


class LayerInterceptor(TorchFunctionMode):
    """Intercepts every layer that it recognises, while the mode is on.

    Args:
        known: tensors that the model receives.
        targets: number of targets N; each tensor holds the rows of all of them.
        batched: whether ``vmap`` keeps the N rows apart.
    """

    def __init__(self, known: Known, targets: int, *, batched: bool) -> None:
        super().__init__()
        self.known, self.targets, self.batched = known, targets, batched
        self.calls: list[_Call] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func is Tensor.view:
            return view(*args, **given)
        recognise = RECOGNISED.get(func)
        layer = recognise(self.known, *args, **given) if recognise else None
        if layer is None:
            return func(*args, **given)
        x = args[0] if args else given["input"]
        if not self.batched:
            return self._run(layer, x)

        def of_rows(x: Tensor) -> Tensor:
            """Return outputs ``[N, B, ...]`` for ``x [N, B, ...]``."""
            return split_targets(self._run(layer, x.flatten(0, 1)), len(x))

        return _Physical.apply(x, of_rows)  # type: ignore[no-untyped-call]

    def edges(self) -> list[GradientEdge]:
        """Return the graph edges that receive the gradients in each layer's outputs."""
        return [call.edge for call in self.calls]

    def gradients(self, slopes: list[Tensor | None]) -> list[dict[str, Tensor]]:
        """Return each layer's parameter gradients ``[N, *p]``, from ``slopes`` at the edges."""
        return [
            call.gradients(dy, self.targets)
            for call, dy in zip(self.calls, slopes, strict=True)
            if dy is not None
        ]

    def _run(self, layer: SupportedLayer, x: Tensor) -> Tensor:
        if not x.requires_grad:  # Otherwise autograd would find nothing to differentiate.
            x = x.detach().requires_grad_()
        out = layer.outputs(x)
        if out.requires_grad:
            # The edge, not the output: the model may change that in place.
            self.calls.append(_Call(layer, x, x._version, get_gradient_edge(out)))
        return out


class _Physical(torch.autograd.Function):
    """Calls a function with all N rows that ``vmap`` keeps apart."""

    generate_vmap_rule = False

    @staticmethod
    def forward(x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        raise NotImplementedError("runs under vmap only")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing: autograd differentiates ``function`` itself."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, function: Any) -> tuple[Tensor, int]:
        if in_dims[0] is None:
            return function(x.expand(info.batch_size, *x.shape)), 0
        return function(x.movedim(in_dims[0], 0)), 0
