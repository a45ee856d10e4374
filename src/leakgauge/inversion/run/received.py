"""Rebuilds records from an update that came in from outside: nobody here knows the truth."""

from dataclasses import dataclass, replace
from math import isfinite

import torch
from torch import Tensor

from leakgauge.core.checks import InputError, require, require_choice
from leakgauge.core.rng import stream, torch_stream
from leakgauge.core.types import Dataset, Task
from leakgauge.inversion.labels.inference import infer_labels
from leakgauge.inversion.run.spec import INFERRED, KNOWN, LABELS
from leakgauge.inversion.run.unscored import Received, are_pictures
from leakgauge.inversion.search.engine import classes_of, reconstruct
from leakgauge.inversion.search.settings import Settings
from leakgauge.inversion.search.simulate import LocalSteps
from leakgauge.inversion.search.targets import Progress
from leakgauge.training.update import Update

LIKE = 1024
"""Public records that stand in for private ones when labels are counted, at most: the mean
prediction is then known to about 0.5 / sqrt(1024), half a record in a batch of 32."""


@dataclass(frozen=True, eq=False)
class Ready:
    """An update that can be attacked; all that could be refused was looked at.

    Attributes:
        task: the model and its loss.
        update: what came.
        settings: the method.
        shape: of all its records, ``(B, *record)``.
        labels: ``[1, B]``; None where the search finds them, too.
        low: as in ``Received``, like ``high`` and ``warnings``.
        high: see ``low``.
        local: the steps to simulate, or None.
        warnings: see ``low``.
        seed: draws the starts.
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

    def rebuild(self, progress: Progress | None = None) -> Received:
        """Search for the records.

        Raises:
            InputError: the search found no finite loss.
        """
        found = reconstruct(
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
            progress=progress,
        )
        loss = float(found.loss)
        require(
            isfinite(loss),
            f"the search ended at a loss of {loss}; take another --method or more --restarts",
        )
        curve = zip(found.steps.tolist(), found.losses[0].tolist(), strict=True)
        return Received(
            x=found.x[0].detach(),
            labels=found.labels[0],
            loss=loss,
            curve=tuple((float(at), value) for at, value in curve if isfinite(value)),
            low=self.low,
            high=self.high,
            warnings=self.warnings,
            seconds_per_iteration=found.seconds_per_iteration,
        )


def record_count(update: Update) -> int:
    """Records behind an update; where it does not say, all of its steps are taken for different.

    Raises:
        InputError: it tells neither its records nor its batch size.
    """
    if update.records is not None:
        return update.records
    if update.batch_size is None:
        raise InputError(
            "the update tells neither its records nor its batch size; say how many records it is "
            "of with --images"
        )
    return update.batch_size * update.steps


def local_steps(update: Update, count: int) -> LocalSteps:
    """The client's training, as it told: passes over the same batches in the same order.

    Args:
        update: what came.
        count: its different records.

    Raises:
        InputError: the update does not tell enough, or its steps are no whole passes.
    """
    size = update.batch_size
    require(
        update.steps > 1 and update.lr is not None,
        f"a {update.kind} of {update.steps} step needs no simulation; leave out --simulate",
    )
    if size is None:
        raise InputError(
            "the update does not tell its batch size, without which its steps cannot be simulated; "
            "leave out --simulate"
        )
    steps = count // size
    require(
        count % size == 0 and update.steps % steps == 0,
        f"{update.steps} steps of {size} records are no whole passes over {count} records, so "
        "they cannot be simulated; leave out --simulate",
    )
    assert update.lr is not None
    return LocalSteps(steps, update.lr, update.steps // steps)


def rebuild_received(
    task: Task,
    data: Dataset,
    update: Update,
    settings: Settings,
    *,
    labels: str = INFERRED,
    simulate: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Received:
    """Rebuild the records of a client that nobody knows, from what it sent.

    Args:
        task: the model and its loss; never changed.
        data: public records of the same shape. They give the box, and the mean prediction that
            labels are counted with; no record of it is looked for in the update.
        update: what came.
        settings: the method.
        labels: ``"inferred"``, or ``"known"`` where the update holds them.
        simulate: whether to simulate the local steps.
        seed: draws the starts, and which public records stand in.
        progress: as for ``reconstruct``.

    Raises:
        InputError: update, model and records do not fit one another, or the update does not say
            what is needed.
    """
    ready = prepare_received(
        task, data, update, settings, labels=labels, simulate=simulate, seed=seed
    )
    return ready.rebuild(progress)


def prepare_received(
    task: Task,
    data: Dataset,
    update: Update,
    settings: Settings,
    *,
    labels: str = INFERRED,
    simulate: bool = False,
    seed: int = 0,
) -> Ready:
    """All of ``rebuild_received`` but the search, which alone takes long; arguments as there."""
    require_choice(labels, "--labels", LABELS)
    require(len(data) > 0, "there are no public records; they give a record's shape and range")
    update.check_fits(task.model)
    task = replace(task, model=update.in_place(task.model))
    update = _on(update, data.x.device)
    count, shape = record_count(update), tuple(data.x.shape[1:])
    public = data.x.to(next(iter(update.before.values())).dtype)
    low, high = box_of(public)
    # First, since it says best what a model in train mode, or of other inputs, does wrong.
    warnings = _warnings(task, update, shape, simulate=simulate, seed=seed)
    classes = classes_of(task, update.before, public[:1])
    if labels == KNOWN:
        given: Tensor | None = _told_labels(update, count, classes)
    else:
        given = None if settings.joint_labels else _inferred(task, update, count, public, seed)
    local = local_steps(update, count) if simulate else None
    return Ready(task, update, settings, (count, *shape), given, low, high, local, warnings, seed)


def box_of(public: Tensor) -> tuple[Tensor, Tensor]:
    """The lowest and highest values of records ``[n, ...]``: of pictures channel by channel.

    Raises:
        InputError: the records are all equal, so they tell no range.

    >>> low, high = box_of(torch.tensor([[1.0, 5.0], [3.0, 4.0]]))
    >>> low.tolist(), high.tolist()
    ([1.0, 4.0], [3.0, 5.0])
    """
    axes = (0, 2, 3) if are_pictures(public) else (0,)
    low, high = public.amin(dim=axes), public.amax(dim=axes)
    require(
        bool((high > low).any()),
        f"the public records ({len(public)}) are all equal, so they tell no range of a record; "
        "bring more",
    )
    return (low[:, None, None], high[:, None, None]) if len(axes) > 1 else (low, high)


def _on(update: Update, device: torch.device) -> Update:
    """The same update on another device."""
    return replace(
        update,
        before={name: leaf.to(device) for name, leaf in update.before.items()},
        labels=None if update.labels is None else update.labels.to(device),
    )


def _inferred(task: Task, update: Update, count: int, public: Tensor, seed: int) -> Tensor:
    """``[1, B]``, counted with some of the public records in place of the private ones."""
    drawn = stream(seed, "like").permutation(len(public))[:LIKE]
    like = public[torch.from_numpy(drawn).to(public.device)][None]
    return infer_labels(task, update.before, update.as_gradient(), count, like=like).labels


def _told_labels(update: Update, count: int, classes: int | None) -> Tensor:
    """``[1, B]``, as the client told them."""
    if update.labels is None:
        raise InputError(
            "labels are to be known, but the update holds none; take --labels inferred"
        )
    came = len(update.labels)
    require(came == count, f"the update holds {came} labels; expected {count}, its records")
    first, last = int(update.labels.min()), int(update.labels.max())
    require(
        first >= 0 and (classes is None or last < classes),
        f"the update holds labels from {first} to {last}; the model has {classes} classes",
    )
    return update.labels[None]


def _warnings(
    task: Task, update: Update, shape: tuple[int, ...], *, simulate: bool, seed: int
) -> tuple[str, ...]:
    """What speaks against the update, judged on noise: nothing private is at hand."""
    device = next(iter(update.before.values())).device
    size = update.batch_size or 1
    noise = torch.randn((size, *shape), generator=torch_stream(seed, "stand-in"))
    like = noise.to(next(iter(update.before.values())))
    validity = update.validity(task, like, torch.zeros(size, dtype=torch.int64, device=device))
    return validity.warnings(simulated=simulate)
