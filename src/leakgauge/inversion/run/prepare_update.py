"""Prepares the search for the records behind the update of a real client."""

from dataclasses import dataclass, replace
from math import isfinite

import torch
from torch import Tensor

from leakgauge.core.checks import InputError, require, require_choice
from leakgauge.core.rng import stream, torch_stream
from leakgauge.core.types import Dataset, Task
from leakgauge.inversion.labels.inference import Method, infer_labels
from leakgauge.inversion.run.labelling import are_searched_for, dealing_warnings, method_of
from leakgauge.inversion.run.received import Received, are_pictures
from leakgauge.inversion.run.update_knowledge import prior_of, settings_against
from leakgauge.inversion.search.attack import WITHOUT_DROPOUT, rate_assumed
from leakgauge.inversion.search.engine import classes_of, reconstruct
from leakgauge.inversion.search.settings import Settings
from leakgauge.inversion.search.simulate import LocalSteps
from leakgauge.inversion.search.targets import Prior, Progress
from leakgauge.inversion.words import INFERRED, KNOWN, LABELS, RATE
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.training.local import repeatable
from leakgauge.training.update import Update

MOST_PUBLIC = 1024
"""Public records that stand in for private ones when labels are counted, at most: the mean
prediction is then known to about 0.5 / sqrt(1024), half a record in a batch of 32."""


@dataclass(frozen=True, eq=False)
class PreparedUpdate:
    """An update that can be attacked; nothing refuses it any more before the search.

    Attributes:
        task: the model and its loss.
        update: what the client sent.
        settings: the method.
        shape: of all its records, ``(B, *record)``.
        labels: ``[1, B]``; None where the search also finds the labels.
        low: lowest values of public records, broadcast to a record.
        high: highest values of public records, broadcast to a record.
        local: the steps to simulate, or None.
        warnings: why the update may not mean what the attack takes it for.
        seed: draws the starts.
        prior: of the statistics of BatchNorm, where they are known.
    """

    task: Task
    update: Update
    settings: Settings
    shape: tuple[int, ...]
    labels: Tensor | None
    low: Tensor
    high: Tensor
    local: LocalSteps | None
    warnings: tuple[str, ...]
    seed: int
    prior: Prior | None = None

    def rebuild(
        self, progress: Progress | None = None, checkpoint: Checkpoint | None = None
    ) -> Received:
        """Search for the records; arguments as for ``reconstruct``.

        Raises:
            InputError: the search has no finite loss.
        """
        search = reconstruct(
            self.task,
            self.update.before,
            self.update.as_gradient(),
            self.settings,
            shape=self.shape,
            seed=self.seed,
            labels=self.labels,
            low=self.low,
            high=self.high,
            local=self.local,
            prior=self.prior,
            progress=progress,
            checkpoint=checkpoint,
        )
        loss = float(search.loss)
        require(
            isfinite(loss),
            f"the search ended at a loss of {loss}; take another --method or more --restarts",
        )
        curve = zip(search.steps.tolist(), search.losses[0].tolist(), strict=True)
        return Received(
            x=search.x[0].detach(),
            labels=search.labels[0],
            loss=loss,
            curve=tuple((float(at), value) for at, value in curve if isfinite(value)),
            low=self.low,
            high=self.high,
            warnings=self.warnings,
            seconds_per_iteration=search.seconds_per_iteration,
        )


