"""Searches for records by any loss: T targets x R restarts as one batch; the best is kept."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.core.checks import InputError, require
from leakgauge.inversion.search.descent import descend
from leakgauge.inversion.search.priors import total_variation
from leakgauge.inversion.search.schedule import fading
from leakgauge.inversion.search.settings import Settings
from leakgauge.inversion.search.starts import draw_scores
from leakgauge.runs.checkpoint import Checkpoint

Distance = Callable[[Tensor, Tensor, Tensor], Tensor]
"""``(x [N, B, ...], y [N, B] or [N, B, classes], targets [N]) -> [N]``: how far the gradients of
each row are from those of its target."""

Prior = Callable[[Tensor, Tensor], Tensor]
"""``(x [N, B, ...], targets [N]) -> [N]``: a term of the loss that looks at the records alone."""

Progress = Callable[[int, Tensor], None]
"""``(iteration, loss [T])``: the smallest loss of each target's restarts, at this iteration."""


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """The records rebuilt for each of T targets.

    Attributes:
        x: records ``[T, B, ...]``, in units of the model's input; their order means nothing.
        labels: ``[T, B]`` int64, as given or as inferred.
        loss: ``[T]``, objective and priors, of what is in ``x`` (before it was rescaled, where the
            settings ask for that).
        steps: iterations at which the loss was noted, ``[k]``.
        losses: of the kept restart, ``[T, k]``.
        restart_losses: ``[T, R]``; the smallest is kept, whatever the truth is.
        iterations: of the kept restart, ``[T]``.
        stopped_early: whether its loss stopped falling before the end, ``[T]``.
        seconds_per_iteration: of all targets together.
        snapshot_steps: iterations at which the records were noted, ``[s]``.
        snapshots: of the kept restart, ``[T, s, B, ...]``.
    """

    x: Tensor
    labels: Tensor
    loss: Tensor
    steps: Tensor
    losses: Tensor
    restart_losses: Tensor
    iterations: Tensor
    stopped_early: Tensor
    seconds_per_iteration: float
    snapshot_steps: Tensor
    snapshots: Tensor


