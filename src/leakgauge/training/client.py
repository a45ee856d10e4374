"""Settings of a client: its local training and its defense."""

from dataclasses import dataclass, field
from functools import cached_property

from leakgauge.core.checks import require, require_count, require_positive
from leakgauge.defenses import Defense, none
from leakgauge.training.catalog import OPTIMIZERS, SGD
from leakgauge.training.participant import refuse_learned
from leakgauge.training.recipe import Recipe


@dataclass(frozen=True)
class Client:
    """Settings of a client's local training and of its defense.

    With the first four attributes alone, a client trains as in the papers on inversion: plain
    SGD on a model in the mode in which it comes. The stock client of Flower is ``Client(32, steps,
    0.01, optimizer="sgd:momentum=0.9", training=True)``.

    Attributes:
        batch_size: B, records of a step.
        local_steps: S, steps over consecutive batches in one pass over its records. One plain step
            without epochs sends the gradient itself, and ``local_lr`` has no effect.
        local_lr: learning rate of these steps, where neither optimizer nor rates have their own.
        defense: change of the gradient or update before the client sends it.
        optimizer: as ``catalog.parse_optimizer`` reads it, made anew for each update.
        epochs: passes over the same records.
        reshuffle: whether a pass after the first has its records in a new order.
        training: whether the model trains in training mode: BatchNorm uses the statistics of each
            batch, and dropout draws.
        rates: learning rate of each of the S * epochs steps, where a schedule changes it.
        summed: N, number of clients with equal settings; the server sees their sum alone, as
            with secure aggregation.

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
        """Number of records behind one message that the server sees."""
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
