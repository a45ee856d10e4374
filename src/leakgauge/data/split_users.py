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
    need_label: int = 1,
    rng: np.random.Generator,
) -> Split:
    """Return a random split of the users, with all their records.

    For user inference: its secret is the user, so no values need balance, and the adversary needs
    many users, not many records.

    Args:
        users: the user of each record ``[n]``.
        label: codes of the label ``[n]``.
        classes: names of the label's codes, for messages.
        shares: the share of private, public and test users; they sum to 1.
        need_label: records of each label that the private part must have.
        rng: the generator of the split.

    Raises:
        InputError: the shares do not sum to 1, a part has no users, or a label is too rare.

    >>> split = split_users(torch.arange(100) // 2, rng=np.random.default_rng(0))
    >>> len(split.private), len(split.public), len(split.test)
    (40, 40, 20)
    """
    require(
        all(0 <= share <= 1 for share in shares) and abs(sum(shares) - 1) < 1e-9,
        f"the shares of the users are {shares}; expected three from 0 to 1 that sum to 1",
    )
    distinct, user = np.unique(users.cpu().numpy(), return_inverse=True)
    cuts = np.rint(np.cumsum(shares)[:2] * len(distinct)).astype(np.int64)
    dealt = np.split(rng.permutation(len(distinct)), cuts)
    private, public, test = (
        torch.from_numpy(np.flatnonzero(np.isin(user, part))) for part in dealt
    )
    for name, part, share in zip(("private", "public", "test"), dealt, shares, strict=True):
        require(
            share == 0 or len(part) > 0,
            f"{len(distinct)} users leave no {name} one; bring more users",
        )
    if label is not None:
        _refuse_rare_label(label, private, classes, need_label)
    return Split(private=private, public=public, test=test)


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
