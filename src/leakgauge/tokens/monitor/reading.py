"""Gradients at an optimizer's step: read, and kept as few numbers for each layer."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from leakgauge.core.rng import derive
from leakgauge.core.types import Grads
from leakgauge.gradients.walk import Layer
from leakgauge.tokens.monitor.sketching import LayerSketch


class Reading:
    """Reads ``.grad`` of a model's parameters.

    Args:
        model: whose parameters they are.
        layers: that are kept, by name.
        width: numbers that are kept of each layer.
        seed: of the sketches.
    """

    def __init__(
        self, model: nn.Module, layers: Mapping[str, Layer], *, width: int, seed: int
    ) -> None:
        self._params = {k: p for k, p in model.named_parameters() if p.requires_grad}
        self._names = [name for layer in layers.values() for name in layer.parameters]
        self._own = [self._params[name] for name in self._names]
        shapes = {
            key: [self._params[name].shape for name in layer.parameters]
            for key, layer in layers.items()
        }
        self._sketch = LayerSketch(shapes, width=width, seed=derive(seed, "sketch"))

    @property
    def shapes(self) -> dict[str, torch.Size]:
        """Shapes of the trainable parameters, in the model's order."""
        return {name: one.shape for name, one in self._params.items()}

    @property
    def is_empty(self) -> bool:
        """Whether no parameter has a gradient."""
        return all(one.grad is None for one in self._params.values())

    def gradient(self) -> Grads:
        """Return the gradient by name, leaf ``[1, *p]``; zeros where a parameter has none."""
        return {name: _dense(one)[None] for name, one in self._params.items()}

    def kept(self, grads: Grads | None = None) -> Tensor:
        """Return what is kept of a gradient ``[k]``, on the CPU, until the next call.

        Args:
            grads: leaf ``[1, *p]``; None reads the parameters.
        """
        with torch.no_grad():
            if grads is None:
                return self._sketch([_dense(one) for one in self._own]).cpu()
            return self._sketch([grads[name][0] for name in self._names]).cpu()

    def split(self, kept: Tensor) -> dict[str, Tensor]:
        """Return what is kept of N gradients ``[N, k]`` by layer."""
        return self._sketch.split(kept)


def _dense(parameter: nn.Parameter) -> Tensor:
    grad = parameter.grad
    if grad is None:
        return torch.zeros_like(parameter, memory_format=torch.contiguous_format).detach()
    return grad.to_dense() if grad.is_sparse else grad
