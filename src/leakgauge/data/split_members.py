"""Split records into members of a training set, non-members and an attacker's own records."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.checks import require


@dataclass(frozen=True, eq=False)
class MemberSplit:
    """Stand-in."""

    known_members: Tensor
    validation_members: Tensor
    target_members: Tensor
    known_non_members: Tensor
    validation_non_members: Tensor
    target_non_members: Tensor
    shadow: Tensor

    @property
    def members(self) -> Tensor:
        return (
            torch.cat([self.known_members, self.validation_members, self.target_members])
            .sort()
            .values
        )


def split_members(
    y: Tensor, *, rng: np.random.Generator, users: Tensor | None = None, members: int | None = None
) -> MemberSplit:
    n = len(y)
    order = torch.from_numpy(rng.permutation(n))
    m = min(n // 4 if members is None else members, n // 3)
    require(m >= 10, f"{n} records are too few")
    M, N, rest = order[:m], order[m : 2 * m], order[2 * m :]
    a, b = int(0.4 * m), int(0.6 * m)
    return MemberSplit(M[:a], M[a:b], M[b:], N[:a], N[a:b], N[b:], rest)
