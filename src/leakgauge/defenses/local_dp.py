"""Clipping and noise of a whole update on the client, as Flower's mods do it.

Flower takes the norm over all arrays that a client sends, running statistics among them, and leaves
arrays that are a single number as they are. Here the norm is that of the trainable parameters, and
all of them are clipped.
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar

from leakgauge.core.checks import require, require_positive
from leakgauge.defenses.clip import ClipNorm
from leakgauge.defenses.defense import Defense, DefenseSettings
from leakgauge.defenses.noise import GaussianNoise
from leakgauge.defenses.transform import Chain


@dataclass(frozen=True)
class LocalDP(DefenseSettings):
    """Clip the update to a norm, and add Gaussian noise to it: Flower's ``LocalDpMod``.

    The noise has a standard deviation of sensitivity * sqrt(2 ln(1.25 / delta)) / epsilon, the
    classical one for a single release with epsilon below 1. The user chooses the sensitivity: any
    two updates clipped to a norm differ by up to twice that norm. ``defenses.doubts`` warns of a
    smaller one than the clip, and ``defenses.claims`` says what follows.

    Args:
        clip: largest l2 norm of the update.
        sensitivity: sensitivity that the noise is made for.
        epsilon: epsilon of one release, above 0.
        delta: delta of one release.

    References:
        Dwork and Roth, The Algorithmic Foundations of Differential Privacy, 2014, theorem A.1.

    >>> round(LocalDP(clip=1.0, sensitivity=1.0, epsilon=0.5, delta=1e-5).noise_std, 3)
    9.69
    """

    word: ClassVar[str] = "local-dp"
    clip: float
    sensitivity: float
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        require_positive(self.epsilon, "epsilon of local-dp")
        require(
            0 < self.delta < 1, f"delta of local-dp is {self.delta:g}; expected a number in (0, 1)"
        )
        require_positive(self.sensitivity, "sensitivity of local-dp")
        super().__post_init__()

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on each coordinate."""
        return self.sensitivity * math.sqrt(2 * math.log(1.25 / self.delta)) / self.epsilon

    def build(self, *, batch_size: int) -> Defense:
        """Return the defense; the batch size has no effect."""
        chain = Chain((ClipNorm(self.clip), GaussianNoise(self.noise_std)))
        return Defense(self.name, update=chain)


@dataclass(frozen=True)
class FixedClipping(DefenseSettings):
    """Clip the update to a norm, as Flower's ``fixedclipping_mod`` does; the server adds noise.

    The server's noise is on the mean over clients; an observer of single updates sees none.

    Args:
        norm: largest l2 norm of the update.
    """

    word: ClassVar[str] = "fixed-clipping"
    norm: float

    def build(self, *, batch_size: int) -> Defense:
        """Return the defense; the batch size has no effect."""
        return Defense(self.name, update=ClipNorm(self.norm))


@dataclass(frozen=True)
class AdaptiveClipping(DefenseSettings):
    """Clip the update to the norm of the round, as Flower's ``adaptiveclipping_mod`` does.

    In a round it is ``FixedClipping``. After it the server moves the norm by the share of clients
    whose updates were clipped: ``after`` returns the settings of the next round.

    Args:
        norm: largest l2 norm of the update in this round.
        quantile: share of clipped updates that keeps the norm constant (Flower's
            ``target_clipped_quantile``).
        rate: learning rate of the norm.

    References:
        Andrew et al., Differentially private learning with adaptive clipping, NeurIPS 2021.

    >>> AdaptiveClipping(norm=0.1).after([1, 1, 1, 1]).name
    'adaptive-clipping:norm=0.0904837418036'
    """

    word: ClassVar[str] = "adaptive-clipping"
    norm: float = 0.1
    _: KW_ONLY
    quantile: float = 0.5
    rate: float = 0.2

    def __post_init__(self) -> None:
        require(
            0 <= self.quantile <= 1,
            f"quantile of adaptive-clipping is {self.quantile:g}; expected a number from 0 to 1",
        )
        require_positive(self.rate, "rate of adaptive-clipping")
        super().__post_init__()

    def build(self, *, batch_size: int) -> Defense:
        """Return the defense; the batch size has no effect."""
        return Defense(self.name, update=ClipNorm(self.norm))

    def after(self, clipped: Sequence[int]) -> "AdaptiveClipping":
        """Return the settings of the next round, without noise on the count.

        This is what Flower 1.41 does: the norm falls where more updates are clipped than the
        quantile says. In the paper it rises then.

        Args:
            clipped: one value per client, 1 where its update was clipped, else 0.
        """
        share = sum(clipped) / len(clipped)
        return replace(self, norm=self.norm * math.exp(-self.rate * (share - self.quantile)))
