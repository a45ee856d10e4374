"""What is audited: per-example gradients go in, one private gradient comes out."""

import importlib.util
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from leakgauge.core.checks import require, require_count, require_positive
from leakgauge.core.types import Grads
from leakgauge.defenses.clip import ClipNorm
from leakgauge.privacy.accounting import noise_multiplier_of


class Mechanism(Protocol):
    """Per-example gradients, leaf ``[B, *p]`` -> the released one, leaf ``[*p]``.

    All randomness comes from the generator: otherwise an audit cannot be repeated.
    """

    def __call__(self, grads: Grads, generator: torch.Generator) -> Grads:
        """One release."""
        ...


@dataclass(frozen=True)
class DPSGD:
    """One step of DP-SGD, with the noise as the paper writes it; also what a mechanism claims.

    The mean of the B clipped gradients, with noise of standard deviation ``noise / sqrt(B)`` on
    each coordinate.

    Attributes:
        clip: C, largest l2 norm of a record's gradient.
        noise: sigma.

    References:
        Li et al., CCS 2024, sections 6 and 7; Abadi et al., CCS 2016, Algorithm 1.

    >>> grads = {"w": torch.tensor([[30.0, 40.0], [0.0, 0.0]])}
    >>> released = DPSGD(clip=5.0, noise=1e-9)(grads, torch.Generator().manual_seed(0))
    >>> [round(one, 4) for one in released["w"].tolist()]
    [1.5, 2.0]
    """

    clip: float
    noise: float

    def __post_init__(self) -> None:
        require_positive(self.clip, "clip")
        require(
            self.noise != 0,
            "noise is 0, so epsilon is infinite and there is nothing to audit: whoever sees the "
            "gradient tells the values apart; expected a number above 0",
        )
        require_positive(self.noise, "noise")

    @classmethod
    def of_multiplier(cls, clip: float, noise_multiplier: float, batch: int) -> "DPSGD":
        """The same as Opacus writes it: noise of ``noise_multiplier * clip`` on the sum.

        >>> DPSGD.of_multiplier(2.0, 0.2, 16).noise
        0.1
        """
        require_count(batch, "batch size")
        return cls(clip, noise_multiplier * clip / math.sqrt(batch))

    def std(self, batch: int) -> float:
        """Of the noise on each coordinate of the mean of ``batch`` gradients."""
        return self.noise / math.sqrt(batch)

    def multiplier(self, batch: int) -> float:
        """Noise on the sum over the clip, as Opacus and the accountants want it."""
        return noise_multiplier_of(self.noise, self.clip, batch)

    def clipped(self, grads: Grads) -> Grads:
        """Each gradient scaled down to the clip."""
        return ClipNorm(self.clip)(grads, [])

    def __call__(self, grads: Grads, generator: torch.Generator) -> Grads:
        """One release."""
        std = self.std(len(next(iter(grads.values()))))
        return {
            name: _noisy(leaf.mean(dim=0), std, generator)
            for name, leaf in self.clipped(grads).items()
        }


def _noisy(leaf: Tensor, std: float, generator: torch.Generator) -> Tensor:
    noise = torch.randn(leaf.shape, generator=generator, dtype=leaf.dtype, device=leaf.device)
    return noise.mul_(std).add_(leaf)


MakeOptimizer = Callable[[Sequence[nn.Parameter], int, torch.Generator], Any]
"""(parameters, batch size, generator) -> an optimizer that reads ``p.grad_sample``."""


@dataclass(frozen=True, eq=False)
class OptimizerStep:
    """One real step of a user's private optimizer, such as Opacus makes.

    The parameters start at zero and the released gradient is read off their change. The optimizer
    has to be plain SGD in the end (``p -= lr * g``), without momentum or weight decay.

    Attributes:
        make: gives the optimizer, on parameters whose ``grad_sample [B, *p]`` is set.
        lr: its learning rate.
    """

    make: MakeOptimizer
    lr: float = 1.0

    def __post_init__(self) -> None:
        require_positive(self.lr, "lr")

    def __call__(self, grads: Grads, generator: torch.Generator) -> Grads:
        """One step of the optimizer on these gradients."""
        params = {name: nn.Parameter(torch.zeros_like(leaf[0])) for name, leaf in grads.items()}
        batch = len(next(iter(grads.values())))
        optimizer = self.make(list(params.values()), batch, generator)
        for name, value in params.items():
            # A copy: the optimizer marks and may change what it is given.
            value.grad_sample = grads[name].clone()  # type: ignore[attr-defined]
        optimizer.step()
        return {name: value.detach() / -self.lr for name, value in params.items()}


@dataclass(frozen=True)
class OpacusMechanism:
    """One step of Opacus' ``DPOptimizer`` over SGD.

    Attributes:
        clip: ``max_grad_norm``.
        noise_multiplier: standard deviation of the noise on the sum, over the clip.
    """

    clip: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        self.claimed(1)
        require(
            importlib.util.find_spec("opacus") is not None,
            "opacus is not installed, so there is no optimizer of it to audit; pip install opacus",
        )

    def claimed(self, batch: int) -> DPSGD:
        """What it promises for ``batch`` gradients a step."""
        return DPSGD.of_multiplier(self.clip, self.noise_multiplier, batch)

    def __call__(self, grads: Grads, generator: torch.Generator) -> Grads:
        """One step of the optimizer on these gradients."""
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
