"""Gradients of many batches at once, as pure functions of parameters and data.

``torch.func`` computes them where that is possible and faster, else a plain loop does. On both
paths the caller's model stays unchanged: weights, mode, buffers, ``.grad``.

Arguments have the same meaning everywhere. ``task`` is the model with its loss; ``params`` holds
all trainable parameters by name, as from ``params_of``. ``method`` is ``"vmap"``, ``"loop"``
(slower; accepts any model) or ``"auto"``: the faster one that the model allows. ``max_bytes`` is
the working memory besides the result. The functions raise ``InputError`` for a task that
``check_vectorisable`` refuses, except that ``"auto"`` accepts a branch on the data, and ``"loop"``
also written buffers.
"""

from collections.abc import Iterator

from torch import Tensor, nn

from leakgauge.core.checks import require_positive
from leakgauge.core.types import Grads, Params, Task
from leakgauge.gradients.batching import stacked, start
from leakgauge.gradients.pooling import start_pool
from leakgauge.gradients.probing import GradientMethod, probe, trainable

MAX_BYTES = 2**28
"""Working memory of one call, by default: 256 MiB."""


def params_of(model: nn.Module) -> dict[str, Tensor]:
    """Return the trainable parameters, detached and cloned, in the module's order.

    Frozen parameters (``requires_grad=False``) are left out: the model supplies them, as it does
    its buffers.

    >>> {name: list(value.shape) for name, value in params_of(nn.Linear(3, 2)).items()}
    {'weight': [2, 3], 'bias': [2]}
    """
    named = model.named_parameters()
    return {name: value.detach().clone() for name, value in named if value.requires_grad}


def check_vectorisable(task: Task, x: Tensor, y: Tensor) -> None:
    """Refuse a task that ``torch.func`` cannot vectorise, tried on the first of ``x [n, ...]``.

    Raises:
        InputError: the model draws random numbers, writes its buffers, branches on its data, or
            does not fit its loss.

    >>> import torch
    >>> loss = nn.functional.cross_entropy
    >>> x, y = torch.zeros(2, 3), torch.tensor([0, 1])
    >>> check_vectorisable(Task(nn.Linear(3, 2), loss), x, y)
    >>> check_vectorisable(Task(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)), loss), x, y)
    Traceback (most recent call last):
    leakgauge.core.checks.InputError: BatchNorm1d '0' is in train mode and updates its running \
statistics; call model.eval() first, or use GroupNorm
    """
    probe(task, trainable(task.model, params_of(task.model)), x, y, method="vmap")


def per_example_gradients(
    task: Task,
    params: Params,
    x: Tensor,
    y: Tensor,
    *,
    method: GradientMethod = "auto",
    max_bytes: int = MAX_BYTES,
) -> Grads:
    """Return the gradient of each record: that of the loss on a batch of one.

    Args:
        x: records ``[n, ...]``.
        y: targets ``[n, ...]``.

    Returns:
        Gradients by parameter, leaf ``[n, *p]``.

    >>> import torch
    >>> task = Task(nn.Linear(3, 2), nn.functional.cross_entropy)
    >>> x, y = torch.zeros(5, 3), torch.zeros(5, dtype=torch.int64)
    >>> list(per_example_gradients(task, params_of(task.model), x, y)["weight"].shape)
    [5, 2, 3]
    """
    x, y = x[:, None], y[:, None]
    job = start(task, params, x, y, axes="n 1", method=method, max_bytes=max_bytes)
    return job.direct(stacked(x, y), len(x), 1)


def batch_gradients(
    task: Task,
    params: Params,
    x: Tensor,
    y: Tensor,
    *,
    method: GradientMethod = "auto",
    max_bytes: int = MAX_BYTES,
) -> Grads:
    """Return the gradient of the mean loss of each of T batches.

    Args:
        x: batches ``[T, B, ...]``.
        y: targets ``[T, B, ...]``.
        method: with ``"loop"`` each batch starts from the model's buffers, so BatchNorm in train
            mode is accepted too.

    Returns:
        Gradients by parameter, leaf ``[T, *p]``.

    >>> import torch
    >>> task = Task(nn.Linear(3, 2), nn.functional.cross_entropy)
    >>> x, y = torch.zeros(5, 4, 3), torch.zeros(5, 4, dtype=torch.int64)
    >>> list(batch_gradients(task, params_of(task.model), x, y)["weight"].shape)
    [5, 2, 3]
    """
    job = start(task, params, x, y, axes="T B", method=method, max_bytes=max_bytes)
    return job.direct(stacked(x, y), len(x), x.shape[1])


