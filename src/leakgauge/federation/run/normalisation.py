"""Whether the task's BatchNorm layers ran as the clients' did, and what shows their statistics."""

from collections.abc import Sequence

import torch
from torch import nn

from leakgauge.core.checks import require
from leakgauge.core.names import few
from leakgauge.integrations.kept import KINDS
from leakgauge.integrations.kept_reading import KeptUpdate
from leakgauge.inversion.run.received_statistics import SENT, possible, shows_statistics
from leakgauge.inversion.search.priors import running, statistics_of_update, tracked
from leakgauge.inversion.words import FROM_BUFFERS, PROXY
from leakgauge.runs.spec import NONE
from leakgauge.training.counting import batches_counted
from leakgauge.training.update import Update

OTHERWISE = "--statistics none leaves the running statistics out"


def statistics_kind(
    asked: str | None, model: nn.Module, one: KeptUpdate, update: Update, steps: int | None
) -> str | None:
    """Return how the attacker on an update knows the statistics of BatchNorm's batches.

    Args:
        asked: the setting; None takes ``"inferred"`` where the update has the running statistics
            before and after, and the model has BatchNorm in training mode.
        model: the task's model.
        one: the kept update.
        update: its tensors.
        steps: local steps that the settings name; None for unknown.

    Returns:
        ``"inferred"``, ``"proxy"``, or None for not at all.

    Raises:
        InputError: the running statistics contradict the task's model or the settings, or the
            update does not have them.
    """
    if asked in (NONE, PROXY):
        return None if asked == NONE else PROXY
    _check_modes(model, one, update)
    _check_count(one, update, steps)
    if asked is None and not shows_statistics(model, update):
        return None
    require(
        bool(tracked(model)),
        f"{type(model).__name__} has no BatchNorm in training mode, so it has no statistics of "
        "batches; leave out --statistics",
    )
    possible(statistics_of_update(model, update), update)
    return FROM_BUFFERS


def described_statistics(
    asked: str | None, model: nn.Module, kinds: Sequence[str | None]
) -> list[str]:
    """Return notes on how the attacker knows the statistics of the batches; often none.

    Args:
        asked: the setting.
        model: the task's model.
        kinds: the result of ``statistics_kind`` for each update.
    """
    notes = []
    if shown := kinds.count(FROM_BUFFERS):
        notes.append(
            "the search matches the statistics of BatchNorm's batches, as the running statistics "
            f"of {shown} updates show them (--statistics)"
        )
    if tracked(model) and (missing := kinds.count(None)):
        why = "were not sent; --statistics proxy takes those of public records"
        why = why if asked is None else "are left out, as --statistics none says"
        notes.append(f"BatchNorm's running statistics of {missing} updates {why}")
    return notes


def assumed_statistics(kind: str | None, steps: int) -> tuple[str, ...]:
    """Return what a search assumes of the statistics of BatchNorm's batches, in words."""
    if kind == PROXY:
        return ("BatchNorm's statistics of the batches are those of public records",)
    if kind == FROM_BUFFERS and steps > 1:
        return (f"BatchNorm's statistics of all {steps} batches are like their weighted mean",)
    return ()


def _check_modes(model: nn.Module, one: KeptUpdate, update: Update) -> None:
    """Refuse a model whose layers normalise by other statistics than the client's did."""
    moved = {name for name in running(model) if _moved(update, name)}
    asleep = [
        name for name, layer in running(model).items() if name in moved and not layer.training
    ]
    require(
        not asleep,
        f"{one.name}: the running statistics of {few(asleep)} moved, so the client trained them in "
        "training mode, and the task's model has them in evaluation mode; return the model in "
        f"training mode (model.train()), or {OTHERWISE}",
    )
    sent = one.kind == KINDS[0] and shows_statistics(model, update)
    require(
        not sent or bool(moved),
        f"{one.name}: no running statistics moved, so the client's BatchNorm was in evaluation "
        "mode, and the task's model has it in training mode; return the model in evaluation mode "
        f"(model.eval()), or {OTHERWISE}",
    )


def _check_count(one: KeptUpdate, update: Update, named: int | None) -> None:
    counted = batches_counted(update.held, update.buffers)
    require(
        None in (counted, named) or counted == named,
        f"{one.name}: BatchNorm counted {counted} batches, and the settings make {named} local "
        f"steps; name --local-steps {counted}, or, if some batches made no step, {OTHERWISE}",
    )


def _moved(update: Update, layer: str) -> bool:
    names = [f"{layer}.{word}" for word in SENT]
    return any(
        name in update.held
        and name in update.buffers
        and not torch.equal(update.held[name], update.buffers[name])
        for name in names
    )
