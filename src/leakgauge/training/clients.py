"""The updates of clients that train as torch does, and the mean that secure aggregation shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.rng import derive, stream, torch_stream
from leakgauge.core.types import Dataset, Params, Task, all_finite
from leakgauge.training.averaging import average
from leakgauge.training.catalog import SGD
from leakgauge.training.local import defended, gradient_alone
from leakgauge.training.modes import in_training
from leakgauge.training.state import tensors_of
from leakgauge.training.trained import scheduled, trained
from leakgauge.training.update import Update

if TYPE_CHECKING:
    from leakgauge.training.client import Client


def updates_of(
    task: Task, params: Params, x: Tensor, y: Tensor, client: Client, *, seed: int
) -> list[Update]:
    """Return the update of each client that the server sees.

    Args:
        task: the model and its loss; the module is not changed.
        params: initial parameters of every client, leaf ``[*p]``.
        x: records ``[T, N * S * B, ...]`` of T groups of N clients; those of a client in a row.
        y: their labels.
        client: settings of their training.
        seed: of dropout, of the order of later passes, and of the defense's noise.

    Returns:
        T updates. Where the server sees sums of N clients, each is the mean of N.

    Raises:
        InputError: the model's gradients cannot be computed, or training diverges.
    """
    own = in_training(task) if client.training else task
    each = len(x) * client.summed
    alone_x = x.reshape(each, client.own_records, *x.shape[2:])
    alone_y = y.reshape(each, client.own_records, *y.shape[2:])
    updates = [
        _update(own, params, Dataset(*records), client, seed=seed, row=row)
        for row, records in enumerate(zip(alone_x, alone_y, strict=True))
    ]
    if client.summed == 1:
        return updates
    groups = (updates[at : at + client.summed] for at in range(0, each, client.summed))
    return [mean_update(group) for group in groups]


def mean_update(updates: Sequence[Update]) -> Update:
    """Return the mean of updates of equal clients: all that secure aggregation shows of them.

    It reads as the update of one client whose batches hold the records of all of them.

    Raises:
        InputError: the updates are of different kinds or numbers of steps.

    References:
        Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning",
        CCS 2017.

    >>> one, other = (
    ...     Update("gradient", {"w": torch.tensor([v])}, {"w": torch.zeros(1)}, records=2)
    ...     for v in (1.0, 3.0)
    ... )
    >>> mean_update([one, other]).values["w"].item(), mean_update([one, other]).records
    (2.0, 4)
    """
    first, count = updates[0], len(updates)
    require(
        len({(one.kind, one.steps, one.records, one.batch_size) for one in updates}) == 1,
        "a mean of updates needs updates of one kind, with equal steps and records",
    )
    equal = [1.0] * count
    return replace(
        first,
        values=average([one.values for one in updates], equal),
        batch_size=None if first.batch_size is None else first.batch_size * count,
        records=None if first.records is None else first.records * count,
        buffers=average([one.buffers for one in updates], equal) if first.buffers else {},
    )


def _update(
    own: Task, params: Params, data: Dataset, client: Client, *, seed: int, row: int
) -> Update:
    """Return what one client sends; ``own`` is in the mode in which it trains."""
    before = {**tensors_of(own), **params}
    gradient: dict[str, Tensor] = {}
    over = (
        gradient_alone(gradient)
        if client.sends_gradient
        else scheduled(client.optimizer, client.recipe.rates)
    )
    after = trained(
        own,
        before,
        data,
        _batches(client, seed=seed, row=row, device=data.y.device),
        over=over,
        model_seed=derive(seed, "client", row, "model"),
    )
    require(
        all_finite(after.values()),
        "local training diverged (weights are not finite) at a rate of "
        f"{client.recipe.rates[0]:g}; lower --local-lr",
    )
    sent = gradient or {name: after[name] - leaf for name, leaf in params.items()}
    noise = torch_stream(seed, "defense", row, device=data.x.device)
    return Update(
        "gradient" if gradient else "change",
        defended(sent, client.defense, noise),
        dict(params),
        lr=client.recipe.rates[0],
        steps=client.steps,
        batch_size=client.batch_size,
        records=client.own_records,
        buffers={name: leaf for name, leaf in after.items() if name not in params},
        held={name: leaf for name, leaf in before.items() if name not in params},
        optimizer=client.optimizer if client.is_known else SGD,
        rates=client.rates,
    )


def _batches(client: Client, *, seed: int, row: int, device: torch.device) -> list[Tensor]:
    """Return the rows of each step, pass after pass."""
    count = client.own_records
    orders = [torch.arange(count)] * client.epochs
    if client.reshuffle:
        orders[1:] = [
            torch.from_numpy(stream(seed, "client", row, "order", at).permutation(count))
            for at in range(1, client.epochs)
        ]
    size = client.batch_size
    return [rows for order in orders for rows in torch.split(order.to(device), size)]
