"""Hooks on modules that stay behind when a module is copied or saved."""

from collections.abc import Callable
from typing import Any

from torch import nn


class Hook:
    """Calls a function for one module, and for no copy of it.

    ``copy.deepcopy`` and ``pickle`` of the module copy an idle hook in its place: a copy of the
    model is watched by nobody, and the monitor is not copied with it.
    """

    def __init__(self, module: nn.Module, function: Callable[..., None]) -> None:
        self._module, self._function = module, function

    def __call__(self, module: nn.Module, *given: Any) -> None:
        """Call the function with what torch gives a hook, without the module."""
        if module is self._module:  # a shallow copy keeps this hook
            self._function(*given)

    def __reduce__(self) -> tuple[type["Idle"], tuple[()]]:
        return Idle, ()


class Idle:
    """A hook that does nothing."""

    def __call__(self, *given: Any) -> None:
        """Do nothing."""
