"""Gradients of batches from a finite pool, which can share the gradients of its records."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from leakgauge.core.checks import InputError, require
from leakgauge.core.types import Grads, Params, Task
from leakgauge.gradients.batching import BLOCK_BYTES, GradientJob, slices, start
from leakgauge.gradients.flattening import flat_leaf
from leakgauge.gradients.probing import GradientMethod

FLOPS_PER_SUM = 8
"""Operations of a matrix product that take as long as adding one stored number."""

MOST_CLASSES = 256
"""Number of different targets up to which ``Pool.interact`` takes a record of each."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Batches ``rows [T, B]`` from a finite pool of records ``x [n, ...]``, ``y [n, ...]``.

    Attributes:
        shared: whether records share their gradients; None takes the cheaper way for each chunk.
    """

    job: GradientJob
    x: Tensor
    y: Tensor
    rows: Tensor
    shared: bool | None

    def chunks(self) -> Iterator[tuple[slice, Grads]]:
        """Yield trials and their gradients in order, at most a quarter of the memory at a time."""
        # The caller may hold one chunk while the next is computed in the other half of the memory.
        job, each = self.job, self.job.bytes_per_gradient
        size = job.max_bytes // 4 // each
        held: tuple[Tensor, Grads] | None = None
        if self.shared is not False:
            used = _distinct(self.rows)
            if len(used) * each <= job.max_bytes // 2:
                held = used, self._direct(used[:, None])
        if held is not None or self.shared is False:
            # Larger chunks are no faster; half of a block leaves room for activations.
            size = min(size, BLOCK_BYTES // 2 // each)
        for trials in slices(len(self.rows), max(1, size)):
            chunk = self.rows[trials]
            if held is not None:
                yield trials, _means(held[1], torch.searchsorted(held[0], chunk))
            elif self.shared or (self.shared is None and pays(job, chunk)):
                yield trials, self._means_by_block(chunk)
            else:
                yield trials, self._direct(chunk)

    def interact(self) -> bool:
        """Return whether a batch's gradient differs from the mean over its records, on one batch.

        Class weights in a loss matter only between classes, so the batch holds a record of each
        target if there are up to ``MOST_CLASSES``, else of 16 different targets.
        """
        picked = self._of_each_target()[None]
        together = self._direct(picked)
        try:
            alone = self._means_by_block(picked)
        except InputError:  # BatchNorm cannot normalise a batch of one.
            return True
        return not all(_close(value, alone[name]) for name, value in together.items())

    def _of_each_target(self) -> Tensor:
        """Return records ``[k]`` of different targets; a single record is repeated."""
        used = _distinct(self.rows)
        code = torch.unique(flat_leaf(self.y[used]), dim=0, return_inverse=True)[1]
        order = code.argsort(stable=True)
        spread = torch.linspace(0, len(used) - 1, min(16, len(used)), device=order.device).long()
        first = torch.searchsorted(code[order], torch.arange(int(code.max()) + 1).to(code))
        if len(first) <= MOST_CLASSES:
            spread = torch.unique(torch.cat([spread, first]))
        picked = used[order[spread]]
        return picked if len(picked) > 1 else picked.repeat(2)

    def _direct(self, rows: Tensor) -> Grads:
        def batches(trials: slice) -> tuple[Tensor, Tensor]:
            return self.x[rows[trials]], self.y[rows[trials]]

        return self.job.direct(batches, len(rows), rows.shape[1])

    def _means_by_block(self, rows: Tensor) -> Grads:
        """Return ``_means`` of gradients that do not fit at once, block by block of records."""
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
                sums = F.embedding_bag(local, flat_leaf(value), offsets, mode="sum")
                out[name].add_(sums.view_as(out[name]), alpha=1 / rows.shape[1])
        return out


def start_pool(
    task: Task,
    params: Params,
    x: Tensor,
    y: Tensor,
    rows: Tensor,
    *,
    method: GradientMethod,
    pooled: bool | None,
    max_bytes: int,
) -> Pool:
    """Return the checked pool, with the choice whether records share their gradients."""
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
    pool = Pool(job, x, y, rows, shared=pooled)
    cheaper = pooled or (pooled is None and pays(job, rows))
    if cheaper and not pool.interact():
        return pool
    require(
        not pooled,
        "pooled=True, but a batch's gradient is not the mean of its records' gradients here: "
        "records interact, in the model or in the loss; leave pooled at None",
    )
    return replace(pool, shared=False)


def records_interact(
    task: Task, params: Params, x: Tensor, y: Tensor, *, max_bytes: int = 2**28
) -> bool:
    """Return whether a batch's gradient differs from the mean of its records' gradients.

    It differs with batch normalisation in train mode, or with class weights in the loss. The
    function tries one batch of the records ``x [n, ...]`` with targets ``y [n, ...]``.

    >>> task = Task(torch.nn.Linear(3, 2))
    >>> params = dict(task.model.named_parameters())
    >>> records_interact(task, params, torch.ones(4, 3), torch.tensor([0, 1, 0, 1]))
    False
    """
    rows = torch.arange(len(x), device=x.device)[None]
    first = rows[:, : min(len(x), 16)]
    job = start(task, params, x[first], y[first], axes="T B", method="auto", max_bytes=max_bytes)
    return Pool(job, x, y, rows, shared=True).interact()


def pays(job: GradientJob, rows: Tensor) -> bool:
    """Return whether one gradient for each distinct record is cheaper than one for each batch.

    A backward pass costs twice a forward pass; separate gradients for each record cost about as
    much again.
    """
    flops = 3 * job.plan.flops_per_record
    weights = sum(value.numel() for value in job.params.values())
    shared = 2 * flops * len(_distinct(rows)) + FLOPS_PER_SUM * weights * rows.numel()
    return shared < flops * rows.numel()


def _distinct(rows: Tensor) -> Tensor:
    """Return the distinct rows, ascending, without the sort of ``torch.unique``."""
    return torch.bincount(rows.flatten()).nonzero().flatten()


def _means(grads: Grads, index: Tensor) -> Grads:
    """Return the mean of ``grads`` over each row of ``index [t, B]``."""
    return {
        name: F.embedding_bag(index, flat_leaf(value), mode="mean").view(-1, *value.shape[1:])
        for name, value in grads.items()
    }


def _close(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors are equal up to rounding; False where either has NaN."""
    tolerance = torch.finfo(a.dtype).eps ** 0.5
    return bool((a - b).norm() <= tolerance * a.norm() + torch.finfo(a.dtype).tiny)
