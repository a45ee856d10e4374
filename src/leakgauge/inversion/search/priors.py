"""Prior knowledge of the records: images are smooth, and BatchNorm shows statistics of a batch.

A model in training mode normalises by the mean and the variance of each batch, and keeps running
means of them, which clients send with their weights.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

from leakgauge.core.checks import InputError, require
from leakgauge.core.forward import forward
from leakgauge.core.types import Params, Task
from leakgauge.gradients.flattening import alike
from leakgauge.inversion.double_backward.substitution import ParameterSlots
from leakgauge.training.rules import root
from leakgauge.training.update import Update

_BATCH_NORM = inspect.signature(F.batch_norm)

MOST_PROXIES = 256
"""Public records whose statistics stand for those of a batch, at most."""

Statistics = Mapping[str, tuple[Tensor, Tensor]]
"""By BatchNorm layer, mean and variance of its inputs, each ``[T, C]``; the variance as torch keeps
it, over n - 1."""


def total_variation(x: Tensor) -> Tensor:
    """Return the mean absolute difference of neighbouring pixels, down plus across (anisotropic).

    Args:
        x: images ``[N, ..., height, width]``, with at least two pixels each way.

    Returns:
        One number for each of N, ``[N]``, in units of a pixel.

    Raises:
        InputError: the records are not images.

    References:
        Geiping et al., Inverting Gradients, NeurIPS 2020.

    >>> import torch
    >>> total_variation(torch.tensor([[[0.0, 1.0], [0.0, 1.0]]]))
    tensor([1.])
    """
    require(
        x.dim() >= 3 and min(x.shape[-2:]) >= 2,
        f"total variation needs images [..., height, width], records have {list(x.shape[1:])}; "
        "set total_variation to 0",
    )
    result: Tensor = _TotalVariation.apply(x)  # type: ignore[no-untyped-call]
    return result


class _TotalVariation(torch.autograd.Function):
    """Written out, because autograd takes twice as long for these few operations."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        down, across = x[..., 1:, :] - x[..., :-1, :], x[..., 1:] - x[..., :-1]
        ctx.save_for_backward(down, across)
        return down.abs().flatten(1).mean(1) + across.abs().flatten(1).mean(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, unit: Tensor) -> Tensor:
        down, across = ctx.saved_tensors
        slope: Tensor = down.new_zeros(*down.shape[:-2], down.shape[-2] + 1, down.shape[-1])
        for axis, steps in ((-2, down), (-1, across)):
            each = steps.sign() * alike(unit * len(unit) / steps.numel(), steps)
            slope.narrow(axis, 1, steps.shape[axis]).add_(each)
            slope.narrow(axis, 0, steps.shape[axis]).sub_(each)
        return slope


def statistics_of(task: Task, params: Params, x: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the statistics of batches in each BatchNorm layer; differentiable in ``x``.

    Args:
        task: a model in training mode; it is not changed.
        params: all trainable parameters, leaf ``[*p]``.
        x: batches ``[N, B, ...]``.

    Returns:
        Mean and variance by layer, each ``[N, C]``; empty where no layer is in training mode.

    >>> task = Task(nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 2)).train())
    >>> params = {name: leaf.detach() for name, leaf in task.model.named_parameters()}
    >>> statistics_of(task, params, torch.tensor([[[1.0], [3.0]]]))["0"]
    (tensor([[2.]]), tensor([[2.]]))
    """
    slots = ParameterSlots(task.model)
    return stacked_statistics([_of_batch(task.model, slots, params, batch) for batch in x])


def statistics_over_steps(
    task: Task, params: Params, x: Tensor, *, steps: int = 1, epochs: int = 1, clients: int = 1
) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the mean statistics of the steps of clients, as their running statistics weigh them.

    Args:
        task: a model in training mode; it is not changed.
        params: all trainable parameters, leaf ``[*p]``; every step is taken at them.
        x: records ``[N, clients * steps * B, ...]``.
        steps: batches in one pass over a client's records.
        epochs: passes over the same batches.
        clients: clients behind one mean.

    Returns:
        Mean and variance by layer, each ``[N, C]``.
    """
    parts, layers = steps * clients, tracked(task.model)
    batches = x.reshape(len(x) * parts, -1, *x.shape[2:])
    found = {}
    for name, pair in statistics_of(task, params, batches).items():
        every = step_weights(layers[name], steps * epochs)
        weights = x.new_tensor([sum(every[at::steps]) / clients for at in range(steps)] * clients)
        mean, variance = (
            torch.einsum("npc,p->nc", each.view(len(x), parts, -1), weights) for each in pair
        )
        found[name] = (mean, variance)
    return found


