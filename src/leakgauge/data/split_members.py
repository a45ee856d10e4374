"""Split records into members of a model, non-members and shadow records, or among participants."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.results.statistics import Ints

SHARES = (0.4, 0.2, 0.4)
"""Shares of known, validation and target records among members and among non-members."""

FEWEST = 10
"""Smallest number of members of a split."""


@dataclass(frozen=True, eq=False)
class MemberSplit:
    """Rows of each part of a dataset: int64 in random order, no row twice.

    Attributes:
        known_members: members that the attacker knows and learns from.
        validation_members: members that the attacker knows and uses for choices.
        target_members: members that the attacker must recognise.
        known_non_members: non-members that the attacker knows and learns from.
        validation_non_members: non-members that the attacker knows and uses for choices.
        target_non_members: non-members that the attacker must recognise.
        shadow: records of the same kind on which the attacker trains shadow models.
    """

    known_members: Tensor
    validation_members: Tensor
    target_members: Tensor
    known_non_members: Tensor
    validation_non_members: Tensor
    target_non_members: Tensor
    shadow: Tensor

    @property
    def members(self) -> Tensor:
        """All records that the model is trained on."""
        return torch.cat([self.known_members, self.validation_members, self.target_members])

    @property
    def non_members(self) -> Tensor:
        """All records outside the training set that serve as non-members."""
        parts = self.known_non_members, self.validation_non_members, self.target_non_members
        return torch.cat(parts)


def split_members(
    count: int, *, rng: np.random.Generator, users: Tensor | None = None, members: int | None = None
) -> MemberSplit:
    """Return a random split into members, as many non-members, and shadow records.

    With users, each user's records go to one part, and sizes are as near as whole users allow.

    Args:
        count: number of records, n.
        rng: the generator of the split.
        users: the user of each record ``[n]``; no user is in two parts.
        members: largest number of records in the training set, at most a third of all. None takes
            a quarter, so that the attacker can train an equally large shadow model on half of the
            shadow records.

    Raises:
        InputError: a part gets fewer than two records.

    References:
        Nasr et al., IEEE S&P 2019, section IV-A (members known to the attacker and targets).

    >>> split = split_members(100, rng=np.random.default_rng(0))
    >>> len(split.members), len(split.target_non_members), len(split.shadow)
    (25, 10, 50)
    """
    size = min(max(count // 4, FEWEST) if members is None else members, count // 3)
    require(
        size >= FEWEST,
        f"{count} records leave {size} members; bring {3 * FEWEST} records or more, so that "
        f"{FEWEST} are members, {FEWEST} non-members and {FEWEST} shadow records",
    )
    known, validation, _ = np.rint(np.cumsum(SHARES) * size).astype(np.int64).tolist()
    ends = np.array([known, validation, size, size + known, size + validation, 2 * size, count])
    owners = np.arange(count) if users is None else users.cpu().numpy()
    parts = dealt(owners, ends, rng=rng)
    fewest = min(len(part) for part in parts[:-1])
    require(
        fewest >= 2,
        f"{len(np.unique(owners))} users leave a part with {fewest} records; bring more users, or "
        "leave --group out",
    )
    return MemberSplit(*(torch.from_numpy(part) for part in parts))


def split_known(
    members: Tensor, others: Tensor, *, rng: np.random.Generator, users: Tensor | None = None
) -> MemberSplit:
    """Return a random split of known members and non-members, without shadow records.

    Members and non-members have equally many targets.

    Args:
        members: rows of the model's training set.
        others: rows outside of it.
        rng: the generator of the split.
        users: the user of each record of the data ``[n]``; no user is in two parts of one kind.

    Raises:
        InputError: one kind has too few records.

    >>> rows = torch.arange(50), torch.arange(50, 70)
    >>> split = split_known(*rows, rng=np.random.default_rng(0))
    >>> len(split.known_members), len(split.target_members), len(split.target_non_members)
    (20, 8, 8)
    """
    for rows, kind in ((members, "members"), (others, "non-members")):
        require(
            len(rows) >= FEWEST,
            f"there are {len(rows)} {kind}; bring {FEWEST} or more, so that some are known to the "
            "attacker and others are targets",
        )
    sizes = ((rows, np.rint(np.cumsum(SHARES) * len(rows))) for rows in (members, others))
    parts = [_dealt_rows(rows, ends.astype(np.int64), users, rng) for rows, ends in sizes]
    fewest = min(len(part) for each in parts for part in each)
    require(fewest >= 2, f"whole users leave a part with {fewest} records; bring more users")
    targets = min(len(each[-1]) for each in parts)
    cut = [part for each in parts for part in (*each[:-1], each[-1][:targets])]
    return MemberSplit(*cut, *[others[:0]])


def split_share(
    rows: Tensor, share: float, *, rng: np.random.Generator, users: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return a random share of rows, and the others; no user is in both.

    >>> [len(part) for part in split_share(torch.arange(10), 0.6, rng=np.random.default_rng(0))]
    [6, 4]
    """
    ends = np.array([round(share * len(rows)), len(rows)])
    first, second = _dealt_rows(rows, ends, users, rng)
    return first, second


def _dealt_rows(
    rows: Tensor, ends: Ints, users: Tensor | None, rng: np.random.Generator
) -> list[Tensor]:
    owners = np.arange(len(rows)) if users is None else users[rows.to(users.device)].cpu().numpy()
    return [rows[torch.from_numpy(part)] for part in dealt(owners, ends, rng=rng)]


def dealt(owners: Ints, ends: Ints, *, rng: np.random.Generator) -> list[Ints]:
    """Return the rows of each part in random order; no user has rows in two parts.

    Args:
        owners: the user of each record ``[n]``.
        ends: cumulative numbers of records of the parts; records beyond the last are in no part.
            A user's rows go to the part that holds their middle.
        rng: the generator of the split.

    >>> dealt(np.array([5, 5, 7, 7]), np.array([2, 4]), rng=np.random.default_rng(0))
    [array([0, 1]), array([2, 3])]
    """
    _, user = np.unique(owners, return_inverse=True)
    sizes = np.bincount(user)
    order = rng.permutation(len(sizes))
    middle = np.empty(len(sizes))
    middle[order] = np.cumsum(sizes[order]) - sizes[order] / 2
    part = np.searchsorted(ends, middle, side="right")[user]
    shuffled = rng.permutation(len(owners))
    return [shuffled[part[shuffled] == number] for number in range(len(ends))]


def split_participants(
    count: int,
    participants: int,
    *,
    rng: np.random.Generator,
    users: Tensor | None = None,
    size: int | None = None,
) -> tuple[list[Tensor], Tensor]:
    """Return equally many random rows for each participant, and the other rows.

    Args:
        count: number of records, n.
        participants: number of participants.
        rng: the generator of the split.
        users: the user of each record ``[n]``; no user is with two participants.
        size: largest number of records of a participant. None divides the records equally among
            the participants and the rest.

    Raises:
        InputError: the records or users are too few.

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