def pooled_batch_gradients(
    task: Task,
    params: Params,
    x: Tensor,
    y: Tensor,
    rows: Tensor,
    *,
    method: GradientMethod = "auto",
    pooled: bool | None = None,
    max_bytes: int = MAX_BYTES,
) -> Grads:
    """Return the gradient of each of T batches that are drawn from a finite pool.

    Where records do not interact, a batch's gradient is the mean of its records' gradients. Each
    record's gradient is then computed once and shared by all batches that contain it.

    Args:
        x: the pool's records ``[n, ...]``.
        y: the pool's targets ``[n, ...]``.
        rows: ``[T, B]`` int64, positions in the pool; a repeated row counts as often.
        pooled: whether records share their gradients; None takes the cheaper of both ways, and
            the direct one where records interact (a batch statistic, class weights in the loss).

    Returns:
        Gradients by parameter, leaf ``[T, *p]``.

    Raises:
        InputError: ``rows`` point outside of the pool, or ``pooled=True`` and the records interact.

    >>> import torch
    >>> task = Task(nn.Linear(3, 2), nn.functional.cross_entropy)
    >>> x, y = torch.zeros(9, 3), torch.zeros(9, dtype=torch.int64)
    >>> rows = torch.tensor([[0, 8], [3, 3]])
    >>> list(pooled_batch_gradients(task, params_of(task.model), x, y, rows)["weight"].shape)
    [2, 2, 3]
    """
    pool = start_pool(task, params, x, y, rows, method=method, pooled=pooled, max_bytes=max_bytes)
    out = pool.job.empty(len(rows))
    for trials, grads in pool.chunks():
        for name, value in grads.items():
            out[name][trials] = value
    return out


def iter_batch_gradients(
    task: Task,
    params: Params,
    x: Tensor,
    y: Tensor,
    rows: Tensor,
    *,
    method: GradientMethod = "auto",
    pooled: bool | None = None,
    max_bytes: int = MAX_BYTES,
) -> Iterator[tuple[slice, Grads]]:
    """Return an iterator over ``pooled_batch_gradients`` in chunks, in memory independent of T.

    Chunks are consecutive trials. If the pool's gradients do not fit into half of ``max_bytes``,
    each chunk computes those of the records that it needs. Release a chunk before you take the next
    one. ``max_bytes`` includes two chunks; their size does not change the results. The other
    arguments and the errors are those of ``pooled_batch_gradients``; errors are raised at the call,
    not at the first chunk.

    Returns:
        Pairs of the trials and their gradients, leaf ``[t, *p]``.

    >>> import torch
    >>> task = Task(nn.Linear(3, 2), nn.functional.cross_entropy)
    >>> x, y = torch.zeros(9, 3), torch.zeros(9, dtype=torch.int64)
    >>> rows = torch.zeros(5, 4, dtype=torch.int64)
    >>> chunks = iter_batch_gradients(task, params_of(task.model), x, y, rows, max_bytes=300)
    >>> [(trials.start, trials.stop) for trials, grads in chunks]
    [(0, 2), (2, 4), (4, 5)]
    """
    pool = start_pool(task, params, x, y, rows, method=method, pooled=pooled, max_bytes=max_bytes)
    return pool.chunks()


def local_updates(
    task: Task,
    params: Params,
    x: Tensor,
    y: Tensor,
    *,
    lr: float,
    method: GradientMethod = "auto",
    max_bytes: int = MAX_BYTES,
) -> Grads:
    """Return the weight change of each of T clients after S steps of plain SGD.

    Args:
        params: trainable parameters with which every client starts.
        x: batches ``[T, S, B, ...]``, one for each step.
        y: targets ``[T, S, B, ...]``.
        lr: the clients' learning rate.
        method: with ``"loop"`` each client keeps its own buffers from step to step.

    Returns:
        Parameters after minus before, leaf ``[T, *p]``.

    Raises:
        InputError: ``lr`` is not above 0.

    >>> import torch
    >>> task = Task(nn.Linear(3, 2), nn.functional.cross_entropy)
    >>> x, y = torch.zeros(5, 2, 4, 3), torch.zeros(5, 2, 4, dtype=torch.int64)
    >>> list(local_updates(task, params_of(task.model), x, y, lr=0.1)["weight"].shape)
    [5, 2, 3]
    """
    require_positive(lr, "lr")
    job = start(task, params, x, y, axes="T S B", method=method, max_bytes=max_bytes)
    steps, batch = x.shape[1:3]
    return job.updates(stacked(x, y), len(x), batch, steps, lr)
