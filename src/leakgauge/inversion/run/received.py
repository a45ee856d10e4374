"""Records rebuilt from the update of a real client, where the true records are unknown."""

from dataclasses import dataclass, replace
from math import isfinite

import torch
from torch import Tensor, nn

from leakgauge.core.checks import InputError, require, require_choice
from leakgauge.core.rng import stream, torch_stream
from leakgauge.core.types import Dataset, Task
from leakgauge.inversion.attack import (
    WITHOUT_DROPOUT,
    attack,
    finds_labels,
    inference_of,
    order_warnings,
    rate_assumed,
)
from leakgauge.inversion.labels.inference import LabelGuess, LabelMethod, infer_labels
from leakgauge.inversion.methods import Method
from leakgauge.inversion.observed import (
    AttackOptions,
    Knowledge,
    ObservedUpdates,
    Reconstruction,
    RecoveredInputs,
    SearchProgress,
)
from leakgauge.inversion.run.received_statistics import received_statistics
from leakgauge.inversion.run.received_steps import (
    local_steps,
    not_simulated,
    one_gradient,
    plain_steps,
    record_count,
)
from leakgauge.inversion.scoring import are_pictures, range_of
from leakgauge.inversion.search.checks import classes_of
from leakgauge.inversion.words import INFERRED, KNOWN, LABELS, RATE
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.training.local import repeatable
from leakgauge.training.recognition import understood
from leakgauge.training.update import Update

MOST_PUBLIC = 1024
"""Public records that stand in for private ones when labels are counted, at most: the mean
prediction is then known to about 0.5 / sqrt(1024), half a record in a batch of 32."""


@dataclass(frozen=True, eq=False)
class Received:
    """Records rebuilt from one update.

    Attributes:
        x: records ``[B, ...]``, in units of the model's input, in any order.
        labels: labels ``[B]`` int64, as given or as inferred.
        loss: objective and priors of ``x``, the only figure without true records.
        curve: points (iteration, loss).
        low: lowest values of public records, broadcast to a record.
        high: highest values of public records, broadcast to a record.
        warnings: reasons why the update may not be what the attack assumes.
        seconds_per_iteration: time of an iteration, in seconds.
        matched: match of the records' update and the one that was sent; None without a search.
        aligned: match of their directions; None likewise.
        assumed: what the attack assumed of the training, in words.
        label_residual: distance of counted labels from whole numbers, in records; None where labels
            were not counted.
        certified: whether the records' gradient is the received one to rounding, as 0 or 1; None
            for a method that does not compute it.
        starts: records of each start of the search ``[R, B, ...]`` that found any, the chosen one
            among them; None for a method without starts, or for a single one.
        layer: inputs to a layer that were recovered in place of records; ``x`` holds guesses then.
    """

    x: Tensor
    labels: Tensor
    loss: float
    curve: tuple[tuple[float, float], ...]
    low: Tensor
    high: Tensor
    warnings: tuple[str, ...]
    seconds_per_iteration: float
    matched: float | None = None
    aligned: float | None = None
    assumed: tuple[str, ...] = ()
    label_residual: float | None = None
    certified: float | None = None
    starts: Tensor | None = None
    layer: RecoveredInputs | None = None

    @property
    def pictures(self) -> Tensor | None:
        """Uint8 ``[B, c, h, w]``, from ``low`` to ``high``; None for other records or guesses."""
        if self.layer is not None or not are_pictures(self.x):
            return None
        width = torch.where(self.high > self.low, self.high - self.low, 1.0)
        scaled = 255 * (self.x - self.low) / width
        return scaled.round().clamp(0, 255).to(torch.uint8)


@dataclass(frozen=True, eq=False)
class PreparedUpdate:
    """An update that can be attacked; everything that can be refused before an attack was checked.

    Attributes:
        task: the model as the attacker runs it, and its loss.
        seen: the update, with the shape of its records.
        method: the attack.
        known: what the attacker knows; labels are there unless the method finds them.
        warnings: reasons why the update may not be what the attack assumes.
        seed: seed of the attack.
        assumed: what the attack assumes of the training, in words.
        label_residual: as in ``Received``, where labels were counted before the attack.
    """

    task: Task
    seen: ObservedUpdates
    method: Method
    known: Knowledge
    warnings: tuple[str, ...]
    seed: int
    assumed: tuple[str, ...] = ()
    label_residual: float | None = None

    def rebuild(
        self, progress: SearchProgress | None = None, checkpoint: Checkpoint | None = None
    ) -> Received:
        """Return the rebuilt records; refuse a search without a finite loss."""
        options = AttackOptions(self.seed, progress=progress, checkpoint=checkpoint)
        found = attack(self.task, self.seen, self.method, self.known, options)
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
            low=self.known.low,
            high=self.known.high,
            warnings=(*self.warnings, *found.notes),
            seconds_per_iteration=found.seconds_per_iteration,
            matched=None if found.matched is None else float(found.matched),
            aligned=None if found.aligned is None else float(found.aligned),
            assumed=self.assumed,
            label_residual=self.label_residual,
            certified=None if found.certified is None else float(found.certified),
            layer=found.layer,
            starts=None if found.restart_x is None else found.restart_x[0][_finite(found)].detach(),
        )


