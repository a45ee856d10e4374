"""Roles of records: training records, others, and those that an attacker distinguishes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.rng import stream
from leakgauge.data.split_members import (
    MemberSplit,
    split_known,
    split_members,
    split_participants,
    split_share,
)
from leakgauge.membership.spec import FIRST, GLOBAL, KNOWN_TOO, PARTS, SECOND, MembershipSpec

ATTACKER = 0
"""Number of the attacking participant of a local attacker."""


@dataclass(frozen=True, eq=False)
class RecordRoles:
    """The roles of records.

    Attributes:
        training: rows of each part of the training: all members; those of the first and of the
            second training; or those of each participant.
        outside: rows that no model is trained on.
        splits: known, validation and target rows; one split for each attack on a federation.
    """

    training: Sequence[Tensor]
    outside: Tensor
    splits: Sequence[MemberSplit]

    @property
    def members(self) -> Tensor:
        """Rows of all members."""
        return torch.cat(list(self.training))


def assign_roles(spec: MembershipSpec, count: int, users: Tensor | None) -> RecordRoles:
    """Return the roles of ``count`` records, with no user (``[n]``, or None) on two sides.

    Raises:
        InputError: there are too few records or users.
    """
    rng = stream(spec.seed, "members")
    if spec.participants > 1:
        found = _federated(spec, count, users, rng)
    elif spec.fine_tune > 0:
        found = _fine_tuned(spec, count, users, rng)
    else:
        split = split_members(count, users=users, members=spec.size, rng=rng)
        found = RecordRoles([split.members], split.non_members, [split])
    return replace(found, splits=[cut(one, spec) for one in found.splits])


def _federated(
    spec: MembershipSpec, count: int, users: Tensor | None, rng: np.random.Generator
) -> RecordRoles:
    """Return roles for a global attacker of each participant, or a local one of all others."""
    held, others = split_participants(
        count, spec.participants, rng=rng, users=users, size=spec.size
    )
    attacked = held if spec.attacker == GLOBAL else [torch.cat(held[ATTACKER + 1 :])]
    splits = [split_known(rows, others, rng=rng, users=users) for rows in attacked]
    return RecordRoles(held, others, splits)


def _fine_tuned(
    spec: MembershipSpec, count: int, users: Tensor | None, rng: np.random.Generator
) -> RecordRoles:
    """Return roles for training on D first, and on D-delta later (Nasr et al., section IV-C)."""
    split = split_members(count, users=users, members=spec.size, rng=rng)
    first, second = split_share(split.members, 1 - spec.fine_tune, users=users, rng=rng)
    outside = split.non_members
    apart = {FIRST: (first, outside), SECOND: (second, outside), PARTS: (first, second)}.get(
        spec.apart, (split.members, outside)
    )
    return RecordRoles([first, second], outside, [split_known(*apart, rng=rng, users=users)])


def cut(split: MemberSplit, spec: MembershipSpec) -> MemberSplit:
    """Return a split with the number of records in each part limited by the settings.

    Where the attacker raises the losses of known and validation records, too, the number of targets
    limits these as well. Otherwise it learns from all that it may know.
    """
    most = spec.most_targets
    raised = most if spec.ascends and spec.raised == KNOWN_TOO else None
    members, others = (min(one, raised or one) for one in (spec.known_members, spec.known_others))
    return replace(
        split,
        known_members=split.known_members[:members],
        known_non_members=split.known_non_members[:others],
        validation_members=split.validation_members[:members],
        validation_non_members=split.validation_non_members[:others],
        target_members=split.target_members[:most],
        target_non_members=split.target_non_members[:most],
    )
