"""Hooks that catch, in the passes of a loop, what a monitor looks at."""

from collections.abc import Mapping
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from leakgauge.gradients.factored.products import is_able
from leakgauge.gradients.walk import Layer
from leakgauge.tokens.monitor.hooks import Hook
from leakgauge.tokens.monitor.inputs import feature_sum, first_tensor
from leakgauge.tokens.monitor.passes import Pass


class Taps:
    """Catches data features in each forward pass, and factors of gradients where they are due.

    A pass counts where its backward pass has run. Passes without gradients are not seen, so an
    evaluation inside the loop changes nothing.

    Args:
        model: what the loop calls; it may be inside a wrapper.
        layers: to watch, by name.
        features: name of the module whose output is the data feature; None takes the input of the
            layer that runs last.

    Attributes:
        due: whether the next passes catch factors.
        given: the batch that the loop named, for loops that do not call the model itself.
        last: the last pass that counts.
    """

    def __init__(self, model: nn.Module, layers: Mapping[str, Layer], features: str | None) -> None:
        self._model, self._layers, self._features = model, layers, features
        modules = {name: model.get_submodule(name) for name in layers}
        self.able = {n: one for n, one in modules.items() if is_able(one, layers[n])}
        self.due = False
        self.gathers = True
        self.given: Tensor | None = None
        self.last: Pass | None = None
        self._now: Pass | None = None
        self._sum: Tensor | None = None
        self._count = 0
        self._handles: list[RemovableHandle] = []
        self._open: WeakSet[Pass] = WeakSet()

    def start(self) -> None:
        """Register the hooks."""
        model = self._model
        self._handles.append(
            model.register_forward_pre_hook(Hook(model, self._before_model), with_kwargs=True)
        )
        for name in self._layers:
            module = model.get_submodule(name)
            hook = Hook(module, self._of_layer(name))
            self._handles.append(module.register_forward_hook(hook, with_kwargs=True))
        if self._features is not None:
            module = model.get_submodule(self._features)
            hook = Hook(module, self._after_features)
            self._handles.append(module.register_forward_hook(hook, with_kwargs=True))

    def stop(self) -> None:
        """Remove the hooks, and drop what was caught."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.forget()
        self.given = None
        for one in list(self._open):
            one.release()

    def forget(self) -> None:
        """Drop what was caught since the last look."""
        self.last = self._sum = None
        self._count = 0
        self._now = None

    def batch(self, x: Tensor | None) -> None:
        """Take note of a batch; the next forward pass is a new one."""
        self.given, self._now = x, None

    def features(self) -> Tensor | None:
        """Return the mean data features ``[d]`` of all records since the last look."""
        return None if self._sum is None else self._sum / self._count

    def _pass(self) -> Pass:
        return self._begin(self.given) if self._now is None else self._now

    def _begin(self, x: Tensor | None) -> Pass:
        self._now = Pass(self.due, x)
        self._open.add(self._now)
        return self._now

    def _before_model(self, args: Any, kwargs: Any) -> None:
        if torch.is_grad_enabled():
            x = first_tensor((args, kwargs))
            self._begin(self.given if x is None else x.detach())

    def _of_layer(self, name: str) -> Any:
        layer, able = self._layers[name], name in self.able

        def after(args: Any, kwargs: Any, output: Any) -> None:
            if not torch.is_grad_enabled():
                return
            x = first_tensor((args, kwargs))
            if x is None or not isinstance(output, Tensor) or not output.requires_grad:
                return
            now = self._pass()
            if self._features is None:
                now.feature = x.detach()
            if now.due and able:
                now.catch(layer, x, output)
            if not now.marked:
                now.mark(output, self._used)

        return after

    def _after_features(self, args: Any, kwargs: Any, output: Any) -> None:
        found = first_tensor(output)
        if torch.is_grad_enabled() and found is not None:
            self._pass().feature = found.detach()

    def _used(self, one: Pass) -> None:
        """Count a pass, whose loss is being differentiated."""
        self.last = one
        if self.gathers and one.feature is not None:
            total = feature_sum(one.feature)
            if self._sum is not None and self._sum.shape != total.shape:
                self.forget()
            self._sum = total if self._sum is None else self._sum + total
            self._count += len(one.feature)
