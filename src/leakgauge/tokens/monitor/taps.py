"""Hooks on the model of a loop that catch data features and factors of gradients."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from leakgauge.core.checks import InputError
from leakgauge.gradients.factored.products import has_factors
from leakgauge.gradients.walk import Layer
from leakgauge.tokens.monitor.passes import Pass, first_tensor, mean_features

_INSIDE = ("_module", "module")
"""Attributes of Opacus' GradSampleModule and of DistributedDataParallel with the model."""

_WRAPPERS = (
    "GradSampleModule",
    "AbstractGradSampleModule",
    "DistributedDataParallel",
    "DataParallel",
)
_SHARDED = ("FullyShardedDataParallel", "DeepSpeedEngine", "FSDPModule")


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside Opacus' or PyTorch's wrappers, so that names have no prefix.

    Raises:
        InputError: the model is compiled or sharded, or not a module.

    >>> inner = nn.Linear(2, 1)
    >>> unwrapped(nn.DataParallel(inner)) is inner
    True
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"model is {type(model).__name__}; expected a torch.nn.Module")
    names = {one.__name__ for one in type(model).__mro__}
    if hasattr(model, "_orig_mod"):
        raise InputError(
            "the model is compiled, and a compiled model runs no hooks; watch it without "
            "torch.compile for the steps of interest"
        )
    if names & set(_SHARDED):
        raise InputError(
            f"the model is a {type(model).__name__}, with parts of gradients in each process; "
            "watch it with plain data parallelism, or on one device"
        )
    if names & set(_WRAPPERS):
        for key in _INSIDE:
            inside = getattr(model, key, None)
            if isinstance(inside, nn.Module):
                return unwrapped(inside)
    return model


class Hook:
    """Calls a function for one module, and for no copy of it.

    ``copy.deepcopy`` and ``pickle`` of the module replace it by an idle hook, so that a copy of the
    model is not watched, and the monitor is not copied with it.
    """

    def __init__(self, module: nn.Module, function: Callable[..., None]) -> None:
        self._module, self._function = module, function

    def __call__(self, module: nn.Module, *given: Any) -> None:
        """Call the function with the arguments of a hook, except the module."""
        if module is self._module:  # a shallow copy keeps this hook
            self._function(*given)

    def __reduce__(self) -> tuple[type["Idle"], tuple[()]]:
        return Idle, ()


class Idle:
    """A hook that does nothing."""

    def __call__(self, *given: Any) -> None:
        """Do nothing."""


