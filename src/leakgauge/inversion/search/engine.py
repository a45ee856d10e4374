"""The search for records: T targets x R restarts as one batch; the best of each target is kept.

It reads from the top: ``reconstruct`` compares gradients, ``search`` adds the priors and starts,
``draw_starts`` draws these, and ``descent.descend`` makes the steps.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Grads, Params, Task
from leakgauge.gradients.probing import trainable
from leakgauge.inversion.double_backward.convolution import lasting
from leakgauge.inversion.double_backward.difference import Difference
from leakgauge.inversion.observed import Reconstruction, SearchProgress
from leakgauge.inversion.search.between import Between
from leakgauge.inversion.search.checks import (
    check_box,
    check_gradients,
    check_joint,
    check_labels,
    classes_of,
)
from leakgauge.inversion.search.descent import descend
from leakgauge.inversion.search.distances import UpdateDistance, distance_from, gradients_of
from leakgauge.inversion.search.layer_weights import objective_of
from leakgauge.inversion.search.objective import agreement, direction, rescaled
from leakgauge.inversion.search.priors import total_variation
from leakgauge.inversion.search.settings import SearchSettings, fading
from leakgauge.inversion.search.simulate import LocalSteps
from leakgauge.runs.checkpoint import Checkpoint

RECORDED_FROM = 300
"""Iterations from which recording the inner step takes less time than it saves: an estimate for the
slim network and a ResNet20 of width 16; at width 64 it was not measured."""

Prior = Callable[[Tensor, Tensor], Tensor]
"""``(x [N, B, ...], targets [N]) -> [N]``: a term of the loss that looks at the records alone."""


def reconstruct(
    task: Task,
    params: Params,
    observed: Grads,
    settings: SearchSettings,
    *,
    shape: tuple[int, ...],
    seed: int,
    labels: Tensor | None = None,
    low: Tensor | None = None,
    high: Tensor | None = None,
    local: LocalSteps | None = None,
    start: Tensor | None = None,
    prior: Prior | None = None,
    first_target: int = 0,
    snapshots: int = 0,
    progress: SearchProgress | None = None,
    checkpoint: Checkpoint | None = None,
) -> Reconstruction:
    """Rebuild the records behind each of T gradients.

    Args:
        task: the model and its loss; never changed.
        params: where the gradients were taken: all trainable parameters, leaf ``[*p]``.
        observed: gradients, leaf ``[T, *p]``; for updates take ``as_gradient()``.
        settings: the attack, as one of ``PRESETS``.
        shape: shape of a target's records, ``(B, *record)``.
        seed: draws the starts, from one stream for each target and restart.
        labels: ``[T, B]`` int64, known or inferred, or known numbers ``[T, B, ...]``; None
            searches for them, where ``settings`` allow that.
        low: lowest values that a record can have, broadcast to it, in units of the model's
            input; needed with ``settings.boxed``, like ``high``.
        high: highest values, in the same way.
        local: simulates the client's local steps; None takes the update for one batch's gradient.
        start: ``[T, B, *record]``, where the first restart begins; None draws it.
        prior: a further term of the loss, with its weight, as ``BatchStatistics.prior``.
        first_target: number of the first target, so that targets in several calls draw as in one.
        snapshots: number of points at which the records are noted.
        progress: called at each iteration.
        checkpoint: keeps the state of the search on the way; a killed search continues from there,
            with equal results.

    Raises:
        InputError: gradients that do not fit the model, are not finite or all zeros; labels that
            are missing or do not fit; a box without limits; or what the model refuses.

    >>> from torch import nn
    >>> from leakgauge.inversion.search.presets import preset
    >>> task = Task(nn.Linear(3, 2), nn.functional.cross_entropy)
    >>> params = dict(task.model.named_parameters())
    >>> observed = {"weight": torch.tensor([[[1.0, 2, 3], [-1, -2, -3]]]) / 2}
    >>> observed["bias"] = torch.tensor([[0.5, -0.5]])
    >>> settings = preset("dlg-adam", iterations=2)
    >>> labels = torch.tensor([[1]])
    >>> rebuilt = reconstruct(task, params, observed, settings, shape=(1, 3), labels=labels, seed=0)
    >>> list(rebuilt.x.shape), list(rebuilt.losses.shape)
    ([1, 1, 3], [1, 3])
    """
    params = trainable(task.model, params)
    targets = check_gradients(params, observed)
    params = {name: lasting(value) for name, value in params.items()}
    seen = {name: lasting(observed[name].detach().to(value), 5) for name, value in params.items()}
    measure = objective_of(settings.objective, task.model)

    gradients = gradients_of(task, params, local)
    recorded = repeats(settings, targets)
    match = distance_from(seen, gradients, measure, recorded=recorded)
    begin = draw_starts(
        settings,
        shape,
        targets=targets,
        seed=seed,
        first_target=first_target,
        like=next(iter(params.values())),
        start=start,
    )
    differs = settings.slope == "difference" and local is None
    rebuilt = search(
        Difference(task, params, measure, seen, recorded=recorded) if differs else match,
        settings,
        begin,
        labels=labels,
        classes=classes_of(task, params, begin[0, 0]),
        seed=seed,
        first_target=first_target,
        low=low,
        high=high,
        prior=prior,
        snapshots=snapshots,
        progress=progress,
        checkpoint=checkpoint,
    )
    labels, x = rebuilt.labels, rebuilt.x
    limits = (low, high) if settings.boxed and low is not None and high is not None else None
    if settings.rescale:
        x = rescaled(x, lambda x: gradients(x, labels), seen, limits)
    with torch.no_grad():
        ours = gradients(x, labels)
        theirs = measure.nearest(ours, seen) if isinstance(measure, Between) else seen
        matched, aligned = agreement(ours, theirs), direction(ours, theirs)
    rebuilt = replace(
        rebuilt,
        x=x,
        matched=matched,
        aligned=aligned,
        distance=lambda x, y: measure(gradients(x, y), seen),
    )
    if not settings.rescale or rebuilt.restart_x is None or rebuilt.restart_labels is None:
        return rebuilt
    rows, of = rebuilt.restart_x.flatten(0, 1), rebuilt.restart_labels.flatten(0, 1)
    repeated = {name: leaf.repeat_interleave(settings.restarts, 0) for name, leaf in seen.items()}
    every = rescaled(rows, lambda x: gradients(x, of), repeated, limits)
    return replace(rebuilt, restart_x=every.view_as(rebuilt.restart_x))


def repeats(settings: SearchSettings, targets: int) -> bool:
    """Return whether a search computes the same often enough for a recording to pay.

    Only the settings decide, never a clock. The rows of a step must stay the same ones.
    """
    together = settings.optimizer != "lbfgs" or targets * settings.restarts == 1
    return together and settings.patience is None and settings.iterations >= RECORDED_FROM


def search(
    objective: UpdateDistance,
    settings: SearchSettings,
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
    progress: SearchProgress | None = None,
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
        classes: number of the model's classes; needed where ``labels`` is None.
        held: number of records behind one gradient, where ``objective`` splits the B records; None
            takes all B. A prior of each record counts them.

    The other arguments are as for ``reconstruct``.

    Raises:
        InputError: labels are missing or do not fit, or a box has no limits.
    """
    targets, restarts, count = start.shape[:3]
    check_box(settings, start, low, high)
    scores, known = None, torch.zeros(targets, count, dtype=torch.int64)
    if labels is None:
        of_classes = check_joint(settings, classes)
        scores = draw_scores(start, of_classes, seed=seed, first_target=first_target)
    else:
        check_labels(labels, targets, count, classes)
        known = labels.to(start.device)
    rows_of = torch.arange(targets, device=start.device).repeat_interleave(restarts)

    def distance(x: Tensor, score: Tensor | None, of: Tensor) -> Tensor:
        return objective(x, known[of] if score is None else score.softmax(-1), of)

    weight = settings.total_variation * ((held or count) if settings.prior_per_record else 1)
    begin = start.new_ones(targets)
    if settings.prior_relative and weight:
        distances = distance(start.flatten(0, 1), scores, rows_of).detach()
        begin = distances.view(targets, restarts).nan_to_num(0, 0, 0).mean(1)

    @lru_cache(maxsize=1)
    def targets_of(rows: Tensor) -> Tensor:
        return rows_of if len(rows) == len(rows_of) else rows_of[rows]

    def loss(x: Tensor, score: Tensor | None, rows: Tensor, done: float) -> Tensor:
        of = targets_of(rows)
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
    first_rows = restarts * torch.arange(targets, device=start.device)
    kept = restart_losses.nan_to_num(nan=torch.inf).argmin(1) + first_rows
    iterations = ways.iterations[kept]
    own = known.repeat_interleave(restarts, 0) if ways.scores is None else ways.scores.argmax(-1)
    several = restarts > 1
    return Reconstruction(
        x=ways.x[kept],
        labels=own[kept],
        loss=ways.loss[kept],
        steps=ways.steps,
        losses=ways.losses[kept],
        restart_losses=restart_losses,
        restart_x=ways.x.view(targets, restarts, *ways.x.shape[1:]) if several else None,
        restart_labels=own.view(targets, restarts, *own.shape[1:]) if several else None,
        iterations=iterations,
        stopped_early=iterations < settings.iterations,
        seconds_per_iteration=ways.seconds / int(ways.iterations.max()),
        snapshot_steps=ways.snapshot_steps,
        snapshots=ways.snapshots[kept],
    )


