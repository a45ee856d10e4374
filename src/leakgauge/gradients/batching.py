"""Gradients of many batches of one model, in vectorised blocks or in a loop."""

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
    GradientMethod,
    Probed,
    detached,
    explained,
    fresh_buffers,
    gradient,
    probe,
    trainable,
)
from leakgauge.gradients.vectorising import gradient_function, vectorisable_kernels

BLOCK_BYTES = 2**24
"""Memory of one vectorised step, in bytes; larger steps leave the cache and touch new pages."""

GATHERED = 16
"""Number of batches that a loop reads from the data at once."""

LOOPED_BATCH = 8
"""Batch size from which a convolution is faster in a loop than under ``vmap``."""

Batches = Callable[[slice], tuple[Tensor, Tensor]]
"""Returns the batches ``x [t, ...]``, ``y [t, ...]`` of a slice of trials."""

Function = Callable[[Tensor, Tensor], Grads]
"""Maps the batches of several trials, or of one, to their gradients or weight changes."""


@dataclass(frozen=True, eq=False)
class GradientJob:
    """The computation of one call: model, parameters and memory bound."""

    plan: Probed
    params: Params
    max_bytes: int

    @property
    def bytes_per_gradient(self) -> int:
        """Size of the gradient of one trial."""
        return sum(value.numel() * value.element_size() for value in self.params.values())

    def empty(self, count: int) -> dict[str, Tensor]:
        """Return empty tensors for the gradients of ``count`` trials, leaf ``[count, *p]``."""
        return {name: value.new_empty(count, *value.shape) for name, value in self.params.items()}

    def block(self, batch: int, *, stacks: int = 1) -> int:
        """Return how many trials fit into one step, with activations and their gradients."""
        each = stacks * self.bytes_per_gradient + 2 * batch * self.plan.bytes_per_record
        return max(1, min(self.max_bytes // 2, BLOCK_BYTES) // each)

    def looped(self, batch: int) -> bool:
        """Return whether batches of this size run one after the other."""
        if self.plan.method == "auto" and self.plan.convolves and batch >= LOOPED_BATCH:
            return True
        return not self.plan.vectorises()

    def direct(self, batches: Batches, count: int, batch: int) -> Grads:
        """Return the gradients of ``count`` batches of ``batch`` records, batch by batch."""
        if self.looped(batch):
            task = self.plan.looped()
            own = dict(task.model.named_parameters())
            leaves = {name: own[name] for name in self.params}
            one = lambda x, y: gradient(task, leaves, self._buffers(), x, y)  # noqa: E731
            return self.loop(one, batches, count)
        function = vmap(gradient_function(self.plan.task), in_dims=(None, 0, 0))
        # One step, if it needs little memory besides the result: copying blocks costs more.
        activations = 2 * batch * self.plan.bytes_per_record * count
        size = count if activations <= self.max_bytes // 2 else self.block(batch)
        return self.vectorised(lambda x, y: function(self.params, x, y), batches, count, size)

    def updates(self, batches: Batches, count: int, batch: int, steps: int, lr: float) -> Grads:
        """Return the weight changes of ``count`` clients after ``steps`` steps."""
        # After one step the weights differ, and vmap makes a convolution slower still.
        if self.looped(batch if steps == 1 else max(batch, LOOPED_BATCH)):
            return self.loop(lambda x, y: self._client(x, y, lr), batches, count)
        of_batch = gradient_function(self.plan.task)
        function = vmap(lambda x, y: _walk(self.params, of_batch, x, y, lr))
        # Memory holds the weights, their gradient and the change.
        return self.vectorised(function, batches, count, self.block(batch, stacks=3))

    def vectorised(self, function: Function, batches: Batches, count: int, size: int) -> Grads:
        """Return ``function`` of all trials, ``size`` of them at a time."""
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
        """Return ``function`` of all trials, one after the other."""
        out = self.empty(count)
        with self._explained():
            for trials in slices(count, GATHERED):
                x, y = batches(trials)
                for trial, batch in enumerate(zip(x, y, strict=True), start=trials.start):
                    for name, value in function(*batch).items():
                        out[name][trial] = value
        return out

    def _explained(self) -> AbstractContextManager[None]:
        # The probe passed on the first records; a later label may have no output.
        return explained(f"{type(self.plan.task.model).__name__} or its loss fails on some records")

    def _buffers(self) -> dict[str, Tensor]:
        return fresh_buffers(self.plan.task) if self.plan.writes_buffers else {}

    def _client(self, x: Tensor, y: Tensor, lr: float) -> Grads:
        task, buffers = self.plan.task, self._buffers()

        def of_batch(params: Params, x: Tensor, y: Tensor) -> Grads:
            leaves = {name: value.requires_grad_() for name, value in params.items()}
            given = {**leaves, **buffers}
            found = gradient(task, leaves, given, x, y)
            buffers.update((name, given[name].detach()) for name in buffers)
            return found

        return _walk(self.params, of_batch, x, y, lr)


def start(
    task: Task,
    params: Params,
    x: Tensor,
    y: Tensor,
    *,
    axes: str,
    method: GradientMethod,
    max_bytes: int,
) -> GradientJob:
    """Return the checked job; ``axes``, such as ``"T B"``, precede those of a record in ``x``."""
    lead, wanted = len(axes.split()), f"[{', '.join(axes.split())}, ...]"
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
    plan = probe(task, params, x[first], y[first], method=method)
    return GradientJob(plan, detached(plan.task.model), max_bytes)


def stacked(x: Tensor, y: Tensor) -> Batches:
    """Return the batches of tensors with one trial per position of the first axis."""
    return lambda trials: (x[trials], y[trials])


def slices(count: int, size: int) -> Iterator[slice]:
    """Yield consecutive slices of 0, ..., count - 1, each of at most ``size``."""
    for first in range(0, count, size):
        yield slice(first, min(first + size, count))


@functools.cache
def _keep_freed_blocks() -> None:
    """Make glibc keep freed blocks of this size; without effect on other systems.

    glibc returns blocks to the system that are larger than the largest one freed so far (32 MiB
    at most), and touching fresh pages again costs more than the arithmetic of a small network.
    """
    torch.empty(2**25 - 2**16, dtype=torch.uint8)


def _walk(
    params: Params,
    of_batch: Callable[[Params, Tensor, Tensor], Grads],
    x: Tensor,
    y: Tensor,
    lr: float,
) -> Grads:
    """Return the change of ``params`` after one SGD step for each batch of ``x [S, B, ...]``."""
    change = {name: torch.zeros_like(value) for name, value in params.items()}
    for step in range(len(x)):
        now = {name: value + change[name] for name, value in params.items()}
        grads = of_batch(now, x[step], y[step])
        change = {name: value - lr * grads[name] for name, value in change.items()}
    return change
