"""Simulates the update of a client with several local steps (FedAvg), step by step."""

from dataclasses import dataclass

from torch import Tensor

from leakgauge.core.checks import require, require_count, require_positive
from leakgauge.core.types import Grads, Params, Task
from leakgauge.inversion.double_backward.gradients import differentiable_gradients


@dataclass(frozen=True)
class LocalSteps:
    """A client's training between two updates: plain SGD over consecutive batches.

    Attributes:
        steps: batches in one pass over its records.
        lr: of the client.
        epochs: passes over the same batches, in the same order.

    Raises:
        InputError: a number is not above 0.
    """

    steps: int
    lr: float
    epochs: int = 1

    def __post_init__(self) -> None:
        require_count(self.steps, "number of local steps")
        require_count(self.epochs, "number of local epochs")
        require_positive(self.lr, "local learning rate")


def simulated_gradients(
    task: Task, params: Params, x: Tensor, y: Tensor, local: LocalSteps
) -> Grads:
    """Return the weight change of each of N clients, over minus the learning rate and the steps.

    That is the mean of the gradients of all steps: the scale of ``Update.as_gradient()``, which
    takes all records for one batch and needs no simulation. Differentiable in ``x`` and ``y``
    through all steps; each step costs about as much as a whole one-batch iteration.

    Args:
        task: the model and its loss.
        params: where every client starts, leaf ``[*p]``.
        x: records ``[N, steps * B, ...]``; the first B are the first step's batch, and so on.
        y: labels ``[N, steps * B]``, or soft ones ``[N, steps * B, classes]``.
        local: steps and learning rate.

    Returns:
        Leaf ``[N, *p]``.

    Raises:
        InputError: the records do not fall into ``local.steps`` equal batches.

    References:
        Geiping et al., Inverting Gradients, NeurIPS 2020, section 6.
    """
    count = x.shape[1]
    require(
        count % local.steps == 0,
        f"{count} records do not fall into {local.steps} equal batches; "
        f"take a multiple of {local.steps}",
    )
    batches = list(zip(x.chunk(local.steps, 1), y.chunk(local.steps, 1), strict=True))
    total = dict(differentiable_gradients(task, params, *batches[0], weights_fixed=True))
    for batch_x, batch_y in (batches * local.epochs)[1:]:
        # The weights depend on the records by now, so their derivative counts as well.
        now = {name: params[name] - local.lr * total[name] for name in total}
        grads = differentiable_gradients(
            task, now, batch_x, batch_y, stacked_params=True, weights_fixed=False
        )
        total = {name: total[name] + grads[name] for name in total}
    done = local.steps * local.epochs
    return {name: value / done for name, value in total.items()}
