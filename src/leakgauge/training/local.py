"""Local training: steps of gradients, each defended, from a model's tensors to its tensors."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from leakgauge.core.copying import copy_of
from leakgauge.core.rng import own_randomness
from leakgauge.core.types import Dataset, Params, Task
from leakgauge.defenses import Defense
from leakgauge.gradients.clipping import clipped_gradient_function
from leakgauge.gradients.probing import explained
from leakgauge.gradients.probing import gradient as gradient_of_batch
from leakgauge.training.catalog import parse_optimizer
from leakgauge.training.observation import mean_of_transformed
from leakgauge.training.state import Tensors, working_copy

StepCallback = Callable[[Params], None]
"""Moves parameters in place, given their gradient."""

Mover = Callable[[Params], StepCallback]
"""Maps the parameters of a model to the function that moves them."""


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
        over: mover of the parameters.
        defense: change of every step's gradient; None for no change.
        noise_seed: seed of the defense.

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


def refusal_in_training(task: Task) -> AbstractContextManager[None]:
    """Return a context that replaces torch's errors in training by one line."""
    return explained(f"{type(task.model).__name__} or its loss fails in training")


def plain_sgd(lr: float) -> Mover:
    """Return a mover by steps of plain SGD."""

    def over(leaves: Params) -> StepCallback:
        def step(gradient: Params) -> None:
            with torch.no_grad():
                for name, leaf in gradient.items():
                    leaves[name].sub_(leaf, alpha=lr)

        return step

    return over


def gradient_alone(kept: dict[str, Tensor]) -> Mover:
    """Return a mover that stores the gradient in ``kept`` and changes no parameter."""
    return lambda leaves: kept.update


def defended(sent: Params, defense: Defense, noise: torch.Generator) -> dict[str, Tensor]:
    """Return one gradient or change ``[*p]`` after the defense of the mean."""
    changed = defense.update({name: leaf[None] for name, leaf in sent.items()}, [noise])
    return {name: leaf[0] for name, leaf in changed.items()}


def _gradient_of(
    own: Task, leaves: Params, data: Dataset, defense: Defense | None, noise: torch.Generator
) -> Callable[[Tensor, Tensor], Params]:
    """Return a function ``(x [B, ...], y [B]) -> gradient [*p]`` at the current ``leaves``."""
    per_example = None if defense is None else defense.per_example
    if per_example is None:
        return lambda x, y: gradient_of_batch(own, leaves, {}, x, y)
    if per_example.clip_norm is not None:
        clipped = clipped_gradient_function(own, leaves, data.x, data.y, clip=per_example.clip_norm)
        return lambda x, y: clipped(leaves, x, y)
    return lambda x, y: mean_of_transformed(own, leaves, x, y, per_example, [noise] * len(x))


def trained(
    task: Task,
    tensors: Tensors,
    data: Dataset,
    batches: Sequence[Tensor],
    *,
    over: Mover,
    model_seed: int,
) -> dict[str, Tensor]:
    """Return ``train`` without a defense, in the model's mode.

    ``model_seed`` is the seed of its random numbers in training, such as dropout.
    """
    with own_randomness(model_seed, data.x.device), refusal_in_training(task):
        return train(task, tensors, data, batches, over=over, defense=None, noise_seed=0)


def scheduled(optimizer: str, rates: Sequence[float]) -> Mover:
    """Return a mover by an optimizer with a separate learning rate in each step.

    Args:
        optimizer: as ``catalog.parse_optimizer`` reads it.
        rates: one for each step.

    >>> leaves = {"w": torch.ones(1, requires_grad=True)}
    >>> step = scheduled("sgd:momentum=0.5", [0.1, 0.2])(leaves)
    >>> step({"w": torch.ones(1)}), step({"w": torch.ones(1)})
    (None, None)
    >>> round(leaves["w"].item(), 4)
    0.6
    """
    make = parse_optimizer(optimizer, lr=rates[0])

    def over(leaves: Params) -> StepCallback:
        coming = iter(rates)
        moving = None if make is None else make(list(leaves.values()))

        def step(gradient: Params) -> None:
            rate = next(coming)
            if moving is None:
                plain_sgd(rate)(leaves)(gradient)
                return
            for name, leaf in leaves.items():
                leaf.grad = gradient[name]
            for group in moving.param_groups:
                group["lr"] = rate
            moving.step()
            moving.zero_grad()

        return step

    return over


def schedule_rates(
    make: Callable[..., torch.optim.lr_scheduler.LRScheduler],
    *,
    lr: float,
    steps: int,
    **settings: Any,
) -> tuple[float, ...]:
    """Return the learning rate of each step under a scheduler of torch.

    Args:
        make: the scheduler's class, stepped after each step of the optimizer.
        lr: the optimizer's first rate.
        steps: number of steps.
        settings: settings of the scheduler.

    >>> rates = schedule_rates(torch.optim.lr_scheduler.StepLR, lr=0.1, steps=3, step_size=2)
    >>> [round(rate, 4) for rate in rates]
    [0.1, 0.1, 0.01]
    """
    leaf = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([leaf], lr=lr)
    scheduler = make(optimizer, **settings)
    rates = []
    for _ in range(steps):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    return tuple(rates)


def in_training(task: Task) -> Task:
    """Return the task on a copy of its model in training mode.

    >>> in_training(Task(torch.nn.Linear(2, 1).eval())).model.training
    True
    """
    return Task(copy_of(task.model).train(), task.loss)


def in_evaluation(task: Task) -> Task:
    """Return the task on a copy of its model in evaluation mode.

    >>> in_evaluation(Task(torch.nn.Linear(2, 1))).model.training
    False
    """
    return Task(copy_of(task.model).eval(), task.loss)


def repeatable(task: Task) -> Task:
    """Return the task on a copy of its model without dropout; without any, the task itself.

    Dropout's masks are random, and only the client knows them.

    >>> dropping = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(2, 1))
    >>> [layer.training for layer in repeatable(Task(dropping)).model]
    [False, True]
    """
    if not any(map(draws, task.model.modules())):
        return task
    model = copy_of(task.model)
    for module in filter(draws, model.modules()):
        module.eval()
    return Task(model, task.loss)


def draws(module: torch.nn.Module) -> bool:
    """Return whether a layer is dropout that draws random numbers in its mode."""
    layer = torch.nn.modules.dropout._DropoutNd
    return isinstance(module, layer) and module.training and module.p > 0
