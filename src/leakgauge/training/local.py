"""Local training: steps of gradients, each defended, from a model's tensors to its tensors."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from leakgauge.core.types import Dataset, Params, Task
from leakgauge.defenses import Defense
from leakgauge.gradients.clipping import clipped_gradient_function
from leakgauge.gradients.probing import gradient as gradient_of_batch
from leakgauge.training.per_record import mean_of_transformed
from leakgauge.training.state import Tensors, working_copy

Step = Callable[[Params], None]
"""Moves parameters in place, given their gradient."""

Mover = Callable[[Params], Step]
"""From the parameters of a model to what moves them."""


def train(
    task: Task,
    tensors: Tensors,
    data: Dataset,
    batches: Iterable[Tensor],
    *,
    over: Mover,
    defense: Defense | None,
    noise_seed: int,
) -> dict[str, Tensor]:
    """Return a model's parameters and buffers after a step on each batch.

    Args:
        task: the model and its loss; the module is not changed.
        tensors: parameters and buffers to start from; the model supplies missing buffers.
        data: the training records.
        batches: rows of ``data`` ``[B]``, one tensor for each step.
        over: makes the steps.
        defense: changes every step's gradient; None for none.
        noise_seed: of the defense.

    Returns:
        New tensors without gradients.
    """
    own, leaves = working_copy(task, tensors)
    noise = torch.Generator(data.y.device).manual_seed(noise_seed)
    gradient = _gradient_of(own, leaves, data, defense, noise)
    step = over(leaves)
    for batch in batches:
        found = gradient(data.x[batch], data.y[batch])
        step(found if defense is None else defended(found, defense, noise))
    buffers = {name: leaf.detach() for name, leaf in own.model.named_buffers()}
    return {**{name: leaf.detach() for name, leaf in leaves.items()}, **buffers}


def plain_sgd(lr: float) -> Mover:
    """Return what moves parameters in place by steps of plain SGD."""

    def over(leaves: Params) -> Step:
        def step(gradient: Params) -> None:
            with torch.no_grad():
                for name, leaf in gradient.items():
                    leaves[name].sub_(leaf, alpha=lr)

        return step

    return over


def gradient_alone(kept: dict[str, Tensor]) -> Mover:
    """Return what keeps the gradient of a step in ``kept``, and moves nothing."""
    return lambda leaves: kept.update


def defended(sent: Params, defense: Defense, noise: torch.Generator) -> dict[str, Tensor]:
    """Return one gradient or change ``[*p]`` after the defense of the mean."""
    changed = defense.update({name: leaf[None] for name, leaf in sent.items()}, [noise])
    return {name: leaf[0] for name, leaf in changed.items()}


def _gradient_of(
    own: Task, leaves: Params, data: Dataset, defense: Defense | None, noise: torch.Generator
) -> Callable[[Tensor, Tensor], Params]:
    """Return a function ``(x [B, ...], y [B]) -> gradient [*p]`` at ``leaves``, as they stand."""
    per_example = None if defense is None else defense.per_example
    if per_example is None:
        return lambda x, y: gradient_of_batch(own, leaves, {}, x, y)
    if per_example.clip_norm is not None:
        clipped = clipped_gradient_function(own, leaves, data.x, data.y, clip=per_example.clip_norm)
        return lambda x, y: clipped(leaves, x, y)
    return lambda x, y: mean_of_transformed(own, leaves, x, y, per_example, [noise] * len(x))
