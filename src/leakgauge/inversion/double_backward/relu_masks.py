"""Records the masks of a model's ReLUs, to run the model again with the same masks."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from leakgauge.core.checks import require


class ReluMaskReplay:
    """The masks of ReLUs and leaky ReLUs, in the order in which a model calls them.

    Other functions that are not smooth (max-pooling, say) run as they are.
    """

    def __init__(self) -> None:
        self._masks: list[Tensor] = []
        self._at: int | None = None

    def replay(self) -> "ReluMaskReplay":
        """Return the recorded masks, for a second run of the model."""
        self._at = 0
        return self

    def run(self, func: Any, args: tuple[Any, ...], given: Mapping[str, Any]) -> Tensor | None:
        """Return the outputs of a ReLU; None for any other call."""
        read = _KNOWN.get(func)
        if read is None:
            return None
        x, slope, inplace = read(*args, **given)
        if self._at is None:
            # A ReLU's outputs give its mask, and autograd keeps them anyway.
            before = x.detach().clone() if slope and inplace else x.detach()
            first: Tensor = func(*args, **given)
            self._masks.append(before if slope else first.detach())
            return first
        fits = self._at < len(self._masks) and self._masks[self._at].shape == x.shape
        require(fits, "the model does not compute the same in a second run; choose slope=exact")
        mask, self._at = self._masks[self._at], self._at + 1
        # What autograd runs backwards: x where the mask is positive, slope times x elsewhere.
        outputs: Tensor = torch.ops.aten.leaky_relu_backward(x, mask, slope, False)
        return x.copy_(outputs) if inplace else outputs


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
