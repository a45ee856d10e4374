"""Whose records are those of a federation, for each attack on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from leakgauge.core.rng import stream
from leakgauge.data.split_members import MemberSplit, split_known
from leakgauge.data.split_participants import split_participants

if TYPE_CHECKING:
    from leakgauge.membership.spec import MembershipSpec

GLOBAL, LOCAL = "global", "local"

ATTACKER = 0
"""The participant who attacks, where the attacker is local."""


def federated_splits(
    spec: MembershipSpec, count: int, users: Tensor | None
) -> tuple[list[Tensor], list[MemberSplit]]:
    """Return the rows of each participant, and whose records each attack is about.

    A global attacker attacks each participant by itself. A local one asks whether a record is
    anybody else's.

    Raises:
        InputError: there are too few records or users.
    """
    rng = stream(spec.seed, "members")
    held, others = split_participants(
        count, spec.participants, rng=rng, users=users, size=spec.size
    )
    attacked = held if spec.attacker == GLOBAL else [torch.cat(held[ATTACKER + 1 :])]
    splits = [
        split_known(rows, others, rng=rng, users=users, most=spec.judged) for rows in attacked
    ]
    return held, splits
