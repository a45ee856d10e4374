"""Try a task on a few records to learn how its gradients can be computed.

Everything runs on a private copy of the module, so changes by a forward pass (buffers, cached
attributes) never reach the caller's model, not even after an error.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import torch
from torch import Tensor, nn

from leakgauge.core.checks import InputError, require, require_known
from leakgauge.core.copying import copy_of
from leakgauge.core.losses import refuse_own_leaves, without_broadcast
from leakgauge.core.types import Params, Task
from leakgauge.core.user_code import first_line
from leakgauge.gradients.vectorising import REFUSALS, vectorisable_kernels, vectorises_trials
from leakgauge.gradients.watching import OperationWatcher

GradientMethod = Literal["auto", "vmap", "loop"]


@dataclass(frozen=True, eq=False)
class Probed:
    """The ways in which the gradients of one task can be computed.

    Attributes:
        task: the caller's loss with a private copy of the model that has the parameters.
        looped: returns the task for a loop over batches, laid out for the native kernels.
        method: the caller's choice.
        vectorises: returns whether ``torch.func`` accepts the model; tried at the first call.
        convolves: whether the model has convolutions, whose weight gradients are slow under
            ``vmap``.
        writes_buffers: whether forward changes buffers; only a loop allows it.
        bytes_per_record: memory that a forward pass keeps for the backward pass.
        flops_per_record: operations of one forward pass.
    """

    task: Task
    looped: Callable[[], Task]
    method: GradientMethod
    vectorises: Callable[[], bool]
    convolves: bool
    writes_buffers: bool
    bytes_per_record: int
    flops_per_record: float


def private(task: Task, params: Params) -> Task:
    """Return the task on a copy of the module, with copies of ``params`` as trainable parameters.

    The copy shares no storage with the caller's model or with ``params``.
    """
    memo: dict[int, Any] = {
        id(value): nn.Parameter(params.get(name, value).detach().clone(), value.requires_grad)
        for name, value in task.model.named_parameters()
    }
    return Task(copy_of(task.model, memo), task.loss)


def detached(model: nn.Module) -> dict[str, Tensor]:
    """Return the trainable parameters without gradients; they share their storage."""
    named = model.named_parameters()
    return {name: value.detach() for name, value in named if value.requires_grad}


def trainable(model: nn.Module, params: Params) -> dict[str, Tensor]:
    """Return ``params`` detached, checked against the model's trainable parameters."""
    known = {name: value for name, value in model.named_parameters() if value.requires_grad}
    require(bool(known), f"{_name(model)} has no trainable parameters; set requires_grad=True")
    for name in params:
        require_known(name, known, f"parameter {name!r} is not trainable here")
    for name, value in known.items():
        require(name in params, f"parameter {name!r} is missing; start from params_of(model)")
        require(
            params[name].shape == value.shape,
            f"parameter {name!r} is {list(params[name].shape)}; expected {list(value.shape)}",
        )
    return {name: params[name].detach() for name in known}


