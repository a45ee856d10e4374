"""Split records or users into a private, a public and a test part that never overlap."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.checks import InputError, require
from leakgauge.results.statistics import Bools, Ints

PUBLIC_SHARE = 4
"""The public part takes at most one in ``PUBLIC_SHARE`` of the records of any secret value."""


@dataclass(frozen=True, eq=False)
class Split:
    """The rows of each part of a dataset: ascending int64, no row twice.

    Attributes:
        private: records that the clients train on and the adversary attacks ``[k]``.
        public: shadow records of the adversary ``[k]``.
        test: records that neither side has seen ``[k]``.
    """

    private: Tensor
    public: Tensor
    test: Tensor


def split_records(
    secret: Tensor,
    *,
    rng: np.random.Generator,
    users: Tensor | None = None,
    shadow: int = 1000,
    test_fraction: float = 0.2,
    label: Tensor | None = None,
    values: Sequence[str] = (),
    classes: Sequence[str] = (),
    need_private: int = 1,
    need_public: int = 1,
    need_label: int = 1,
) -> Split:
    """Return a random split whose public part is as balanced over the secret as the data allow.

    The test part comes first. The public part then takes ``shadow`` records or fewer, equally many
    of each secret value, but at most a quarter of the records of any value; other values replace
    what a rare value lacks. The private part takes all other records.

    With users, each user's records go to one part. Records of public users beyond these numbers
    stay unused, so the three parts need not hold every record.

    Args:
        secret: codes of the secret ``[n]``, 0 to m - 1.
        rng: the generator of the split.
        users: the user of each record ``[n]``; no user is in two parts.
        shadow: the largest number of public records.
        test_fraction: share of test records; with users, as close as whole users allow.
        label: codes of the label ``[n]``.
        values: names of the secret's codes, for messages.
        classes: names of the label's codes, for messages.
        need_private: records of each secret value that the private part must have.
        need_public: records of each secret value that the public part must have.
        need_label: records of each label that the private part must have.

    Raises:
        InputError: a secret value or a label is too rare.

    References:
        Li et al., CCS 2024: a balanced set of shadow records. With a rare value, a balanced set
        would be small; shadow batches are balanced in both cases.

    >>> split = split_records(torch.arange(100) % 2, shadow=10, rng=np.random.default_rng(0))
    >>> len(split.private), len(split.public), len(split.test)
    (70, 10, 20)
    """
    require(0 <= test_fraction < 1, f"test_fraction is {test_fraction:g}; expected 0 up to 1")
    require(shadow >= 0, f"shadow is {shadow}; expected 0 or more")
    codes = secret.cpu().numpy().astype(np.int64)
    require(len(codes) > 0, "there are no records to split")
    owners = np.arange(len(codes)) if users is None else users.cpu().numpy()
    m = max(len(values), int(codes.max()) + 1)
    require(
        shadow // m >= need_public,
        f"shadow is {shadow}, which leaves {shadow // m} records for each of {m} secret values; "
        f"expected {m * need_public} or more",
    )
    sides = _sides(codes, owners, m, shadow, test_fraction, rng)
    held = None if users is None else owners
    _refuse_rare_secret(codes, sides, held, values, (need_private, need_public), test_fraction)
    private, public, test = (torch.from_numpy(np.flatnonzero(sides == side)) for side in _SIDES)
    if label is not None:
        _refuse_rare_label(label, private, classes, need_label)
    return Split(private=private, public=public, test=test)


_SIDES = _PRIVATE, _PUBLIC, _TEST = 0, 1, 2
_UNUSED = 3


def _sides(
    codes: Ints, owners: Ints, m: int, size: int, fraction: float, rng: np.random.Generator
) -> Ints:
    """Return the side of each record ``[n]``, with up to ``size`` public ones."""
    _, user = np.unique(owners, return_inverse=True)
    counts = np.zeros((int(user.max()) + 1, m), dtype=np.int64)
    np.add.at(counts, (user, codes), 1)
    order = rng.permutation(len(counts))
    in_test = _nearest_to(order, counts.sum(axis=1), round(fraction * len(codes)))
    side = np.where(in_test, _TEST, _PRIVATE)
    share = counts[~in_test].sum(axis=0) // PUBLIC_SHARE
    goal = filled(share, size)
    side[_public_users(order[~in_test[order]], counts, share, goal)] = _PUBLIC
    sides = side[user]
    for value, wanted in enumerate(goal.tolist()):
        rows = np.flatnonzero((sides == _PUBLIC) & (codes == value))
        sides[rng.permutation(rows)[wanted:]] = _UNUSED
    return sides


def filled(share: Ints, size: int) -> Ints:
    """Return how many records to take of each value: ``size`` in total, as equal as possible.

    Args:
        share: largest number of records of each value ``[m]``.
        size: largest total.

    >>> filled(np.array([30, 400, 400]), 600).tolist(), filled(np.array([30, 40]), 600).tolist()
    ([30, 285, 285], [30, 40])
    """
    goal = np.zeros_like(share)
    left, waiting = size, np.argsort(share, kind="stable").tolist()
    while waiting:
        goal[waiting[0]] = min(int(share[waiting[0]]), left // len(waiting))
        left -= int(goal[waiting.pop(0)])
    return goal


def _nearest_to(order: Ints, sizes: Ints, target: int) -> Bools:
    """Return which users to take, in order, so that their records approach the target."""
    taken = np.zeros(len(sizes), dtype=bool)
    total = 0
    for user in order.tolist():
        size = int(sizes[user])
        if 2 * total + size <= 2 * target:
            taken[user] = True
            total += size
    return taken


def _public_users(order: Ints, counts: Ints, share: Ints, goal: Ints) -> list[int]:
    """Return the users, in order, with values that are still needed, within each value's share."""
    total = np.zeros_like(share)
    taken = []
    for user in order.tolist():
        short = total < goal
        if not short.any():
            break
        brings = counts[user]
        if brings[short].any() and (total + brings <= share).all():
            taken.append(user)
            total += brings
    return taken


