"""The gradients and updates that clients send, which an attack sees."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from leakgauge.core.checks import require, require_count, require_positive
from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Grads, Params, Task
from leakgauge.defenses import Defense, Transform, none
from leakgauge.gradients import batch_gradients, local_updates
from leakgauge.training.participant import refuse_learned
from leakgauge.training.per_record import mean_of_transformed
from leakgauge.training.update import Update
from leakgauge.training.validity import Validity


@dataclass(frozen=True)
class Client:
    """Settings of a client's local training and of its defense.

    Attributes:
        batch_size: B, records of a step.
        local_steps: S, steps of plain SGD over consecutive batches; with one, the client sends the
            gradient itself, and ``local_lr`` has no effect.
        local_lr: learning rate of these steps.
        defense: changes the gradient or update before the client sends it.
    """

    batch_size: int = 1
    local_steps: int = 1
    local_lr: float = 1e-4
    defense: Defense = field(default_factory=none)

    def __post_init__(self) -> None:
        require_count(self.batch_size, "batch size")
        require_count(self.local_steps, "number of local steps")
        require_positive(self.local_lr, "local learning rate")
        refuse_learned(self.defense)
        name = self.defense.name
        require(
            self.defense.task is None,
            f"{name!r} adds noise to the code of each record; no attack rebuilds records through "
            "it; choose another --defense",
        )
        per_example = self.defense.per_example
        require(
            per_example is None or self.local_steps == 1,
            f"{name!r} changes each record's gradient; with {self.local_steps} local steps only "
            "the update could be changed; take --local-steps 1 or another --defense",
        )

    @property
    def records(self) -> int:
        """Number of records of one update."""
        return self.batch_size * self.local_steps


@dataclass(frozen=True, eq=False)
class Sent:
    """The gradients of T clients, and their validity, which needs no private records.

    Attributes:
        grads: on the scale of a gradient, leaf ``[T, *p]``.
        validity: distance of the local steps from one gradient, the largest of all clients; None
            where the clients sent gradients.
    """

    grads: Grads
    validity: Validity | None = None

    def warnings(self, *, simulated: bool = False) -> tuple[str, ...]:
        """Return why an update may not stand for a gradient; see ``Validity.warnings``."""
        return () if self.validity is None else self.validity.warnings(simulated=simulated)


def send(task: Task, params: Params, x: Tensor, y: Tensor, client: Client, *, seed: int) -> Sent:
    """Return what T clients send that hold the records ``x [T, S * B, ...]``, ``y [T, S * B]``.

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
    noise = _stand_in(x[0], y[0], seed)
    validity = Validity.worst([update.validity(task, *noise) for update in updates])
    each = [update.as_gradient() for update in updates]
    return Sent({name: torch.cat([one[name] for one in each]) for name in params}, validity)


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
