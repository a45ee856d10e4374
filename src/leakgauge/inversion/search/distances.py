"""How far the updates of guessed records are from the ones that were sent."""

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from leakgauge.core.types import Grads, Params, Task
from leakgauge.inversion.double_backward.gradients import differentiable_gradients
from leakgauge.inversion.double_backward.recording import RecordedObjective
from leakgauge.inversion.search.objective import Objective, against
from leakgauge.inversion.search.simulate import LocalSteps, simulated_gradients

UpdateDistance = Callable[[Tensor, Tensor, Tensor], Tensor]
"""``(x [N, B, ...], y [N, B] or [N, B, classes], targets [N]) -> [N]``: how far the gradients of
each row are from those of its target."""

UpdatesOfRecords = Callable[[Tensor, Tensor], Grads]
"""``(x [N, B, ...], y [N, B]) -> leaf [N, *p]``: the update of each row's records."""


def gradients_of(task: Task, params: Params, local: LocalSteps | None) -> UpdatesOfRecords:
    """Return the updates of records, differentiable in them.

    Args:
        task: the model and its loss.
        params: where the clients start, leaf ``[*p]``.
        local: simulates the client's local steps; None takes the gradient of one batch.
    """

    def gradients(x: Tensor, y: Tensor) -> Grads:
        if local is None:
            return differentiable_gradients(task, params, x, y)
        return simulated_gradients(task, params, x, y, local)

    return gradients


def distance_from(
    seen: Grads, gradients: UpdatesOfRecords, measure: Objective, *, recorded: bool
) -> UpdateDistance:
    """Return the distance of guessed records' updates from those of T targets.

    Args:
        seen: updates of the targets, leaf ``[T, *p]``.
        gradients: updates of records, as ``gradients_of`` returns them.
        measure: compares two stacks of updates.
        recorded: whether the computation is recorded, which pays where it repeats often.
    """
    targets = len(next(iter(seen.values())))

    @lru_cache(maxsize=1)
    def of_targets(rows: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        """Return the distance from the targets ``rows``; a search passes the same tensor again.

        So a step neither copies gradients, which can be large, nor asks a GPU which rows move.
        """
        each = torch.arange(targets, device=rows.device)
        every = len(rows) == targets and torch.equal(rows, each)
        own = seen if every else {n: leaf[rows] for n, leaf in seen.items()}
        compared = against(measure, own)

        def distance(x: Tensor, y: Tensor) -> Tensor:
            return compared(gradients(x, y))

        return RecordedObjective(distance) if recorded else distance

    return lambda x, y, rows: of_targets(rows)(x, y)
