"""Training of a stage, round by round."""

from collections.abc import Iterator
from itertools import islice

import torch

from leakgauge.core.checks import InputError
from leakgauge.core.rng import derive, stream
from leakgauge.core.threads import one_thread
from leakgauge.core.types import Params
from leakgauge.gradients import params_of
from leakgauge.inference.run.shadows import defense_of_round
from leakgauge.inference.run.stage import Stage
from leakgauge.training import train_epoch
from leakgauge.training.catalog import own_rate, parse_optimizer
from leakgauge.training.optimizers import Optimizing


def trajectory(stage: Stage, *, after: int = 0, params: Params | None = None) -> Iterator[Params]:
    """The parameters at the start of each round, then those at the end of the last.

    Args:
        stage: what is trained.
        after: rounds that are trained already; the iterator goes on behind them.
        params: the parameters after these; the model's own if None.
    """
    settings = stage.settings
    make = parse_optimizer(settings.optimizer, lr=settings.lr)
    if make is not None and after > 0:  # its state was not kept: it starts over
        yield from islice(trajectory(stage), after + 1, None)
        return
    optimizer = None if make is None else Optimizing(make)
    current = params_of(stage.task.model) if params is None else dict(params)
    if after == 0 and params is None:
        yield current
    for number in range(after + 1, settings.rounds + 1):
        with one_thread():
            current = train_epoch(
                stage.task,
                current,
                stage.in_round(stage.private, "client", number),
                lr=settings.lr,
                batch_size=settings.batch_size,
                rng=stream(settings.seed, stage.game.name, "train", number),
                defense=defense_of_round(stage, number, current),
                noise_seed=derive(settings.seed, stage.name, "train noise", number),
                optimizer=optimizer,
            )
        if not all(bool(torch.isfinite(leaf).all()) for leaf in current.values()):
            rate = own_rate(settings.optimizer) or settings.lr
            defended = stage.defense.name != "none"
            weaker = f", or weaken the defense {stage.defense.name!r}" if defended else ""
            raise InputError(
                f"training diverged in round {number} (parameters are not finite); lower the "
                f"learning rate, now {rate:g}{weaker}"
            )
        yield current
