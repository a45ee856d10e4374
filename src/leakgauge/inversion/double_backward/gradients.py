"""Fast gradients of batches that can be differentiated again: the inner step of inversion.

While the model runs, its convolutions, linear layers and BatchNorms in eval mode are intercepted
(see ``interceptor``). The weights are constants there, so autograd never spends work on them; every
other operation runs unchanged, and plain autograd differentiates it. Gradients that need no second
derivative are plain autograd (see ``first_order``). Afterwards the module is unchanged.
"""

import warnings
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.func import vmap

from leakgauge.core.checks import require
from leakgauge.core.types import Grads, Params, Task
from leakgauge.gradients.probing import trainable
from leakgauge.gradients.vectorising import REFUSALS, vectorisable_kernels
from leakgauge.inversion.double_backward.first_order import first_order_gradients
from leakgauge.inversion.double_backward.interceptor import LayerInterceptor, ModelTensor
from leakgauge.inversion.double_backward.substitution import ParameterSlots

_LOOPED: WeakSet[nn.Module] = WeakSet()
"""Models that do not vectorise, so that later steps do not try again."""


def differentiable_gradients(
    task: Task,
    params: Params,
    x: Tensor,
    y: Tensor,
    *,
    stacked_params: bool = False,
    weights_fixed: bool = True,
) -> Grads:
    """Return the gradient of the mean loss of each of N batches, differentiable in ``x`` and ``y``.

    One further backward pass is cheap, ``torch.autograd.grad(objective.sum(), x)``, and exact: up
    to rounding it equals plain double backward. A third derivative is refused by torch.
    Memory grows with N.

    Args:
        task: the model and its loss.
        params: all trainable parameters by name, as from ``params_of``; leaf ``[*p]``.
        x: batches ``[N, B, ...]``.
        y: targets ``[N, B]`` int64, or probabilities ``[N, B, classes]``.
        stacked_params: the parameters are ``[N, *p]``, one set for each batch; the batches then run
            one after the other.
        weights_fixed: the result has no derivative in the parameters. To unroll local steps, False
            makes it differentiable in them, too, at the price of their cotangents.

    Returns:
        Gradients by parameter, leaf ``[N, *p]``.

    Raises:
        InputError: shapes or names do not fit.

    >>> task = Task(nn.Linear(3, 2), nn.functional.cross_entropy)
    >>> params = {name: value.detach() for name, value in task.model.named_parameters()}
    >>> x = torch.ones(5, 4, 3, requires_grad=True)
    >>> grads = differentiable_gradients(task, params, x, torch.zeros(5, 4, dtype=torch.int64))
    >>> list(grads["weight"].shape), grads["weight"].requires_grad
    ([5, 2, 3], True)
    """
    slots = ParameterSlots(task.model)
    _check(task, slots, params, x, y, stacked_params)
    watched = [x, y] if weights_fixed else [x, y, *params.values()]
    graph = torch.is_grad_enabled() and any(value.requires_grad for value in watched)
    if weights_fixed:
        params = {name: value.detach() for name, value in params.items()}
    with torch.enable_grad(), vectorisable_kernels():
        if len(x) == 1 or stacked_params or task.model in _LOOPED:
            return _looped(task, slots, params, x, y, stacked_params, graph)
        try:
            return _at_once(task, slots, params, x, y, graph)
        except REFUSALS:  # Torch cannot vectorise the model; a loop then names the problem.
            looped = _looped(task, slots, params, x, y, stacked_params, graph)
            _LOOPED.add(task.model)
            return looped


def _check(
    task: Task, slots: ParameterSlots, params: Params, x: Tensor, y: Tensor, stacked: bool
) -> None:
    require(
        x.dim() >= 2 and 0 not in x.shape[:2],
        f"x is {list(x.shape)}; expected [N, B, ...], none of them 0",
    )
    require(
        y.shape[:2] == x.shape[:2],
        f"y is {list(y.shape)}; expected [N, B, ...] like x, which is {list(x.shape)}",
    )
    if stacked:
        for name, value in params.items():
            require(
                value.shape[:1] == x.shape[:1],
                f"parameter {name!r} is {list(value.shape)}; expected [N, *p] with N {len(x)}",
            )
    wanted = {name: value.shape for name, value in slots.trainable.items()}
    if wanted != {name: value.shape[1 if stacked else 0 :] for name, value in params.items()}:
        # Only now: the search for similar names is too slow for every step.
        trainable(task.model, {name: v[0] if stacked else v for name, v in params.items()})


