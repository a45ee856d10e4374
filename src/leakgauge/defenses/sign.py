"""Signs: send only the sign of each coordinate."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.core.checks import require_positive
from leakgauge.core.types import Grads
from leakgauge.defenses.defense import Defense, DefenseSettings
from leakgauge.defenses.layers import on_layers
from leakgauge.defenses.transform import Objective, Transform
from leakgauge.gradients.flattening import alike

OFTEN = 10
"""How many times as many inputs must have the sign 1 alone as -1 alone to be taken for 0."""


@dataclass(frozen=True)
class Sign(DefenseSettings):
    """Send only the signs of the update.

    Args:
        one_bit: 0 counts as 1, so that a coordinate has one bit; otherwise it has three values,
            as with ``torch.sign``, and a 0 tells what the batch lacks, such as a category.
        layers: changed layers, such as ``first+3``, see ``Layers``; None for all.
    """

    word: ClassVar[str] = "sign"
    _: KW_ONLY
    one_bit: bool = False
    layers: str | None = None

    def build(self, *, batch_size: int) -> Defense:
        """Return the defense; the batch size has no effect."""
        return Defense(self.name, update=on_layers(SignTransform(self.one_bit), self.layers))


@dataclass(frozen=True)
class SignTransform(Transform):
    """Replaces each coordinate by its sign: -1, 0 or 1.

    Args:
        one_bit: 0 becomes 1. Li et al. 'binarize' to '1-bit per dimension' and do not say what
            becomes of 0; with three values their static forest is not stopped.

    References:
        Bernstein et al., signSGD, ICML 2018; Li et al., CCS 2024, section 6.1.

    >>> grads = {"w": torch.tensor([[0.3, -2.0, 0.0]])}
    >>> SignTransform()(grads, []), SignTransform(one_bit=True)(grads, [])
    ({'w': tensor([[ 1., -1.,  0.]])}, {'w': tensor([[ 1., -1.,  1.]])})
    """

    one_bit: bool = False

    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        """Return the signs of the gradients."""
        signs = {name: leaf.sign() for name, leaf in grads.items()}
        if not self.one_bit:
            return signs
        return {name: torch.where(one == 0, 1, one) for name, one in signs.items()}

    def adapt(self, objective: Objective) -> "SoftSigns":
        """Return the objective that compares soft signs."""
        return SoftSigns(objective, one_bit=self.one_bit)


@dataclass(frozen=True)
class SoftSigns:
    """Compares signs with soft signs of the guess's gradient, which have a slope.

    Each coordinate g becomes tanh(g / scale). The scale is ``softness`` times the mean size of the
    guess's coordinates in that parameter, so the size of the gradient has no effect; the
    objective is nearly constant in a coordinate far above it that has the right sign.

    Attributes:
        objective: compares soft signs with the signs that were sent.
        softness: above 0; towards 0 the function becomes the sign, without a slope. On eight
            training images of CIFAR-10, 0.25 is worse than 0.5, and 1 is about as good.
        one_bit: signs of one bit were sent, see ``with_zeros``.

    >>> guess, sent = {"w": torch.tensor([[9.0, -1.0]])}, {"w": torch.tensor([[1.0, -1.0]])}
    >>> def squared(guess, sent):
    ...     return (guess["w"] - sent["w"]).square().sum(dim=1)
    >>> bool(SoftSigns(squared, 0.1)(guess, sent) < 0.01)
    True
    """

    objective: Objective
    softness: float = 0.5
    one_bit: bool = False

    def __post_init__(self) -> None:
        require_positive(self.softness, "softness of signs")

    def __call__(self, guess: Grads, sent: Grads) -> Tensor:
        """Return the distance of each row ``[N]``."""
        if self.one_bit:
            sent = {name: with_zeros(leaf) for name, leaf in sent.items()}
        return self.objective({name: self._soft(guess[name]) for name in sent}, sent)

    def _soft(self, leaf: Tensor) -> Tensor:
        scale = self.softness * leaf.abs().reshape(len(leaf), -1).mean(dim=1)
        # A parameter without any gradient has no sign: 0, with a finite slope.
        return torch.tanh(leaf / alike(torch.where(scale > 0, scale, 1.0), leaf))


def with_zeros(signs: Tensor) -> Tensor:
    """Return signs with 0 at each input of a layer that was 0, as signs of one bit show it.

    An input of 0, such as a unit that a ReLU turned off, has a gradient of 0 at each output, so all
    of its signs are 1. Other inputs have both signs, as the outputs' gradients have. If some of
    them have one sign by chance, they have -1 as often as 1; then nothing is changed.

    Args:
        signs: -1 or 1, of a weight ``[N, out, in, ...]``; other shapes are returned as they are.

    >>> weight = torch.tensor([[[1.0, -1.0, 1.0], [-1.0, 1.0, 1.0]]])
    >>> with_zeros(weight).tolist(), with_zeros(-weight).tolist()
    ([[[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0]]], [[[-1.0, 1.0, -1.0], [1.0, -1.0, -1.0]]])
    """
    if signs.dim() < 3:
        return signs
    outputs = [1, *range(3, signs.dim())]
    off = signs.amin(outputs, keepdim=True) > 0
    negative = signs.amax(outputs, keepdim=True) < 0
    both = ~(off | negative)
    told = both.any(2, keepdim=True) & (OFTEN * negative.sum(2, True) <= off.sum(2, True))
    return torch.where(off & told, 0.0, signs)
