"""Split records among the participants of a federation, and those that belong to none."""

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.data.split_members import FEWEST, dealt


def split_participants(
    count: int,
    participants: int,
    *,
    rng: np.random.Generator,
    users: Tensor | None = None,
    size: int | None = None,
) -> tuple[list[Tensor], Tensor]:
    """Return the rows of each participant, of equal number and at random, and the other rows.

    Args:
        count: number of records, n.
        participants: their number.
        rng: the generator of the split.
        users: the user of each record ``[n]``; no user is with two participants.
        size: records of a participant, at most; all but an equal part for nobody where None.

    Raises:
        InputError: there are too few records or users.

    References:
        Nasr et al., IEEE S&P 2019, section III-D: equal sizes, selected uniformly at random.

    >>> each, others = split_participants(50, 4, rng=np.random.default_rng(0))
    >>> [len(one) for one in each], len(others)
    ([10, 10, 10, 10], 10)
    """
    most = count // (participants + 1)
    each = most if size is None else min(size, most)
    require(
        each >= FEWEST,
        f"{count} records leave {each} for each of {participants} participants; bring "
        f"{FEWEST * (participants + 1)} or more, or lower --set membership.participants",
    )
    owners = np.arange(count) if users is None else users.cpu().numpy()
    ends = np.array([*(each * np.arange(1, participants + 1)), count])
    parts = dealt(owners, ends, rng=rng)
    fewest = min(map(len, parts))
    require(
        fewest >= FEWEST,
        f"{len(np.unique(owners))} users leave a participant with {fewest} records; bring more "
        "users, or leave --group out",
    )
    *held, others = map(torch.from_numpy, parts)
    return held, others
