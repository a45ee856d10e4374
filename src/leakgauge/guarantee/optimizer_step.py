"""Mechanisms that are one real step of a private optimizer."""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from leakgauge.core.checks import require, require_positive
from leakgauge.core.extras import install_command
from leakgauge.core.types import Grads
from leakgauge.guarantee.mechanism import DPSGD

MakeOptimizer = Callable[[Sequence[nn.Parameter], int, torch.Generator], Any]
"""(parameters, batch size, generator) -> an optimizer that reads ``p.grad_sample``."""


@dataclass(frozen=True, eq=False)
class OptimizerStep:
    """One real step of a user's private optimizer, such as that of Opacus.

    The parameters start at zero, and their change gives the released gradient. The optimizer must
    end in plain SGD (``p -= lr * g``), without momentum or weight decay.

    Attributes:
        make: builds the optimizer for parameters whose ``grad_sample [B, *p]`` is set.
        lr: its learning rate.

    Raises:
        InputError: the learning rate is not above 0.
    """

    make: MakeOptimizer
    lr: float = 1.0

    def __post_init__(self) -> None:
        require_positive(self.lr, "lr")

    def __call__(self, grads: Grads, generator: torch.Generator) -> Grads:
        """Return one release, leaves ``[*p]``, of gradients ``[B, *p]``."""
        params = {name: nn.Parameter(torch.zeros_like(leaf[0])) for name, leaf in grads.items()}
        batch = len(next(iter(grads.values())))
        optimizer = self.make(list(params.values()), batch, generator)
        for name, value in params.items():
            # A copy, since the optimizer marks and may change it.
            value.grad_sample = grads[name].clone()  # type: ignore[attr-defined]
        optimizer.step()
        return {name: value.detach() / -self.lr for name, value in params.items()}


@dataclass(frozen=True)
class OpacusMechanism:
    """One step of Opacus' ``DPOptimizer`` over SGD.

    Attributes:
        clip: ``max_grad_norm``.
        noise_multiplier: standard deviation of the noise on the sum, divided by the clip.

    Raises:
        InputError: clip or noise is not above 0, or Opacus is not installed.
    """

    clip: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        self.claimed(1)
        require(
            importlib.util.find_spec("opacus") is not None,
            "opacus is not installed, so its optimizer cannot be audited; install it with: "
            f"{install_command('opacus')}",
        )

    def claimed(self, batch: int) -> DPSGD:
        """Return the DP-SGD that it claims to be for ``batch`` gradients a step."""
        return DPSGD.of_multiplier(self.clip, self.noise_multiplier, batch)

    def __call__(self, grads: Grads, generator: torch.Generator) -> Grads:
        """Return one release, leaves ``[*p]``, of gradients ``[B, *p]``."""
        return OptimizerStep(self._optimizer)(grads, generator)

    def _optimizer(
        self, params: Sequence[nn.Parameter], batch: int, generator: torch.Generator
    ) -> Any:
        from opacus.optimizers import DPOptimizer

        return DPOptimizer(
            torch.optim.SGD(params, lr=1.0),
            noise_multiplier=self.noise_multiplier,
            max_grad_norm=self.clip,
            expected_batch_size=batch,
            generator=generator,
        )
