"""Averages of models and of gradients, by name."""

from collections.abc import Sequence

from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.training.state import Tensors


def average(several: Sequence[Tensors], weights: Sequence[float]) -> dict[str, Tensor]:
    """Return the weighted mean of tensors by name; whole numbers are rounded.

    Args:
        several: tensors of the same names and shapes; at least one mapping.
        weights: of each mapping, above 0; their sum does not matter.

    >>> import torch
    >>> models = [{"w": torch.tensor([0.0, 4.0])}, {"w": torch.tensor([4.0, 4.0])}]
    >>> average(models, [3, 1])["w"]
    tensor([1., 4.])
    """
    require(len(several) > 0, "there is nothing to average; pass at least one model")
    shares = [weight / sum(weights) for weight in weights]
    return {name: _mean([one[name] for one in several], shares) for name in several[0]}


def _mean(leaves: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    first = leaves[0]
    if not (first.is_floating_point() or first.is_complex()):  # a count of batches, for example
        mean = _mean([leaf.double() for leaf in leaves], shares)
        return mean.round().to(first.dtype)
    total = leaves[0] * shares[0]
    for leaf, share in zip(leaves[1:], shares[1:], strict=True):
        total = total.add(leaf, alpha=share)
    return total