def _looped(
    task: Task,
    slots: ParameterSlots,
    params: Params,
    x: Tensor,
    y: Tensor,
    stacked: bool,
    graph: bool,
) -> dict[str, Tensor]:
    """Return the gradients of one batch after the other, on the fast kernels."""
    rows = []
    for n in range(len(x)):
        own = {k: v[n] for k, v in params.items()} if stacked else params
        rows.append(_one(task, slots, own, x[n], y[n], graph))
    return rows[0] if len(rows) == 1 else {k: torch.cat([row[k] for row in rows]) for k in params}


def _one(
    task: Task, slots: ParameterSlots, params: Params, x: Tensor, y: Tensor, graph: bool
) -> dict[str, Tensor]:
    """Return the gradient of one batch ``x [B, ...]``, leaf ``[1, *p]``."""
    if not graph:
        return first_order_gradients(task, slots, params, x.detach(), y)[0]
    leaves = {name: _leaf(value) for name, value in params.items()}
    buffers = slots.own_buffers()
    interceptor = LayerInterceptor(_known(slots, params, leaves, buffers), 1, batched=False)
    loss = slots.loss(task, {**leaves, **buffers}, x, y, interceptor)
    return _summed(_collect(interceptor, loss, leaves, graph), params, 1)


def _at_once(
    task: Task, slots: ParameterSlots, params: Params, x: Tensor, y: Tensor, graph: bool
) -> dict[str, Tensor]:
    """Return the gradients of N batches from one pass; ``vmap`` keeps the rows apart."""
    count = len(x)
    leaves = {name: _leaf(value.expand(count, *value.shape)) for name, value in params.items()}
    buffers = slots.own_buffers()
    interceptor = LayerInterceptor({}, count, batched=True)

    def loss_of(leaves: Params, x: Tensor, y: Tensor) -> Tensor:
        interceptor.known = _known(slots, params, leaves, buffers)
        return slots.loss(task, {**leaves, **buffers}, x, y, interceptor)

    with warnings.catch_warnings():
        # Torch would run such a step one batch at a time; the loop is faster.
        warnings.filterwarnings("error", message=".*performance drop")
        losses = vmap(loss_of)(leaves, x, y)
    return _summed(_collect(interceptor, losses.sum(), leaves, graph), params, count)


def _collect(
    interceptor: LayerInterceptor, loss: Tensor, leaves: Params, graph: bool
) -> list[dict[str, Tensor]]:
    """Return all contributions to the gradients, from intercepted layers and other operations."""
    require(loss.requires_grad, "the loss does not depend on any trainable parameter")
    edges = interceptor.edges()
    inputs: Any = [*edges, *leaves.values()]
    slopes = torch.autograd.grad(loss, inputs, create_graph=graph, allow_unused=True)
    with torch.set_grad_enabled(graph):
        intercepted = interceptor.gradients(list(slopes[: len(edges)]))
    rest = zip(leaves, slopes[len(edges) :], strict=True)
    rows = (1,) if not interceptor.batched else ()
    return [{k: v.reshape(*rows, *v.shape) for k, v in rest if v is not None}, *intercepted]


def _summed(parts: list[dict[str, Tensor]], params: Params, count: int) -> dict[str, Tensor]:
    """Return the sum of all contributions by name, ordered as ``params``; zeros without any."""
    total: dict[str, Tensor] = {}
    for one in parts:
        for name, value in one.items():
            total[name] = total[name] + value if name in total else value
    zeros = {n: v.new_zeros(count, *v.shape) for n, v in params.items() if n not in total}
    return {name: (zeros if name in zeros else total)[name] for name in params}


def _leaf(value: Tensor) -> Tensor:
    """Return a differentiable alias of the value, for operations that are not intercepted."""
    return value.view_as(value) if value.requires_grad else value.detach().requires_grad_()


def _known(
    slots: ParameterSlots, params: Params, leaves: Params, buffers: Params
) -> dict[int, ModelTensor]:
    """Return the model's tensors, as ``interceptor.Known``."""
    constants = (*slots.frozen.values(), *buffers.values())
    known = {id(value): ModelTensor(None, value) for value in constants}
    return known | {id(leaf): ModelTensor(name, params[name]) for name, leaf in leaves.items()}
