"""What a client's own records show of a model: gradients of each record at its linear layers."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakgauge.core.types import Task
from leakgauge.gradients import params_of
from leakgauge.gradients.probing import private


@dataclass(frozen=True, eq=False)
class LinearSeen:
    """One linear layer under a batch of B records.

    Attributes:
        name: name of the layer.
        slopes: gradient of each record's own loss at the layer's output ``[B, units]``.
        before: norm of the gradient of each record's own loss at the layer's input ``[B]``.
    """

    name: str
    slopes: Tensor
    before: Tensor


@dataclass(frozen=True, eq=False)
class ModelSeen:
    """A model under a batch of B records, in evaluation mode.

    Attributes:
        losses: loss of each record ``[B]``.
        layers: the linear layers that see each record once, in the order of their names.
        head: name of the layer whose output is that of the model; empty where none is.
    """

    losses: Tensor
    layers: tuple[LinearSeen, ...]
    head: str = ""


def observe(task: Task, x: Tensor, y: Tensor) -> ModelSeen:
    """Run records through a copy of the model, and return what they show.

    Args:
        task: the received model and the client's loss; the model stays as it is.
        x: records ``[B, ...]``.
        y: their labels ``[B, ...]``.
    """
    own = private(task, params_of(task.model))
    own.model.eval()
    seen: dict[str, list[tuple[Tensor, Tensor]]] = {}

    def keep(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def hook(layer: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
            seen.setdefault(name, []).append((given[0], output))

        return hook

    for name, part in own.model.named_modules():
        if isinstance(part, nn.Linear):
            part.register_forward_hook(keep(name))
    with torch.enable_grad():
        outputs = own.outputs(x.detach().clone().requires_grad_())
        losses = torch.stack(
            [own.mean_loss(outputs[at : at + 1], y[at : at + 1]) for at in range(len(x))]
        )
        once = {name: calls[0] for name, calls in seen.items() if _is_usual(calls, len(x))}
        wanted = [leaf for pair in once.values() for leaf in pair]
        found = torch.autograd.grad(losses.sum(), wanted, allow_unused=True) if wanted else ()
    layers = []
    for name, (given, output), (before, slopes) in zip(
        once, once.values(), zip(found[::2], found[1::2], strict=True), strict=True
    ):
        before = torch.zeros_like(given) if before is None else before
        slopes = torch.zeros_like(output) if slopes is None else slopes
        layers.append(LinearSeen(name, slopes.detach(), before.detach().flatten(1).norm(dim=1)))
    same = (name for name, (_, output) in once.items() if output is outputs)
    return ModelSeen(losses.detach(), tuple(layers), next(same, ""))


def _is_usual(calls: list[tuple[Tensor, Tensor]], records: int) -> bool:
    """Return whether a layer ran once, on one row for each record."""
    return len(calls) == 1 and calls[0][1].dim() == 2 and len(calls[0][1]) == records