class Taps:
    """Catches data features in each forward pass, and factors of gradients if they are due.

    A pass counts once its backward pass has run. Passes without gradients are ignored, so an
    evaluation inside the loop changes nothing. Steps without due factors have a single hook, on the
    module of the data features; the layers' hooks exist only for the other steps.

    Args:
        model: model that the loop calls, maybe inside a wrapper.
        layers: watched layers by name.
        features: name of the module that outputs the data features; None takes the input of the
            layer that runs last.
        gathers: whether data features are needed.

    Attributes:
        able: modules of the layers that may give gradients of single records, by name.
        last: last pass that counts.
    """

    def __init__(
        self, model: nn.Module, layers: Mapping[str, Layer], features: str | None, *, gathers: bool
    ) -> None:
        self._model, self._layers = model, layers
        self._features, self._gathers = features, gathers
        self._modules = {name: model.get_submodule(name) for name in layers}
        shared = _shared(model)
        self.able = {
            name: one
            for name, one in self._modules.items()
            if has_factors(one, layers[name]) and not shared.intersection(layers[name].parameters)
        }
        self.last: Pass | None = None
        self._due = self._is_open = self._wants = False
        self._keep: int | None = None
        self._given: Tensor | None = None
        self._head: str | None = None
        self._now: Pass | None = None
        self._mean: Tensor | None = None
        self._count = 0
        self._always: list[RemovableHandle] = []
        self._armed: list[RemovableHandle] = []
        self._open: WeakSet[Pass] = WeakSet()

    def start(self) -> None:
        """Register the hook that every step needs."""
        self._is_open = True
        if self._gathers and self._features is not None:
            module = self._model.get_submodule(self._features)
            self._always.append(_after(module, self._after_features))

    def stop(self) -> None:
        """Remove the hooks, and drop the caught tensors."""
        self._is_open = False
        for handle in (*self._always, *self._armed):
            handle.remove()
        self._always.clear()
        self._armed.clear()
        self.last = self._now = self._mean = self._given = None
        for one in list(self._open):
            one.release()

    def forget(self, *, due: bool, gathers: bool = True, keep: int | None = None) -> None:
        """Drop the tensors caught since the last step.

        Args:
            due: whether the next passes catch factors.
            gathers: whether they catch data features, if the monitor needs any.
            keep: number of first records of a pass to keep factors of; None for all.
        """
        self._keep = keep
        self._wants = self._gathers and gathers
        self.last = self._now = self._mean = None
        self._count = 0
        due = due or (self._wants and self._features is None and self._head is None)
        if due != self._due:
            self._due = due
            if due:
                self._arm()
            else:
                for handle in self._armed:
                    handle.remove()
                self._armed.clear()

    def batch(self, x: Tensor | None) -> None:
        """Register a batch; the next forward pass is a new one."""
        self._given, self._now = self._copied(x), None

    def features(self) -> Tensor | None:
        """Return the mean data features ``[d]`` of all records since the last step."""
        return self._mean

    def _arm(self) -> None:
        model = self._model
        hook = Hook(model, self._before_model)
        self._armed.append(model.register_forward_pre_hook(hook, with_kwargs=True))
        for name, module in self._modules.items():
            self._armed.append(_after(module, self._of_layer(name)))

    def _pass(self) -> Pass:
        return self._begin(self._given) if self._now is None else self._now

    def _begin(self, x: Tensor | None) -> Pass:
        self._now = Pass(self._due, self._keep, x)
        self._open.add(self._now)
        return self._now

    def _before_model(self, args: Any, kwargs: Any) -> None:
        if torch.is_grad_enabled():
            x = first_tensor((args, kwargs))
            self._begin(self._given if x is None else self._copied(x.detach()))

    def _copied(self, x: Tensor | None) -> Tensor | None:
        """Return a copy of records that are measured, as the model may change them in place."""
        return x.clone() if self._due and x is not None else x

    def _of_layer(self, name: str) -> Any:
        layer, able = self._layers[name], name in self.able
        is_default = self._features is None

        def after(args: Any, kwargs: Any, output: Any) -> None:
            x = _input(args, kwargs, output)
            if x is None:
                return
            now = self._pass()
            if is_default:
                now.feature, now.head = x.detach(), name
            if able:
                now.catch(layer, x, output)
            if not now.marked:
                now.mark(output, self._used)

        return after

    def _after_head(self, args: Any, kwargs: Any, output: Any) -> None:
        """Catch data features if nothing else is due."""
        x = None if self._due or not self._wants else _input(args, kwargs, output)
        if x is not None:
            now = self._begin(None)
            now.feature = x.detach()
            now.mark(output, self._used)

    def _after_features(self, args: Any, kwargs: Any, output: Any) -> None:
        found = first_tensor(output) if self._wants else None
        if found is None or not torch.is_grad_enabled():
            return
        now = self._pass() if self._due else self._begin(None)
        now.feature = found.detach()
        if not now.marked and found.requires_grad:
            now.mark(found, self._used)
        elif not now.marked and not self._due:
            self._used(now)  # it is unknown whether the backward pass runs

    def _used(self, one: Pass) -> None:
        """Count a pass when its loss is differentiated."""
        if not self._is_open:
            return
        self.last = one
        if not self._wants or one.feature is None:
            return
        if one.head is not None and self._head is None:
            self._head = one.head
            module = self._modules[one.head]
            self._always.append(_after(module, self._after_head))
        mean, count = mean_features(one.feature), len(one.feature)
        if self._mean is not None and self._mean.shape == mean.shape:
            self._count += count
            self._mean += (mean - self._mean) * (count / self._count)
        else:
            self._mean, self._count = mean, count


def _shared(model: nn.Module) -> set[str]:
    """Return the parameters that several modules hold, such as an embedding tied to the outputs."""
    held = Counter(id(one) for _, one in model.named_parameters(remove_duplicate=False))
    return {name for name, one in model.named_parameters() if held[id(one)] > 1}


def _after(module: nn.Module, function: Any) -> RemovableHandle:
    return module.register_forward_hook(Hook(module, function), with_kwargs=True)


def _input(args: Any, kwargs: Any, output: Any) -> Tensor | None:
    """Return the input of a call; None without one, or without a gradient in the output."""
    if not isinstance(output, Tensor) or not output.requires_grad:
        return None
    if args and isinstance(args[0], Tensor):
        return args[0] if args[0].dim() > 0 else None
    return first_tensor((args, kwargs))
