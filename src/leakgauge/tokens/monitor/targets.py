"""Reads records and targets of a loop from its own passes, where its loss is a cross-entropy."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from leakgauge.tokens.monitor.taps import Hook

CROSS_ENTROPY, BINARY = "cross_entropy", "bce"

CLOSE = 1e-3
"""Largest deviation of a slope from that of a cross-entropy, on the scale of a probability."""

CLOSE_IN_HALF = 3e-2
"""The same for slopes in bfloat16 or float16."""


def read_targets(outputs: Tensor, slopes: Tensor) -> tuple[str, Tensor] | None:
    """Return the name of a loss and the targets that explain its slopes; None if none does.

    The slope of a cross-entropy is the predicted probability minus the target, times a factor: the
    share of a record in the mean, or the scale of a ``GradScaler``. The slopes of another loss do
    not have that form, so the check refuses it.

    Args:
        outputs: outputs of a batch ``[n, k]`` or ``[n]``.
        slopes: derivatives of the batch's loss in the outputs, of the same shape.

    >>> outputs = torch.randn(4, 3, requires_grad=True, generator=torch.Generator().manual_seed(0))
    >>> targets = torch.tensor([0, 2, 1, 1])
    >>> (slopes,) = torch.autograd.grad(nn.functional.cross_entropy(outputs, targets), outputs)
    >>> read_targets(outputs.detach(), slopes)
    ('cross_entropy', tensor([0, 2, 1, 1]))
    >>> (slopes,) = torch.autograd.grad(outputs.square().mean(), outputs)
    >>> read_targets(outputs.detach(), slopes) is None
    True
    """
    close = CLOSE if slopes.element_size() >= torch.float32.itemsize else CLOSE_IN_HALF
    outputs, slopes = outputs.float(), slopes.float()
    if outputs.dim() == 2 and outputs.shape[1] > 1:
        known = slopes.argmin(1)
        wanted = nn.functional.one_hot(known, outputs.shape[1]).to(outputs)
        if _explains(outputs.softmax(1) - wanted, slopes, close):
            return CROSS_ENTROPY, known
    wanted = (slopes < 0).to(outputs)
    if outputs.dim() <= 2 and _explains(outputs.sigmoid() - wanted, slopes, close):
        return BINARY, wanted
    return None


def _explains(expected: Tensor, slopes: Tensor, close: float) -> bool:
    """Return whether the slopes are a multiple of those expected."""
    place = slopes.abs().argmax()
    largest = slopes.flatten()[place]
    if not bool(largest.isfinite()) or float(largest) == 0:
        return False
    factor = expected.flatten()[place] / largest
    return float(factor) > 0 and float((factor * slopes - expected).abs().max()) <= close


class RecordTap:
    """Passes on the records and targets of the passes whose loss it understands.

    Args:
        model: model that the loop calls with one tensor of records.
        sink: function of records ``[n, ...]`` and targets.

    Attributes:
        due: whether the next passes are read.
        loss: name of the loss, once it is known.
    """

    def __init__(self, model: nn.Module, sink: Callable[[Tensor, Tensor], None]) -> None:
        self._model, self._sink = model, sink
        self._handles: list[RemovableHandle] = []
        self._x: Tensor | None = None
        self._version = 0
        self.due, self.loss = False, ""

    def start(self) -> None:
        """Register the hooks."""
        before, after = Hook(self._model, self._before), Hook(self._model, self._after)
        self._handles = [
            self._model.register_forward_pre_hook(before, with_kwargs=True),
            self._model.register_forward_hook(after, with_kwargs=True),
        ]

    def stop(self) -> None:
        """Remove the hooks, and drop what they keep."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._x, self.due = [], None, False

    def _before(self, args: Any, kwargs: Any) -> None:
        self._x = None
        if self.due and torch.is_grad_enabled() and len(args) == 1 and not kwargs:
            x = args[0]
            if isinstance(x, Tensor) and x.dim() > 0:
                self._x, self._version = x.detach(), x._version

    def _after(self, args: Any, kwargs: Any, output: Any) -> None:
        x, version, self._x = self._x, self._version, None
        if x is None or not isinstance(output, Tensor) or not output.requires_grad:
            return
        if output.dim() in (1, 2) and len(output) == len(x):
            outputs = output.detach()
            written = outputs._version

            def read(slopes: Tensor) -> None:
                # a model that writes its records or its outputs shows other ones
                if x._version == version and outputs._version == written:
                    self._read(x, outputs, slopes)

            output.register_hook(read)  # type: ignore[no-untyped-call]

    def _read(self, x: Tensor, outputs: Tensor, slopes: Tensor) -> None:
        with torch.no_grad(), suppress(Exception):  # the loop's backward pass must go on
            found = read_targets(outputs, slopes.detach())
            if found is not None and self.loss in ("", found[0]):
                self.loss = found[0]
                self._sink(x, found[1])
