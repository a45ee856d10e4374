"""The layers of a model."""

from dataclasses import dataclass

from torch import Tensor, nn

from leakgauge.core.types import Task


@dataclass(frozen=True)
class Layer:
    """One module with parameters of its own."""

    name: str
    kind: str
    parameters: tuple[str, ...]
    order: int


def walk(task: Task, x: Tensor) -> list[Layer]:
    """Return the layers in registration order (stand-in)."""
    layers = []
    for name, module in task.model.named_modules():
        own = [
            f"{name}.{key}" if name else key
            for key, leaf in module.named_parameters(recurse=False)
            if leaf.requires_grad
        ]
        if own:
            kind = "linear" if isinstance(module, nn.Linear) else "other"
            layers.append(Layer(name, kind, tuple(own), len(layers)))
    return layers
