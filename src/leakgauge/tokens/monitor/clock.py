"""When a loop takes a step: at the step of any optimizer that holds the model's parameters."""

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle


class Clock:
    """Calls a function before each step of the model's optimizers.

    Optimizers that take turns on one gradient are one step: a step begins where an optimizer comes
    for the second time. Where an optimizer computes the gradient itself (a closure), the call comes
    after the first closure of its step.

    Args:
        parameters: of the model.
        look: called with no argument.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], look: Callable[[], None]) -> None:
        self._known = {id(one) for one in parameters}
        self._look = look
        self._handle: RemovableHandle | None = None
        self._came: set[int] = set()

    def start(self) -> None:
        """Register one hook, which torch calls for all optimizers."""
        self._handle = register_optimizer_step_pre_hook(self._before_step)

    def stop(self) -> None:
        """Remove the hook."""
        if self._handle is not None:
            self._handle.remove()
        self._handle = None

    def _before_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if not self._holds(optimizer) or not self._begins(optimizer):
            return None
        closure = kwargs.get("closure", next(iter(args[1:]), None))
        if closure is None:
            self._look()
            return None
        watched = self._watched(closure)
        if "closure" in kwargs:
            return args, {**kwargs, "closure": watched}
        return (args[0], watched, *args[2:]), kwargs

    def _holds(self, optimizer: Optimizer) -> bool:
        groups = optimizer.param_groups
        return any(id(one) in self._known for group in groups for one in group["params"])

    def _begins(self, optimizer: Optimizer) -> bool:
        """Return whether a new step begins with this optimizer."""
        new = not self._came or id(optimizer) in self._came
        self._came = {id(optimizer)} if new else self._came | {id(optimizer)}
        return new

    def _watched(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        left = [self._look]

        def run() -> Any:
            loss = closure()
            while left:
                left.pop()()
            return loss

        return run
