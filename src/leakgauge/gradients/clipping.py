"""Gradients of batches that clip each record's gradient before the mean.

The mean of clipped gradients is the gradient of a re-weighted loss, the mean over i of
c_i * loss_i with factors c_i = min(1, clip / norm_i). Each record's norm is computed once and its
gradient is discarded; a batch's gradient then costs as much as without clipping.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.func import vmap

from leakgauge.core.checks import InputError, require_positive
from leakgauge.core.losses import record_losses
from leakgauge.core.types import Grads, Params, Task
from leakgauge.gradients import MAX_BYTES
from leakgauge.gradients.batching import BLOCK_BYTES, GradientJob, stacked, start
from leakgauge.gradients.factored.factors import Factoring
from leakgauge.gradients.flattening import norms
from leakgauge.gradients.pooling import Pool, pays, start_pool
from leakgauge.gradients.probing import GradientMethod, fresh_buffers, gradient
from leakgauge.gradients.vectorising import gradient_function, vectorisable_kernels

LAYER_BYTES = 2**27
"""Memory of the factors of a block of records; small blocks are slow."""


def iter_clipped_batch_gradients(
    task: Task,
    params: Params,
    x: Tensor,
    y: Tensor,
    rows: Tensor,
    *,
    clip: float,
    method: GradientMethod = "auto",
    max_bytes: int = MAX_BYTES,
) -> Iterator[tuple[slice, Grads]]:
    """Return an iterator as ``iter_batch_gradients``, with each record's gradient clipped.

    A record's gradient is that of the loss on a batch of one, as in ``per_example_gradients``.
    ``clip`` is the largest l2 norm of a record's gradient, over all parameters together; the other
    arguments are those of ``iter_batch_gradients``.

    Returns:
        Pairs of the trials and their gradients, leaf ``[t, *p]``: the mean over a trial's rows of
        g_i * min(1, clip / norm(g_i)).

    Raises:
        InputError: as for ``iter_batch_gradients``, or ``clip`` is not above 0.

    References:
        Lee and Kifer, Scaling up differentially private deep learning with fast per-example
        gradient clipping, PoPETs 2021 (re-weighted losses).

    >>> from torch import nn
    >>> from leakgauge.gradients import params_of
    >>> task = Task(nn.Linear(3, 2), nn.functional.cross_entropy)
    >>> x, y = torch.ones(9, 3), torch.zeros(9, dtype=torch.int64)
    >>> rows = torch.zeros(5, 4, dtype=torch.int64)
    >>> ((trials, grads),) = iter_clipped_batch_gradients(
    ...     task, params_of(task.model), x, y, rows, clip=0.1
    ... )
    >>> together = torch.cat([leaf.flatten(1) for leaf in grads.values()], dim=1)
    >>> together.norm(dim=1)
    tensor([0.1000, 0.1000, 0.1000, 0.1000, 0.1000])
    """
    require_positive(clip, "clip")
    plain = start_pool(task, params, x, y, rows, method=method, pooled=False, max_bytes=max_bytes)
    factors = _factors(plain, clip)
    index = torch.arange(len(y), device=x.device)

    def weighted(vectorised: bool) -> Pool:
        loss = WeightedLoss(task.mean_loss, y, factors, vectorised=vectorised)
        own = Task(task.model, loss)
        return start_pool(
            own, params, x, index, rows, method=method, pooled=False, max_bytes=max_bytes
        )

    try:
        pool = weighted(vectorised=True)
    except InputError:  # The loss branches on its data, so vmap refuses it.
        pool = weighted(vectorised=False)
    if pays(pool.job, pool.rows):
        pool = replace(pool, shared=None)
    if pool.interact():  # A record's gradient is always that of a batch of one.
        pool = replace(pool, shared=True)
    return pool.chunks()


@dataclass(frozen=True, eq=False)
class WeightedLoss:
    """The mean of ``factors[i] * loss(outputs_i, y[i])`` over the records i of a batch.

    Targets are the records' positions, which index the factors; a record's own loss is that of a
    batch of one.
    """

    loss: Callable[[Tensor, Tensor], Tensor]
    y: Tensor
    factors: Tensor
    vectorised: bool

    def __call__(self, outputs: Tensor, index: Tensor) -> Tensor:
        """Return the loss of outputs ``[B, ...]`` for positions ``[B]``."""
        each = record_losses(self.loss, outputs, self.y[index], vectorised=self.vectorised)
        return (self.factors[index] * each).mean()


def clipped_gradient_function(
    task: Task,
    params: Params,
    x: Tensor,
    y: Tensor,
    *,
    clip: float,
    method: GradientMethod = "auto",
) -> Callable[[Params, Tensor, Tensor], dict[str, Tensor]]:
    """Return a function ``(params, x [B, ...], y [B, ...]) -> mean of clipped gradients, [*p]``.

    Training uses this function. The model is checked once, on the first records of ``x``, and not
    at every step. A step holds the gradients of its B records at once.

    The other arguments are those of ``per_example_gradients``. ``clip`` is the largest l2 norm of a
    record's gradient.

    Raises:
        InputError: as for ``per_example_gradients``, or ``clip`` is not above 0.

    >>> from torch import nn
    >>> from leakgauge.gradients import params_of
    >>> task = Task(nn.Linear(3, 2), nn.functional.cross_entropy)
    >>> x, y = torch.ones(9, 3), torch.zeros(9, dtype=torch.int64)
    >>> step = clipped_gradient_function(task, params_of(task.model), x, y, clip=0.1)
    >>> {name: list(leaf.shape) for name, leaf in step(params_of(task.model), x, y).items()}
    {'weight': [2, 3], 'bias': [2]}
    """
    require_positive(clip, "clip")
    job = start(
        task, params, x[:, None], y[:, None], axes="n 1", method=method, max_bytes=MAX_BYTES
    )
    alone = gradient_function(job.plan.task)
    each = vmap(alone, in_dims=(None, 0, 0)) if job.plan.vectorises() else _looped(job)

    def step(params: Params, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        params = {name: params[name].detach() for name in job.params}
        with vectorisable_kernels():
            grads = each(params, x[:, None], y[:, None])
        weights = (clip / norms(grads)).clamp(max=1) / len(x)
        return {name: torch.tensordot(weights, leaf, 1) for name, leaf in grads.items()}

    return step


def _looped(job: GradientJob) -> Callable[[Params, Tensor, Tensor], Grads]:
    def each(params: Params, x: Tensor, y: Tensor) -> Grads:
        leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
        task = job.plan.task
        grads = [
            gradient(task, leaves, {**leaves, **fresh_buffers(task)}, *one)
            for one in zip(x, y, strict=True)
        ]
        return {name: torch.stack([one[name] for one in grads]) for name in leaves}

    return each


def _factors(pool: Pool, clip: float) -> Tensor:
    """Return min(1, clip / norm) ``[n]`` of the records in the pool's batches; 1 for others."""
    used = torch.unique(pool.rows)
    first = next(iter(pool.job.params.values()))
    factors = first.new_ones(len(pool.x))
    norms_of, at_once = _by_layer(pool, used) or _by_record(pool)
    for records in torch.split(used, max(1, at_once)):
        factors[records] = (clip / norms_of(records)).clamp(max=1)
    return factors