def probe(task: Task, params: Params, x: Tensor, y: Tensor, *, method: GradientMethod) -> Probed:
    """Try the task on up to two records of ``x [B, ...]``, ``y [B, ...]``; return what it allows.

    Raises:
        InputError: the gradients cannot be computed (by this method).
    """
    original, task, x, y = task, private(task, params), x[:2], y[:2]
    params = detached(task.model)
    seen = OperationWatcher()
    kept, flops = _try_once(task, params, x, y, seen, buffers_may_change=method == "loop")
    if method == "vmap":
        vectorises_trials(task, params, x, y, required=True)

    @functools.cache
    def vectorises() -> bool:
        return method != "loop" and vectorises_trials(task, params, x, y, required=False)

    @functools.cache
    def looped() -> Task:
        if seen.written or seen.overruns or not (seen.convolves and x.dim() == 4):
            return task
        return _channels_last(private(original, params), x, y) or task

    writes, each = bool(seen.written), (kept // len(x), flops / len(x))
    return Probed(task, looped, method, vectorises, seen.convolves, writes, *each)


def _channels_last(task: Task, x: Tensor, y: Tensor) -> Task | None:
    """Return the task with the channels of images and kernels innermost; None if the model fails.

    This makes convolutions up to 1.7 times as fast. A model that calls ``view`` on their output
    fails.
    """
    inward = torch.channels_last
    task.model.to(memory_format=inward)  # type: ignore[call-overload]
    task.model.register_forward_pre_hook(
        lambda _, given: (given[0].contiguous(memory_format=inward), *given[1:])
    )
    try:
        task.mean_loss(task.outputs(x), y)
    except REFUSALS:
        return None
    return task


def gradient(
    task: Task, leaves: Params, replaced: dict[str, Tensor], x: Tensor, y: Tensor
) -> dict[str, Tensor]:
    """Return the gradient of one batch in ``leaves`` by plain autograd.

    Tensors in ``replaced`` take the place of the model's own. Where the model writes or rebinds a
    replaced buffer, ``replaced`` has the new one.
    """
    with torch.enable_grad():
        outputs = task.outputs(x, replaced)
        loss = task.mean_loss(outputs, y)
        refuse_own_leaves(loss, outputs, leaves.values())
    grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return {
        name: torch.zeros_like(leaf) if value is None else value
        for (name, leaf), value in zip(leaves.items(), grads, strict=True)
    }


def fresh_buffers(task: Task) -> dict[str, Tensor]:
    """Return copies of the model's buffers."""
    return {name: value.detach().clone() for name, value in task.model.named_buffers()}


def _try_once(
    task: Task,
    params: Params,
    x: Tensor,
    y: Tensor,
    seen: OperationWatcher,
    *,
    buffers_may_change: bool,
) -> tuple[int, float]:
    """Run one forward and backward pass; return the bytes kept for backward and the flops."""
    buffers = fresh_buffers(task)
    leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
    given: dict[str, Tensor] = {**leaves, **buffers}
    own = {value.untyped_storage().data_ptr() for value in given.values()}
    kept: dict[int, int] = {}

    def keep(value: Tensor) -> Tensor:
        pointer = value.untyped_storage().data_ptr()
        if pointer not in own:
            kept[pointer] = max(kept.get(pointer, 0), value.nbytes)  # x may be a view
        return value

    task.paired(x)  # tried out before anything watches
    seen.follow({**given, **_frozen(task.model)})
    devices = [x.device] if x.is_cuda else []
    with torch.enable_grad(), torch.random.fork_rng(devices), vectorisable_kernels():
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
            try:
                with explained(f"{_name(task.model)} refuses inputs {_shown(x)}"), seen:
                    outputs = task.outputs(x, given)
            except InputError:
                if not buffers_may_change:  # BatchNorm fails on a single record in train mode.
                    _refuse_batchnorm(task.model)
                raise
            refuse_random(task.model, seen)
            refuse_written(task.model, seen.changed({name: given[name] for name in leaves}))
            refuse_written(task.model, seen.changed(_frozen(task.model)))
            seen.written = seen.changed({name: given[name] for name in buffers})
            if seen.written and not buffers_may_change:
                _refuse_buffer(task.model, seen.written[0])
            fits = f"the loss does not fit outputs {_shown(outputs)} and targets {_shown(y)}"
            with explained(fits), without_broadcast(outputs, y):
                loss = task.mean_loss(outputs, y)
        _refuse_loss(loss)
        refuse_own_leaves(loss, outputs, leaves.values())
        with explained(f"{_name(task.model)} has no gradient"):
            torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return sum(kept.values()), float(seen.flops)


def _frozen(model: nn.Module) -> dict[str, Tensor]:
    return {name: value for name, value in model.named_parameters() if not value.requires_grad}


def refuse_random(model: nn.Module, seen: OperationWatcher) -> None:
    """Refuse a model that drew random numbers while ``seen`` watched."""
    active = [
        f"{name} ({_name(module)})"
        for name, module in model.named_modules()
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.training and module.p > 0
    ]
    where = f" in {active[0]}" if active else ""
    require(
        not seen.random,
        f"{_name(model)} draws random numbers ({seen.random}{where}), "
        "so its gradients cannot be repeated; call model.eval() first",
    )


def refuse_written(model: nn.Module, parameters: Sequence[str]) -> None:
    """Refuse a model that writes ``parameters`` while it runs."""
    for parameter in parameters:
        owner = model.get_submodule(parameter.rpartition(".")[0])
        limited = getattr(owner, "max_norm", None) is not None
        raise InputError(
            f"{_name(owner)} writes its parameter {parameter!r} in forward, so no gradient belongs "
            "to the given parameters; "
            + ("set max_norm=None" if limited else "change parameters outside of forward")
        )


def _refuse_buffer(model: nn.Module, buffer: str) -> NoReturn:
    _refuse_batchnorm(model)
    owner = model.get_submodule(buffer.rpartition(".")[0])
    raise InputError(
        f"{_name(owner)} writes its buffer {buffer!r} in forward, so trials are not independent; "
        "keep that state outside of forward"
    )


def _refuse_batchnorm(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats:
            where = f" {name!r}" if name else ""
            require(
                not module.training,
                f"{_name(module)}{where} is in train mode and updates its running statistics; "
                "call model.eval() first, or use GroupNorm",
            )


def _refuse_loss(loss: Any) -> None:
    require(isinstance(loss, Tensor), f"the loss returns {_name(loss)}; expected a scalar tensor")
    require(
        loss.dim() == 0 and loss.is_floating_point(),
        f"the loss returns {_shown(loss)}; expected a scalar, for example by reduction='mean', or "
        "one value for each record",
    )
    require(loss.requires_grad, "the loss does not depend on any trainable parameter")


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Replace torch's error by one line that says ``what`` failed and why."""
    try:
        yield
    except (InputError, torch.OutOfMemoryError):
        raise
    except REFUSALS as error:
        raise InputError(f"{what}: {first_line(error)}") from error


def _name(thing: object) -> str:
    return type(thing).__name__


def _shown(value: Any) -> str:
    if not isinstance(value, Tensor):
        return _name(value)
    return f"{list(value.shape)} {str(value.dtype).removeprefix('torch.')}"
