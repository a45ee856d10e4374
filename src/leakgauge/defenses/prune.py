"""Pruning: send only the largest coordinates of an update."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.types import Grads
from leakgauge.defenses.defense import Defense, DefenseSettings
from leakgauge.defenses.layers import on_layers
from leakgauge.defenses.transform import (
    Objective,
    Transform,
    cut_at,
    over_rows,
    smallest_sent,
)
from leakgauge.gradients.flattening import norms


@dataclass(frozen=True)
class Prune(DefenseSettings):
    """Send only the largest coordinates of each parameter, or of the update.

    Args:
        rate: share of coordinates that become 0, in [0, 1).
        whole: prune all parameters together instead of each by itself.
        layers: those that change, such as ``first+3``, see ``Layers``; None for all.

    >>> Prune(rate=0.5).build(batch_size=16).name
    'prune:rate=0.5'
    """

    word: ClassVar[str] = "prune"
    rate: float = 0.99
    _: KW_ONLY
    whole: bool = False
    layers: str | None = None

    def build(self, *, batch_size: int) -> Defense:
        """Return the defense; the batch size has no effect."""
        pruned = PruneTransform(self.rate, self.whole)
        return Defense(self.name, update=on_layers(pruned, self.layers))


@dataclass(frozen=True)
class PruneTransform(Transform):
    """Sets all but the largest coordinates of each parameter to 0.

    Each parameter of each gradient is pruned by itself, as in Lin et al., to whom the paper
    refers; the paper itself does not specify it. At least one coordinate stays; among equal
    coordinates, as many stay as the rate allows. This stops a static forest, as in the paper; with
    ``whole``, the forest's success depends on the seed.

    Args:
        rate: share of coordinates that become 0, in [0, 1).
        whole: prune all parameters together, so a parameter with small gradients may vanish.

    References:
        Li et al., CCS 2024, section 6.1 (rate 0.99); Lin et al., Deep Gradient Compression,
        ICLR 2018, algorithm 1.

    >>> grads = {"w": torch.tensor([[3.0, -1.0]]), "b": torch.tensor([[-0.5, 0.0]])}
    >>> PruneTransform(0.5)(grads, [])
    {'w': tensor([[3., 0.]]), 'b': tensor([[-0.5000,  0.0000]])}
    >>> PruneTransform(0.5, whole=True)(grads, [])
    {'w': tensor([[ 3., -1.]]), 'b': tensor([[0., 0.]])}
    """

    rate: float = 0.99
    whole: bool = False

    def __post_init__(self) -> None:
        require(0 <= self.rate < 1, f"pruning rate is {self.rate:g}; expected 0 <= rate < 1")

    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        """Return the pruned gradients."""
        if self.whole:
            return over_rows(grads, self._flat)
        return {
            name: over_rows({name: leaf}, self._flat)[name] if leaf[:1].numel() else leaf.clone()
            for name, leaf in grads.items()
        }

    def _flat(self, flat: Tensor, _: slice) -> Tensor:
        kept = max(1, round((1 - self.rate) * flat.shape[1]))
        index = flat.abs().topk(kept, dim=1, sorted=False).indices
        return torch.zeros_like(flat).scatter_(1, index, flat.gather(1, index))

    def adapt(self, objective: Objective) -> "Pruned":
        """Return the objective that compares sent coordinates and bounds the others."""
        return Pruned(objective, self.whole)


@dataclass(frozen=True)
class Pruned:
    """Compares the coordinates that pruning sends, and bounds the others by a threshold.

    A parameter's threshold is its smallest coordinate that was sent. Where 0 was sent, only the
    part of the guess above the threshold counts. Thresholds scale with the norm of the guess, so
    a guess of the wrong size scores like one of the right size. A static attack, by contrast,
    matches the zeros.

    Attributes:
        objective: compares the reduced guess with the update.
        whole: all parameters share the smallest threshold, as with ``PruneTransform.whole``.

    >>> sent = {"w": torch.tensor([[3.0, 2.0, 0.0]])}
    >>> guess = {"w": torch.tensor([[3.0, 2.0, 1.5]])}
    >>> def squared(guess, sent):
    ...     return (guess["w"] - sent["w"]).square().sum(dim=1)
    >>> squared(guess, sent), Pruned(squared)(guess, sent)
    (tensor([2.2500]), tensor([0.]))
    """

    objective: Objective
    whole: bool = False

    def __call__(self, guess: Grads, sent: Grads) -> Tensor:
        """Return the distance of each row ``[N]``."""
        kept = {name: guess[name] * (leaf != 0) for name, leaf in sent.items()}
        size, full = norms({name: leaf.detach() for name, leaf in kept.items()}), norms(sent)
        scale = size / torch.where(full > 0, full, 1.0)
        rest = {name: guess[name] - leaf for name, leaf in kept.items()}
        left = {
            name: kept[name] + (rest[name] - cut_at(rest[name], limit * scale))
            for name, limit in self._limits(sent).items()
        }
        return self.objective(left, sent)

    def _limits(self, sent: Grads) -> dict[str, Tensor]:
        """Return the smallest sizes ``[N]`` that were sent; the largest float if none was."""
        sizes = {name: smallest_sent(leaf) for name, leaf in sent.items()}
        if not self.whole:
            return sizes
        return dict.fromkeys(sizes, torch.stack(list(sizes.values())).amin(dim=0))
