"""Private, shadow and test persons that never overlap, with all their records."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.data.split import Split

SHARES = (0.4, 0.4, 0.2)
"""Of the persons: private, shadow (public), test."""


def split_users(
    users: Tensor,
    *,
    label: Tensor | None = None,
    classes: Sequence[str] = (),
    shares: tuple[float, float, float] = SHARES,
    need_label: int = 1,
    rng: np.random.Generator,
) -> Split:
    """Draw which persons are trained on, which are the adversary's, and which neither sees.

    For user inference: its secret is the person, so there is nothing to balance, and the adversary
    needs many persons, not many records.

    Args:
        users: the person of each record ``[n]``.
        label: codes of the label ``[n]``.
        classes: names of the label's codes, for refusals.
        shares: of the persons: private, public, test; they sum to 1.
        need_label: records of each label that the private part must have.
        rng: draws the persons.

    Raises:
        InputError: the shares are no shares, a side has no person, or a label is too rare.

    >>> split = split_users(torch.arange(100) // 2, rng=np.random.default_rng(0))
    >>> len(split.private), len(split.public), len(split.test)
    (40, 40, 20)
    """
    require(
        all(0 <= share <= 1 for share in shares) and abs(sum(shares) - 1) < 1e-9,
        f"the shares of the persons are {shares}; expected three from 0 to 1 that sum to 1",
    )
    people, person = np.unique(users.cpu().numpy(), return_inverse=True)
    cuts = np.rint(np.cumsum(shares)[:2] * len(people)).astype(np.int64)
    dealt = np.split(rng.permutation(len(people)), cuts)
    private, public, test = (
        torch.from_numpy(np.flatnonzero(np.isin(person, one))) for one in dealt
    )
    for name, persons, share in zip(("private", "public", "test"), dealt, shares, strict=True):
        require(
            share == 0 or len(persons) > 0,
            f"{len(people)} persons leave no {name} one; bring more persons",
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
            f"of private persons; needed are {need}; merge or remove rare labels",
        )
