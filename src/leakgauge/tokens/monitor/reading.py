"""Reads the gradients of an optimizer's step, and reduces each layer to few numbers."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from leakgauge.core.rng import derive, torch_stream
from leakgauge.core.types import Grads
from leakgauge.gradients.walk import Layer


class LayerSketch:
    """Keeps at most ``width`` numbers of each layer's gradient.

    In a larger layer each number is multiplied by a random sign and added to the place given by its
    position modulo the width, which keeps inner products in the mean over signs. Unlike the random
    places of ``leakgauge.tokens.sketch``, this sums whole rows. A step takes few operations, and
    writes into allocated memory.

    Args:
        shapes: shapes of the parameters of each layer, by layer name.
        width: largest number of kept values of each layer.
        seed: seed of the signs.

    >>> shapes = {"0": [torch.Size([2, 2]), torch.Size([2])], "1": [torch.Size([2])]}
    >>> sketch = LayerSketch(shapes, width=4, seed=0)
    >>> kept = sketch([torch.ones(2, 2), torch.ones(2), torch.ones(2)])
    >>> kept.shape, sketch.split(kept[None])["1"].tolist()
    (torch.Size([8]), [[1.0, 1.0]])
    """

    def __init__(
        self, shapes: Mapping[str, Sequence[torch.Size]], *, width: int, seed: int
    ) -> None:
        self._shapes, self._width = dict(shapes), width
        self._sizes = {name: sum(one.numel() for one in own) for name, own in shapes.items()}
        rows = [-(-size // width) for size in self._sizes.values()]
        self._layers = torch.arange(len(rows)).repeat_interleave(torch.tensor(rows))
        rng = torch_stream(seed, "signs")
        self._signs = 2.0 * torch.randint(2, (sum(rows), width), generator=rng) - 1
        self._signs[(torch.tensor(rows) == 1)[self._layers]] = 1.0
        self._flat = torch.zeros(sum(rows), width)
        self._kept = torch.zeros(len(rows), width)
        self._parts = self._views()

    def __call__(self, parameters: list[Tensor]) -> Tensor:
        """Return the reduced gradient ``[layers * width]``; the next call overwrites it.

        Args:
            parameters: gradients of all parameters of the layers, in their order.
        """
        if self._flat.device != parameters[0].device:
            self._move(parameters[0].device)
        torch._foreach_copy_(self._parts, parameters)
        self._flat.mul_(self._signs)
        return self._kept.zero_().index_add_(0, self._layers, self._flat).view(-1)

    def split(self, kept: Tensor) -> dict[str, Tensor]:
        """Return the values by layer ``[N, k]`` of rows ``[N, layers * width]``."""
        each = kept.reshape(len(kept), len(self._sizes), self._width)
        return {
            name: each[:, number, : min(size, self._width)]
            for number, (name, size) in enumerate(self._sizes.items())
        }

    def _views(self) -> list[Tensor]:
        """Return views of each parameter's gradient, in its shape; layers do not share rows."""
        flat, views, row = self._flat.view(-1), [], 0
        for own in self._shapes.values():
            start = row * self._width
            for shape in own:
                views.append(flat[start : start + shape.numel()].view(shape))
                start += shape.numel()
            row = -(-start // self._width)
        return views

    def _move(self, device: torch.device) -> None:
        for name in ("_layers", "_signs", "_flat", "_kept"):
            setattr(self, name, getattr(self, name).to(device))
        self._parts = self._views()


class GradientReader:
    """Reads ``.grad`` of a model's parameters.

    Args:
        model: the model.
        layers: watched layers by name.
        width: largest number of kept values of each layer.
        seed: seed of the sketches.
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
        return not any(one.grad is not None for one in self._params.values())

    def gradient(self) -> Grads:
        """Return the gradient by name, leaf ``[1, *p]``; zeros for parameters without one."""
        return {name: _dense(one)[None] for name, one in self._params.items()}

    def kept(self, grads: Grads | None = None) -> Tensor:
        """Return the reduced gradient ``[k]`` on the CPU, valid until the next call.

        Args:
            grads: gradient with leaves ``[1, *p]``; None reads the parameters.
        """
        with torch.no_grad():
            if grads is None:
                return self._sketch([_dense(one) for one in self._own]).cpu()
            return self._sketch([grads[name][0] for name in self._names]).cpu()

    def split(self, kept: Tensor) -> dict[str, Tensor]:
        """Return N reduced gradients ``[N, k]`` by layer."""
        return self._sketch.split(kept)


def _dense(parameter: nn.Parameter) -> Tensor:
    grad = parameter.grad
    if grad is None:
        return torch.zeros_like(parameter, memory_format=torch.contiguous_format).detach()
    return grad.to_dense() if grad.is_sparse else grad