def rebuild_received(
    task: Task,
    data: Dataset,
    update: Update,
    settings: Settings,
    *,
    labels: str = INFERRED,
    simulate: bool = False,
    assumed_lr: float | None = None,
    statistics: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Received:
    """Return the records of a real client, rebuilt from its update.

    Args:
        task: the model and its loss; never changed.
        data: public records of the same shape. They give the range of values, and the mean
            prediction for counting labels; the search looks for none of them in the update.
        update: what the client sent.
        settings: the method.
        labels: ``"inferred"`` or the method that infers them, one of ``words.LABELS``; ``"known"``
            where the update holds them.
        simulate: whether to simulate the local steps.
        assumed_lr: rate of each local step, where the attacker does not know it.
        statistics: how the attacker knows those of BatchNorm: ``"inferred"`` or ``"proxy"``.
        seed: draws the starts and the public records that stand in for private ones.
        progress: as for ``reconstruct``.

    Raises:
        InputError: update, model and records do not fit one another, or the update lacks what is
            needed.
    """
    prepared = prepare_received(
        task,
        data,
        update,
        settings,
        labels=labels,
        simulate=simulate,
        assumed_lr=assumed_lr,
        statistics=statistics,
        seed=seed,
    )
    return prepared.rebuild(progress)


def prepare_received(
    task: Task,
    data: Dataset,
    update: Update,
    settings: Settings,
    *,
    labels: str = INFERRED,
    simulate: bool = False,
    assumed_lr: float | None = None,
    statistics: str | None = None,
    seed: int = 0,
) -> PreparedUpdate:
    """Return what ``rebuild_received`` prepares for its search; arguments as there."""
    require_choice(labels, "--labels", LABELS)
    require(len(data) > 0, "there are no public records; they give a record's shape and range")
    update.check_fits(task.model)
    if assumed_lr is not None and update.kind != "gradient":
        update = replace(update, lr=assumed_lr, rates=(assumed_lr,) * update.steps)
    _refuse_silent(update)
    trained = replace(task, model=update.in_place(task.model))
    task = repeatable(trained)
    update = _on_device(update, data.x.device)
    count, shape = record_count(update), tuple(data.x.shape[1:])
    public = data.x.to(next(iter(update.before.values())).dtype)
    low, high = range_of(public)
    # First, since it says best what a model in train mode, or of other inputs, does wrong.
    warnings = (
        *_warnings(task, update, data, simulate=simulate, seed=seed),
        *dealing_warnings(labels, settings, simulate=simulate),
        *([] if assumed_lr is None else [rate_assumed(assumed_lr)]),
        *([] if task is trained else [WITHOUT_DROPOUT]),
    )
    # BatchNorm in training mode needs two records.
    classes = classes_of(task, update.before, public[: 2 if task.model.training else 1])
    if labels == KNOWN:
        given: Tensor | None = _sent_labels(update, count, classes)
    elif are_searched_for(labels, settings):
        given = None
    else:
        given = _inferred(task, update, count, public, method=method_of(labels), seed=seed)
    local = local_steps(update, count) if simulate else None
    return PreparedUpdate(
        task,
        update,
        settings_against(settings, update, unknown=() if assumed_lr is None else (RATE,)),
        (count, *shape),
        given,
        low,
        high,
        local,
        warnings,
        seed,
        prior_of(task, update, settings, public, local, kind=statistics),
    )


def record_count(update: Update) -> int:
    """Return the number of records behind an update.

    Where the update does not say it, each of its steps is taken to use different records.

    Raises:
        InputError: it gives neither its records nor its batch size.
    """
    if update.records is not None:
        return update.records
    if update.batch_size is None:
        raise InputError(
            "the update gives neither its records nor its batch size; give the number of its "
            "records with --images"
        )
    return update.batch_size * update.steps


def local_steps(update: Update, count: int) -> LocalSteps:
    """Return the client's training: passes over the same batches in the same order.

    Args:
        update: what the client sent.
        count: its different records.

    Raises:
        InputError: the update does not say enough, or its steps are no whole passes.
    """
    size = update.batch_size
    require(
        update.recipe is not None and (update.steps > 1 or not update.recipe.is_plain),
        f"a {update.kind} of {update.steps} step needs no simulation; leave out --simulate",
    )
    if size is None:
        raise InputError(
            "the update does not give its batch size, without which its steps cannot be simulated; "
            "leave out --simulate"
        )
    steps = count // size
    require(
        count % size == 0 and update.steps % steps == 0,
        f"{update.steps} steps of {size} records are no whole passes over {count} records, so "
        "they cannot be simulated; leave out --simulate",
    )
    recipe = update.recipe
    assert recipe is not None
    return LocalSteps(
        steps,
        recipe.rates[0],
        update.steps // steps,
        optimizer=update.optimizer,
        rates=recipe.rates,
    )


def range_of(public: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lowest and highest values of records ``[n, ...]``: of pictures, by channel.

    Raises:
        InputError: the records are all equal, so they give no range.

    >>> low, high = range_of(torch.tensor([[1.0, 5.0], [3.0, 4.0]]))
    >>> low.tolist(), high.tolist()
    ([1.0, 4.0], [3.0, 5.0])
    """
    axes = (0, 2, 3) if are_pictures(public) else (0,)
    low, high = public.amin(dim=axes), public.amax(dim=axes)
    require(
        bool((high > low).any()),
        f"the public records ({len(public)}) are all equal, so they give no range of values; "
        "bring more",
    )
    return (low[:, None, None], high[:, None, None]) if len(axes) > 1 else (low, high)


def _refuse_silent(update: Update) -> None:
    """Refuse an update of zeros, and one that stands for no gradient."""
    if update.is_zero:
        raise InputError(update.warnings()[0])
    update.as_gradient()


def _on_device(update: Update, device: torch.device) -> Update:
    return replace(
        update,
        before={name: leaf.to(device) for name, leaf in update.before.items()},
        labels=None if update.labels is None else update.labels.to(device),
    )


def _inferred(
    task: Task, update: Update, count: int, public: Tensor, *, method: Method, seed: int
) -> Tensor:
    """Labels ``[1, B]``, counted with some public records in place of the private ones."""
    drawn = stream(seed, "like").permutation(len(public))[:MOST_PUBLIC]
    like = public[torch.from_numpy(drawn).to(public.device)][None]
    sent = update.as_gradient()
    return infer_labels(task, update.before, sent, count, method=method, like=like).labels


def _sent_labels(update: Update, count: int, classes: int | None) -> Tensor:
    """Labels ``[1, B]`` as the client sent them."""
    if update.labels is None:
        raise InputError(
            "labels are to be known, but the update holds none; take --labels inferred"
        )
    sent = len(update.labels)
    require(sent == count, f"the update holds {sent} labels; expected {count}, its records")
    if update.labels.is_floating_point() and classes is None:
        return update.labels[None]
    first, last = int(update.labels.min()), int(update.labels.max())
    require(
        first >= 0 and (classes is None or last < classes),
        f"the update holds labels from {first} to {last}; the model has {classes} classes",
    )
    return update.labels[None]


def _warnings(
    task: Task, update: Update, data: Dataset, *, simulate: bool, seed: int
) -> tuple[str, ...]:
    """Why the update may not mean a gradient, judged on noise: no private record is at hand."""
    first = next(iter(update.before.values()))
    size = update.batch_size or 1
    noise = torch.randn((size, *data.x.shape[1:]), generator=torch_stream(seed, "stand-in"))
    labels = torch.zeros((size, *data.y.shape[1:]), dtype=data.y.dtype, device=first.device)
    validity = update.validity(task, noise.to(first), labels)
    return validity.warnings(simulated=simulate)
