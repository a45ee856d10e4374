"""The updates of a client in one epoch, and the plan that assigns its records to them.

Records are numbered by their place in the first epoch: record ``u * B + b`` is at position b of
update u.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.core.checks import require, require_known
from leakgauge.core.types import Grads, Params, Task
from leakgauge.inversion.double_backward.gradients import differentiable_gradients
from leakgauge.training.update import Update


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """The records in each update of each epoch.

    Attributes:
        members: int64 ``[E, U, B]`` for E epochs with U updates of B records; each epoch holds
            each record 0 ... U * B - 1 once.

    >>> plan = EpochPlan(torch.tensor([[[0, 1], [2, 3]], [[3, 0], [1, 2]]]))
    >>> plan.batches(torch.tensor([10, 11, 12, 13]), epoch=1)
    tensor([[13, 10],
            [11, 12]])
    """

    members: Tensor

    def __post_init__(self) -> None:
        shape = list(self.members.shape)
        require(
            self.members.dim() == 3 and self.members.numel() > 0,
            f"members of updates are {shape}; expected [epochs, updates, records of an update]",
        )
        each = self.members.flatten(1).sort(dim=1).values
        bad = (each != torch.arange(self.records, device=each.device)).any(dim=1).nonzero()
        require(
            len(bad) == 0,
            f"epoch {int(bad[0]) if len(bad) else 0} does not hold each of {self.records} records "
            "once",
        )

    @property
    def records(self) -> int:
        """Number of records of the client."""
        return self.members[0].numel()

    def batches(self, values: Tensor, *, epoch: int) -> Tensor:
        """Return values ``[n, ...]`` by the updates of an epoch ``[U, B, ...]``, differentiably."""
        return values[self.members[epoch]]

    def order(self, epoch: int) -> Tensor:
        """Return the place of each record ``[n]``: update ``order // B``, at ``order % B``."""
        return self.members[epoch].flatten().argsort()


@dataclass(frozen=True, eq=False)
class Epoch:
    """Updates of a client in one epoch, as seen by the server.

    An epoch spans many rounds, and the model changes between them: each of the U updates has
    separate weights. ``of_updates`` takes updates that were captured round by round.

    Attributes:
        params: weights at the start of each update, leaf ``[U, *p]``.
        grads: gradient that each update represents, leaf ``[U, *p]``.

    Raises:
        InputError: the two have other names or shapes.

    >>> epoch = Epoch({"w": torch.zeros(2, 3)}, {"w": torch.ones(2, 3)})
    >>> len(epoch), epoch.one_model
    (2, False)
    """

    params: Params
    grads: Grads

    def __post_init__(self) -> None:
        for name in {**self.params, **self.grads}:
            for whole, part in (("weights", self.params), ("gradient", self.grads)):
                require_known(name, part, f"parameter {name!r} has no {whole}")
            came, wanted = list(self.grads[name].shape), list(self.params[name].shape)
            require(
                came == wanted and len(came) > 0,
                f"gradients of {name!r} are {came} at weights {wanted}; expected [U, *p] for "
                "both, one set of weights for each update (Epoch.of_one_model repeats one set)",
            )
        counts = sorted({len(leaf) for leaf in self.grads.values()})
        require(len(counts) == 1, f"an epoch has {counts} updates; expected one number above 0")

    def __len__(self) -> int:
        """Return U, the number of updates."""
        return len(next(iter(self.grads.values())))

    @property
    def one_model(self) -> bool:
        """Whether all updates are known to start at the same weights, so that they run together."""
        return all(len(leaf) == 1 or leaf.stride(0) == 0 for leaf in self.params.values())

    @classmethod
    def of_one_model(cls, params: Params, grads: Grads) -> "Epoch":
        """Return the updates of a single round, all from the same weights.

        The weights, leaf ``[*p]``, are repeated without a copy; the gradients are ``[U, *p]``.
        """
        count = len(next(iter(grads.values()), ()))
        return cls({name: leaf.expand(count, *leaf.shape) for name, leaf in params.items()}, grads)

    @classmethod
    def of_updates(cls, updates: Sequence[Update]) -> "Epoch":
        """Return captured updates, in the order in which they were sent.

        Each has the model that the client received in its round, ``Update.before``, and represents
        ``Update.as_gradient``: after several local steps, AGIC's one-batch approximation.

        Args:
            updates: U updates, as from ``Round.sent`` of a federation or ``Update.load``.

        Raises:
            InputError: the list is empty; also see ``Update.as_gradient``.

        References:
            Xu et al., AGIC, SRDS 2022, section IV-B.

        >>> first = Update("gradient", {"w": torch.ones(2)}, {"w": torch.zeros(2)})
        >>> second = Update("weights", {"w": torch.zeros(2)}, {"w": torch.ones(2)}, lr=0.5, steps=2)
        >>> Epoch.of_updates([first, second]).grads["w"].tolist()
        [[1.0, 1.0], [1.0, 1.0]]
        """
        require(len(updates) > 0, "an epoch has no updates; pass those of its rounds")
        grads = [one.as_gradient() for one in updates]
        names = list(grads[0])
        params = {name: torch.stack([one.before[name] for one in updates]) for name in names}
        return cls(params, {name: torch.cat([one[name] for one in grads]) for name in names})

    def like_params(self) -> "Epoch":
        """Return an epoch with gradients of the type and device of the weights."""
        grads = {name: self.grads[name].to(leaf) for name, leaf in self.params.items()}
        return Epoch(self.params, grads)

    def gradients(self, task: Task, x: Tensor, y: Tensor, updates: Tensor | None = None) -> Grads:
        """Return the gradients of k batches, each at the weights of its update, leaf ``[k, *p]``.

        ``updates`` is the update of each batch ``x [k, B, ...]``, ``y [k, B]``; None takes all U
        updates in order.
        """
        if self.one_model:
            params = {name: leaf[0] for name, leaf in self.params.items()}
            return differentiable_gradients(task, params, x, y)
        own = self.params if updates is None else _rows(self.params, updates)
        return differentiable_gradients(task, own, x, y, stacked_params=True)

    def seen(self, updates: Tensor) -> Grads:
        """Return the gradients of these updates ``[k]``, leaf ``[k, *p]``."""
        return _rows(self.grads, updates)


def _rows(leaves: Params, rows: Tensor) -> dict[str, Tensor]:
    return {name: leaf[rows.to(leaf.device)] for name, leaf in leaves.items()}
