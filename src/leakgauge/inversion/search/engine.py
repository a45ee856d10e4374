"""Rebuilds records from gradients: the engine that all attacks share."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from leakgauge.core.checks import nearest, require
from leakgauge.core.losses import is_class_loss
from leakgauge.core.types import Grads, Params, Task
from leakgauge.gradients.probing import (
    OperationWatcher,
    explained,
    private,
    refuse_random,
    trainable,
)
from leakgauge.inversion.double_backward.difference import Difference
from leakgauge.inversion.double_backward.gradients import differentiable_gradients
from leakgauge.inversion.double_backward.precision import Rounded
from leakgauge.inversion.search.layer_weights import Weights
from leakgauge.inversion.search.objective import Objective, SquaredError
from leakgauge.inversion.search.settings import Settings
from leakgauge.inversion.search.simulate import LocalSteps, simulated_gradients
from leakgauge.inversion.search.starts import draw_starts
from leakgauge.inversion.search.targets import Prior, Progress, Reconstruction, search
from leakgauge.runs.checkpoint import Checkpoint

SCALES = tuple(1.05**step for step in sorted(range(-28, 29), key=abs))
"""Factors that ``rescaled`` tries: a quarter to four, the nearest to 1 first."""


def reconstruct(
    task: Task,
    params: Params,
    observed: Grads,
    settings: Settings,
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
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
) -> Reconstruction:
    """Rebuild the records behind each of T gradients.

    Args:
        task: the model and its loss; never changed.
        params: where the gradients were taken: all trainable parameters, leaf ``[*p]``.
        observed: the gradients, leaf ``[T, *p]``; of an update ``as_gradient()``.
        settings: the attack, as one of ``PRESETS``.
        shape: of a target's records, ``(B, *record)``.
        seed: draws the starts, from one stream for each target and restart.
        labels: ``[T, B]`` int64, known or inferred, or known numbers ``[T, B, ...]``; None
            searches for them, where ``settings`` allow that.
        low: lowest values that a record can have, broadcast to it, in units of the model's
            input; needed with ``settings.boxed``, like ``high``.
        high: highest values, in the same way.
        local: simulates the client's local steps; None takes the update for one batch's gradient.
        start: ``[T, B, *record]``, where the first restart begins; None draws it.
        prior: a further term of the loss, with its weight, as ``StatisticsPrior``.
        first_target: number of the first target, so that targets in several calls draw as in one.
        snapshots: number of iterations at which the records are kept.
        progress: called at each iteration.
        checkpoint: keeps the state of the search on the way; a killed search goes on from there,
            with equal results.

    Raises:
        InputError: gradients that do not fit the model, are not finite or all zeros; labels that
            are missing or do not fit; a box without limits; or what the model refuses.

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
    seen = {name: observed[name].detach().to(value) for name, value in params.items()}
    each = torch.arange(targets, device=next(iter(seen.values())).device)
    measure = objective_of(settings, task.model)

    def gradients(x: Tensor, y: Tensor) -> Grads:
        if local is None:
            return differentiable_gradients(task, params, x, y)
        return simulated_gradients(task, params, x, y, local)

    def match(x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        grads = compared(x, y)
        # Gradients can be large: a copy at every step would cost as much as an objective.
        all_ = len(rows) == targets and torch.equal(rows, each)
        return measure(grads, seen if all_ else {n: value[rows] for n, value in seen.items()})

    begin = draw_starts(
        settings,
        shape,
        targets=targets,
        seed=seed,
        first_target=first_target,
        like=next(iter(params.values())),
        start=start,
    )
    rounds = settings.precision == "bfloat16" and local is None
    compared = Rounded(task, params, begin[0, 0]) if rounds else gradients
    differs = settings.slope == "difference" and local is None
    rebuilt = search(
        Difference(task, params, measure, seen) if differs else match,
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
    if not settings.rescale:
        return rebuilt
    limits = (low, high) if settings.boxed and low is not None and high is not None else None
    scaled = rescaled(rebuilt.x, lambda x: gradients(x, rebuilt.labels), seen, limits)
    return replace(rebuilt, x=scaled)


def rescaled(
    x: Tensor,
    gradients: Callable[[Tensor], Grads],
    seen: Grads,
    limits: tuple[Tensor, Tensor] | None,
) -> Tensor:
    """Records ``[T, B, ...]`` times the number of ``SCALES`` whose gradient is nearest, for each T.

    By squared error: the cosine that they were searched by may not depend on that number. Where the
    nearest is the smallest or largest of them, the size of the gradient that was seen is not that
    of any such records (a defense clipped it, say), and they stay as they are.

    Args:
        x: the records.
        gradients: of records, leaf ``[T, *p]``.
        seen: what they are compared with.
        limits: lowest and highest values of a record; None sets none.
    """
    best, error = x, torch.full_like(x.flatten(1)[:, 0], float("inf"))
    inside = torch.ones_like(error, dtype=torch.bool)
    with torch.no_grad():
        for number, scale in enumerate(SCALES):
            tried = scale * x if limits is None else (scale * x).clamp(*(v.to(x) for v in limits))
            distance = SquaredError()(gradients(tried), seen)
            better = distance < error
            error = torch.where(better, distance, error)
            inside = torch.where(better, number < len(SCALES) - 2, inside)
            best = torch.where(better.view(-1, *[1] * (x.dim() - 1)), tried, best)
    return torch.where(inside.view(-1, *[1] * (x.dim() - 1)), best, x)


def objective_of(settings: Settings, model: nn.Module) -> Objective:
    """The objective of an attack on this model: layer weights are worked out for its layers."""
    chosen = settings.objective
    return chosen.objective(model) if isinstance(chosen, Weights) else chosen


def classes_of(task: Task, params: Params, x: Tensor) -> int | None:
    """Outputs of the model on a batch ``x [B, ...]``.

    Returns:
        None where they are no scores ``[B, classes]`` of two classes or more, or the loss is not
        one of classes.

    Raises:
        InputError: the model does not take such records, or draws random numbers.
    """
    model, seen = private(task, params).model, OperationWatcher()
    with torch.no_grad(), explained(f"the model refuses records {list(x.shape)}"), seen:
        outputs = model(x)
    refuse_random(task.model, seen)
    shaped = isinstance(outputs, Tensor) and outputs.dim() == 2 and outputs.shape[1] > 1
    scored = shaped and is_class_loss(task.mean_loss, outputs.shape[1], like=outputs)
    return outputs.shape[1] if scored else None


def check_gradients(params: Params, observed: Grads) -> int:
    """The number of targets of a stack of gradients that fits ``params``.

    Raises:
        InputError: a name or a shape does not fit, or a row is not finite or all zeros.
    """
    for name in observed:
        require(name in params, f"gradient of {name!r}: no such parameter{nearest(name, params)}")
    for name, value in params.items():
        require(name in observed, f"the gradient of {name!r} is missing; the model has it")
        shape = observed[name].shape
        require(
            shape[1:] == value.shape and len(shape) == value.dim() + 1,
            f"the gradient of {name!r} is {list(shape)}; expected [T, *{list(value.shape)}]",
        )
    counts = {len(value) for value in observed.values()}
    require(len(counts) == 1, f"gradients are of {sorted(counts)} targets; expected one number")
    squares = torch.stack([_squares(value) for value in observed.values()])
    for target, square in enumerate(squares.sum(0).tolist()):
        require(
            square == square and square < float("inf"),
            f"the gradient of target {target} is not finite; drop it",
        )
        require(square > 0, f"the gradient of target {target} is all zeros; drop it")
    return counts.pop()


def _squares(value: Tensor) -> Tensor:
    return value.double().reshape(len(value), -1).square().sum(1)