_Norms = tuple[Callable[[Tensor], Tensor], int]
"""Maps rows of the pool to the norms of their gradients, for as many of them as memory allows."""


def _by_layer(pool: Pool, used: Tensor) -> _Norms | None:
    """Return norms from factors, which need no gradients; None where no layer has factors."""
    job = pool.job
    task, some = job.plan.task, used[:2]
    try:
        factoring = Factoring.start(task, job.params, pool.x[some], pool.y[some])
    except InputError:  # Its gradients need a loop; the caller's method allows one.
        return None
    if not factoring.products or job.plan.writes_buffers:
        return None

    def of(records: Tensor) -> Tensor:
        found = factoring(job.params, pool.x[records], pool.y[records])
        squares = torch.stack([one.norms().square() for one in found.values()])
        return squares.sum(0).sqrt()

    kept = [job.params[name] for one in factoring.rest for name in one.parameters]
    each = 2 * job.plan.bytes_per_record + sum(leaf.nbytes for leaf in kept)
    return of, min(job.max_bytes // 2, LAYER_BYTES) // max(1, each)


def _by_record(pool: Pool) -> _Norms:
    job = pool.job

    def of(records: Tensor) -> Tensor:
        x, y = pool.x[records][:, None], pool.y[records][:, None]
        return norms(job.direct(stacked(x, y), len(records), 1))

    return of, min(job.max_bytes // 2, BLOCK_BYTES) // max(1, job.bytes_per_gradient)
