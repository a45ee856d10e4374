"""Trains a client's model as torch does: any optimizer and schedule, in training mode too."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from leakgauge.core.types import Dataset, Params, Task
from leakgauge.training.catalog import parse_optimizer
from leakgauge.training.local import Mover, Step, plain_sgd, train
from leakgauge.training.state import Tensors
from leakgauge.training.uploading import drawing


def trained(
    task: Task,
    tensors: Tensors,
    data: Dataset,
    batches: Sequence[Tensor],
    *,
    over: Mover,
    model_seed: int,
) -> dict[str, Tensor]:
    """Return a model's parameters and buffers after a step on each batch.

    Args:
        task: the model, in the mode in which it trains, and its loss; the module is not changed.
        tensors: parameters and buffers to start from; the model supplies missing buffers.
        data: the records of the client.
        batches: rows of ``data`` ``[B]``, one tensor for each step.
        over: makes the steps.
        model_seed: of a model that draws random numbers in training, such as dropout.
    """
    with drawing(model_seed, data.x.device):
        return train(task, tensors, data, batches, over=over, defense=None, noise_seed=0)


def scheduled(optimizer: str, rates: Sequence[float]) -> Mover:
    """Return what moves parameters by an optimizer with a learning rate of its own in each step.

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

    def over(leaves: Params) -> Step:
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
        settings: of the scheduler.

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
