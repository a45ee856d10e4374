"""The gradients and updates that clients send, and the mean that secure aggregation shows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.rng import derive, stream, torch_stream
from leakgauge.core.types import Dataset, Grads, Params, Task, all_finite
from leakgauge.defenses import Transform
from leakgauge.gradients import batch_gradients, local_updates
from leakgauge.training.catalog import SGD
from leakgauge.training.client import Client
from leakgauge.training.local import defended, gradient_alone, in_training, scheduled, trained
from leakgauge.training.observation import mean_of_transformed
from leakgauge.training.state import average, tensors_of
from leakgauge.training.update import Update
from leakgauge.training.validity import Validity


@dataclass(frozen=True, eq=False)
class Sent:
    """The gradients of T clients, and their validity, which needs no private records.

    Attributes:
        grads: one gradient per client, leaf ``[T, *p]``.
        validity: distance of the local steps from one gradient, the largest of all clients; None
            where the clients sent gradients.
        updates: one update per client, with the buffers that it sent; empty where a client is
            plain and sends gradients.
    """

    grads: Grads
    validity: Validity | None = None
    updates: tuple[Update, ...] = ()

    def warnings(self, *, simulated: bool = False) -> tuple[str, ...]:
        """Return reasons why an update may not represent a gradient; see ``Validity.warnings``."""
        return () if self.validity is None else self.validity.warnings(simulated=simulated)


def send(task: Task, params: Params, x: Tensor, y: Tensor, client: Client, *, seed: int) -> Sent:
    """Return what T clients send that hold the records ``x [T, S * B, ...]``, ``y [T, S * B]``.

    For summed clients, return what the server sees of T groups, each with N * S * B records.

    Args:
        task: the model and its loss.
        params: initial parameters of every client, leaf ``[*p]``.
        x: records; the first B are the first step's batch, and so on.
        y: their labels.
        client: settings of their training.
        seed: seed of the defense's noise.

    Raises:
        InputError: the model's gradients cannot be computed.
    """
    if not client.is_plain:
        return _gathered(task, updates_of(task, params, x, y, client, seed=seed), x, y, seed=seed)
    if client.local_steps == 1:
        if client.defense.per_example is None:
            grads = batch_gradients(task, params, x, y)
        else:
            grads = _transformed(task, params, x, y, client.defense.per_example, seed)
        return Sent(_defended(grads, client, seed))
    steps, size = client.local_steps, client.batch_size
    parts_x = x.reshape(len(x), steps, size, *x.shape[2:])
    parts_y = y.reshape(len(y), steps, size, *y.shape[2:])
    changes = local_updates(task, params, parts_x, parts_y, lr=client.local_lr)
    sent = _defended(changes, client, seed)
    each = ({name: leaf[row] for name, leaf in sent.items()} for row in range(len(x)))
    counts = client.local_lr, steps, size, client.records
    updates = [Update("change", change, dict(params), *counts) for change in each]
    return _gathered(task, updates, x, y, seed=seed)


def _gathered(task: Task, updates: Sequence[Update], x: Tensor, y: Tensor, *, seed: int) -> Sent:
    """Return the updates as gradients, with their validity in the mode of the task's model.

    Noise of the records' shape and labels of 0, without private information, stand for records.
    """
    noise = torch.randn(x.shape[1:], generator=torch_stream(seed, "stand-in"), dtype=x.dtype)
    stand_in = noise.to(x.device), torch.zeros_like(y[0])
    changes = [update for update in updates if update.kind != "gradient"]
    validity = [update.validity(task, *stand_in) for update in changes]
    each = [update.as_gradient() for update in updates]
    grads = {name: torch.cat([one[name] for one in each]) for name in each[0]}
    return Sent(grads, Validity.worst(validity) if validity else None, tuple(updates))


def _transformed(
    task: Task, params: Params, x: Tensor, y: Tensor, per_example: Transform, seed: int
) -> Grads:
    """Return the mean of each batch's transformed gradients, leaf ``[T, *p]``."""
    each = []
    for row, (records, labels) in enumerate(zip(x, y, strict=True)):
        names = ("defense", row, "record")
        rngs = [torch_stream(seed, *names, one, device=x.device) for one in range(len(records))]
        each.append(mean_of_transformed(task, params, records, labels, per_example, rngs))
    return {name: torch.stack([mean[name] for mean in each]) for name in params}


def _defended(grads: Grads, client: Client, seed: int) -> Grads:
    first = next(iter(grads.values()))
    rngs = [torch_stream(seed, "defense", row, device=first.device) for row in range(len(first))]
    return client.defense.update(grads, rngs)


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
        seed: seed of dropout, of the order of later passes, and of the defense's noise.

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
    rates, model_seed = client.recipe.rates, derive(seed, "client", row, "model")
    over = gradient_alone(gradient) if client.sends_gradient else scheduled(client.optimizer, rates)
    batches = _batches(client, seed=seed, row=row, device=data.y.device)
    after = trained(own, before, data, batches, over=over, model_seed=model_seed)
    require(
        all_finite(after.values()),
        f"local training diverged (weights are not finite) at a rate of {rates[0]:g}; lower "
        "--local-lr",
    )
    sent = gradient or {name: after[name] - leaf for name, leaf in params.items()}
    noise = torch_stream(seed, "defense", row, device=data.x.device)
    return Update(
        "gradient" if gradient else "change",
        defended(sent, client.defense, noise),
        dict(params),
        lr=rates[0],
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
    return [rows for one in orders for rows in torch.split(one.to(device), client.batch_size)]