def _refuse_rare_secret(
    codes: Ints,
    sides: Ints,
    owners: Ints | None,
    values: Sequence[str],
    need: tuple[int, int],
    test: float,
) -> None:
    m = max(len(values), int(codes.max()) + 1)
    # The rarest value needs more records first, so the message names it.
    for value in np.argsort(np.bincount(codes, minlength=m), kind="stable").tolist():
        private, public = (int(((sides == s) & (codes == value)).sum()) for s in _SIDES[:2])
        if private >= need[0] and public >= need[1]:
            continue
        least = max(PUBLIC_SHARE * need[1], ceil(need[0] * PUBLIC_SHARE / (PUBLIC_SHARE - 1)))
        count = int((codes == value).sum())
        enough = max(_with_margin(least, test), count + 1 if owners is None else 0)
        merging = "merge rare values (--merge-rare N) or remove them, or " if m > 2 else ""
        raise InputError(
            f"secret value {_name(value, values)} has {count} records, {private} of them private "
            f"and {public} public; needed are {need[0]} private and {need[1]} public"
            + (
                f", so about {enough} records of each value; {merging}bring more records"
                if owners is None or count < enough
                else f". No user is in two parts, and {_largest(owners, codes == value)}; "
                "bring records of more users"
            )
        )


def _with_margin(least: float, test: float) -> int:
    """Return how many records leave ``least`` outside of a random test part, nearly always."""
    count = least / (1 - test)
    return ceil(count + 2 * sqrt(count * test / (1 - test)))


def _largest(owners: Ints, having: Bools) -> str:
    """Return a sentence on the user with the most records of a value."""
    most, total = int(np.unique(owners[having], return_counts=True)[1].max()), int(having.sum())
    return f"one user has {most} of the {total} records of this value"


def _refuse_rare_label(label: Tensor, private: Tensor, classes: Sequence[str], need: int) -> None:
    codes = label.cpu()
    counts = torch.bincount(codes).tolist()
    held = torch.bincount(codes[private], minlength=len(counts)).tolist()
    for value, count in enumerate(counts):
        require(
            count == 0 or held[value] >= need,
            f"label value {_name(value, classes)} has {count} records, {held[value]} of them among "
            f"the {len(private)} private ones; needed are {need} private; take more private "
            "records or users, or merge rare labels by --merge-rare N (fewer rows than N)",
        )


def _name(value: int, names: Sequence[str]) -> str:
    return repr(names[value]) if value < len(names) else str(value)


SHARES = (0.4, 0.4, 0.2)
"""Shares of private, public (shadow) and test users."""


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

    User inference needs it: the secret is the user, so no values need balance, and the adversary
    needs many users rather than many records. Users with too few records are left out first; the
    test part takes all users that remain.

    Args:
        users: the user of each record ``[n]``.
        label: codes of the label ``[n]``.
        classes: names of the label's codes, for messages.
        shares: the share of private, public and test users; they sum to 1.
        least: number of records that a user needs.
        most: largest numbers of private and of public users; 0 means their share. If both are
            given and too large, both are lowered in proportion, so that the test part keeps its
            share.
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
    having = f" ({len(able)} of them with {least} records or more)" if least > 1 else ""
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
    """Return the numbers of private and of public users for ``split_users``.

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