def search(
    objective: Distance,
    settings: Settings,
    start: Tensor,
    *,
    seed: int,
    labels: Tensor | None = None,
    classes: int | None = None,
    held: int | None = None,
    first_target: int = 0,
    low: Tensor | None = None,
    high: Tensor | None = None,
    prior: Prior | None = None,
    snapshots: int = 0,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
) -> Reconstruction:
    """Search for records by any objective, for example over the updates of several epochs.

    Args:
        objective: distance of gradients, without the priors.
        settings: the attack, without its own objective.
        start: where the restarts of each target begin, ``[T, R, B, *record]``.
        seed: draws the starts of unknown labels.
        labels: ``[T, B]`` int64, or numbers ``[T, B, ...]``; None searches for them among
            ``classes``.
        classes: of the model; needed where ``labels`` is None.
        held: records that one gradient is of, where ``objective`` splits the B records; None
            takes all B. A prior of each record counts them.
        first_target: as for ``reconstruct``.
        low: as for ``reconstruct``.
        high: as for ``reconstruct``.
        prior: as for ``reconstruct``.
        snapshots: as for ``reconstruct``.
        progress: as for ``reconstruct``.
        checkpoint: as for ``reconstruct``.

    Raises:
        InputError: labels are missing or do not fit, or a box has no limits.
    """
    targets, restarts, count = start.shape[:3]
    _check_box(settings, start, low, high)
    scores, known = None, torch.zeros(targets, count, dtype=torch.int64)
    if labels is None:
        of_classes = _check_joint(settings, classes)
        scores = draw_scores(start, of_classes, seed=seed, first_target=first_target)
    else:
        _check_labels(labels, targets, count, classes)
        known = labels.to(start.device)
    rows_of = torch.arange(targets, device=start.device).repeat_interleave(restarts)

    def distance(x: Tensor, score: Tensor | None, of: Tensor) -> Tensor:
        return objective(x, known[of] if score is None else score.softmax(-1), of)

    weight = settings.total_variation * ((held or count) if settings.prior_per_record else 1)
    begin = start.new_ones(targets)
    if settings.prior_relative and weight:
        distances = distance(start.flatten(0, 1), scores, rows_of).detach()
        begin = distances.view(targets, restarts).nan_to_num(0, 0, 0).mean(1)

    def loss(x: Tensor, score: Tensor | None, rows: Tensor, done: float) -> Tensor:
        of = rows_of[rows]
        value = distance(x, score, of)
        if weight:
            unit = begin[of] * fading(settings.prior_first, done)
            if settings.prior_relative:
                unit = torch.maximum(unit, settings.prior_first * value.detach())
            value = value + weight * unit * total_variation(x)
        return value if prior is None else value + prior(x, of)

    def report(at: int, losses: Tensor) -> None:
        if progress is not None:
            progress(at, losses.view(targets, restarts).amin(1))

    ways = descend(
        loss,
        settings,
        start.flatten(0, 1),
        scores,
        low=(torch.tensor(-torch.inf) if low is None else low).to(start),
        high=(torch.tensor(torch.inf) if high is None else high).to(start),
        snapshots=snapshots,
        progress=report,
        checkpoint=checkpoint,
    )
    restart_losses = ways.loss.view(targets, restarts)
    kept = restart_losses.nan_to_num(nan=torch.inf).argmin(1) + restarts * torch.arange(
        targets, device=start.device
    )
    iterations = ways.iterations[kept]
    return Reconstruction(
        x=ways.x[kept],
        labels=known if ways.scores is None else ways.scores[kept].argmax(-1),
        loss=ways.loss[kept],
        steps=ways.steps,
        losses=ways.losses[kept],
        restart_losses=restart_losses,
        iterations=iterations,
        stopped_early=iterations < settings.iterations,
        seconds_per_iteration=ways.seconds / int(ways.iterations.max()),
        snapshot_steps=ways.snapshot_steps,
        snapshots=ways.snapshots[kept],
    )


def _check_box(settings: Settings, start: Tensor, low: Tensor | None, high: Tensor | None) -> None:
    require(
        not settings.boxed or (low is not None and high is not None),
        "the attack keeps records in a box; pass low and high, or set boxed=False",
    )
    for name, value in (("low", low), ("high", high)):
        if value is not None:
            record = list(start.shape[3:])
            pairs = zip(reversed(value.shape), reversed(record), strict=False)
            require(
                value.dim() <= len(record) and all(own in (1, size) for own, size in pairs),
                f"{name} is {list(value.shape)}; expected it to broadcast to a record {record}",
            )


def _check_joint(settings: Settings, classes: int | None) -> int:
    require(
        settings.joint_labels,
        "the attack needs labels [T, B]; infer them (infer_labels), pass known ones, "
        "or set joint_labels=True",
    )
    if classes is None:
        raise InputError(
            "labels are searched for among classes, and the model's outputs are no scores of two "
            "or more, or its loss has no classes; pass the labels (as known)"
        )
    return classes


def _check_labels(labels: Tensor, targets: int, count: int, classes: int | None) -> None:
    if labels.is_floating_point() and classes is None:
        require(
            labels.shape[:2] == (targets, count),
            f"labels are {list(labels.shape)}; expected [{targets}, {count}, ...]",
        )
        return
    require(
        labels.dtype == torch.int64 and labels.shape == (targets, count),
        f"labels are {labels.dtype} {list(labels.shape)}; "
        f"expected int64 [{targets}, {count}], one for each record",
    )
    low, high = int(labels.min()), int(labels.max())
    require(
        low >= 0 and (classes is None or high < classes),
        f"labels run from {low} to {high}; the model has classes 0 to {(classes or 0) - 1}"
        if classes is not None
        else f"the smallest label is {low}; expected 0 or more",
    )
