"""Train a stage round by round, as a federation with one participant."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from leakgauge.core.rng import derive, stream
from leakgauge.core.types import Params
from leakgauge.gradients import params_of
from leakgauge.inference.run.observing import defense_of_round
from leakgauge.inference.run.stage import GameStage
from leakgauge.training import Protocol, State
from leakgauge.training.catalog import parse_optimizer
from leakgauge.training.federation import federation
from leakgauge.training.optimizers import Optimizing
from leakgauge.training.participant import Turn
from leakgauge.training.state import Tensors, tensors_of


@dataclass(frozen=True, eq=False)
class StageParticipant:
    """The participant with the private records of a stage.

    Attributes:
        stage: records and defense of each round.
        optimizer: optimizer with a state over the rounds; None for plain SGD.
    """

    stage: GameStage
    optimizer: Optimizing | None

    def __len__(self) -> int:
        return len(self.stage.private)

    def turn(self, received: Tensors, *, seed: int, number: int, position: int) -> Turn:
        """Return the records and the defense of a round, with the randomness of the stage."""
        stage = self.stage
        params = {name: received[name] for name in params_of(stage.task.model)}
        return Turn(
            stage.in_round(stage.private, "client", number),
            defense_of_round(stage, number, params),
            stream(seed, stage.game.name, "train", number),
            noise_seed=derive(seed, stage.name, "train noise", number),
            model_seed=derive(seed, stage.name, "train model", number),
            mover=None if self.optimizer is None else self.optimizer.over,
        )


def trajectory(
    stage: GameStage, *, after: int = 0, params: Params | None = None
) -> Iterator[Params]:
    """Yield the parameters at the start of each round, then those at the end of the last.

    Args:
        stage: the stage to train.
        after: number of finished rounds, which are skipped.
        params: parameters after these rounds; None for those of the model.
    """
    spec = stage.spec
    make = parse_optimizer(spec.optimizer, lr=spec.lr)
    if make is not None and after > 0:  # its state was not kept, so it restarts
        yield from islice(trajectory(stage), after + 1, None)
        return
    start = params_of(stage.task.model) if params is None else dict(params)
    if after == 0 and params is None:
        yield start
    rounds = federation(
        stage.task,
        State({**tensors_of(stage.task), **start}),
        [StageParticipant(stage, None if make is None else Optimizing(make))],
        Protocol(rounds=spec.rounds, lr=spec.lr, optimizer=make, batch_size=stage.batch_size),
        seed=spec.seed,
        after=after,
    )
    for one in rounds:
        yield {name: one.state.shared[name] for name in start}
