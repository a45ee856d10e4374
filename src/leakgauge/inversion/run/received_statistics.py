"""Statistics of BatchNorm's batches, as the update of a real client or public records show them."""

import torch
from torch import Tensor, nn

from leakgauge.core.checks import require
from leakgauge.core.precision import precision_of
from leakgauge.core.types import Task
from leakgauge.inversion.observed import Knowledge
from leakgauge.inversion.search.priors import (
    MOST_PROXIES,
    BatchStatistics,
    Statistics,
    statistics_of,
    statistics_of_update,
    tracked,
)
from leakgauge.inversion.words import FROM_BUFFERS
from leakgauge.training.update import Update

SENT = ("running_mean", "running_var")
"""Last words of the names of running statistics."""


def shows_statistics(model: nn.Module, update: Update) -> bool:
    """Return whether an update holds the running statistics of all layers in training mode."""
    names = [f"{layer}.{word}" for layer in tracked(model) for word in SENT]
    return bool(names) and all(n in update.held and n in update.buffers for n in names)


def received_statistics(
    task: Task, update: Update, public: Tensor, known: Knowledge, *, kind: str | None
) -> BatchStatistics | None:
    """Return the batch statistics that an update or public records show; None for no ``kind``.

    After several steps that are not simulated, the mean over the steps is taken for the statistics
    of one batch.

    Args:
        task: the model as the attacker runs it.
        update: what the client sent.
        public: public records ``[n, ...]``.
        known: the local steps, where the attack simulates them.
        kind: ``"inferred"`` or ``"proxy"``.

    Raises:
        InputError: the model has no BatchNorm in training mode, or the update does not show them.
    """
    if kind is None:
        return None
    if kind == FROM_BUFFERS:
        found = possible(statistics_of_update(task.model, update), update)
    else:
        found = statistics_of(task, update.before, public[None, :MOST_PROXIES])
    one = known.steps if known.simulate else None
    batches = BatchStatistics(found, *((one.steps, one.epochs) if one else (1, 1)))
    batches.prior(task, update.before, 1.0)  # refuses a model without BatchNorm
    return batches


def possible(found: Statistics, update: Update) -> dict[str, tuple[Tensor, Tensor]]:
    """Return inferred statistics with variances of 0 where rounding made them negative.

    Raises:
        InputError: a variance is negative beyond rounding, or not finite: the layer's momentum or
            the number of steps is another one.
    """
    sound = {}
    for name, (mean, variance) in found.items():
        before, after = (part[f"{name}.running_var"] for part in (update.held, update.buffers))
        eps = torch.finfo(precision_of([before, after])).eps
        slack = 100 * eps * max(float(before.abs().max()), float(after.abs().max()))
        least = float(variance.min())
        require(
            bool(mean.isfinite().all()) and least >= -slack,
            f"the running variance of {name!r} does not follow from {update.steps} local steps at "
            f"the layer's momentum (a batch would have a variance of {least:.2g}); give the task's "
            "model the client's momentum, name its number of steps, or leave the statistics out",
        )
        sound[name] = (mean, variance.clamp(min=0))
    return sound
