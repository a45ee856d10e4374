"""Mechanisms to audit: they turn per-example gradients into one private gradient."""

import importlib.util
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import nn

from leakgauge.core.checks import InputError, require, require_count, require_positive
from leakgauge.core.extras import install_command
from leakgauge.core.types import Grads
from leakgauge.core.user_code import function_of, one_line
from leakgauge.defenses.clip import ClipNorm
from leakgauge.privacy.accounting import noise_multiplier_of


class Mechanism(Protocol):
    """A function from per-example gradients to a released one.

    All randomness must come from the generator; otherwise an audit cannot be repeated.
    """

    def __call__(self, grads: Grads, generator: torch.Generator) -> Grads:
        """Return one release, leaves ``[*p]``, of per-example gradients, leaves ``[B, *p]``."""
        ...


@runtime_checkable
class SeveralAtOnce(Protocol):
    """A mechanism that makes many releases of the same gradients faster than one by one."""

    def several(self, grads: Grads, generators: Sequence[torch.Generator]) -> Grads:
        """Return one release for each generator, leaves ``[n, *p]``."""
        ...


class ReleaseClaim(Protocol):
    """What a mechanism claims to be: how its releases look without noise, and the noise's law."""

    @property
    def law(self) -> str:
        """The law of the noise: gaussian, laplace, or empty if it is another one or unknown."""
        ...

    def clipped(self, grads: Grads) -> Grads:
        """Return per-example gradients ``[B, *p]`` as they go into the mean."""
        ...

    def centre(self, means: Grads) -> Grads:
        """Return releases of means ``[m, *p]`` without their randomness."""
        ...


@dataclass(frozen=True)
class DPSGDMechanism:
    """One step of DP-SGD, with the noise in the paper's units; also the claim of a mechanism.

    It releases the mean of the B clipped gradients plus noise of standard deviation
    ``noise / sqrt(B)`` on each coordinate.

    Attributes:
        clip: C, the largest l2 norm of a record's gradient.
        noise: sigma.

    Raises:
        InputError: clip or noise is not above 0.

    References:
        Li et al., CCS 2024, sections 6 and 7; Abadi et al., CCS 2016, Algorithm 1.

    >>> grads = {"w": torch.tensor([[30.0, 40.0], [0.0, 0.0]])}
    >>> released = DPSGDMechanism(clip=5.0, noise=1e-9)(grads, torch.Generator().manual_seed(0))
    >>> [round(one, 4) for one in released["w"].tolist()]
    [1.5, 2.0]
    """

    clip: float
    noise: float

    def __post_init__(self) -> None:
        require_positive(self.clip, "clip")
        require(
            self.noise != 0,
            "noise is 0, so epsilon is infinite, whatever an audit shows; expected a number "
            "above 0",
        )
        require_positive(self.noise, "noise")

    @classmethod
    def of_multiplier(cls, clip: float, noise_multiplier: float, batch: int) -> "DPSGDMechanism":
        """Return the mechanism for Opacus' units: noise of ``noise_multiplier * clip`` on the sum.

        >>> DPSGDMechanism.of_multiplier(2.0, 0.2, 16).noise
        0.1
        """
        require_count(batch, "batch size")
        return cls(clip, noise_multiplier * clip / math.sqrt(batch))

    def std(self, batch: int) -> float:
        """Return the standard deviation of the noise on the mean of ``batch`` gradients."""
        return self.noise / math.sqrt(batch)

    def multiplier(self, batch: int) -> float:
        """Return the noise on the sum divided by the clip, as Opacus and accountants use it."""
        return noise_multiplier_of(self.noise, self.clip, batch)

    law: ClassVar[str] = "gaussian"

    def clipped(self, grads: Grads) -> Grads:
        """Return each gradient scaled down to the clip."""
        return ClipNorm(self.clip)(grads, [])

    def centre(self, means: Grads) -> Grads:
        """Return the means: nothing but noise is added to them."""
        return means

    def __call__(self, grads: Grads, generator: torch.Generator) -> Grads:
        """Return one release, leaves ``[*p]``, of gradients ``[B, *p]``."""
        return {name: leaf[0] for name, leaf in self.several(grads, [generator]).items()}

    def several(self, grads: Grads, generators: Sequence[torch.Generator]) -> Grads:
        """Return one release for each generator, leaves ``[n, *p]``; shared work is done once.

        >>> grads = {"w": torch.ones(2, 3)}
        >>> streams = [torch.Generator().manual_seed(seed) for seed in (0, 1)]
        >>> several = DPSGDMechanism(5.0, 1.0).several(grads, streams)["w"]
        >>> alone = DPSGDMechanism(5.0, 1.0)(grads, streams[1].manual_seed(1))["w"]
        >>> bool((several[1] == alone).all())
        True
        """
        std = self.std(len(next(iter(grads.values()))))
        means = {name: leaf.mean(dim=0) for name, leaf in self.clipped(grads).items()}
        n = len(generators)
        noise = {name: leaf.new_empty((n, *leaf.shape)) for name, leaf in means.items()}
        for trial, generator in enumerate(generators):
            for leaf in noise.values():
                leaf[trial].normal_(generator=generator)
        return {name: leaf.mul_(std).add_(means[name]) for name, leaf in noise.items()}


MakeOptimizer = Callable[[Sequence[nn.Parameter], int, torch.Generator], Any]
"""(parameters, batch size, generator) -> an optimizer that reads ``p.grad_sample``."""


@dataclass(frozen=True, eq=False)
class OptimizerStep:
    """One step of a user's private optimizer, such as that of Opacus.

    The parameters start at zero, and their change gives the released gradient. The optimizer must
    end in plain SGD (``p -= lr * g``), without momentum or weight decay.

    Attributes:
        make: function that builds the optimizer for parameters with ``grad_sample [B, *p]``.
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

    def claimed(self, batch: int) -> DPSGDMechanism:
        """Return the DP-SGD that it claims to be for ``batch`` gradients a step."""
        return DPSGDMechanism.of_multiplier(self.clip, self.noise_multiplier, batch)

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


BUILDERS: dict[str, Callable[[DPSGDMechanism], Mechanism]] = {
    "dpsgd": lambda dpsgd: dpsgd,
    "opacus": lambda dpsgd: OpacusMechanism(dpsgd.clip, dpsgd.multiplier(1)),
}
"""For each name, a function that builds the mechanism from the DP-SGD that it claims to be."""


def build_mechanism(name: str, claimed: DPSGDMechanism) -> Mechanism:
    """Return the mechanism of a name.

    Args:
        name: one of ``BUILDERS``, or the user's own as MODULE:FUNCTION; its errors become one line
            that names it.
        claimed: the DP-SGD that it claims to be.

    Raises:
        InputError: Opacus is not installed, or the user's function cannot be imported.
    """
    if name in BUILDERS:
        return BUILDERS[name](claimed)
    function = function_of(name, "--mechanism")

    def release(grads: Grads, generator: torch.Generator) -> Grads:
        try:
            released: Grads = function(grads, generator)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"--mechanism {name} raised {one_line(error)}") from error
        return released

    return release
