"""Pruning: only the largest coordinates of an update are sent."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.types import Grads
from leakgauge.defenses.defense import Defense
from leakgauge.defenses.settings import DefenseSettings
from leakgauge.defenses.transform import Objective, Transform, alike, over_rows
from leakgauge.gradients.flattening import norms


@dataclass(frozen=True)
class Prune(DefenseSettings):
    """Only the largest coordinates of each parameter, or of the update, are sent.

    Args:
        rate: the share of coordinates that is set to 0, in [0, 1).
        whole: let the coordinates of all parameters compete.

    >>> defense = Prune(rate=0.5).build(batch_size=16)
    >>> defense.name, defense.update({"w": torch.tensor([[3.0, -1.0]])}, [])
    ('prune:rate=0.5', {'w': tensor([[3., 0.]])})
    """

    word: ClassVar[str] = "prune"
    rate: float = 0.99
    _: KW_ONLY
    whole: bool = False

    def build(self, *, batch_size: int) -> Defense:
        """The defense; the batch size does not matter."""
        return Defense(self.name, update=PruneTransform(self.rate, self.whole))


@dataclass(frozen=True)
class PruneTransform(Transform):
    """Sets all but the largest coordinates of each parameter to 0.

    Each parameter of each gradient is pruned by itself, as Lin et al. do, to whom the paper
    refers; it does not say so itself. At least one coordinate stays; of equal ones, just as many
    as fit. A static forest is then stopped, as the paper finds; where the coordinates of all
    parameters compete, its success hangs on the seed.

    Args:
        rate: the share that is set to 0, in [0, 1).
        whole: let the coordinates of all parameters compete, so that one with small gradients
            may vanish altogether.

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
        """Prune each gradient."""
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
        """Compare what was sent, and bound the rest by it."""
        return Pruned(objective, self.whole)


@dataclass(frozen=True)
class Pruned:
    """Compares what pruning sends, and asks of the rest only that it is too small to be sent.

    The smallest coordinate that was sent of a parameter is its threshold. Where 0 was sent, the
    guess counts only by what it has above the threshold. That is measured in units of the
    gradient's size, so a guess of another size is judged like one of the right size. A static
    attack takes the zeros for wanted.

    Attributes:
        objective: compares the update with what is left of the guess.
        whole: all parameters have one threshold, their smallest: as ``PruneTransform.whole``.

    >>> sent = {"w": torch.tensor([[3.0, 2.0, 0.0]])}
    >>> guess = {"w": torch.tensor([[3.0, 2.0, 1.5]])}
    >>> def squared(guess, sent):
    ...     return (guess["w"] - sent["w"]).square().sum(dim=1)
    >>> squared(guess, sent), Pruned(squared)(guess, sent)
    (tensor([2.2500]), tensor([0.]))
    """

    objective: Objective
    whole: bool = False

    def __call__(self, found: Grads, wanted: Grads) -> Tensor:
        """Return the distance of each row ``[N]``."""
        kept = {name: found[name] * (sent != 0) for name, sent in wanted.items()}
        size, full = norms({name: leaf.detach() for name, leaf in kept.items()}), norms(wanted)
        scale = size / torch.where(full > 0, full, 1.0)
        left = {
            name: kept[name] + _excess(found[name] - kept[name], limit * scale)
            for name, limit in self._limits(wanted).items()
        }
        return self.objective(left, wanted)

    def _limits(self, wanted: Grads) -> dict[str, Tensor]:
        """The smallest sizes ``[N]`` that were sent; where nothing was, beyond any other."""

        def smallest(sent: Tensor) -> Tensor:
            sizes = torch.where(sent != 0, sent.abs(), torch.finfo(sent.dtype).max)
            return sizes.reshape(len(sent), -1).amin(dim=1)

        sizes = {name: smallest(sent) for name, sent in wanted.items()}
        if not self.whole:
            return sizes
        return dict.fromkeys(sizes, torch.stack(list(sizes.values())).amin(dim=0))


def _excess(leaf: Tensor, limit: Tensor) -> Tensor:
    """What goes beyond ``limit [N]``, with its sign."""
    bound = alike(limit, leaf)
    return leaf - torch.minimum(torch.maximum(leaf, -bound), bound)
