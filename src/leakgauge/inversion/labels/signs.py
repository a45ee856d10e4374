"""Counts the labels of a batch from an update whose coordinates have lost their size."""

import torch
from torch import Tensor

from leakgauge.core.types import Grads
from leakgauge.inversion.labels.methods import Expected, OutputLayer, gradient_of


def counts_by_signs(grads: Grads, layer: OutputLayer, batch: int, expected: Expected) -> Tensor:
    """Return the number of records of each class in each of T batches ``[T, C]``, int64.

    The gradient of the bias is the mean prediction less the share of each class, so its sign says
    whether ``n_c`` is above or below ``B mean p_c``. Rows of the weight's gradient are sums over
    records; how far a row's signs follow those of the layer's mean input tells the rest: a record
    of a class turns more of its row. Each record goes to the class with the largest remainder.

    Args:
        grads: steps on the scale of a gradient, leaf ``[T, *p]``.
        layer: result of ``output_layer_of``.
        batch: number of records B.
        expected: result of ``expectation`` for records like the private ones.

    >>> grads = {"w": torch.tensor([[[-1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]]])}
    >>> grads["b"] = torch.tensor([[-1.0, 1.0, -1.0]])
    >>> flat = Expected(torch.full((1, 3), 1 / 3), torch.ones(1, 2), torch.zeros(1, 3, 2))
    >>> counts_by_signs(grads, OutputLayer("", "w", "b"), 5, flat)
    tensor([[3, 0, 2]])
    """
    weight = gradient_of(grads, layer.weight, 3).double()
    feature = expected.feature.double().expand(len(weight), -1)
    along = torch.einsum("tcd,td->tc", weight.sign(), feature) / feature.abs().sum(1, keepdim=True)
    along = along.nan_to_num()
    signs = along.sign() if layer.bias is None else gradient_of(grads, layer.bias, 2).sign()
    even = batch * expected.prediction.double().expand(len(weight), -1)
    least = torch.where(signs < 0, even.floor() + 1, 0.0)
    most = torch.where(signs > 0, (even.ceil() - 1).clamp(min=0), float(batch))
    return torch.stack([_filled(*rows, batch) for rows in zip(least, most, -along, strict=True)])


def _filled(least: Tensor, most: Tensor, favour: Tensor, batch: int) -> Tensor:
    """Return counts ``[C]`` between two bounds that add up to a batch.

    Bounds that rest on a mean prediction of other records may not allow it; then the classes that
    are favoured most come first.
    """
    counts = torch.zeros_like(least, dtype=torch.int64)
    order = favour.argsort(descending=True, stable=True).tolist()
    for bound in (least, most, torch.full_like(most, float(batch))):
        while int(counts.sum()) < batch:
            open_ = [one for one in order if counts[one] < bound[one]]
            if not open_:
                break
            for one in open_[: batch - int(counts.sum())]:
                counts[one] += 1
    return counts
