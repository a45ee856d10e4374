"""Gradients of many batches at once, as pure functions of parameters and data.

A model goes through ``torch.func`` where that is possible and faster, else through a plain loop.
Whatever the path, the caller's model stays as it is: weights, mode, buffers, ``.grad``.
"""

from collections.abc import Iterator

from torch import Tensor, nn

from leakgauge.core.checks import require_positive
from leakgauge.core.types import Grads, Params, Task
from leakgauge.gradients.batching import stacked, start
from leakgauge.gradients.pooling import start_pool
from leakgauge.gradients.probing import Method, probe, trainable

MAX_BYTES = 2**28
"""Working memory of one call, by default: 256 MiB."""


def params_of(model: nn.Module) -> dict[str, Tensor]:
    """The trainable parameters, detached and cloned, in the module's order.

    Frozen parameters (``requires_grad=False``) are left out: they are taken from the model,
    like its buffers.

    >>> {name: list(value.shape) for name, value in params_of(nn.Linear(3, 2)).items()}
    {'weight': [2, 3], 'bias': [2]}
    """
    named = model.named_parameters()
    return {name: value.detach().clone() for name, value in named if value.requires_grad}


def check_vectorisable(task: Task, x: Tensor, y: Tensor) -> None:
    """Refuse what ``torch.func`` cannot take, on the first records of ``x [n, ...]``, ``y [n]``.

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
    method: Method = "auto",
    max_bytes: int = MAX_BYTES,
) -> Grads:
    """The gradient of each record alone: of the loss on a batch of one.

    Args:
        task: the model and its loss.
        params: all trainable parameters by name, as from ``params_of``.
        x: records ``[n, ...]``.
        y: targets ``[n, ...]``.
        method: ``"vmap"``, ``"loop"`` (slower; takes any model), or ``"auto"``: the faster one
            that the model allows.
        max_bytes: working memory, beside the result.

    Returns:
        Gradients by parameter, leaf ``[n, *p]``.

    Raises:
        InputError: what ``check_vectorisable`` refuses; with ``method="auto"`` a branch on the
            data, and with ``"loop"`` also written buffers, are no reason to refuse.

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
    method: Method = "auto",
    max_bytes: int = MAX_BYTES,
) -> Grads:
    """The gradient of the mean loss of each of T batches.

    Args:
        task: the model and its loss.
        params: all trainable parameters by name, as from ``params_of``.
        x: batches ``[T, B, ...]``.
        y: targets ``[T, B, ...]``.
        method: as for ``per_example_gradients``. With ``"loop"`` each batch meets the model's
            buffers as they are, so BatchNorm in train mode is taken, too.
        max_bytes: working memory, beside the result.

    Returns:
        Gradients by parameter, leaf ``[T, *p]``.

    Raises:
        InputError: as for ``per_example_gradients``.

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
    method: Method = "auto",
    pooled: bool | None = None,
    max_bytes: int = MAX_BYTES,
) -> Grads:
    """The gradient of each of T batches that are drawn from a finite pool.

    The mean of per-example gradients is the batch's gradient where records do not interact, so
    each record's gradient is computed once and shared by all batches that hold it.

    Args:
        task: the model and its loss.
        params: all trainable parameters by name, as from ``params_of``.
        x: the pool's records ``[n, ...]``.
        y: the pool's targets ``[n, ...]``.
        rows: ``[T, B]`` int64, positions in the pool; a repeated row counts as often.
        method: as for ``per_example_gradients``.
        pooled: whether records share their gradients; None takes the cheaper of both ways, and
            the direct one where records interact (a batch statistic, class weights in the loss).
        max_bytes: working memory, beside the result.

    Returns:
        Gradients by parameter, leaf ``[T, *p]``.

    Raises:
        InputError: as for ``per_example_gradients``; or ``rows`` point outside of the pool; or
            ``pooled=True`` and the records interact.

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
    method: Method = "auto",
    pooled: bool | None = None,
    max_bytes: int = MAX_BYTES,
) -> Iterator[tuple[slice, Grads]]:
    """``pooled_batch_gradients`` in consecutive chunks of trials, in memory that T does not move.

    Where the pool's gradients do not fit into half of ``max_bytes``, each chunk computes those of
    its own records. Let go of a chunk before the next is asked for, or keep what you need of it.

    Args:
        task: the model and its loss.
        params: all trainable parameters by name, as from ``params_of``.
        x: the pool's records ``[n, ...]``.
        y: the pool's targets ``[n, ...]``.
        rows: ``[T, B]`` int64, positions in the pool.
        method: as for ``per_example_gradients``.
        pooled: as for ``pooled_batch_gradients``.
        max_bytes: working memory, two chunks included. The number of trials does not move where
            chunks end, and where they end does not move the results.

    Returns:
        Pairs of the trials and their gradients, leaf ``[t, *p]``.

    Raises:
        InputError: as for ``pooled_batch_gradients``, at the call and not at the first chunk.

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
    method: Method = "auto",
    max_bytes: int = MAX_BYTES,
) -> Grads:
    """The weight change of each of T clients after S steps of plain SGD.

    Args:
        task: the model and its loss.
        params: where every client starts: all trainable parameters, as from ``params_of``.
        x: batches ``[T, S, B, ...]``, one for each step.
        y: targets ``[T, S, B, ...]``.
        lr: the clients' learning rate.
        method: as for ``per_example_gradients``. With ``"loop"`` each client keeps its own
            buffers from step to step.
        max_bytes: working memory, beside the result.

    Returns:
        Parameters after minus before, leaf ``[T, *p]``.

    Raises:
        InputError: as for ``per_example_gradients``; or ``lr`` is not above 0.

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
