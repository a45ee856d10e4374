"""Convolutions that stay fast under ``vmap(grad(...))``.

What ``torch.func`` makes of a batched weight gradient is one grouped convolution, slower than a
loop. Here everything that shares its weights is merged into one ordinary convolution, and only
what differs from trial to trial (the weight gradient; all of it once the weights differ) runs
trial by trial through the native kernel, which needs no memory of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.overrides import TorchFunctionMode

# Stride, padding, dilation, transposed, output padding, groups: as the native kernel takes them.
Settings = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], bool, tuple[int, ...], int]

_convolution = torch.ops.aten.convolution
_backward = torch.ops.aten.convolution_backward


class FastConvolutions(TorchFunctionMode):
    """While active, ``conv1d``, ``conv2d`` and ``conv3d`` (also of modules) take the fast path."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in _DIMENSIONS:
            call = _bind(*args, **kwargs)
            settings = _settings(_DIMENSIONS[func], *call)
            if settings is not None:
                x, weight, bias, *_ = call
                out = _Convolution.apply(x, weight, settings)
                return out if bias is None else out + bias.view(-1, *[1] * _DIMENSIONS[func])
        return func(*args, **kwargs)


_DIMENSIONS: dict[Any, int] = {torch.conv1d: 1, torch.conv2d: 2, torch.conv3d: 3}


def _bind(
    input: Tensor,  # noqa: A002 - the names of torch.conv2d
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> tuple[Tensor, Tensor, Tensor | None, Any, Any, Any, int]:
    return input, weight, bias, stride, padding, dilation, groups


def _settings(
    dims: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Settings | None:
    """The native kernel's settings; None where the ordinary function has to serve."""
    if x.dim() != dims + 2:
        return None
    stride, dilation = _each(stride, dims), _each(dilation, dims)
    if padding == "valid":
        padding = 0
    elif padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        if any(n % 2 for n in total):
            return None
        padding = tuple(n // 2 for n in total)
    return stride, _each(padding, dims), dilation, False, (0,) * dims, groups


def _each(value: Any, dims: int) -> tuple[int, ...]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * dims if len(values) == 1 else values


def _front(value: Tensor, dim: int | None, count: int) -> Tensor:
    """``value`` with the trials on its first axis."""
    return value.expand(count, *value.shape) if dim is None else value.movedim(dim, 0)


class _Convolution(Function):
    """``(x [B, C, ...], weight) -> [B, O, ...]``, without a bias."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, settings: Settings) -> Any:
        return _convolution(x, weight, None, *settings)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, weight, ctx.settings = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (g,) = grads
        x, weight = ctx.saved_tensors
        gx = gw = None
        if ctx.needs_input_grad[0]:
            gx = _InputGradient.apply(g, x, weight, ctx.settings)
        if ctx.needs_input_grad[1]:
            gw = _WeightGradient.apply(g, x, weight, ctx.settings)
        return gx, gw, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        x, weight, settings = args
        x = _front(x, in_dims[0], info.batch_size)
        if in_dims[1] is None:
            merged = _convolution(x.flatten(0, 1), weight, None, *settings)
            return merged.unflatten(0, x.shape[:2]), 0
        pairs = zip(x, weight.movedim(in_dims[1], 0), strict=True)
        return torch.stack([_convolution(one, w, None, *settings) for one, w in pairs]), 0


class _InputGradient(Function):
    """``(g [B, O, ...], x, weight) -> `` gradient in ``x``."""

    @staticmethod
    def forward(g: Tensor, x: Tensor, weight: Tensor, settings: Settings) -> Any:
        return _backward(g, x, weight, None, *settings, (True, False, False))[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Nothing to keep: first derivatives only."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        g, x, weight, settings = args
        g, x = _front(g, in_dims[0], info.batch_size), _front(x, in_dims[1], info.batch_size)
        if in_dims[2] is None:
            merged = _InputGradient.forward(g.flatten(0, 1), x.flatten(0, 1), weight, settings)
            return merged.unflatten(0, x.shape[:2]), 0
        triples = zip(g, x, weight.movedim(in_dims[2], 0), strict=True)
        return torch.stack([_InputGradient.forward(*three, settings) for three in triples]), 0


class _WeightGradient(Function):
    """``(g [B, O, ...], x, weight) -> `` gradient in ``weight``, of which only the shape counts."""

    @staticmethod
    def forward(g: Tensor, x: Tensor, weight: Tensor, settings: Settings) -> Any:
        return _backward(g, x, weight, None, *settings, (False, True, False))[1]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Nothing to keep: first derivatives only."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        g, x, weight, settings = args
        g, x = _front(g, in_dims[0], info.batch_size), _front(x, in_dims[1], info.batch_size)
        weight = weight if in_dims[2] is None else weight.select(in_dims[2], 0)
        pairs = zip(g, x, strict=True)
        return torch.stack([_WeightGradient.forward(a, b, weight, settings) for a, b in pairs]), 0
