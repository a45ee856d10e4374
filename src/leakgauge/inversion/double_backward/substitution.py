"""Substitutes a model's parameters and buffers while it runs, after one walk through the model.

``torch.func.functional_call`` substitutes them, too, but walks through the model several times in
each call: with a small image that takes as long as part of the network's arithmetic.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from leakgauge.core.types import Params, Task

Buffers = dict[str, Tensor | None]


class ParameterSlots:
    """Places of a model's tensors; valid while the model is unchanged.

    Attributes:
        trainable: parameters that require a gradient, by name; a shared one has its first name.
        frozen: other parameters by name.
        buffers: buffers by name.
        writes: whether a module may write its buffers: it is in training mode, or not of PyTorch.
    """

    def __init__(self, model: nn.Module) -> None:
        self.trainable: dict[str, Tensor] = {}
        self.frozen: dict[str, Tensor] = {}
        self.buffers: dict[str, Tensor] = {}
        self.writes = False
        self._modules = list(model.modules())
        self._held: list[tuple[Buffers, str, Tensor]] = []
        seen: set[int] = set()
        for path, module in model.named_modules():
            foreign = not type(module).__module__.startswith("torch.nn.")
            buffered = any(value is not None for value in module._buffers.values())
            self.writes |= module.training or (foreign and buffered)
            for store, buffers in ((module._parameters, False), (module._buffers, True)):
                for key, value in store.items():
                    if value is None:
                        continue
                    self._held.append((store, key, value))
                    if id(value) not in seen:
                        seen.add(id(value))
                        name = f"{path}.{key}" if path else key
                        own = self.trainable if value.requires_grad else self.frozen
                        (self.buffers if buffers else own)[name] = value

    def own_buffers(self) -> dict[str, Tensor]:
        """Return the buffers; copies if a module may write to its buffers."""
        if not self.writes:
            return self.buffers
        return {name: value.detach().clone() for name, value in self.buffers.items()}

    @contextmanager
    def filled(self, values: Mapping[str, Tensor]) -> Iterator[None]:
        """Give the model other ``values`` by name, and restore its own afterwards.

        Attributes that a pass sets, such as cached outputs, are removed too.
        """
        own = {**self.trainable, **self.frozen, **self.buffers}
        new = {id(own[name]): value for name, value in values.items()}
        attributes = [dict(vars(module)) for module in self._modules]
        try:
            for store, key, value in self._held:
                store[key] = new.get(id(value), value)
            yield
        finally:
            for store, key, value in self._held:
                store[key] = value
            for module, before in zip(self._modules, attributes, strict=True):
                vars(module).clear()
                vars(module).update(before)

    def loss(
        self, task: Task, values: Params, x: Tensor, y: Tensor, mode: TorchFunctionMode
    ) -> Tensor:
        """Return the loss of a batch at other ``values`` by name, computed under ``mode``.

        The loss function sees the model's own values, as on a client.
        """
        with self.filled(values):
            pair = task.paired(x)
            with mode:
                outputs = task.outputs(pair)
        with mode:
            return task.mean_loss(outputs if pair is x else outputs[: len(x)], y)
