"""Detects the steps of a loop, by any optimizer that holds the model's parameters."""

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle


class Clock:
    """Calls a function before each step of the model's optimizers.

    Optimizers that take turns on one gradient are one step: a step begins when an optimizer's first
    parameter occurs for the second time. If an optimizer computes the gradient itself (a closure),
    the call comes after the first closure of its step.

    Args:
        parameters: parameters of the model.
        look: function without arguments.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], look: Callable[[], None]) -> None:
        self._known = {id(one) for one in parameters}
        self._look = look
        self._handle: RemovableHandle | None = None
        self._came: set[int] = set()

    def start(self) -> None:
        """Register one hook for all optimizers."""
        self._handle = register_optimizer_step_pre_hook(self._before_step)

    def stop(self) -> None:
        """Remove the hook."""
        if self._handle is not None:
            self._handle.remove()
        self._handle = None

    def _before_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if not self._begins(optimizer):
            return None
        closure = kwargs.get("closure", next(iter(args[1:]), None))
        if closure is None:
            self._look()
            return None
        watched = self._watched(closure)
        if "closure" in kwargs:
            return args, {**kwargs, "closure": watched}
        return (args[0], watched, *args[2:]), kwargs

    def _begins(self, optimizer: Optimizer) -> bool:
        """Return whether a new step begins with this optimizer."""
        own = (id(one) for group in optimizer.param_groups for one in group["params"])
        first = next((one for one in own if one in self._known), None)
        if first is None:
            return False
        new = not self._came or first in self._came
        self._came = {first} if new else self._came | {first}
        return new

    def _watched(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        left = [self._look]

        def run() -> Any:
            loss = closure()
            while left:
                left.pop()()
            return loss

        return run
