"""Normal scores: a map of each coordinate that makes known samples standard Gaussian."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class NormalScores:
    """Replaces each value by the Gaussian quantile of its rank among known values.

    A map of single coordinates keeps or lowers an information. Values outside the known range get
    the score of the nearest end, so no score is extreme, however heavy the tails are. A constant
    coordinate has scores of 0.

    Attributes:
        known: known values of each coordinate, ascending ``[d, n]``.

    References:
        Conover, Practical nonparametric statistics, section 5.10 (normal scores); Rueschendorf,
        On the distributional transform, 2009 (random ranks of equal values).

    >>> scores = NormalScores.of(torch.tensor([[0.0], [1.0], [1000.0]]))
    >>> [round(float(one), 2) for one in scores(torch.tensor([[0.0], [1.0], [1e9]]))]
    [-0.97, 0.0, 0.97]
    """

    known: Tensor

    @classmethod
    def of(cls, values: Tensor) -> "NormalScores":
        """Return the scores of known ``values [n, d]``."""
        return cls(values.double().T.contiguous().sort(1).values)

    def __call__(self, values: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return the scores of ``values [m, d]``.

        Args:
            values: values of the same coordinates.
            generator: draws a rank for a value that several known ones have, so that scores are
                Gaussian for discrete values too; None takes the middle rank.
        """
        asked, count = values.double().T.contiguous(), self.known.shape[1]
        below = torch.searchsorted(self.known, asked)
        equal = torch.searchsorted(self.known, asked, right=True) - below
        draw = torch.full_like(asked, 0.5)
        if generator is not None:
            drawn = torch.rand(asked.shape, generator=generator, dtype=asked.dtype)
            draw = torch.where(equal > 1, drawn, draw)
        rank = torch.where(equal > 0, below + draw * equal, self._between(asked, below))
        scores = torch.special.ndtri((rank / count).clamp(0.5 / count, 1 - 0.5 / count))
        varies = self.known[:, 0] < self.known[:, -1]
        return torch.where(varies[:, None], scores, 0.0).T

    def _between(self, asked: Tensor, after: Tensor) -> Tensor:
        """Return the ranks of values that lie between two known ones, by linear interpolation."""
        last = self.known.shape[1] - 1
        low = self.known.gather(1, (after - 1).clamp(0, last))
        high = self.known.gather(1, after.clamp(0, last))
        share = ((asked - low) / (high - low).clamp(min=1e-300)).clamp(0, 1)
        return after - 0.5 + share
