"""Protocols of a federation: what participants send, their local steps, the server's average."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.checks import require, require_choice, require_count, require_positive
from leakgauge.training.catalog import SGD
from leakgauge.training.local import Mover, plain_sgd
from leakgauge.training.optimizers import Make, NamedOptimizer, Optimizing

FEDAVG, FEDSGD = "fedavg", "fedsgd"
KINDS = (FEDAVG, FEDSGD)

STEPS, UPLOAD = "steps", "upload"
DEFENDED = (STEPS, UPLOAD)


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """What participants and the server do in each round.

    Attributes:
        kind: ``"fedavg"``: participants train and send their weights, which the server averages.
            ``"fedsgd"``: each sends the gradient of one batch; the server averages the gradients
            and makes one step.
        rounds: number of rounds.
        lr: learning rate of plain SGD.
        optimizer: function from the parameters to an optimizer of ``torch.optim``, called in each
            round, for the steps of participants (``"fedavg"``) or of the server. None for plain
            SGD.
        epochs: passes over a participant's records in a round.
        steps: steps in a round, in place of whole passes; None for ``epochs``.
        batch_size: records of a step; None for all records of the participant.
        share: share of the participants that the server samples in each round, at least one.
        weighted: whether the average weighs participants by their records; else all count equally.
        defended: target of a participant's defense: the gradient of each of its ``"steps"``, or
            its ``"upload"`` once, and no step. With ``"fedsgd"`` both are the one gradient.

    Raises:
        InputError: a value does not fit.

    References:
        McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized
        Data", AISTATS 2017.

    >>> Protocol(rounds=40, lr=0.1, batch_size=32).epochs
    1
    """

    rounds: int
    kind: str = FEDAVG
    lr: float = 0.01
    optimizer: Make | None = None
    epochs: int = 1
    steps: int | None = None
    batch_size: int | None = 32
    share: float = 1.0
    weighted: bool = True
    defended: str = STEPS

    def __post_init__(self) -> None:
        require_choice(self.kind, "kind of federation", KINDS)
        require_choice(self.defended, "what is defended", DEFENDED)
        require_count(self.rounds, "number of rounds")
        require_count(self.epochs, "number of local epochs")
        if self.steps is not None:
            require_count(self.steps, "number of local steps")
        if self.batch_size is not None:
            require_count(self.batch_size, "batch size")
        require_positive(self.lr, "learning rate")
        require(
            0 < self.share <= 1,
            f"share of participants is {self.share:g}; expected a number above 0, at most 1",
        )
        require(
            self.steps is None or self.epochs == 1,
            f"{self.steps} local steps and {self.epochs} local epochs name two lengths of a round; "
            "leave one of them out",
        )
        require(
            self.kind == FEDAVG or (self.epochs == 1 and self.steps in (None, 1)),
            "with fedsgd a participant sends the gradient of one batch; leave out local steps and "
            "epochs, or take fedavg",
        )

    @property
    def rate(self) -> float:
        """The learning rate of the steps, also where an optimizer has its own."""
        if self.optimizer is None:
            return self.lr
        made = self.optimizer([torch.zeros(1, requires_grad=True)])
        return float(made.param_groups[0]["lr"])

    @property
    def update_settings(self) -> tuple[float | None, str]:
        """The rate and the name of the steps, as an ``Update`` records them.

        The rate is None where the optimizer is a function without a name of leakgauge's.
        """
        if self.optimizer is None:
            return self.lr, SGD
        if isinstance(self.optimizer, NamedOptimizer) and self.optimizer.choice.built_in:
            return self.rate, self.optimizer.choice.text
        return None, SGD

    def mover(self) -> Mover:
        """Return what moves parameters in one round, without a past."""
        return plain_sgd(self.lr) if self.optimizer is None else Optimizing(self.optimizer).over

    def size(self, count: int) -> int:
        """Return the records of a step of a participant who holds ``count``."""
        return min(self.batch_size or count, count)

    def batches(self, count: int, *, rng: np.random.Generator) -> Iterator[Tensor]:
        """Yield the rows ``[B]`` of each step of one round, from freshly shuffled passes.

        ``rng`` shuffles the ``count`` records of a participant, once for each pass.

        >>> rng = np.random.default_rng(0)
        >>> [len(rows) for rows in Protocol(rounds=1, batch_size=4).batches(10, rng=rng)]
        [4, 4, 2]
        """
        steps = 1 if self.kind == FEDSGD else self.steps
        passes = itertools.count() if steps is not None else range(self.epochs)
        orders = (torch.from_numpy(rng.permutation(count)) for _ in passes)
        each = (rows for order in orders for rows in torch.split(order, self.size(count)))
        return itertools.islice(each, steps)
