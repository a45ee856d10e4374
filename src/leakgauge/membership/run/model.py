"""What the attacked model is good for, and how its gradients on members and others go on."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from leakgauge.core.rng import stream
from leakgauge.core.types import Dataset, Task
from leakgauge.gradients import params_of
from leakgauge.membership.metrics import MEMBERS_NORM, OTHERS_NORM, TRAIN_ACCURACY
from leakgauge.membership.run.cell import Cell
from leakgauge.membership.spec import QUESTION
from leakgauge.results.measurements import Measurement
from leakgauge.results.scores import ACCURACY
from leakgauge.results.statistics import mean_estimate
from leakgauge.training.utility import utility_of

POINTS = 12
"""Epochs at which gradient norms are measured, about."""

Norms = Mapping[str, NDArray[np.float64]]
"""By epoch as text: last-layer gradient norms of the targets ``[n]``, members first."""


def measured_epochs(epochs: int) -> list[int]:
    """Return the epochs at which norms are measured: dense at first, and the last one.

    >>> measured_epochs(100)
    [1, 2, 4, 5, 8, 12, 19, 28, 43, 66, 100]
    """
    return sorted({round(one) for one in np.geomspace(1, epochs, POINTS)})


def model_measurements(
    cell: Cell, task: Task, members: Dataset, others: Dataset
) -> Iterator[Measurement]:
    """Yield what the model is good for on records that it was not trained on, and on members."""
    rng = stream(cell.seed, QUESTION, "utility")
    for data, renamed in ((others, {}), (members, {ACCURACY: TRAIN_ACCURACY})):
        found = utility_of(task, params_of(task.model), data, rng=rng)
        if found is None or (renamed and found.metric not in renamed):
            continue
        metric = renamed.get(found.metric, found.metric)
        yield cell.measurement(metric, found.estimate, found.chance)


def norm_measurements(cell: Cell, norms: Norms, member: NDArray[np.bool_]) -> Iterator[Measurement]:
    """Yield the mean gradient norm of members and of others by epoch (the paper's Figure 3)."""
    for epoch, values in norms.items():
        for metric, kind in ((MEMBERS_NORM, member), (OTHERS_NORM, ~member)):
            estimate = mean_estimate(values[kind], bounds=(0.0, np.inf))
            yield replace(cell.measurement(metric, estimate, 0.0), round=int(epoch))
