"""The gradients that an attacker sees: the other participant's, pooled and thinned."""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.checks import require, require_positive
from leakgauge.core.rng import stream
from leakgauge.core.types import Grads, Params
from leakgauge.gradients.flattening import flat_leaf


def gradient_of_other(
    before: Mapping[str, Tensor],
    after: Mapping[str, Tensor],
    own: Mapping[str, Tensor],
    *,
    lr: float,
    share: float = 0.5,
) -> dict[str, Tensor]:
    """Return the gradient that the other of two participants sent in a round of FedSGD.

    The server steps by the average, ``after = before - lr (share own + (1 - share) other)``, so
    the difference of two global models, less the own part, is the other's gradient: exactly, up to
    rounding. With more participants it is the average of all others.

    Args:
        before: parameters of the global model before the round ``[*p]``.
        after: parameters after the round.
        own: gradient that the attacker itself sent.
        lr: the server's learning rate.
        share: the attacker's weight in the average.

    Raises:
        InputError: the share is not between 0 and 1, or the rate not above 0.

    References:
        Mo et al., 2021, sections 3.3 and 5.
    """
    require_positive(lr, "learning rate")
    require(0 <= share < 1, f"share of the attacker is {share:g}; expected 0 up to 1")
    return {
        name: ((before[name] - after[name]) / lr - share * own[name]) / (1 - share) for name in own
    }


@dataclass(frozen=True)
class KernelMax:
    """Keeps the maximum over a convolution's kernel positions, and other leaves unchanged.

    A convolution of 16 to 16 channels has 16 * 16 * 9 = 2,304 weights and keeps 256 numbers. A leaf
    with more than ``most`` numbers keeps random ones, the same in every gradient, so that a layer
    of a million weights does not take all memory. (Evenly spaced ones would miss most of the
    layer's inputs.)

    Attributes:
        most: largest number of values of a leaf.

    References:
        Mo et al., 2021, section 6.2 (2,304 weights, 256 features).

    >>> pooled = KernelMax()({"w": torch.ones(4, 16, 16, 3, 3), "b": torch.ones(4, 16)})
    >>> [list(leaf.shape) for leaf in pooled.values()]
    [[4, 16, 16], [4, 16]]
    >>> list(KernelMax(most=2)({"w": torch.ones(4, 3, 5)})["w"].shape)
    [4, 2]
    """

    most: int = 16384

    def __post_init__(self) -> None:
        require_positive(self.most, "number of features of a leaf")

    def __call__(self, grads: Grads) -> dict[str, Tensor]:
        """Return the reduced gradients of leaves ``[n, *p]``, by the same names."""
        return {name: self._pooled(leaf) for name, leaf in grads.items()}

    @classmethod
    def within(cls, params: Params, batches: int, *, max_bytes: int) -> "KernelMax":
        """Return the reduction that keeps most of each leaf within ``max_bytes`` for all batches.

        Args:
            params: parameters whose gradients are kept.
            batches: number of kept gradients.
            max_bytes: memory of all kept gradients; each leaf keeps at least one number.
        """
        widths = sorted(_widths(params))
        left = max_bytes // (batches * max(leaf.element_size() for leaf in params.values()))
        for done, width in enumerate(widths):
            share = left // (len(widths) - done)
            if width > share:
                return cls(min(cls.most, max(1, share)))
            left -= width
        return cls()

    @classmethod
    def of_all(cls, params: Params) -> "KernelMax":
        """Return the reduction that keeps all numbers of each leaf, pooled over kernels.

        >>> params = {"w": torch.ones(4, 8192)}
        >>> KernelMax.of_all(params).bytes_of(params), KernelMax().bytes_of(params)
        (131072, 65536)
        """
        return cls(max(_widths(params)))

    def bytes_of(self, params: Params) -> int:
        """Return the size of a kept gradient of these parameters."""
        sizes = [leaf.element_size() for leaf in params.values()]
        kept = [min(width, self.most) for width in _widths(params)]
        return sum(map(math.prod, zip(sizes, kept, strict=True)))

    def _pooled(self, leaf: Tensor) -> Tensor:
        pooled = leaf.flatten(3).amax(dim=3) if leaf.dim() > 3 else leaf
        flat = flat_leaf(pooled)
        width = flat.shape[1]
        if width <= self.most:
            return pooled
        return flat[:, _drawn(width, self.most).to(flat.device)]


def _widths(params: Params) -> list[int]:
    """Return how many numbers of each leaf are left after the maxima over kernels."""
    return [
        math.prod(leaf.shape[:2]) if leaf.dim() > 2 else leaf.numel() for leaf in params.values()
    ]


@functools.cache
def _drawn(width: int, most: int) -> Tensor:
    """Return ascending positions, the same in every process."""
    rng = stream(0, "kept coordinates", width)
    return torch.from_numpy(np.sort(rng.choice(width, size=most, replace=False)))
