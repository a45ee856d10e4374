"""Splits records among the attacked participant, the attacker, the others, and a test set."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.rng import stream
from leakgauge.data.split_members import dealt
from leakgauge.layers.catalog import QUESTION
from leakgauge.layers.spec import LayersSpec
from leakgauge.runs.records import Records

Ints = np.ndarray[tuple[int], np.dtype[np.int64]]

TEST = 0.1
"""Share of the records in the test set."""

FITTING = 0.5
"""Share of the attacker's records to fit on; two halves of the others choose and calibrate."""

FEWEST = 4
"""Smallest number of records of each value in each part of the attacker's records."""


@dataclass(frozen=True, eq=False)
class ParticipantRecords:
    """Disjoint rows of each participant, int64; no user is in two.

    Attributes:
        private: rows of the attacked participant.
        fitting: rows of the attacker, to fit on.
        held_out: rows of the attacker in two halves, to choose and to calibrate.
        others: rows of each further participant.
        test: rows of no participant.
    """

    private: Tensor
    fitting: Tensor
    held_out: tuple[Tensor, Tensor]
    others: tuple[Tensor, ...]
    test: Tensor

    @property
    def attacker(self) -> Tensor:
        """All records of the attacker."""
        return torch.cat([self.fitting, *self.held_out])


def sides_of(records: Records, secret: str, spec: LayersSpec) -> ParticipantRecords:
    """Return a random split among participants of equal size; whole users stay together.

    Without users, each side has its share of every value of the property.

    Raises:
        InputError: the property has one value, or too few records for all sides.
    """
    names = names_of(records, secret)
    codes = _codes(records, secret, names, half=spec.half)
    share = (1 - TEST) / spec.participants
    half = (1 - FITTING) / 2 * share
    shares = [share, FITTING * share, half, half, *[share] * (spec.participants - 2), TEST]
    rng = stream(spec.seed, QUESTION, "sides")
    users = None if records.users is None else records.users.cpu().numpy()
    private, fitting, first, second, *others, test = _dealt(codes, users, shares, rng)
    _check(codes, (private, fitting, first, second), names)
    return ParticipantRecords(private, fitting, (first, second), tuple(others), test)


def _codes(records: Records, secret: str, names: Sequence[str], *, half: bool) -> Ints:
    codes = records.secrets[secret].cpu().numpy()
    found = np.unique(codes)
    require(
        len(found) >= 2,
        f"the property {secret!r} has one value ({names[int(found[0])]!r}), so nothing can be "
        "inferred; name a --secret with two or more",
    )
    require(
        not half or len(found) == 2,
        f"half is about a property that records have or not; {secret!r} has {len(found)} "
        "values: leave half out",
    )
    return codes


def names_of(records: Records, secret: str) -> Sequence[str]:
    """Return the names of a secret's values by code."""
    known = records.values.get(secret)
    return known or [str(v) for v in range(int(records.secrets[secret].max()) + 1)]


def _dealt(
    codes: Ints, users: Ints | None, shares: Sequence[float], rng: np.random.Generator
) -> Iterator[Tensor]:
    strata = [np.arange(len(codes))]
    if users is None:
        strata = [np.flatnonzero(codes == value) for value in np.unique(codes)]
    parts: list[list[Ints]] = [[] for _ in shares]
    for rows in strata:
        ends = np.rint(np.cumsum(shares) * len(rows)).astype(np.int64)
        owners = rows if users is None else users[rows]
        for part, here in zip(parts, dealt(owners, ends, rng=rng), strict=True):
            part.append(rows[here])
    for part in parts:
        yield torch.from_numpy(np.sort(np.concatenate(part)))


def _check(codes: Ints, parts: Sequence[Tensor], names: Sequence[str]) -> None:
    for part in parts:
        counts = np.bincount(codes[part.numpy()], minlength=len(names))
        rarest = int(counts.argmin())
        require(
            counts[rarest] >= FEWEST,
            f"{int((codes == rarest).sum())} records have the property value {names[rarest]!r}, "
            f"which leaves a part of the attacker's records with {counts[rarest]}; "
            f"{FEWEST} are needed: bring more, or set merge_rare",
        )
