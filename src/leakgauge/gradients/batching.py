"""Many batches through one model: in vectorised blocks or in a loop."""

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import vmap

from leakgauge.core.checks import require, require_choice, require_count
from leakgauge.core.types import Grads, Params, Task
from leakgauge.gradients.probing import (
    Method,
    Probed,
    explained,
    fresh_buffers,
    gradient,
    gradient_function,
    probe,
    trainable,
    vectorisable_kernels,
)

BLOCK_BYTES = 2**24
"""Of one vectorised step: larger ones leave the cache, and the system hands out fresh pages."""

GATHERED = 16
"""Batches that a loop takes from the data at once."""

LOOPED_BATCH = 8
"""From this batch size on, a convolution is faster in a loop than under ``vmap``."""

Batches = Callable[[slice], tuple[Tensor, Tensor]]
"""The batches ``x [t, ...]``, ``y [t, ...]`` of some trials."""

Function = Callable[[Tensor, Tensor], Grads]
"""From the batches of some trials, or of one, to what is wanted of them."""


@dataclass(frozen=True, eq=False)
class Job:
    """One call: what is computed, how, and in how much memory."""

    plan: Probed
    params: Params
    max_bytes: int

    @property
    def bytes_per_gradient(self) -> int:
        """Of one trial."""
        return sum(value.numel() * value.element_size() for value in self.params.values())

    def empty(self, count: int) -> dict[str, Tensor]:
        """Room for the gradients of ``count`` trials."""
        return {name: value.new_empty(count, *value.shape) for name, value in self.params.items()}

    def block(self, batch: int, *, stacks: int = 1) -> int:
        """How many trials go through the model at once; an activation has a gradient, too."""
        each = stacks * self.bytes_per_gradient + 2 * batch * self.plan.bytes_per_record
        return max(1, min(self.max_bytes // 2, BLOCK_BYTES) // each)

    def looped(self, batch: int) -> bool:
        """Whether batches of this size run one after the other."""
        if self.plan.method == "auto" and self.plan.convolves and batch >= LOOPED_BATCH:
            return True
        return not self.plan.vectorises()

    def direct(self, batches: Batches, count: int, batch: int) -> Grads:
        """Gradients of ``count`` batches of ``batch`` records, each by itself."""
        if self.looped(batch):
            task = self.plan.looped()
            own = dict(task.model.named_parameters())
            leaves = {name: own[name] for name in self.params}
            one = lambda x, y: gradient(task, leaves, self._buffers(), x, y)  # noqa: E731
            return self.loop(one, batches, count)
        function = vmap(gradient_function(self.plan.task), in_dims=(None, 0, 0))
        # At once, where that needs little beside the result: to copy blocks into it costs more.
        beside = 2 * batch * self.plan.bytes_per_record * count
        size = count if beside <= self.max_bytes // 2 else self.block(batch)
        return self.vectorised(lambda x, y: function(self.params, x, y), batches, count, size)

    def updates(self, batches: Batches, count: int, batch: int, steps: int, lr: float) -> Grads:
        """Weight changes of ``count`` clients after some steps."""
        # After one step the weights differ, and vmap makes a convolution slower still.
        if self.looped(batch if steps == 1 else max(batch, LOOPED_BATCH)):
            return self.loop(lambda x, y: self._client(x, y, lr), batches, count)
        of_batch = gradient_function(self.plan.task)
        # At once in memory: the weights, their gradient and the change.
        size = self.block(batch, stacks=3)
        function = vmap(lambda x, y: _walk(self.params, of_batch, x, y, lr))
        return self.vectorised(function, batches, count, size)

    def vectorised(self, function: Function, batches: Batches, count: int, size: int) -> Grads:
        """``function`` of ``size`` trials at once."""
        _keep_freed_blocks()
        with self._explained(), vectorisable_kernels():
            if count <= size:
                return function(*batches(slice(0, count)))
            out = self.empty(count)
            for trials in slices(count, size):
                for name, value in function(*batches(trials)).items():
                    out[name][trials] = value
        return out

    def loop(self, function: Function, batches: Batches, count: int) -> Grads:
        """``function`` of one trial after the other."""
        out = self.empty(count)
        with self._explained():
            for trials in slices(count, GATHERED):
                x, y = batches(trials)
                for trial, batch in enumerate(zip(x, y, strict=True), start=trials.start):
                    for name, value in function(*batch).items():
                        out[name][trial] = value
        return out

    def _explained(self) -> AbstractContextManager[None]:
        # The first records went through; a label without an output may come later.
        return explained(f"{type(self.plan.task.model).__name__} or its loss fails on some records")

    def _buffers(self) -> dict[str, Tensor]:
        return fresh_buffers(self.plan.task) if self.plan.writes_buffers else {}

    def _client(self, x: Tensor, y: Tensor, lr: float) -> Grads:
        task, buffers = self.plan.task, self._buffers()

        def of_batch(params: Params, x: Tensor, y: Tensor) -> Grads:
            leaves = {name: value.requires_grad_() for name, value in params.items()}
            return gradient(task, leaves, {**leaves, **buffers}, x, y)

        return _walk(self.params, of_batch, x, y, lr)


def start(
    task: Task, params: Params, x: Tensor, y: Tensor, *, axes: str, method: Method, max_bytes: int
) -> Job:
    """Check what came, with ``axes`` (as ``"T B"``) before a record's own, and try it once."""
    lead = len(axes.split())
    wanted = f"[{', '.join(axes.split())}, ...]"
    require(
        x.dim() >= lead and 0 not in x.shape[:lead],
        f"x is {list(x.shape)}; expected {wanted}, none of them 0",
    )
    require(
        y.shape[:lead] == x.shape[:lead],
        f"y is {list(y.shape)}; expected {wanted} like x, which is {list(x.shape)}",
    )
    require_choice(method, "method", ("auto", "vmap", "loop"))
    require_count(max_bytes, "max_bytes")
    params = trainable(task.model, params)
    first = (0,) * (lead - 1)
    return Job(probe(task, params, x[first], y[first], method=method), params, max_bytes)


def stacked(x: Tensor, y: Tensor) -> Batches:
    """Batches that lie side by side."""
    return lambda trials: (x[trials], y[trials])


def slices(count: int, size: int) -> Iterator[slice]:
    """Consecutive slices of 0, ..., count - 1."""
    for first in range(0, count, size):
        yield slice(first, min(first + size, count))


@functools.cache
def _keep_freed_blocks() -> None:
    """Let glibc keep freed blocks of this size, once and for all; harmless elsewhere.

    It gives blocks back to the system that are larger than the largest one freed so far (32 MiB
    at most), and to touch fresh pages again costs more than the arithmetic of a small network.
    """
    torch.empty(2**25 - 2**16, dtype=torch.uint8)


def _walk(
    params: Params,
    of_batch: Callable[[Params, Tensor, Tensor], Grads],
    x: Tensor,
    y: Tensor,
    lr: float,
) -> Grads:
    """The change of ``params`` after one step of SGD for each batch of ``x [S, B, ...]``."""
    change = {name: torch.zeros_like(value) for name, value in params.items()}
    for step in range(len(x)):
        now = {name: value + change[name] for name, value in params.items()}
        found = of_batch(now, x[step], y[step])
        change = {name: value - lr * found[name] for name, value in change.items()}
    return change