def statistics_of_update(model: nn.Module, update: Update) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the statistics that the running ones of an update tell, each ``[1, C]``.

    They are exact for one step. After several steps they are the mean over the steps by
    ``step_weights``, at weights that moved.

    The model gives the momentum of each layer, and the update holds the running statistics before
    (``held``) and after (``buffers``).

    Raises:
        InputError: the update lacks them.
    """
    found = {}
    for name, layer in tracked(model).items():
        ends = []
        for key in (f"{name}.running_mean", f"{name}.running_var"):
            before, after = update.held.get(key), update.buffers.get(key)
            if before is None or after is None:
                raise InputError(
                    f"the update has no {key!r} before or after, so its batch statistics cannot be "
                    "inferred; send buffers, or take --statistics proxy"
                )
            left = _left(layer, update)
            ends.append((after.double() - left * before.double()) / (1 - left))
        found[name] = (ends[0][None].to(after), ends[1][None].to(after))
    return found


def step_weights(layer: nn.Module, steps: int) -> list[float]:
    """Return the weight of each step's batch in the statistics of an update; they add up to 1.

    >>> [round(weight, 4) for weight in step_weights(nn.BatchNorm1d(1, momentum=0.5), 2)]
    [0.3333, 0.6667]
    """
    momentum = getattr(layer, "momentum", None)
    each = [1.0] * steps
    if momentum is not None:
        each = [(1 - momentum) ** (steps - at) for at in range(1, steps + 1)]
    return [one / sum(each) for one in each]


def tracked(model: nn.Module) -> dict[str, nn.Module]:
    """Return the BatchNorm layers in training mode that keep running statistics, by name."""
    return {name: layer for name, layer in running(model).items() if layer.training}


def running(model: nn.Module) -> dict[str, nn.Module]:
    """Return the BatchNorm layers that keep running statistics, in any mode, by name."""
    return {
        name: layer
        for name, layer in model.named_modules()
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.track_running_stats
    }


@dataclass(frozen=True, eq=False)
class BatchStatistics:
    """Statistics of the batches in BatchNorm layers, as an attacker knows them.

    Attributes:
        known: mean and variance of each target, by layer.
        steps: batches in one pass over a client's records, over which they are the mean.
        epochs: passes over the same batches.
        clients: clients behind one mean.
    """

    known: Statistics
    steps: int = 1
    epochs: int = 1
    clients: int = 1

    def prior(
        self, task: Task, params: Params, weight: float = 1.0
    ) -> Callable[[Tensor, Tensor], Tensor]:
        """Return the function of the distance of guesses from these statistics, times ``weight``.

        The distance is the sum over layers of the l2 norms of both differences, of means and of
        variances, divided by the number of layers. After several steps, a guess's are the mean over
        its steps, all at the weights before. The function takes the guesses
        ``[N, clients * steps * B, ...]`` and the target of each ``[N]``, and returns ``[N]``.

        Args:
            task: a model in training mode.
            params: all trainable parameters, leaf ``[*p]``.
            weight: weight of the distance.

        Raises:
            InputError: the model has no BatchNorm in training mode.

        References:
            Yin et al., "See through Gradients: Image Batch Recovery via GradInversion", CVPR 2021,
            Eq. 10; they sum over the layers, and take running statistics for those of the batch.
        """
        require(
            len(self.known) > 0,
            "the model has no BatchNorm in training mode, so it has no batch statistics; "
            "leave out --statistics",
        )
        sizes = {"steps": self.steps, "epochs": self.epochs, "clients": self.clients}

        def distance(x: Tensor, rows: Tensor) -> Tensor:
            ours = statistics_over_steps(task, params, x, **sizes)
            terms = [
                root((mine - theirs.to(mine)[rows]).square().sum(1))
                for name, pair in ours.items()
                for mine, theirs in zip(pair, self.known[name], strict=True)
            ]
            return weight * (torch.stack(terms).sum(0) / len(self.known))

        return distance


def stacked_statistics(several: Sequence[Statistics]) -> dict[str, tuple[Tensor, Tensor]]:
    """Return statistics of several targets ``[1, C]`` as one stack ``[T, C]``."""
    found = {}
    for name in several[0]:
        means, variances = zip(*(one[name] for one in several), strict=True)
        found[name] = (torch.cat(means), torch.cat(variances))
    return found


def _left(layer: nn.Module, update: Update) -> float:
    """Return the weight of the running statistics before in those after."""
    momentum = getattr(layer, "momentum", None)
    if momentum is not None:
        return float((1 - momentum) ** update.steps)
    name = next(key for key in update.held if key.endswith("num_batches_tracked"))
    before = int(update.held[name])
    return before / (before + update.steps)


def _of_batch(
    model: nn.Module, slots: ParameterSlots, params: Params, x: Tensor
) -> dict[str, tuple[Tensor, Tensor]]:
    buffers = slots.own_buffers()
    ending = "running_mean"
    own = {id(value): name for name, value in buffers.items() if name.endswith(ending)}
    seen = _Seen({key: name.removesuffix(ending).removesuffix(".") for key, name in own.items()})
    with seen, slots.filled({**params, **buffers}):
        forward(model, x)
    return seen.found


class _Seen(TorchFunctionMode):
    """Notes the statistics ``[1, C]`` of each BatchNorm in training mode that a model calls.

    ``layers`` names the layers by the ``id`` of their running means.
    """

    def __init__(self, layers: Mapping[int, str]) -> None:
        super().__init__()
        self.layers = layers
        self.found: dict[str, tuple[Tensor, Tensor]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.batch_norm:
            given = _BATCH_NORM.bind(*args, **(kwargs or {})).arguments
            name = self.layers.get(id(given["running_mean"]))
            if given.get("training") and name is not None:
                rows = given["input"].movedim(1, 0).flatten(1)
                variance = rows.var(1, unbiased=rows.shape[1] > 1)
                self.found[name] = (rows.mean(1)[None], variance[None])
        return func(*args, **(kwargs or {}))
