"""Fishing for user data: a head that lets the gradient of one class through."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from leakgauge.core.checks import InputError, require
from leakgauge.core.types import Task
from leakgauge.gradients import params_of
from leakgauge.gradients.probing import private
from leakgauge.gradients.walk import is_linear
from leakgauge.inversion.methods import FISHED
from leakgauge.inversion.servers.server import Server, ServerKnowledge, ServerTraits

MARGIN = 15.0
"""Distance of the class's logit below all others, on every public record: its probability, and so
the gradient of records of other classes, is below 3e-7."""

ABOVE, BELOW = 0.1, 3.0
"""Records of an update that are expected above the cutoff of an unused output, and above the
feature from which on its gradient is large enough."""

SPAN = 46.0
"""Difference of the output's logit between these two features: a factor of 1e20 in the gradient,
within the range of float32."""

_SMALLEST = 1e-12
"""Smallest difference of features used as a divisor."""


@dataclass(frozen=True)
class Fishing(Server):
    """Alters the head so that records of one class alone have a gradient before it.

    All rows of the head are 0 but that of the class, whose bias makes the class unlikely for every
    record: records of other classes lose nothing by it, and those of the class all by it. Their
    number can be read off the gradient of the bias.

    An output that is no record's class (a head with more outputs than the data have classes) lets
    the gradient of single records through: its likelihood grows steeply with a feature up to a
    cutoff, a quantile of public records, so that the record of the largest feature outweighs all
    others of the update.

    Attributes:
        target: the output, by its number; None takes one that is no class of the public records,
            and else the class of which an update is most likely to hold one record.

    References:
        Wen et al., Fishing for User Data in Large-Batch Federated Learning via Gradient
        Magnification, ICML 2022, section 3 (class fishing, feature fishing). The paper fishes by
        features among the records of one class, and finds the cutoff by asking a client several
        times; this server asks once, and fishes among all records by an unused output (ours).
    """

    traits: ClassVar[ServerTraits] = ServerTraits(
        does="alters the head so that records of one class alone have a gradient before it",
        method=FISHED,
    )
    target: int | None = None

    def __post_init__(self) -> None:
        require(
            self.target is None or self.target >= 0,
            f"target is {self.target}; expected the code of a class, from 0 on",
        )

    def alter(self, task: Task, known: ServerKnowledge, generator: Generator) -> Task:
        """Return the task with the altered head; arguments and errors as for ``Server``."""
        require(
            not known.y.is_floating_point() and known.y.dim() == 1,
            "the server fishing isolates a class, and the labels are no classes",
        )
        own = private(task, params_of(task.model))
        head = head_of(own, known.x)
        classes = head.out_features
        counts = torch.bincount(known.y, minlength=classes)
        target = self._target(counts / counts.sum(), known.records)
        require(
            target < classes,
            f"target is {target}, and the network tells {classes} classes, from 0 on",
        )
        with torch.no_grad():
            features = features_of(own, head, known.x) @ head.weight[target]
            slope, bias = 1.0, -float(features.amax()) - MARGIN
            if not counts[target]:
                top, low = (_upper(features, n / known.records) for n in (ABOVE, BELOW))
                slope = SPAN / max(top - low, _SMALLEST)
                bias = -slope * top
            row = slope * head.weight[target]
            head.weight.zero_()
            head.bias.zero_()
            head.weight[target], head.bias[target] = row, bias
        return own

    def _target(self, shares: Tensor, records: int) -> int:
        """Return the output that lets a gradient through."""
        if self.target is not None:
            return self.target
        if not bool(shares.all()):
            return int((shares == 0).nonzero()[0])
        once = records * shares * (1 - shares) ** (records - 1)
        return int(once.argmax())


def _upper(values: Tensor, share: float) -> float:
    """Return the number that this share of values ``[n]`` exceeds, but at least one of them."""
    above = min(max(1, math.ceil(share * len(values))), len(values) - 1)
    return float(values.sort().values[-above - 1]) if len(values) > 1 else float(values[0])


def head_of(task: Task, x: Tensor) -> nn.Linear:
    """Return the linear layer whose outputs are those of the model.

    Args:
        task: the model and its loss.
        x: public records ``[n, ...]``.

    Raises:
        InputError: there is none, or it has no bias.
    """
    named = task.model.modules()
    layers = [one for one in named if is_linear(one) and one.bias is not None]
    for layer in reversed(layers):
        given: list[Tensor] = []
        hook = layer.register_forward_hook(lambda *seen, kept=given: kept.append(seen[2]))
        try:
            with torch.no_grad():
                outputs = task.outputs(x[:2])
        finally:
            hook.remove()
        if len(given) == 1 and torch.equal(given[0], outputs):
            return layer
    raise InputError(
        f"{type(task.model).__name__} does not end with a linear layer with a bias, which this "
        "server alters"
    )


def features_of(task: Task, head: nn.Linear, x: Tensor) -> Tensor:
    """Return what enters the head ``[n, F]``.

    Args:
        task: the model and its loss.
        head: its last linear layer.
        x: records ``[n, ...]``.
    """
    given: list[Tensor] = []
    hook = head.register_forward_pre_hook(lambda _, seen: given.append(seen[0]))
    try:
        with torch.no_grad():
            for part in torch.split(x, 256):
                task.outputs(part)
    finally:
        hook.remove()
    return torch.cat(given)
