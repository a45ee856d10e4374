"""Searches for the records of the class that a server isolated."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.core.types import Task
from leakgauge.gradients import params_of
from leakgauge.gradients.probing import private
from leakgauge.inversion.exact_batch.peeling import UNKNOWN
from leakgauge.inversion.methods import FISHED, STRONGEST, Method, Traits, method_of
from leakgauge.inversion.observed import AttackOptions, Knowledge, ObservedUpdates, Reconstruction
from leakgauge.inversion.servers.fishing import head_of


@dataclass(frozen=True)
class Fished(Method):
    """Counts the isolated records in the gradient of the head's bias, then searches for them.

    Up to its sign and size, the gradient of an isolated record is that of the output itself. So the
    search compares the gradients of the output's row and of the layers before it, under a loss that
    is the output, with the count for a batch size. The places of other records hold a guess.

    Attributes:
        search: the search.

    References:
        Wen et al., Fishing for User Data, ICML 2022, section 3.
    """

    traits: ClassVar[Traits] = Traits(
        does="searches for the records of the one class that a server isolated.", uses_labels=False
    )
    search: Method

    @property
    def iterations(self) -> int:
        """Number of iterations of its search."""
        return self.search.iterations

    @property
    def described(self) -> str:
        """The settings of its search."""
        return f"{FISHED}: {self.search.described}"

    def rebuild(
        self, task: Task, seen: ObservedUpdates, known: Knowledge, options: AttackOptions
    ) -> Reconstruction:
        """Return the records of the class; arguments and errors as for ``Method``."""
        own = private(task, seen.params)
        guess = known.stand_in(seen.shape[1:])
        head = head_of(own, torch.stack([guess, guess]))
        target = int(head.weight.abs().sum(dim=1).argmax())
        assert head.bias is not None
        name = next(n for n, leaf in own.model.named_parameters() if leaf is head.bias)
        received = seen.shape[0] * seen.grads[name][:, target]
        counts = isolated(received).clamp(max=seen.shape[0])
        alone, names = _output_alone(own, head, target)
        params = params_of(alone.model)
        x = guess.expand(len(counts), *seen.shape).clone()
        y = torch.full(x.shape[:2], UNKNOWN, dtype=torch.int64, device=x.device)
        seconds = 0.0
        for count in sorted(set(counts.tolist())):
            if not count:
                continue
            rows = (counts == count).nonzero().flatten()
            # Records of an unused output add up to what was received, which can be below 1.
            size = torch.where(received[rows] < 0, -count, received[rows])
            scale = -seen.shape[0] / size
            grads = {n: _scaled(seen.grads[n][rows], scale) for n in params}
            grads |= {n: grads[n][:, target : target + 1] for n in names}
            part = ObservedUpdates(params, grads, (count, *seen.shape[1:]))
            labels = torch.zeros(len(rows), count, dtype=torch.int64, device=x.device)
            found = self.search.rebuild(
                alone,
                part,
                replace(known, labels=labels, infer=None, statistics=None),
                replace(options, checkpoint=None, snapshots=0),
            )
            x[rows, :count] = found.x
            y[rows, :count] = torch.where(received[rows] < 0, target, UNKNOWN)[:, None]
            seconds += found.seconds_per_iteration
        note = (
            f"{FISHED}: the server isolated {int(counts.sum())} of "
            f"{counts.numel() * seen.shape[0]} records by output {target}; others are not sought"
        )
        return Reconstruction.direct(x, y, seconds=seconds, notes=(note,))


def _output_alone(task: Task, head: nn.Linear, target: int) -> tuple[Task, tuple[str, str]]:
    """Return the task whose loss is one output, as a number below 0, and the names of its head.

    Args:
        task: a private copy; its head is replaced.
        head: its last layer.
        target: the output.
    """
    name = next(name for name, part in task.model.named_modules() if part is head)
    one = nn.Linear(head.in_features, 1, device=head.weight.device, dtype=head.weight.dtype)
    assert head.bias is not None
    with torch.no_grad():
        one.weight.copy_(head.weight[target : target + 1])
        one.bias.copy_(head.bias[target : target + 1])
    parent, _, last = name.rpartition(".")
    setattr(task.model.get_submodule(parent), last, one)
    return Task(task.model, lambda outputs, _: -outputs[:, 0]), (f"{name}.weight", f"{name}.bias")


def isolated(received: Tensor) -> Tensor:
    """Return the number of isolated records in each update ``[T]``, int64.

    Args:
        received: gradient of the output's bias, for the sum of losses ``[T]``. It is the number of
            records of the output's class, as a number below 0; or the likelihoods of the output
            for records of other classes, which the largest dominates.

    >>> isolated(torch.tensor([-2.0, 0.0, 1e-9, 1.0, 3.0])).tolist()
    [2, 0, 1, 1, 3]
    """
    several = received.abs().round().to(torch.int64)
    return torch.where(received > 0, several.clamp(min=1), several)


def _scaled(grads: Tensor, scale: Tensor) -> Tensor:
    """Return each gradient ``[T, *p]`` times its number ``[T]``."""
    return grads * scale.reshape(-1, *[1] * (grads.dim() - 1))


def fished(
    *,
    iterations: int | None = None,
    restarts: int = 1,
    are_images: bool = True,
    trained: bool = False,
    large: bool = False,
) -> Fished:
    """Return the method with the strongest search.

    Args:
        iterations: number of iterations of the search; None takes its default.
        restarts: number of its restarts.
        are_images: whether records are images.
        trained: whether the network is trained.
        large: whether the network is large.
    """
    search = method_of(
        STRONGEST,
        iterations=iterations,
        restarts=restarts,
        are_images=are_images,
        trained=trained,
        large=large,
    )
    return Fished(search)
