"""The gradients and updates that clients send, which an attack sees."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from leakgauge.core.checks import require, require_count, require_positive
from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Grads, Params, Task
from leakgauge.defenses import Defense, Transform, none
from leakgauge.gradients import batch_gradients, local_updates
from leakgauge.training.catalog import OPTIMIZERS, SGD
from leakgauge.training.clients import updates_of
from leakgauge.training.participant import refuse_learned
from leakgauge.training.per_record import mean_of_transformed
from leakgauge.training.recipe import Recipe
from leakgauge.training.update import Update
from leakgauge.training.validity import Validity


@dataclass(frozen=True)
class Client:
    """Settings of a client's local training and of its defense.

    A client that sets no more than the first four trains as the papers on inversion take it: plain
    SGD on a model in the mode in which it comes. The stock client of Flower is ``Client(32, steps,
    0.01, optimizer="sgd:momentum=0.9", training=True)``.

    Attributes:
        batch_size: B, records of a step.
        local_steps: S, steps over consecutive batches in one pass over its records. One plain step
            without epochs sends the gradient itself, and ``local_lr`` has no effect.
        local_lr: learning rate of these steps, where neither optimizer nor rates have their own.
        defense: changes the gradient or update before the client sends it.
        optimizer: as ``catalog.parse_optimizer`` reads it, made anew for each update.
        epochs: passes over the same records.
        reshuffle: whether a pass after the first has its records in a new order.
        training: whether the model trains in training mode: BatchNorm uses the statistics of each
            batch, and dropout draws.
        rates: learning rate of each of the S * epochs steps, where a schedule changes it.
        summed: N, clients with equal settings of whom the server sees the sum alone, as secure
            aggregation shows it.

    Raises:
        InputError: a value does not fit, or the optimizer is not known.
    """

    batch_size: int = 1
    local_steps: int = 1
    local_lr: float = 1e-4
    defense: Defense = field(default_factory=none)
    optimizer: str = SGD
    epochs: int = 1
    reshuffle: bool = False
    training: bool = False
    rates: tuple[float, ...] = ()
    summed: int = 1

    def __post_init__(self) -> None:
        require_count(self.batch_size, "batch size")
        require_count(self.local_steps, "number of local steps")
        require_count(self.epochs, "number of local epochs")
        require_count(self.summed, "number of summed clients")
        require_positive(self.local_lr, "local learning rate")
        _ = self.recipe
        refuse_learned(self.defense)
        name = self.defense.name
        require(
            self.defense.task is None,
            f"{name!r} adds noise to the code of each record; no attack rebuilds records through "
            "it; choose another --defense",
        )
        per_example = self.defense.per_example
        require(
            per_example is None or self.steps == 1,
            f"{name!r} changes each record's gradient; with {self.steps} local steps only "
            "the update could be changed; take --local-steps 1 or another --defense",
        )
        require(
            per_example is None or self.is_plain,
            f"{name!r} changes each record's gradient, which no attack here reads off a step of "
            f"{self.optimizer!r} or in training mode; leave them out, or take another --defense",
        )

    @property
    def own_records(self) -> int:
        """Number of records of one client."""
        return self.batch_size * self.local_steps

    @property
    def records(self) -> int:
        """Number of records behind what the server sees at once."""
        return self.own_records * self.summed

    @property
    def steps(self) -> int:
        """Number of steps of all passes."""
        return self.local_steps * self.epochs

    @cached_property
    def recipe(self) -> Recipe:
        """The steps; those of an optimizer that cannot be simulated count as plain SGD."""
        return Recipe.named(
            self.optimizer, steps=self.steps, lr=self.local_lr, rates=self.rates, exactly=False
        )

    @property
    def is_known(self) -> bool:
        """Whether steps of its optimizer can be simulated."""
        return self.optimizer.partition(":")[0] in OPTIMIZERS

    @property
    def is_plain(self) -> bool:
        """Whether it takes plain steps once over its records, alone, in the mode of the model."""
        ordinary = self.optimizer == SGD and not self.rates and self.summed == 1
        return ordinary and self.epochs == 1 and not self.training

    @property
    def sends_gradient(self) -> bool:
        """Whether it sends the gradient of one step; else it sends a change of weights."""
        return self.steps == 1 and self.optimizer == SGD and not self.rates


@dataclass(frozen=True, eq=False)
class Sent:
    """The gradients of T clients, and their validity, which needs no private records.

    Attributes:
        grads: on the scale of a gradient, leaf ``[T, *p]``.
        validity: distance of the local steps from one gradient, the largest of all clients; None
            where the clients sent gradients.
        updates: of each client, with the buffers that it sent; empty where a client is plain and
            sends gradients.
    """

    grads: Grads
    validity: Validity | None = None
    updates: tuple[Update, ...] = ()

    def warnings(self, *, simulated: bool = False) -> tuple[str, ...]:
        """Return why an update may not stand for a gradient; see ``Validity.warnings``."""
        return () if self.validity is None else self.validity.warnings(simulated=simulated)


def send(task: Task, params: Params, x: Tensor, y: Tensor, client: Client, *, seed: int) -> Sent:
    """Return what T clients send that hold the records ``x [T, S * B, ...]``, ``y [T, S * B]``.

    Of summed clients it is what the server sees of T groups, each with N * S * B records.

    Args:
        task: the model and its loss.
        params: initial parameters of every client, leaf ``[*p]``.
        x: records; the first B are the first step's batch, and so on.
        y: their labels.
        client: settings of their training.
        seed: of the defense's noise.

    Raises:
        InputError: the model's gradients cannot be computed.
    """
    if not client.is_plain:
        return _gathered(task, updates_of(task, params, x, y, client, seed=seed), x, y, seed=seed)
    if client.local_steps == 1:
        per_example = client.defense.per_example
        grads = (
            batch_gradients(task, params, x, y)
            if per_example is None
            else _transformed(task, params, x, y, per_example, seed)
        )
        return Sent(_defended(grads, client, seed))
    steps, size = client.local_steps, client.batch_size
    parts_x = x.reshape(len(x), steps, size, *x.shape[2:])
    parts_y = y.reshape(len(y), steps, size, *y.shape[2:])
    changes = local_updates(task, params, parts_x, parts_y, lr=client.local_lr)
    updates = [_update(row, params, client) for row in _rows(_defended(changes, client, seed))]
    return _gathered(task, updates, x, y, seed=seed)


def _gathered(task: Task, updates: Sequence[Update], x: Tensor, y: Tensor, *, seed: int) -> Sent:
    """Return the updates as gradients, with their validity in the mode of the task's model."""
    noise = _stand_in(x[0], y[0], seed)
    changes = [update for update in updates if update.kind != "gradient"]
    validity = [update.validity(task, *noise) for update in changes]
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


def _update(change: Mapping[str, Tensor], params: Params, client: Client) -> Update:
    return Update(
        "change",
        dict(change),
        dict(params),
        lr=client.local_lr,
        steps=client.local_steps,
        batch_size=client.batch_size,
        records=client.records,
    )


def _rows(grads: Grads) -> list[dict[str, Tensor]]:
    count = len(next(iter(grads.values())))
    return [{name: leaf[row] for name, leaf in grads.items()} for row in range(count)]


def _defended(grads: Grads, client: Client, seed: int) -> Grads:
    first = next(iter(grads.values()))
    rngs = [torch_stream(seed, "defense", row, device=first.device) for row in range(len(first))]
    return client.defense.update(grads, rngs)


def _stand_in(x: Tensor, y: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Return noise of the records' shape and labels of 0, which hold nothing private."""
    noise = torch.randn(x.shape, generator=torch_stream(seed, "stand-in"), dtype=x.dtype)
    return noise.to(x.device), torch.zeros_like(y)
