"""The batches of a run, and what is seen of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from leakgauge.core.rng import derive, stream
from leakgauge.core.types import Dataset, Grads, Params
from leakgauge.gradients import MAX_BYTES
from leakgauge.inference import Shadow, Trials
from leakgauge.inference.adversaries.sharing import Recorded
from leakgauge.layers.run.observing import Observer, observed
from leakgauge.layers.run.preparing import Prepared
from leakgauge.layers.words import QUESTION
from leakgauge.runs.question import Progress
from leakgauge.runs.spec import NONE
from leakgauge.runs.work import WorkFolder, digest_of

if TYPE_CHECKING:
    from leakgauge.layers.spec import LayersSpec

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Scene:
    """What the attacker has, and what it sees of the attacked participant.

    Attributes:
        shadow: the records that it fits on; what is seen of its batches is recorded.
        held_out: what is seen of its batches of two further groups of records, and their secrets.
        seen: of the trials.
        trials: with their secrets and blocks.
        log_prior: log P(p) ``[m]``.
        defense: the name of the clients' defense.
    """

    shadow: Shadow
    held_out: tuple[tuple[Grads, Ints], tuple[Grads, Ints]]
    seen: Grads
    trials: Trials
    log_prior: NDArray[np.float64]
    defense: str = NONE


def scene_of(
    spec: LayersSpec,
    prepared: Prepared,
    params: Params,
    observer: Observer,
    folder: WorkFolder,
    progress: Progress,
    *,
    workers: int | None,
) -> Scene:
    """Draw all batches, and make what is seen of them once, for all layers and attacks."""
    game, sides, device = prepared.game, prepared.sides, prepared.data.y.device
    defended = observer.defense.name
    after = f"{digest_of(params)} {defended}"
    see = partial(
        observed, observer, folder=folder, progress=progress, after=after, workers=workers
    )
    shadow = _shadow(spec, prepared, params, prepared.data.rows(sides.fitting.to(device)))
    key, rows, _ = shadow.batches(spec.shadow_batches)
    recorded = Recorded(observer.kept)
    recorded.record(key, see(shadow.data, rows, "batches to learn from"))
    halves = []
    for number, mine in enumerate(sides.held_out, start=1):
        half = _shadow(spec, prepared, params, prepared.data.rows(mine.to(device)))
        rng = stream(spec.seed, QUESTION, "held out", number)
        rows, secret = half.draw(spec.held_out // 2, rng=rng)
        halves.append((see(half.data, rows, f"batches to choose by, half {number}"), secret))
    trials = game.draw_trials(spec.trials, rng=stream(spec.seed, QUESTION, "trials"))
    seen = see(trials.pool, trials.rows, "private batches")
    log_prior = np.log(np.asarray(game.prior))
    return Scene(
        shadow.sharing(recorded), (halves[0], halves[1]), seen, trials, log_prior, defended
    )


def _shadow(spec: LayersSpec, prepared: Prepared, params: Params, data: Dataset) -> Shadow:
    shadow = prepared.game.shadow(prepared.task, params, data, max_bytes=MAX_BYTES)
    return replace(
        shadow,
        draw_seed=derive(spec.seed, QUESTION, "batches"),
        held_out_seed=derive(spec.seed, QUESTION, "folds"),
    )
