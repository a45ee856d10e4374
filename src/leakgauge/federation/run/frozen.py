"""What an audit takes from the task's model since the kept updates lack it."""

from collections.abc import Collection, Sequence

import torch

from leakgauge.core.checks import InputError, require
from leakgauge.core.names import few
from leakgauge.core.rng import derive
from leakgauge.core.types import Task
from leakgauge.integrations.kept_base import lacking
from leakgauge.integrations.kept_reading import KeptUpdate
from leakgauge.integrations.training_settings import LocalTraining
from leakgauge.inversion.run.received_statistics import SENT
from leakgauge.inversion.search.priors import running
from leakgauge.runs.user_task import load_task

WEIGHTS = "the frozen weights are the task's (their checksum was not kept)"
STATISTICS = "the running statistics of BatchNorm are the task's (none were sent)"


def taken_from_task(
    task: Task,
    updates: Sequence[KeptUpdate],
    training: LocalTraining,
    function: str,
    *,
    seed: int,
) -> dict[KeptUpdate, tuple[str, ...]]:
    """Return what is taken from the task's model without proof, in words, for each update.

    Args:
        task: the auditor's model.
        updates: the kept updates.
        training: settings of the clients, from the auditor.
        function: the function that returned the task, as ``MODULE:FUNCTION``.
        seed: seed of the run.

    Raises:
        InputError: an update does not fit the model, or the function draws weights at random that
            no update supplies.
    """
    asleep = [name for name, layer in running(task.model).items() if not layer.training]
    if not asleep and all(leaf.requires_grad for leaf in task.model.parameters()):
        return dict.fromkeys(updates, ())  # every parameter has to come
    found: dict[KeptUpdate, tuple[str, ...]] = {}
    for one in updates:
        update = one.update(task.model, training)
        supplied = {*update.before, *update.held}
        said = []
        if one.base is None and lacking(task.model, supplied):
            said.append(WEIGHTS)
            if not any(WEIGHTS in each for each in found.values()):
                _refuse_drawn(task, supplied, function, seed=seed)
        if any(f"{name}.{word}" not in supplied for name in asleep for word in SENT):
            said.append(STATISTICS)
        found[one] = tuple(said)
    return found


def _refuse_drawn(task: Task, supplied: Collection[str], function: str, *, seed: int) -> None:
    """Refuse a task that draws weights at random which no update supplies.

    Its function is called again with another seed of the global generators.
    """
    try:
        other, _ = load_task(function, seed=derive(seed, "another task"))
    except InputError:  # it cannot be called twice
        return
    again = dict(other.model.named_parameters())
    drawn = [
        name
        for name, leaf in lacking(task.model, supplied).items()
        if name in again and not torch.equal(again[name].detach().to(leaf), leaf.detach())
    ]
    require(
        not drawn,
        f"--task {function} draws {few(drawn)} at random, which the clients have and never sent; "
        "load the base weights that the clients loaded, or seed the function as they do",
    )
