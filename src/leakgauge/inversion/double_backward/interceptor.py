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
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode

from leakgauge.core.checks import InputError
from leakgauge.inversion.double_backward.convolution import view
from leakgauge.inversion.double_backward.layers import RECOGNISED, Known, Layer, split_targets


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
        recognise = RECOGNISED.get(func)
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
        return split_targets(self._run(layer, x.flatten(0, 1)), len(x))


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
