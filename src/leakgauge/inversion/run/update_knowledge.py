"""What an attacker on the update of a real client knows of its optimizer and statistics."""

from torch import Tensor

from leakgauge.core.types import Task
from leakgauge.inversion.search.attack import settings_for
from leakgauge.inversion.search.settings import Settings
from leakgauge.inversion.search.simulate import LocalSteps
from leakgauge.inversion.search.statistics import (
    MOST_PROXIES,
    StatisticsPrior,
    statistics_of,
    statistics_of_update,
)
from leakgauge.inversion.search.targets import Prior
from leakgauge.inversion.words import FROM_BUFFERS
from leakgauge.training.update import Update


def settings_against(settings: Settings, update: Update, *, unknown: tuple[str, ...]) -> Settings:
    """Return the search against an update, whose optimizer may leave little of a gradient.

    Args:
        settings: the method.
        update: what the client sent.
        unknown: what the attacker does not know of its training.
    """
    recipe = update.recipe
    if recipe is None:
        return settings
    steps = LocalSteps(len(recipe), recipe.rates[0], optimizer=update.optimizer)
    return settings_for(settings, steps, unknown=unknown)


def prior_of(
    task: Task,
    update: Update,
    settings: Settings,
    public: Tensor,
    local: LocalSteps | None,
    *,
    kind: str | None,
) -> Prior | None:
    """Return the prior of the statistics that the update or public records tell.

    Args:
        task: the model as the attacker runs it, and its loss.
        update: what the client sent.
        settings: the method.
        public: public records ``[n, ...]``.
        local: the steps to simulate, or None.
        kind: how the statistics are known: ``"inferred"``, ``"proxy"``; None for not at all.

    Raises:
        InputError: the update lacks its running statistics, or the model has no BatchNorm in
            training mode.
    """
    if kind is None:
        return None
    known = (
        statistics_of_update(task.model, update)
        if kind == FROM_BUFFERS
        else statistics_of(task, update.before, public[None, :MOST_PROXIES])
    )
    steps, epochs = (1, 1) if local is None else (local.steps, local.epochs)
    weight = settings.batch_norm
    return StatisticsPrior(task, update.before, known, steps, epochs, weight=weight)
