"""Many batches through one model: in vectorised blocks, in a loop, or by a shared pool."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap

from leakgauge.checks import InputError, require, require_choice, require_positive
from leakgauge.probing import (
    Method,
    Plan,
    explained,
    fresh_buffers,
    gradient,
    gradient_function,
    make_plan,
    trainable,
    vectorisable_kernels,
)
from leakgauge.types import Grads, Params, Task

BLOCK_BYTES = 2**25
"""Of one vectorised step: larger ones leave the processor's cache and are slower."""

LOOPED_BATCH = 8
"""From this batch size on, a convolution is faster in a loop than under ``vmap``."""

FLOPS_PER_SUM = 8
"""Adding one stored number takes as long as this many operations of a matrix product."""

Batches = Callable[[slice], tuple[Tensor, Tensor]]
"""The batches ``x [t, ...]``, ``y [t, ...]`` of some trials."""

Function = Callable[[Tensor, Tensor], Grads]
"""From the batches of some trials, or of one, to what is wanted of them."""


@dataclass(frozen=True, eq=False)
class Job:
    """One call: what is computed, how, and in how much memory."""

    plan: Plan
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
        return not self.plan.vectorised

    def direct(self, batches: Batches, count: int, batch: int) -> Grads:
        """Gradients of ``count`` batches of ``batch`` records, each by itself."""
        if self.looped(batch):
            return self.loop(self._one, batches, count)
        function = vmap(gradient_function(self.plan.task), in_dims=(None, 0, 0))
        size = self.block(batch)
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
            for trial in range(count):
                x, y = batches(slice(trial, trial + 1))
                for name, value in function(x[0], y[0]).items():
                    out[name][trial] = value
        return out

    def _explained(self) -> AbstractContextManager[None]:
        # The first records went through; a label without an output may come later.
        return explained(f"{type(self.plan.task.model).__name__} or its loss fails on some records")

    def _buffers(self) -> dict[str, Tensor]:
        return fresh_buffers(self.plan.task) if self.plan.writes_buffers else {}

    def _one(self, x: Tensor, y: Tensor) -> Grads:
        return gradient(self.plan.task, self.params, self._buffers(), x, y)

    def _client(self, x: Tensor, y: Tensor, lr: float) -> Grads:
        task, buffers = self.plan.task, self._buffers()
        return _walk(self.params, lambda p, x, y: gradient(task, p, buffers, x, y), x, y, lr)


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
    require_positive(max_bytes, "max_bytes")
    params = trainable(task.model, params)
    first = (0,) * (lead - 1)
    return Job(make_plan(task, params, x[first], y[first], method=method), params, max_bytes)


def stacked(x: Tensor, y: Tensor) -> Batches:
    """Batches that lie side by side."""
    return lambda trials: (x[trials], y[trials])


def slices(count: int, size: int) -> Iterator[slice]:
    """Consecutive slices of 0, ..., count - 1."""
    for first in range(0, count, size):
        yield slice(first, min(first + size, count))


