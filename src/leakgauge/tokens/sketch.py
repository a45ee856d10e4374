"""Sketches of long vectors, which bound the memory of kept gradients."""

import torch
from torch import Tensor

from leakgauge.core.rng import derive

WIDTH = 1024
"""Largest number of kept values of each layer's gradient.

With 512 to 4,096 the bound of an untrained LeNet was the same within its interval.
"""


class Sketch:
    """A linear map of vectors to few numbers: adds each coordinate to one, with a random sign.

    Inner products are kept in the mean. Short vectors stay unchanged.

    Args:
        size: length p of the vectors.
        width: largest number of sums.
        seed: seed of places and signs.
        chosen: number of coordinates that are kept besides the sums, drawn at random. Noise on some
            coordinates hides the others in the sums, and not here.

    References:
        Charikar, Chen, Farach-Colton, Finding frequent items in data streams, 2002 (count sketch).

    >>> Sketch(3, width=4, seed=0)(torch.ones(2, 3)).tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    >>> Sketch(1000, width=10, seed=0)(torch.ones(2, 1000)).shape
    torch.Size([2, 10])
    >>> Sketch(1000, width=10, seed=0, chosen=5)(torch.ones(2, 1000)).shape
    torch.Size([2, 15])
    """

    def __init__(self, size: int, *, width: int = WIDTH, seed: int, chosen: int = 0) -> None:
        self.size, self.width = size, min(size, width)
        if size > width:
            rng = torch.Generator().manual_seed(seed)
            self._place = torch.randint(width, (size,), generator=rng)
            self._sign = (2 * torch.randint(2, (size,), generator=rng) - 1).float()
            self._chosen = torch.randperm(size, generator=rng)[:chosen]

    def __call__(self, values: Tensor) -> Tensor:
        """Return the sketches ``[N, min(p, width) + chosen]`` of ``values [N, p]``."""
        if self.width == self.size:
            return values
        sign, place = self._sign.to(values), self._place.to(values.device)
        kept = values.new_zeros(len(values), self.width)
        sums = kept.index_add_(1, place, values * sign)
        return torch.cat([sums, values[:, self._chosen.to(values.device)]], dim=1)


class Sketches:
    """One sketch per layer, created when its size is known.

    Args:
        width: largest number of sums of each layer.
        seed: seed of all sketches.
        chosen: number of coordinates of each layer that are kept besides.
    """

    def __init__(self, width: int, seed: int, chosen: int = 0) -> None:
        self._width, self._seed, self._chosen = width, seed, chosen
        self._known: dict[str, Sketch] = {}

    def __call__(self, name: str, values: Tensor) -> Tensor:
        """Return the sketches of a layer's ``values [N, p]``."""
        if name not in self._known:
            seed = derive(self._seed, "sketch", name)
            self._known[name] = Sketch(
                values.shape[1], width=self._width, seed=seed, chosen=self._chosen
            )
        return self._known[name](values)
