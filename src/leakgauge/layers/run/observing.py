"""Computes the gradients that attacks see, once for all layers and attacks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leakgauge.core.rng import derive, stream
from leakgauge.core.threads import one_thread
from leakgauge.core.types import Dataset, Grads, Params, Task
from leakgauge.defenses import Defense
from leakgauge.gradients import MAX_BYTES, local_updates
from leakgauge.inference import Shadow, Trials
from leakgauge.inference.adversaries.sharing import Recorded, joined
from leakgauge.layers.catalog import QUESTION
from leakgauge.layers.observation import KernelMax
from leakgauge.layers.run.preparing import LayersPrepared
from leakgauge.runs.parts import Kept, each_once
from leakgauge.runs.question import Progress
from leakgauge.runs.spec import NONE
from leakgauge.runs.work import WorkFolder, digest_of
from leakgauge.training.observation import sent_gradients

CHUNK = 50
"""Batches of one job; a kill loses at most the work of one job."""

AT_ONCE = 2**27
"""Memory of the whole gradients of a job, in bytes."""

KEPT = 2**30
"""Memory of the kept gradients of all batches, in bytes."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Observer:
    """Computes the observed gradients of batches at one state of the model.

    Attributes:
        task: the model and its loss.
        params: parameters of the clients' model.
        parameters: names of the observed parameters.
        steps: number of local steps per observation; 1 for a gradient.
        lr: learning rate of the local steps.
        seed: seed of the defense's noise.
        defense: defense of the clients.
        keep: reduction of a gradient.
    """

    task: Task
    params: Params
    parameters: Sequence[str]
    steps: int
    lr: float
    seed: int
    defense: Defense
    keep: KernelMax

    def __call__(self, data: Dataset, rows: Tensor) -> dict[str, Tensor]:
        """Return the reduced gradients of batches ``rows [n, B]`` of the records."""
        with one_thread():
            chunks = [self.kept(grads) for grads in self._whole(data, rows)]
        return {name: leaf.cpu() for name, leaf in joined(chunks).items()}

    def kept(self, grads: Grads) -> Grads:
        """Return the reduced form of whole gradients."""
        return self.keep({name: grads[name] for name in self.parameters})

    def _whole(self, data: Dataset, rows: Tensor) -> Iterator[Grads]:
        if self.steps > 1:
            return self._updates(data, rows)
        return sent_gradients(
            self.task,
            self.params,
            data,
            rows,
            defense=self.defense,
            noise_seed=self.seed,
            max_bytes=min(MAX_BYTES, AT_ONCE),
        )

    def _updates(self, data: Dataset, rows: Tensor) -> Iterator[Grads]:
        """Yield the weight changes over the learning rate, which sum the steps' gradients."""
        size = sum(leaf.nbytes for leaf in self.params.values())
        for part in torch.split(rows, max(1, AT_ONCE // size)):
            steps = part.reshape(len(part), self.steps, -1)
            moved = local_updates(self.task, self.params, data.x[steps], data.y[steps], lr=self.lr)
            yield {name: -leaf / self.lr for name, leaf in moved.items()}


def observer_of(prepared: LayersPrepared, params: Params, defense: Defense) -> Observer:
    """Return the observer of a run under a defense."""
    spec = prepared.spec
    names = [name for layer in prepared.layers for name in layer.parameters]
    seed = derive(spec.seed, QUESTION, "noise", defense.name)
    batches = spec.shadow_batches + spec.held_out + spec.trials
    keep = KernelMax.within({name: params[name] for name in names}, batches, max_bytes=KEPT)
    return Observer(prepared.task, params, names, spec.local_steps, spec.lr, seed, defense, keep)


def observed(
    observer: Observer,
    data: Dataset,
    rows: Ints | Tensor,
    name: str,
    folder: WorkFolder,
    progress: Progress,
    *,
    after: str,
    workers: int | None,
) -> Grads:
    """Return the observed gradients of batches ``rows [n, B]``; finished parts are read back.

    The folder keeps the parts under the ``name`` of the batches, which depend on ``after``.
    """
    parts = torch.split(torch.as_tensor(rows).to(data.y.device), CHUNK)
    start = f"seen/{observer.defense.name}/{name}"
    names = {f"{start}/{number:04d}": part for number, part in enumerate(parts)}
    found, _ = each_once(
        folder,
        dict.fromkeys(names, after),
        lambda left: {one: partial(_seen, observer, *_narrowed(data, names[one])) for one in left},
        partial(progress.step, f"{QUESTION}: {name}"),
        workers=workers,
    )
    kept = [arrays for arrays, _ in found.values()]
    return joined([{key: torch.from_numpy(leaf) for key, leaf in one.items()} for one in kept])


def _seen(observer: Observer, data: Dataset, rows: Tensor) -> Kept:
    return {key: leaf.numpy() for key, leaf in observer(data, rows).items()}, {}


def _narrowed(data: Dataset, rows: Tensor) -> tuple[Dataset, Tensor]:
    """Return only the records of these batches, and the batches' positions in them."""
    used, inverse = torch.unique(rows, return_inverse=True)
    return data.rows(used), inverse


@dataclass(frozen=True, eq=False)
class AttackerView:
    """The attacker's data, and its observations of the attacked participant.

    Attributes:
        shadow: records to fit on, with the recorded observations of their batches.
        held_out: observations and secrets of batches of two further groups of records.
        seen: observations of the trials.
        trials: trials with their secrets and blocks.
        log_prior: log P(p) ``[m]``.
        defense: name of the clients' defense.
    """

    shadow: Shadow
    held_out: tuple[tuple[Grads, Ints], tuple[Grads, Ints]]
    seen: Grads
    trials: Trials
    log_prior: NDArray[np.float64]
    defense: str = NONE


def attacker_view(
    prepared: LayersPrepared,
    params: Params,
    defense: Defense,
    folder: WorkFolder,
    progress: Progress,
    *,
    workers: int | None,
) -> AttackerView:
    """Draw all batches, and observe each once for all layers and attacks."""
    spec, game, sides = prepared.spec, prepared.game, prepared.sides
    observer = observer_of(prepared, params, defense)
    after = f"{digest_of(params)} {defense.name}"
    see = partial(
        observed, observer, folder=folder, progress=progress, after=after, workers=workers
    )
    shadow = _shadow(prepared, params, sides.fitting)
    key, rows, _ = shadow.batches(spec.shadow_batches)
    recorded = Recorded(observer.kept)
    recorded.record(key, see(shadow.data, rows, "batches to learn from"))
    halves = []
    for number, mine in enumerate(sides.held_out, start=1):
        half = _shadow(prepared, params, mine)
        rng = stream(spec.seed, QUESTION, "held out", number)
        rows, secret = half.draw(spec.held_out // 2, rng=rng)
        halves.append((see(half.data, rows, f"batches to choose by, half {number}"), secret))
    trials = game.draw_trials(spec.trials, rng=stream(spec.seed, QUESTION, "trials"))
    seen = see(trials.pool, trials.rows, "private batches")
    log_prior = np.log(np.asarray(game.prior))
    return AttackerView(
        shadow.sharing(recorded), (halves[0], halves[1]), seen, trials, log_prior, defense.name
    )


def _shadow(prepared: LayersPrepared, params: Params, rows: Tensor) -> Shadow:
    seed = prepared.spec.seed
    return replace(
        prepared.game.shadow(prepared.task, params, prepared.rows(rows), max_bytes=MAX_BYTES),
        draw_seed=derive(seed, QUESTION, "batches"),
        held_out_seed=derive(seed, QUESTION, "folds"),
    )
