"""Computes the gradients that attacks see, once for all layers and attacks.

Each batch is sent in one of the rounds whose global model the attacker saved.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leakgauge.core.memory import require_memory
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
from leakgauge.layers.run.training import Snapshots
from leakgauge.layers.spec import LayersSpec
from leakgauge.runs.parts import Kept, each_once
from leakgauge.runs.question import Progress
from leakgauge.runs.spec import NONE
from leakgauge.runs.work import WorkFolder
from leakgauge.training.observation import sent_gradients

CHUNK = 50
"""Batches of one job; a kill loses at most the work of one job."""

AT_ONCE = 2**27
"""Memory of the whole gradients of a job, in bytes."""

KEPT = 2**30
"""Memory of the kept gradients of all batches, in bytes."""

COPIES = 3
"""Copies of the features of the batches that an attack learns from, while it is fitted."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Observer:
    """Computes the observed gradients of batches at the saved global models.

    Attributes:
        task: the model and its loss.
        models: parameters of each saved model.
        parameters: names of the observed parameters.
        steps: number of local steps per observation; 1 for a gradient.
        lr: learning rate of the local steps.
        seed: seed of the defense's noise.
        defense: defense of the clients.
        keep: reduction of a gradient.
    """

    task: Task
    models: Sequence[Params]
    parameters: Sequence[str]
    steps: int
    lr: float
    seed: int
    defense: Defense
    keep: KernelMax

    def __call__(self, data: Dataset, rows: Tensor, at: Tensor) -> dict[str, Tensor]:
        """Return the reduced gradients of batches ``rows [n, B]``, each at the model ``at [n]``."""
        with one_thread():
            chunks = [self.kept(grads) for grads in self._whole(data, rows, at)]
        back = torch.argsort(torch.argsort(at, stable=True)).cpu()
        return {name: leaf.cpu()[back] for name, leaf in joined(chunks).items()}

    def kept(self, grads: Grads) -> Grads:
        """Return the reduced form of whole gradients."""
        return self.keep({name: grads[name] for name in self.parameters})

    def _whole(self, data: Dataset, rows: Tensor, at: Tensor) -> Iterator[Grads]:
        """Yield whole gradients, in the order of the models."""
        for number in torch.unique(at).tolist():
            yield from self._sent(self.models[number], data, rows[at == number])

    def _sent(self, params: Params, data: Dataset, rows: Tensor) -> Iterator[Grads]:
        if self.steps > 1:
            return self._updates(params, data, rows)
        return sent_gradients(
            self.task,
            params,
            data,
            rows,
            defense=self.defense,
            noise_seed=self.seed,
            max_bytes=min(MAX_BYTES, AT_ONCE),
        )

    def _updates(self, params: Params, data: Dataset, rows: Tensor) -> Iterator[Grads]:
        """Yield the weight changes over the learning rate, which sum the steps' gradients."""
        size = sum(leaf.nbytes for leaf in params.values())
        for part in torch.split(rows, max(1, AT_ONCE // size)):
            steps = part.reshape(len(part), self.steps, -1)
            moved = local_updates(self.task, params, data.x[steps], data.y[steps], lr=self.lr)
            yield {name: -leaf / self.lr for name, leaf in moved.items()}


def observer_of(prepared: LayersPrepared, snapshots: Snapshots, defense: Defense) -> Observer:
    """Return the observer of a run under a defense.

    Raises:
        InputError: all gradients of each layer are asked for, and need too much memory.
    """
    spec = prepared.spec
    names = [name for layer in prepared.layers for name in layer.parameters]
    seed = derive(spec.seed, QUESTION, "noise", defense.name)
    keep = _reduction(spec, {name: snapshots.first[name] for name in names})
    return Observer(
        prepared.task, snapshots.models, names, spec.local_steps, spec.lr, seed, defense, keep
    )


def _reduction(spec: LayersSpec, params: Params) -> KernelMax:
    batches = spec.shadow_batches + spec.held_out + spec.trials
    if not spec.all_gradients:
        return KernelMax.within(params, batches, max_bytes=KEPT)
    # the attack on all layers holds its features, a copy to fit on, and one that is joined
    keep = KernelMax.of_all(params)
    require_memory(
        (batches + COPIES * spec.shadow_batches) * keep.bytes_of(params),
        f"{batches} batches with all gradients of each layer",
        "leave all_gradients out, or lower --shadow-batches, --trials or side",
    )
    return keep


def observed(
    observer: Observer,
    data: Dataset,
    rows: Ints | Tensor,
    at: Tensor,
    name: str,
    folder: WorkFolder,
    progress: Progress,
    *,
    after: str,
    workers: int | None,
) -> Grads:
    """Return the observed gradients of batches ``rows [n, B]``; finished parts are read back.

    Each batch is sent at the model ``at [n]``. The folder keeps the parts under the ``name`` of the
    batches, which depend on ``after``.
    """
    device = data.y.device
    split = (torch.split(torch.as_tensor(one).to(device), CHUNK) for one in (rows, at))
    parts = list(zip(*split, strict=True))
    start = f"seen/{observer.defense.name}/{name}"
    names = {f"{start}/{number:04d}": part for number, part in enumerate(parts)}
    found, _ = each_once(
        folder,
        dict.fromkeys(names, after),
        lambda left: {one: partial(_seen, observer, *_narrowed(data, *names[one])) for one in left},
        partial(progress.step, f"{QUESTION}: {name}"),
        workers=workers,
    )
    kept = [arrays for arrays, _ in found.values()]
    return joined([{key: torch.from_numpy(leaf) for key, leaf in one.items()} for one in kept])


def _seen(observer: Observer, data: Dataset, rows: Tensor, at: Tensor) -> Kept:
    return {key: leaf.numpy() for key, leaf in observer(data, rows, at).items()}, {}


def _narrowed(data: Dataset, rows: Tensor, at: Tensor) -> tuple[Dataset, Tensor, Tensor]:
    """Return only the records of these batches, the batches' positions in them, and the models."""
    used, inverse = torch.unique(rows, return_inverse=True)
    return data.rows(used), inverse, at


def sent_at(spec: LayersSpec, name: str, count: int) -> Tensor:
    """Return the number of the saved model at which each batch is sent ``[count]``, int64.

    Each model has an equal share of the batches, at random, so that neither secrets nor blocks of
    records tell the round.
    """
    rng = stream(spec.seed, QUESTION, "snapshots", name)
    return torch.from_numpy(rng.permutation(count) % spec.snapshots)


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
    snapshots: Snapshots,
    defense: Defense,
    folder: WorkFolder,
    progress: Progress,
    *,
    workers: int | None,
) -> AttackerView:
    """Draw all batches, and observe each once for all layers and attacks."""
    spec, game, sides = prepared.spec, prepared.game, prepared.sides
    observer = observer_of(prepared, snapshots, defense)
    after = f"{snapshots.digest} {defense.name}"

    def see(data: Dataset, rows: Ints | Tensor, name: str) -> Grads:
        at = sent_at(spec, name, len(rows))
        return observed(
            observer, data, rows, at, name, folder, progress, after=after, workers=workers
        )

    shadow = _shadow(prepared, snapshots, sides.fitting)
    key, rows, _ = shadow.batches(spec.shadow_batches)
    recorded = Recorded(observer.kept)
    recorded.record(key, see(shadow.data, rows, "batches to learn from"))
    halves = []
    for number, mine in enumerate(sides.held_out, start=1):
        half = _shadow(prepared, snapshots, mine)
        rng = stream(spec.seed, QUESTION, "held out", number)
        rows, secret = half.draw(spec.held_out // 2, rng=rng)
        halves.append((see(half.data, rows, f"batches to choose by, half {number}"), secret))
    trials = game.draw_trials(spec.trials, rng=stream(spec.seed, QUESTION, "trials"))
    seen = see(trials.pool, trials.rows, "private batches")
    log_prior = np.log(np.asarray(game.prior))
    return AttackerView(
        shadow.sharing(recorded), (halves[0], halves[1]), seen, trials, log_prior, defense.name
    )


def _shadow(prepared: LayersPrepared, snapshots: Snapshots, rows: Tensor) -> Shadow:
    seed, own = prepared.spec.seed, prepared.rows(rows)
    return replace(
        prepared.game.shadow(prepared.task, snapshots.first, own, max_bytes=MAX_BYTES),
        draw_seed=derive(seed, QUESTION, "batches"),
        held_out_seed=derive(seed, QUESTION, "folds"),
    )
