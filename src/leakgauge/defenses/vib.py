"""Variational information bottleneck: a noisy code before a model's last layer.

Gradients are pure functions of parameters and data, so the code's noise is part of the data: each
record is followed by the standard normal numbers of its code. ``with_noise`` appends them, fresh in
each round; ``deployed`` returns the task without them, for evaluation.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.core.checks import InputError, require
from leakgauge.core.types import Task
from leakgauge.defenses.defense import Defense, DefenseSettings
from leakgauge.models.initialisation import initialise


@dataclass(frozen=True)
class VIB(DefenseSettings):
    """Put a noisy code before the model's last layer; see ``Bottleneck``.

    Args:
        beta: weight of the code's divergence in the loss.
    """

    word: ClassVar[str] = "vib"
    beta: float = 0.01

    def build(self, *, batch_size: int) -> Defense:
        """Return the defense; the batch size has no effect."""
        return Defense(self.name, task=Bottleneck(self.beta))


@dataclass(frozen=True)
class Bottleneck:
    """Puts a stochastic code z = mu + exp(log_variance / 2) * noise before the last layer.

    mu and log_variance are linear in the last layer's former input, and as wide. The loss gains
    beta * KL(N(mu, exp(log_variance)) || N(0, I)), the mean over the batch, in nats.

    Args:
        beta: weight of the divergence.

    References:
        Alemi et al., Deep variational information bottleneck, ICLR 2017; Scheliga et al., PRECODE,
        WACV 2022 (at this place in the network); Li et al., CCS 2024, section 6.1 (beta 0.01).

    >>> from torch.nn.functional import cross_entropy
    >>> rng = torch.Generator().manual_seed(0)
    >>> plain = Task(nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)), cross_entropy)
    >>> task = Bottleneck()(plain, shape=(3,), generator=rng)
    >>> x = with_noise(task, torch.zeros(4, 3), generator=rng)
    >>> list(x.shape), list(task.model(x).shape)
    ([4, 8], [4, 3])
    >>> list(deployed(task).model(torch.zeros(4, 3)).shape)
    [4, 2]
    """

    beta: float = 0.01

    def __post_init__(self) -> None:
        require(
            math.isfinite(self.beta) and self.beta >= 0,
            f"vib beta is {self.beta:g}; expected a finite number from 0 on",
        )

    def __call__(self, task: Task, *, shape: Sequence[int], generator: torch.Generator) -> Task:
        """Return a task with a copy of the model with the code, and the loss with its divergence.

        Args:
            task: its model is a ``nn.Sequential`` that ends in ``nn.Linear``.
            shape: shape of a record, as in ``x [n, *shape]``.
            generator: draws the initial weights of the code's two layers.

        Raises:
            InputError: the model is not an ``nn.Sequential`` that ends in ``nn.Linear``.
        """
        model, name = task.model, type(task.model).__name__
        if not isinstance(model, nn.Sequential):
            raise InputError(
                f"vib needs a nn.Sequential that ends in nn.Linear, to put its code before the "
                f"last layer; got {name}; write the model as nn.Sequential(body, head)"
            )
        last = model[-1] if len(model) else None
        require(
            isinstance(last, nn.Linear),
            f"vib needs a last layer nn.Linear, to put its code before it; got "
            f"{type(last).__name__}; move what follows the linear layer into the loss",
        )
        return Task(Coded(model, shape, generator=generator), CodedLoss(task.loss, self.beta))


class Coded(nn.Module):
    """A model with a stochastic code before its last layer.

    Takes ``[B, D + width]``, flattened records and their noise, and gives ``[B, m + 1]``, the
    outputs and each record's divergence in nats; without ``noisy``, it takes records
    ``[B, *shape]``, has z = mu, and gives the outputs alone.
    """

    def __init__(
        self, model: nn.Sequential, shape: Sequence[int], *, generator: torch.Generator
    ) -> None:
        super().__init__()
        model = copy.deepcopy(model)
        head = model[-1]
        assert isinstance(head, nn.Linear)
        self.body, self.head = model[:-1], head
        self.shape, self.width, self.noisy = tuple(shape), head.in_features, True
        self.mean = _linear(head, generator)
        self.log_variance = _linear(head, generator)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs, with the divergences in the last column."""
        if not self.noisy:
            plain: Tensor = self.head(self.mean(self._before(x)))
            return plain
        size = math.prod(self.shape)
        if x.dim() != 2 or x.shape[1] != size + self.width:
            raise InputError(
                f"a model under vib got {list(x.shape)}; expected [B, {size} + {self.width}]: "
                "append the noise by with_noise, or take deployed(task) to evaluate"
            )
        before = self._before(x[:, :size].reshape(-1, *self.shape))
        mean, log_variance = self.mean(before), self.log_variance(before)
        code = mean + (log_variance / 2).exp() * x[:, size:]
        return torch.cat([self.head(code), divergence(mean, log_variance)[:, None]], dim=1)

    def _before(self, x: Tensor) -> Tensor:
        before: Tensor = self.body(x)
        if before.dim() != 2:
            raise InputError(
                f"vib needs [B, {self.width}] before the last layer; got {list(before.shape)}; "
                "put nn.Flatten or a mean before it"
            )
        return before


@dataclass(frozen=True, eq=False)
class CodedLoss:
    """``loss(outputs, targets) + beta * mean divergence``, for the outputs of ``Coded``."""

    loss: Callable[[Tensor, Tensor], Tensor]
    beta: float

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of a batch."""
        return self.loss(outputs[:, :-1], targets) + self.beta * outputs[:, -1].mean()


def divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Return KL(N(mean, diag exp(log_variance)) || N(0, I)) ``[n]`` of codes, in nats.

    Args:
        mean: ``[n, d]``.
        log_variance: ``[n, d]``.

    >>> divergence(torch.tensor([[0.0, 2.0]]), torch.zeros(1, 2))
    tensor([2.])
    """
    return (mean.square() + log_variance.exp() - 1 - log_variance).sum(dim=1) / 2


def with_noise(task: Task, x: Tensor, *, generator: torch.Generator) -> Tensor:
    """Return records ``[n, *shape]`` as inputs of the task: under vib ``[n, D + width]``.

    Under vib, each record is flattened and noise is appended; for any other task the result is
    ``x`` itself. Draw new noise in each round, and for each copy of a record that needs its own.

    Raises:
        InputError: the task is under vib, and the records are not floating or have another shape.
    """
    model = task.model
    if not isinstance(model, Coded) or not model.noisy:
        return x
    require(
        x.is_floating_point() and tuple(x.shape[1:]) == model.shape,
        f"x is {list(x.shape)} {x.dtype}; vib expects floating [n, "
        f"{', '.join(map(str, model.shape))}], to append noise",
    )
    size, where = (len(x), model.width), generator.device
    noise = torch.randn(size, generator=generator, dtype=x.dtype, device=where)
    return torch.cat([x.flatten(start_dim=1), noise.to(x.device)], dim=1)


def deployed(task: Task) -> Task:
    """Return the task for evaluation: plain records, z = mu, no divergence.

    The parameters keep their names. A task without a bottleneck is returned unchanged.
    """
    if not isinstance(task.model, Coded) or not task.model.noisy:
        return task
    assert isinstance(task.loss, CodedLoss)
    model = copy.copy(task.model)
    model.noisy = False
    return Task(model, task.loss.loss)


def _linear(head: nn.Linear, generator: torch.Generator) -> nn.Linear:
    layer = nn.Linear(head.in_features, head.in_features, device="meta")
    layer = initialise(layer, generator=generator)
    return layer.to(device=head.weight.device, dtype=head.weight.dtype)