@dataclass(frozen=True, eq=False)
class Pool:
    """Batches ``rows [T, B]`` out of a finite pool of records ``x [n, ...]``, ``y [n, ...]``.

    Attributes:
        shared: whether records share their gradients; None leaves it to the cost of each chunk.
    """

    job: Job
    x: Tensor
    y: Tensor
    rows: Tensor
    shared: bool | None

    def chunks(self) -> Iterator[tuple[slice, Grads]]:
        """The trials in order, a quarter of the memory at a time."""
        # The caller may hold one chunk while the next is made; the other half is for the work.
        job, size = self.job, max(1, self.job.max_bytes // 4 // self.job.bytes_per_gradient)
        used = torch.unique(self.rows)
        held: Grads | None = None
        if self.shared is not False and len(used) * job.bytes_per_gradient <= job.max_bytes // 2:
            held = self._direct(used[:, None])
        for trials in slices(len(self.rows), size):
            chunk = self.rows[trials]
            if held is not None:
                yield trials, _means(held, torch.searchsorted(used, chunk))
            elif self.shared or (self.shared is None and pays(job, chunk)):
                yield trials, self._means_by_block(chunk)
            else:
                yield trials, self._direct(chunk)

    def interact(self) -> bool:
        """Whether a batch's gradient is not the mean over its records, judged by one batch.

        It holds up to 16 records of as many different targets: class weights in a loss show only
        between classes.
        """
        used = torch.unique(self.rows)
        targets = self.y[used].flatten(1) if self.y.dim() > 1 else self.y[used]
        order = torch.unique(targets, dim=0, return_inverse=True)[1].argsort(stable=True)
        spread = torch.linspace(0, len(used) - 1, min(16, len(used)), device=order.device)
        picked = used[order[spread.long()]]
        if len(picked) == 1:
            picked = picked.repeat(2)
        together = self._direct(picked[None])
        try:
            alone = self._direct(picked[:, None])
        except InputError:  # BatchNorm cannot normalise a batch of one.
            return True
        return not all(_close(value[0], alone[name].mean(0)) for name, value in together.items())

    def _direct(self, rows: Tensor) -> Grads:
        def batches(trials: slice) -> tuple[Tensor, Tensor]:
            return self.x[rows[trials]], self.y[rows[trials]]

        return self.job.direct(batches, len(rows), rows.shape[1])

    def _means_by_block(self, rows: Tensor) -> Grads:
        """As ``_means``, where not all gradients fit: over a block of records at a time."""
        out = {name: value.zero_() for name, value in self.job.empty(len(rows)).items()}
        used, index = torch.unique(rows, return_inverse=True)
        size = max(1, self.job.max_bytes // 4 // self.job.bytes_per_gradient)
        for block in slices(len(used), size):
            grads = self._direct(used[block][:, None])
            inside = (index >= block.start) & (index < block.stop)
            ends = inside.sum(1).cumsum(0)
            offsets = torch.cat([ends.new_zeros(1), ends[:-1]])
            local = index[inside] - block.start
            for name, value in grads.items():
                sums = F.embedding_bag(local, _flat(value), offsets, mode="sum")
                out[name].add_(sums.view_as(out[name]), alpha=1 / rows.shape[1])
        return out


def start_pool(
    task: Task,
    params: Params,
    x: Tensor,
    y: Tensor,
    rows: Tensor,
    *,
    method: Method,
    pooled: bool | None,
    max_bytes: int,
) -> Pool:
    """Check what came, and choose whether records share their gradients."""
    require(
        rows.dim() == 2 and 0 not in rows.shape and rows.dtype == torch.int64,
        f"rows is {list(rows.shape)} {rows.dtype}; expected [T, B] torch.int64, none of them 0",
    )
    require(
        len(x) == len(y) > 0,
        f"x is {list(x.shape)}, y is {list(y.shape)}; expected the same [n, ...], n not 0",
    )
    low, high = int(rows.min()), int(rows.max())
    require(
        low >= 0 and high < len(x),
        f"rows hold {low if low < 0 else high}; expected positions from 0 to {len(x) - 1}",
    )
    rows = rows.to(x.device)
    first = rows[:1]
    job = start(task, params, x[first], y[first], axes="T B", method=method, max_bytes=max_bytes)
    if pooled is False or (pooled is None and not pays(job, rows)):
        return Pool(job, x, y, rows, shared=False)
    pool = Pool(job, x, y, rows, shared=pooled)
    if not pool.interact():
        return pool
    require(
        pooled is None,
        "pooled=True, but a batch's gradient is not the mean of its records' gradients here: "
        "records interact, in the model or in the loss; leave pooled at None",
    )
    return Pool(job, x, y, rows, shared=False)


def pays(job: Job, rows: Tensor) -> bool:
    """Whether one gradient for each distinct record is cheaper than one for each batch.

    A backward pass costs twice a forward pass, and a gradient of its own for each record about
    as much again.
    """
    once = 3 * job.plan.flops_per_record
    weights = sum(value.numel() for value in job.params.values())
    apart = 2 * once * len(torch.unique(rows)) + FLOPS_PER_SUM * weights * rows.numel()
    return apart < once * rows.numel()


def _means(grads: Grads, index: Tensor) -> Grads:
    """The mean of ``grads`` over each row of ``index [t, B]``."""
    return {
        name: F.embedding_bag(index, _flat(value), mode="mean").view(-1, *value.shape[1:])
        for name, value in grads.items()
    }


def _flat(value: Tensor) -> Tensor:
    return value.reshape(len(value), -1)


def _close(a: Tensor, b: Tensor) -> bool:
    """Equal up to rounding; not where either is NaN."""
    tolerance = torch.finfo(a.dtype).eps ** 0.5
    return bool((a - b).norm() <= tolerance * a.norm() + torch.finfo(a.dtype).tiny)


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
