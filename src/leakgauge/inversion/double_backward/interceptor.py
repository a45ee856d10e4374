"""Intercepts the layers of a running model, and computes the gradients of their weights afterwards.

An intercepted layer computes its normal outputs, from weights that are constants to autograd. From
its inputs x and the gradient dy in its outputs, which autograd computes anyway, its weights'
gradients follow by one cheap formula for each kind of layer; differentiated, that formula costs two
kernels.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
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
class Known:
    """A tensor of the model: the name of its gradient, and its value.

    Attributes:
        name: of a trainable parameter; None for one that is frozen, and for buffers.
        value: ``[*p]``, the same for all targets.
    """

    name: str | None
    value: Tensor


@dataclass(frozen=True, eq=False)
class _Convolution:
    """One call of one layer, as each of these kinds.

    ``outputs`` gives ``[R, ...]`` from ``x [R, ...]``; ``gradients`` those of weight and bias,
    ``[N, *p]``, from the inputs and the gradient in the outputs. Rows of all targets lie one
    after the other, ``R = N * B``.
    """

    weight: Known
    bias: Known | None
    geometry: Geometry

    def outputs(self, x: Tensor) -> Tensor:
        weight, bias = self.weight.value, _value(self.bias)
        if weight.requires_grad or (bias is not None and bias.requires_grad):
            return self.geometry.outputs(x, weight, bias)
        inner = wide(x, weight)
        return convolve(inward(x, inner), inward(weight, inner), bias, self.geometry)

    def gradients(self, dy: Tensor, x: Tensor, targets: int) -> tuple[Tensor, Tensor]:
        weight = self.weight.value.detach()  # Its shape alone counts.
        inner = wide(x, weight)
        of_weight = weight_gradients(
            inward(dy, inner), inward(x, inner), weight, self.geometry, targets
        )
        return of_weight, _apart(dy, targets).flatten(3).sum((1, 3))


@dataclass(frozen=True, eq=False)
class _Linear:
    weight: Known
    bias: Known | None

    def outputs(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.value, _value(self.bias))

    def gradients(self, dy: Tensor, x: Tensor, targets: int) -> tuple[Tensor, Tensor]:
        rows = dy.reshape(targets, -1, dy.shape[-1])
        return rows.mT @ x.reshape(targets, -1, x.shape[-1]), rows.sum(1)


@dataclass(frozen=True, eq=False)
class _Normalisation:
    """BatchNorm in eval mode: a scale and a shift of each channel."""

    weight: Known
    bias: Known | None
    mean: Tensor
    inverse: Tensor

    def outputs(self, x: Tensor) -> Tensor:
        scale = self.weight.value * self.inverse
        shift = -self.mean * scale if self.bias is None else self.bias.value - self.mean * scale
        return torch.addcmul(_channels(shift, x), x, _channels(scale, x))

    def gradients(self, dy: Tensor, x: Tensor, targets: int) -> tuple[Tensor, Tensor]:
        dy, x = _apart(dy, targets), _apart(x, targets)
        space = [axis for axis in range(1, x.dim()) if axis != 2]
        centred = x - _channels(self.mean, x[0])
        return (dy * centred).sum(space) * self.inverse, dy.sum(space)


Layer = _Convolution | _Linear | _Normalisation


def _value(known: Known | None) -> Tensor | None:
    return None if known is None else known.value


def _apart(rows: Tensor, targets: int) -> Tensor:
    """``[N, B, ...]`` from the rows ``[N * B, ...]`` of all targets."""
    return rows.view(targets, -1, *rows.shape[1:])


def _channels(value: Tensor, x: Tensor) -> Tensor:
    """``value [C]``, to be broadcast against ``x [R, C, ...]``."""
    return value.view(-1, *[1] * (x.dim() - 2))


@dataclass(frozen=True, eq=False)
class _Call:
    """One call of an intercepted layer."""

    layer: Layer
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
        known: the tensors that the model is called with, by ``id``.
        targets: N; every tensor holds the rows of all.
        batched: whether ``vmap`` keeps the N rows apart.
    """

    def __init__(
        self,
        known: Mapping[int, Known],
        targets: int,
        *,
        batched: bool,
    ) -> None:
        super().__init__()
        self.known = known
        self.targets = targets
        self.batched = batched
        self.calls: list[_Call] = []

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if func is Tensor.view:
            return view(*args, **given)
        recognise = _RECOGNISED.get(func)
        layer = recognise(self.known, *args, **given) if recognise else None
        if layer is None:
            return func(*args, **given)
        x = args[0] if args else given["input"]
        if not self.batched:
            return self._run(layer, x)
        return _Physical.apply(x, partial(self._run_batched, layer))  # type: ignore[no-untyped-call]

    def edges(self) -> list[GradientEdge]:
        """Return the edges at which autograd gives the gradient in each layer's outputs."""
        return [call.edge for call in self.calls]

    def gradients(self, slopes: list[Tensor | None]) -> list[dict[str, Tensor]]:
        """Return those of each layer's parameters ``[N, *p]``, from ``slopes`` at the edges."""
        return [
            call.gradients(dy, self.targets)
            for call, dy in zip(self.calls, slopes, strict=True)
            if dy is not None
        ]

    def _run(self, layer: Layer, x: Tensor) -> Tensor:
        if not x.requires_grad:  # Else autograd would see nothing to differentiate here.
            x = x.detach().requires_grad_()
        out = layer.outputs(x)
        if out.requires_grad:
            # The edge, not the output: the model may change that in place.
            self.calls.append(_Call(layer, x, x._version, get_gradient_edge(out)))
        return out

    def _run_batched(self, layer: Layer, x: Tensor) -> Tensor:
        """``[N, B, ...]`` from ``x [N, B, ...]``."""
        return _apart(self._run(layer, x.flatten(0, 1)), len(x))


class _Physical(torch.autograd.Function):
    """Calls a function with all N rows that ``vmap`` keeps apart."""

    generate_vmap_rule = False

    @staticmethod
    def forward(x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        raise NotImplementedError("runs under vmap alone")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing: autograd differentiates ``function`` itself."""

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, x: Tensor, function: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, int]:
        if in_dims[0] is None:
            return function(x.expand(info.batch_size, *x.shape)), 0
        return function(x.movedim(in_dims[0], 0)), 0


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
    return None if geometry is None else _Convolution(*both, geometry)


def _linear(
    known: Mapping[int, Known],
    input: Tensor,  # noqa: A002
    weight: Tensor,
    bias: Tensor | None = None,
) -> Layer | None:
    both = _both_known(known, weight, bias)
    return _Linear(*both) if both is not None and input.dim() > 1 else None


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
    return _Normalisation(*both, mean.value, (variance.value + eps).rsqrt())


_RECOGNISED: dict[Any, Callable[..., Layer | None]] = {
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