def _finite(found: Reconstruction) -> Tensor:
    """Return which restarts of the first target have a finite loss, bool ``[R]``."""
    return found.restart_losses[0].isfinite()


def prepare_received(
    task: Task,
    data: Dataset,
    update: Update,
    method: Method,
    *,
    labels: str = INFERRED,
    simulate: bool | None = None,
    optimizer: str | None = None,
    assumed_lr: float | None = None,
    statistics: str | None = None,
    seed: int = 0,
) -> PreparedUpdate:
    """Return the update of a real client, ready to be attacked.

    Args:
        task: the model and its loss; never changed.
        data: public records of the same shape. They give the range of values, and the mean
            prediction for counting labels; the attack looks for none of them in the update.
        update: what the client sent.
        method: the attack.
        labels: one of ``words.LABELS``; ``"known"`` where the update holds them.
        simulate: whether to simulate the local steps; None does so where ``not_simulated`` finds
            no reason against it.
        optimizer: the optimizer, where it is named; None recognises it from the update.
        assumed_lr: rate of each local step, where the attacker does not know it.
        statistics: how the attacker knows those of BatchNorm: ``"inferred"`` or ``"proxy"``.
        seed: draws the starts and the public records that stand in for private ones.

    Raises:
        InputError: update, model and records do not match, or the update lacks what is
            needed.
    """
    require_choice(labels, "--labels", LABELS)
    require(len(data) > 0, "public records are missing; they give a record's shape and range")
    update = update.fitted(task.model)
    if assumed_lr is not None and update.kind != "gradient":
        update = replace(update, lr=assumed_lr, rates=(assumed_lr,) * update.steps)
    if update.is_zero:
        raise InputError(update.warnings()[0])
    known_as = understood(update, named=optimizer)
    update = replace(update, optimizer=known_as.optimizer)
    update.as_gradient()  # refuses an update that stands for no gradient
    trained = replace(task, model=update.in_place(task.model))
    task = repeatable(trained)
    update = _on_device(update, data.x.device)
    count, shape = record_count(update), tuple(data.x.shape[1:])
    public = data.x.to(next(iter(update.before.values())).dtype)
    low, high = range_of(public)
    against = not_simulated(update, count, ordered=labels == KNOWN) if simulate is None else ""
    simulate = (not against if simulate is None else simulate) and method.traits.searches
    # First, since it says best what a model in train mode, or of other inputs, does wrong.
    warnings = (
        *_warnings(task, update, data, simulate=simulate, seed=seed),
        *order_warnings(labels, method, simulate=simulate and count != update.batch_size),
        *([] if assumed_lr is None else [rate_assumed(assumed_lr)]),
        *([] if task is trained else [WITHOUT_DROPOUT]),
    )
    # BatchNorm in training mode needs two records.
    classes = classes_of(task, update.before, public[: 2 if task.model.training else 1])
    residual = None
    given = _sent_labels(update, count, classes) if labels == KNOWN else None
    if given is None and method.traits.uses_labels and not finds_labels(labels, method):
        guess = _inferred(task, update, count, public, method=inference_of(labels), seed=seed)
        given = guess.labels
        residual = None if guess.residual is None else float(guess.residual)
    known = Knowledge(
        low,
        high,
        given,
        steps=local_steps(update, count) if simulate else plain_steps(update),
        simulate=simulate,
        unknown=() if assumed_lr is None else (RATE,),
        guess=public.mean(dim=0),
    )
    shown = received_statistics(task, update, public, known, kind=statistics)
    known = replace(known, statistics=shown)
    seen = ObservedUpdates(update.before, update.as_gradient(), (count, *shape))
    said = tuple(filter(None, (known_as.assumed, one_gradient(update, against, simulate=simulate))))
    return PreparedUpdate(task, seen, method, known, warnings, seed, said, residual)


def _on_device(update: Update, device: torch.device) -> Update:
    return replace(
        update,
        before={name: leaf.to(device) for name, leaf in update.before.items()},
        labels=None if update.labels is None else update.labels.to(device),
    )


def _inferred(
    task: Task, update: Update, count: int, public: Tensor, *, method: LabelMethod, seed: int
) -> LabelGuess:
    """Return labels of one batch, counted with some public records in place of the private ones."""
    drawn = stream(seed, "like").permutation(len(public))[:MOST_PUBLIC]
    like = public[torch.from_numpy(drawn).to(public.device)][None]
    sent = update.as_gradient()
    signs = update.recipe is not None and not update.recipe.rule.linear
    return infer_labels(task, update.before, sent, count, method=method, signs=signs, like=like)


def _sent_labels(update: Update, count: int, classes: int | None) -> Tensor:
    """Return labels ``[1, B]`` as the client sent them."""
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
    """Return why the update may not stand for a gradient, measured on noise in place of records."""
    first = next(iter(update.before.values()))
    norm = any(isinstance(one, nn.modules.batchnorm._BatchNorm) for one in task.model.modules())
    size = update.batch_size or (2 if norm else 1)  # BatchNorm takes no single record
    noise = torch.randn((size, *data.x.shape[1:]), generator=torch_stream(seed, "stand-in"))
    labels = torch.zeros((size, *data.y.shape[1:]), dtype=data.y.dtype, device=first.device)
    validity = update.validity(task, noise.to(first), labels)
    return validity.warnings(simulated=simulate)
