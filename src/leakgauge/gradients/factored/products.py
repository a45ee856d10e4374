"""Find the layers that have factors, and make the factors from inputs and output gradients."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from leakgauge.gradients.factored.base import Factors
from leakgauge.gradients.factored.convolution import ConvolutionFactors
from leakgauge.gradients.factored.linear import EmbeddingFactors, LinearFactors
from leakgauge.gradients.walk import Layer


@dataclass(eq=False)
class LayerCalls:
    """The calls of one layer.

    Attributes:
        layer: the layer.
        inputs: input of each call.
        outputs: output of each call; the model continues with copies, which it may change in place.
    """

    layer: Layer
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)

    @classmethod
    def at(cls, module: nn.Module, layer: Layer) -> "LayerCalls":
        """Return a recorder of the calls of a module, which must be a private copy."""
        caught = cls(layer)
        module.register_forward_hook(caught._take)
        return caught

    def is_sound(self, count: int) -> bool:
        """Return whether the layer ran once, on ``count`` records."""
        return len(self.outputs) == 1 and len(self.inputs[0]) == count

    def _take(self, module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
        self.inputs.append(given[0].detach())
        self.outputs.append(output)
        return output.clone()


_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def has_factors(module: nn.Module, layer: Layer) -> bool:
    """Return whether a layer of this type and settings has factors."""
    if _name(layer, "weight") not in layer.parameters:
        return False
    if type(module) in _CONVOLUTIONS:
        return module.padding_mode == "zeros" and _padding(module) is not None
    if type(module) is nn.Embedding:
        return module.max_norm is None and not module.scale_grad_by_freq and not module.sparse
    return type(module) is nn.Linear or is_transposed(module)


def is_transposed(module: nn.Module) -> bool:
    """Return whether a module is transformers' ``Conv1D``, linear with a weight ``[in, out]``.

    Its name says so, so that transformers need not be imported.
    """
    own = type(module)
    return own.__name__ == "Conv1D" and own.__module__.partition(".")[0] == "transformers"


def layer_factors(module: Any, caught: LayerCalls, dy: Tensor) -> Factors | None:
    """Return the factors of a layer; None if its inputs have an unknown shape.

    Args:
        module: a layer for which ``has_factors`` holds.
        caught: the layer's only call.
        dy: gradient of the summed loss in the layer's outputs.
    """
    layer, x, dy = caught.layer, caught.inputs[0], dy.to(module.weight.dtype)
    x = x.to(dy.dtype) if x.is_floating_point() else x  # autocast has several types
    weight, bias = _name(layer, "weight"), _name(layer, "bias")
    known = bias if bias in layer.parameters else None
    turned = is_transposed(module)
    if turned or isinstance(module, nn.Linear):
        if x.dim() < 2:
            return None
        return LinearFactors(weight, known, _places(x), _places(dy), turned)
    if isinstance(module, nn.Embedding):
        return _of_words(module, weight, x, dy)
    if x.dim() != module.weight.dim():
        return None
    geometry = {key: getattr(module, key) for key in ("stride", "dilation", "groups")}
    geometry["padding"] = _padding(module)
    return ConvolutionFactors(weight, known, tuple(module.weight.shape), geometry, x, dy)


def _of_words(module: nn.Embedding, weight: str, index: Tensor, dy: Tensor) -> Factors:
    dy = _places(dy) if index.dim() > 1 else dy[:, None]
    index = index.reshape(len(index), -1)
    if module.padding_idx is not None:
        dy = torch.where((index == module.padding_idx)[:, :, None], 0.0, dy)
    return EmbeddingFactors(weight, module.num_embeddings, index, dy)


def _places(values: Tensor) -> Tensor:
    """Return values ``[n, ..., d]`` as ``[n, t, d]``."""
    return values.reshape(len(values), -1, values.shape[-1])


def _padding(module: Any) -> tuple[int, ...] | None:
    """Return the padding on each side of every axis; None if the sides differ."""
    if not isinstance(module.padding, str):
        return tuple(module.padding)
    if module.padding == "valid":
        return (0,) * len(module.kernel_size)
    both = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
    return None if any(one % 2 for one in both) else tuple(one // 2 for one in both)


def _name(layer: Layer, key: str) -> str:
    return f"{layer.name}.{key}" if layer.name else key
