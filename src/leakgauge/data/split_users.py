"""Split users, with all their records, into a private, a public and a test part."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.data.split import Split

SHARES = (0.4, 0.4, 0.2)
"""The share of private, public (shadow) and test users."""


def split_users(
    users: Tensor,
    *,
    label: Tensor | None = None,
    classes: Sequence[str] = (),
    shares: tuple[float, float, float] = SHARES,
    least: int = 1,
    most: tuple[int, int] = (0, 0),
    need_label: int = 1,
    rng: np.random.Generator,
) -> Split:
    """Return a random split of the users, with all their records.

    For user inference: its secret is the user, so no values need balance, and the adversary needs
    many users, not many records. Users with too few records are left out first, and stand in no
    part; test users are those who are in no other part.

    Args:
        users: the user of each record ``[n]``.
        label: codes of the label ``[n]``.
        classes: names of the label's codes, for messages.
        shares: the share of private, public and test users; they sum to 1.
        least: the records that a user needs to be in a part.
        most: the largest numbers of private and of public users; 0: their share. Where both are
            given and the users are too few for them, both are lowered in proportion, so that the
            test part keeps its share.
        need_label: records of each label that the private part must have.
        rng: the generator of the split.

    Raises:
        InputError: the shares do not sum to 1, a part has no users, or a label is too rare.

    References:
        Li et al., CCS 2024, section 5.1.4: users with fewer than two batches of records are left
        out, then 15 private and 30 public users (CREMA-D), or 150 and 300 (CelebA), are selected.

    >>> split = split_users(torch.arange(100) // 2, rng=np.random.default_rng(0))
    >>> len(split.private), len(split.public), len(split.test)
    (40, 40, 20)
    >>> split = split_users(torch.arange(100) // 2, most=(5, 10), rng=np.random.default_rng(0))
    >>> len(split.private), len(split.public), len(split.test)
    (10, 20, 70)
    """
    require(
        all(0 <= share <= 1 for share in shares) and abs(sum(shares) - 1) < 1e-9,
        f"the shares of the users are {shares}; expected three from 0 to 1 that sum to 1",
    )
    distinct, user, counts = np.unique(users.cpu().numpy(), return_inverse=True, return_counts=True)
    able = np.flatnonzero(counts >= least)
    numbers = numbers_of_users(len(able), shares, most)
    dealt = np.split(able[rng.permutation(len(able))], np.cumsum(numbers))
    private, public, test = (
        torch.from_numpy(np.flatnonzero(np.isin(user, part))) for part in dealt
    )
    having = f", of whom {len(able)} have {least} records or more," if least > 1 else ""
    for name, part, share in zip(("private", "public", "test"), dealt, shares, strict=True):
        require(
            share == 0 or len(part) > 0,
            f"{len(distinct)} users{having} leave no {name} one; bring more users"
            + (" or records, or lower --batch-size" if least > 1 else ""),
        )
    if label is not None:
        _refuse_rare_label(label, private, classes, need_label)
    return Split(private=private, public=public, test=test)


def numbers_of_users(
    users: int, shares: tuple[float, float, float], most: tuple[int, int]
) -> tuple[int, int]:
    """Return the numbers of private and of public users, as ``split_users`` says.

    >>> numbers_of_users(78, SHARES, (0, 0)), numbers_of_users(78, SHARES, (15, 30))
    ((31, 31), (15, 30))
    >>> numbers_of_users(229, SHARES, (150, 300)), numbers_of_users(229, SHARES, (150, 0))
    ((61, 122), (92, 91))
    """
    ends = np.rint(np.cumsum(shares)[:2] * users).astype(np.int64).tolist()
    private, public = ends[0], ends[1] - ends[0]
    if 0 in most:
        return min(private, most[0] or private), min(public, most[1] or public)
    room, wanted = ends[1], sum(most)
    fitting = [one if wanted <= room else one * room // wanted for one in most]
    return fitting[0], fitting[1]


def _refuse_rare_label(label: Tensor, private: Tensor, classes: Sequence[str], need: int) -> None:
    everywhere = torch.bincount(label)
    held = torch.bincount(label[private.to(label.device)], minlength=len(everywhere))
    for value in everywhere.nonzero().flatten().tolist():
        name = repr(classes[value]) if value < len(classes) else str(value)
        require(
            int(held[value]) >= need,
            f"label value {name} has {int(everywhere[value])} records, {int(held[value])} of them "
            f"of private users; needed are {need}; merge or remove rare labels",
        )
