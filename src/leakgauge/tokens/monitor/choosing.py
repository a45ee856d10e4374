"""The job that takes records at one step where the loop's gradient is theirs, else a stream."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.checks import InputError, require
from leakgauge.core.forward import forward
from leakgauge.core.types import Task
from leakgauge.core.user_code import first_line
from leakgauge.gradients.walk import walk
from leakgauge.tokens.monitor.job import CheckpointJob, StreamJob
from leakgauge.tokens.monitor.reading import GradientReader
from leakgauge.tokens.monitor.settings import ADVICE

ALIKE = 0.99
"""Smallest cosine of the loop's gradient and the gradient of the records that explains it."""


@dataclass(frozen=True)
class ChoosingJob:
    """Estimates from records at the weights of one step, if these explain the loop's gradient.

    Dropout, batch normalisation, noise and accumulation change a gradient; then the pairs of the
    loop itself are taken.

    Attributes:
        checkpoint: job on records; one line with a reason if there is none.
        seen: reduced gradient that the optimizer was about to use.
        last: number of records of that step; the last ones of the job.
        seed: seed of the reduction.
        stream: job on pairs of the loop; one line with a reason if there is none.
    """

    checkpoint: CheckpointJob | str
    seen: np.ndarray
    last: int
    seed: int
    stream: StreamJob | str

    def __call__(self) -> dict[str, Any]:
        """Return the figures by name, as plain values."""
        reason = self._checked()
        if not reason:
            assert isinstance(self.checkpoint, CheckpointJob)
            try:
                return self.checkpoint()
            except InputError as error:
                reason = str(error)
        if isinstance(self.stream, str):
            raise InputError(f"{reason}; {self.stream}")
        advice = (
            f"estimates compare batches of the loop, which finds less, because {reason}; "
            'pairs="checkpoint" with loss= and monitor.step(x, y) takes records at one step'
        )
        return self.stream() | {ADVICE: advice}

    def _checked(self) -> str:
        """Return why records are not taken; empty if they explain the gradient."""
        if isinstance(self.checkpoint, str):
            return self.checkpoint
        try:
            found = self._gradient(self.checkpoint)
        except Exception as error:  # noqa: BLE001  whatever the user's model raises
            return f"their gradient failed ({first_line(error)})"
        cosine = float(torch.cosine_similarity(torch.from_numpy(self.seen), found, dim=0))
        if cosine >= ALIKE:
            return ""
        return (
            "the optimizer's gradient is not that of the step's records alone (dropout, batch "
            "normalisation, noise or accumulation)"
        )

    def _gradient(self, job: CheckpointJob) -> Tensor:
        """Return the reduced gradient of the step's records."""
        task: Task = job.built()
        x, y = (torch.from_numpy(one[-self.last :]) for one in job.records())
        layers = {one.name: one for one in walk(Task(task.model))}
        watched = {name: layers[name] for name in job.layers or layers}
        require(self.last > 0, "the step has no records")
        torch.as_tensor(task.loss(forward(task.model, x), y)).mean().backward()  # type: ignore[no-untyped-call]
        return GradientReader(task.model, watched, width=job.width, seed=self.seed).kept()