def draw_starts(
    settings: SearchSettings,
    shape: tuple[int, ...],
    *,
    targets: int,
    seed: int,
    like: Tensor,
    first_target: int = 0,
    start: Tensor | None = None,
) -> Tensor:
    """Return records ``[T, R, *shape]``, one stream of randomness for each target and restart.

    The seed, the number of the target, from ``first_target``, and that of the restart give the
    stream; ``like`` gives type and device. The first restart begins at ``start [T, *shape]``, if
    there is one.

    Raises:
        InputError: ``start`` has another shape.
    """
    restarts = settings.restarts
    rows = _noise(settings.start, shape, (targets, restarts), seed, "start", first_target)
    drawn = rows.view(targets, restarts, *shape).to(like)
    if start is not None:
        wanted = [targets, *shape]
        require(list(start.shape) == wanted, f"start is {list(start.shape)}; expected {wanted}")
        drawn[:, 0] = start.to(drawn)
    return drawn


def draw_scores(start: Tensor, classes: int, *, seed: int, first_target: int = 0) -> Tensor:
    """Return scores of unknown labels ``[T * R, B, classes]``: normal noise, as DLG begins."""
    targets, restarts, count = start.shape[:3]
    shape = count, classes
    return _noise("normal", shape, (targets, restarts), seed, "labels", first_target).to(start)


def _noise(
    kind: str, shape: tuple[int, ...], rows: tuple[int, int], seed: int, name: str, first: int
) -> Tensor:
    """Return noise ``[T * R, *shape]`` for ``rows`` of T targets, from number ``first``, and R.

    It is drawn on the CPU in float64: the same start whatever the device and the type.
    """
    places = list(itertools.product(*map(range, rows)))
    if kind == "zeros":
        return torch.zeros(len(places), *shape, dtype=torch.float64)
    draw = torch.rand if kind == "uniform" else torch.randn
    streams = [torch_stream(seed, name, first + target, restart) for target, restart in places]
    noise = torch.stack([draw(shape, generator=one, dtype=torch.float64) for one in streams])
    return 2 * noise - 1 if kind == "uniform" else noise
