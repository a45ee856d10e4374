"""The assignment of a client's records to its updates in several epochs.

Records are numbered by their place in the first epoch: record ``u * B + b`` is at position b of its
update u.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.core.checks import require


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """The records that each update of each epoch holds.

    Attributes:
        members: int64 ``[E, U, B]``, of E epochs with U updates of B records; each epoch holds
            each record 0 ... U * B - 1 once.

    >>> plan = EpochPlan(torch.tensor([[[0, 1], [2, 3]], [[3, 0], [1, 2]]]))
    >>> plan.batches(torch.tensor([10, 11, 12, 13]), epoch=1)
    tensor([[13, 10],
            [11, 12]])
    """

    members: Tensor

    def __post_init__(self) -> None:
        shape = list(self.members.shape)
        require(
            self.members.dim() == 3 and self.members.numel() > 0,
            f"members of updates are {shape}; expected [epochs, updates, records of an update]",
        )
        each = self.members.flatten(1).sort(dim=1).values
        bad = (each != torch.arange(self.records, device=each.device)).any(dim=1).nonzero()
        require(
            len(bad) == 0,
            f"epoch {int(bad[0]) if len(bad) else 0} does not hold each of {self.records} records "
            "once",
        )

    @property
    def records(self) -> int:
        """Number of records of the client."""
        return self.members[0].numel()

    def batches(self, values: Tensor, *, epoch: int) -> Tensor:
        """Return values ``[n, ...]`` as the updates of an epoch hold them, ``[U, B, ...]``.

        Gradients flow through it.
        """
        return values[self.members[epoch]]

    def order(self, epoch: int) -> Tensor:
        """Return the place of each record ``[n]``: update ``order // B``, at ``order % B``."""
        return self.members[epoch].flatten().argsort()
