"""The inputs and outputs of a layer while its model runs."""

from dataclasses import dataclass, field

from torch import Tensor, nn

from leakgauge.gradients.walk import Layer


@dataclass(eq=False)
class Caught:
    """The calls of one layer.

    Attributes:
        layer: the layer.
        inputs: of each call.
        outputs: of each call; the model goes on with copies, which it may change in place.
    """

    layer: Layer
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)

    @classmethod
    def at(cls, module: nn.Module, layer: Layer) -> "Caught":
        """Return what catches the calls of a module, which is a copy of our own."""
        caught = cls(layer)
        module.register_forward_hook(caught._take)
        return caught

    def is_sound(self, count: int) -> bool:
        """Return whether it ran once, on ``count`` records."""
        return len(self.outputs) == 1 and len(self.inputs[0]) == count

    def _take(self, module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
        self.inputs.append(given[0].detach())
        self.outputs.append(output)
        return output.clone()
