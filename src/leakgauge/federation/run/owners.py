"""Whose records the kept clients have."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from leakgauge.core.checks import require, require_known
from leakgauge.core.types import Dataset
from leakgauge.federation.spec import CLIENT
from leakgauge.integrations.kept_reading import KeptRounds


def owners(
    data: Dataset, kept: KeptRounds, owner: Mapping[str, int]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the rows of records that no client has, and of each client's records.

    A client is never matched with records by its position: it is named by its partition, or by the
    auditor.
    """
    if CLIENT not in data.secrets:
        return torch.arange(len(data), device=data.x.device), {}
    codes = data.secrets[CLIENT]
    public = (codes == 0).nonzero().flatten()
    require(
        len(public) > 0,
        f"every record of the task's Dataset is some client's (secret {CLIENT!r} is never 0); add "
        "records that no client has",
    )
    held = {}
    for name, number in _numbers(kept.clients, owner, int(codes.max())).items():
        rows = (codes == number).nonzero().flatten()
        for one in kept.updates:
            part = name in owner and one.examples is not None and one.examples < len(rows)
            require(
                one.client != name or one.examples in (None, len(rows)) or part,
                f"{one.name} trained on {one.examples} records, and the task's Dataset has "
                f"{len(rows)} of client number {number} (secret {CLIENT!r}); bring the records "
                f"that it trained on, or name their owner, as --owner {name}=NUMBER",
            )
        held[name] = rows
    return public, held


def _numbers(clients: Sequence[str], owner: Mapping[str, int], most: int) -> dict[str, int]:
    """Return the numbers of clients in the secret ``client``.

    Args:
        clients: names of the kept clients.
        owner: numbers that the auditor names; if there are any, other clients have no records.
        most: largest number of the secret.
    """
    for name, number in owner.items():
        require_known(name, clients, f"--owner names {name!r}")
        require(number <= most, f"--owner {name}={number}: the secret {CLIENT!r} ends at {most}")
    twice = len(set(owner.values())) < len(owner)
    require(not twice, "--owner names one number for two clients; each has its own records")
    if owner:
        return dict(owner)
    for name in clients:
        require(
            name.isdecimal() and int(name) < most,
            f"whose records client {name!r} has is unknown: a client named by its partition, 0 to "
            f"{most - 1}, has those with the number after it in the secret {CLIENT!r} of the "
            f"task's Dataset; name the others, as --owner {name}=1",
        )
    return {name: int(name) + 1 for name in clients}
