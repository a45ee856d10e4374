"""Remembers on which side of its kink each unit was, to run a model again on the same sides."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from leakgauge.core.checks import require


class ReluMaskReplay:
    """ReLUs and leaky ReLUs, in the order in which a model calls them.

    Anything else with a kink (max-pooling, say) runs as it is.
    """

    def __init__(self) -> None:
        self._marks: list[Tensor] = []
        self._at: int | None = None

    def again(self) -> "ReluMaskReplay":
        """The same sides, for a second run of the model."""
        self._at = 0
        return self

    def run(self, func: Any, args: tuple[Any, ...], given: Mapping[str, Any]) -> Tensor | None:
        """The outputs of a call with a kink; None for any other call."""
        read = _KNOWN.get(func)
        if read is None:
            return None
        x, slope, inplace = read(*args, **given)
        if self._at is None:
            # A ReLU's outputs tell its sides, and autograd keeps them anyway.
            before = x.detach().clone() if slope and inplace else x.detach()
            first: Tensor = func(*args, **given)
            self._marks.append(before if slope else first.detach())
            return first
        fits = self._at < len(self._marks) and self._marks[self._at].shape == x.shape
        require(fits, "the model does not do the same twice; choose slope=exact")
        mark, self._at = self._marks[self._at], self._at + 1
        # What autograd runs backwards: x where the mark is positive, slope times x elsewhere.
        found: Tensor = torch.ops.aten.leaky_relu_backward(x, mark, slope, False)
        return x.copy_(found) if inplace else found


Read = Callable[..., tuple[Tensor, float, bool]]


def _relu(input: Tensor, inplace: bool = False) -> tuple[Tensor, float, bool]:  # noqa: A002
    return input, 0.0, inplace


def _leaky(
    input: Tensor,  # noqa: A002
    negative_slope: float = 0.01,
    inplace: bool = False,
) -> tuple[Tensor, float, bool]:
    return input, negative_slope, inplace


def _inplace(input: Tensor) -> tuple[Tensor, float, bool]:  # noqa: A002
    return input, 0.0, True


_KNOWN: dict[Any, Read] = {
    F.relu: _relu,
    torch.relu: _relu,
    Tensor.relu: _relu,
    torch.relu_: _inplace,
    Tensor.relu_: _inplace,
    F.leaky_relu: _leaky,
}
