"""Mechanisms to audit: they turn per-example gradients into one private gradient."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from leakgauge.core.checks import require, require_count, require_positive
from leakgauge.core.types import Grads
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


@dataclass(frozen=True)
class DPSGD:
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
        """Return the mechanism for Opacus' units: noise of ``noise_multiplier * clip`` on the sum.

        >>> DPSGD.of_multiplier(2.0, 0.2, 16).noise
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

    def clipped(self, grads: Grads) -> Grads:
        """Return each gradient scaled down to the clip."""
        return ClipNorm(self.clip)(grads, [])

    def __call__(self, grads: Grads, generator: torch.Generator) -> Grads:
        """Return one release, leaves ``[*p]``, of gradients ``[B, *p]``."""
        return {name: leaf[0] for name, leaf in self.several(grads, [generator]).items()}

    def several(self, grads: Grads, generators: Sequence[torch.Generator]) -> Grads:
        """Return one release for each generator, leaves ``[n, *p]``; what they share is made once.

        >>> grads = {"w": torch.ones(2, 3)}
        >>> streams = [torch.Generator().manual_seed(seed) for seed in (0, 1)]
        >>> several = DPSGD(5.0, 1.0).several(grads, streams)["w"]
        >>> bool((several[1] == DPSGD(5.0, 1.0)(grads, streams[1].manual_seed(1))["w"]).all())
        True
        """
        std = self.std(len(next(iter(grads.values()))))
        means = {name: leaf.mean(dim=0) for name, leaf in self.clipped(grads).items()}
        noise = {
            name: leaf.new_empty((len(generators), *leaf.shape)) for name, leaf in means.items()
        }
        for trial, generator in enumerate(generators):
            for leaf in noise.values():
                leaf[trial].normal_(generator=generator)
        return {name: leaf.mul_(std).add_(means[name]) for name, leaf in noise.items()}
