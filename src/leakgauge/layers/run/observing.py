"""What attacks see: pooled gradients of batches, each made once, kept for all attacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leakgauge.core.rng import derive
from leakgauge.core.threads import one_thread
from leakgauge.core.types import Dataset, Grads, Params, Task
from leakgauge.defenses import Defense
from leakgauge.gradients import MAX_BYTES, local_updates
from leakgauge.inference.adversaries.sharing import joined
from leakgauge.layers.pooling import KernelMax
from leakgauge.layers.words import QUESTION
from leakgauge.runs.executors.processes import spread
from leakgauge.runs.question import Progress
from leakgauge.runs.work import WorkFolder
from leakgauge.training.observation import sent_gradients

if TYPE_CHECKING:
    from leakgauge.layers.spec import LayersSpec

CHUNK = 50
"""Batches of one job; what a kill loses of finished work is at most that of one."""

AT_ONCE = 2**27
"""Bytes of whole gradients that a job holds."""

KEPT = 2**30
"""Bytes that the gradients of all batches may take, as they are kept."""


@dataclass(frozen=True, eq=False)
class Observer:
    """Makes what is seen of batches at one state of the model.

    Attributes:
        task: the model and its loss.
        params: parameters at which clients compute.
        parameters: names of those that are looked at.
        steps: local steps behind one observation; 1 for a gradient.
        lr: of the local steps.
        seed: of the defense's noise.
        defense: of the clients.
        keep: what is kept of a gradient.
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
        """Return what is kept of the gradients of batches ``rows [n, B]`` of the records."""
        with one_thread():
            chunks = [self.kept(grads) for grads in self._whole(data, rows)]
        return {name: leaf.cpu() for name, leaf in joined(chunks).items()}

    def kept(self, grads: Grads) -> Grads:
        """Return what is kept of whole gradients."""
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
        """Yield the weight changes over the learning rate: the sum of the steps' gradients."""
        size = sum(leaf.nbytes for leaf in self.params.values())
        for part in torch.split(rows, max(1, AT_ONCE // size)):
            steps = part.reshape(len(part), self.steps, -1)
            moved = local_updates(self.task, self.params, data.x[steps], data.y[steps], lr=self.lr)
            yield {name: -leaf / self.lr for name, leaf in moved.items()}


def observer_of(
    spec: LayersSpec, task: Task, params: Params, parameters: Sequence[str], defense: Defense
) -> Observer:
    """Return the observer of a run."""
    seed = derive(spec.seed, QUESTION, "noise", defense.name)
    batches = spec.shadow_batches + spec.held_out + spec.trials
    looked_at = {name: params[name] for name in parameters}
    keep = KernelMax.within(looked_at, batches, max_bytes=KEPT)
    return Observer(task, params, parameters, spec.local_steps, spec.lr, seed, defense, keep)


def observed(
    observer: Observer,
    data: Dataset,
    rows: NDArray[np.int64] | Tensor,
    name: str,
    folder: WorkFolder,
    progress: Progress,
    *,
    after: str,
    workers: int | None,
) -> Grads:
    """Return what is seen of batches; parts that a kill left are read back.

    Args:
        observer: makes it.
        data: the pool that the batches are drawn from.
        rows: ``[n, B]`` positions in it.
        name: of the batches, for users and for the folder.
        folder: keeps the parts.
        progress: gets what is done.
        after: digest of what the parts depend on.
        workers: processes; None decides by the work there is.
    """
    parts = torch.split(torch.as_tensor(rows).to(data.y.device), CHUNK)
    found: dict[int, Grads] = {}
    for number in range(len(parts)):
        kept = folder.arrays(f"seen/{observer.defense.name}/{name}/{number:04d}", after=after)
        if kept is not None:
            found[number] = {key: torch.from_numpy(leaf) for key, leaf in kept[0].items()}
    progress.step(f"{QUESTION}: {name}", len(found), len(parts))
    jobs = [
        partial(_job, observer, *_narrowed(data, part), number)
        for number, part in enumerate(parts)
        if number not in found
    ]
    for number, seen in spread(jobs, workers=workers):
        arrays = {key: leaf.numpy() for key, leaf in seen.items()}
        folder.keep_arrays(
            f"seen/{observer.defense.name}/{name}/{number:04d}", arrays, {}, after=after
        )
        found[number] = seen
        progress.step(f"{QUESTION}: {name}", len(found), len(parts))
    return joined([found[number] for number in range(len(parts))])


def _job(observer: Observer, data: Dataset, rows: Tensor, number: int) -> tuple[int, Grads]:
    return number, observer(data, rows)


def _narrowed(data: Dataset, rows: Tensor) -> tuple[Dataset, Tensor]:
    """Return the records of these batches alone, which is all that another process needs."""
    used, inverse = torch.unique(rows, return_inverse=True)
    return data.rows(used), inverse
