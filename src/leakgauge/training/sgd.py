"""Epochs of training as a pure function from parameters to parameters."""

from collections.abc import Callable

import numpy as np
import torch
from torch.func import functional_call

from leakgauge.core.types import Dataset, Params, Task
from leakgauge.defenses import Defense
from leakgauge.gradients.clipping import clipped_gradient_function
from leakgauge.gradients.probing import fresh_buffers, private
from leakgauge.gradients.probing import gradient as gradient_of_batch
from leakgauge.training.optimizers import Optimizing
from leakgauge.training.per_record import mean_of_transformed


def train_epoch(
    task: Task,
    params: Params,
    data: Dataset,
    *,
    lr: float,
    batch_size: int,
    rng: np.random.Generator,
    defense: Defense | None = None,
    noise_seed: int = 0,
    optimizer: Optimizing | None = None,
) -> dict[str, torch.Tensor]:
    """Return the parameters after a pass over ``data`` in shuffled batches.

    What a client sends, and an observer sees, is the gradient of each batch at the current
    parameters (FedSGD); the optimizer moves the model by what was sent.

    Args:
        task: the model and its loss; the module is not changed.
        params: the parameters to start from.
        data: the private training records.
        lr: the learning rate of plain SGD; the paper uses 0.01.
        batch_size: records of a step; the last batch of an epoch may be smaller.
        rng: shuffles the records.
        defense: changes every step's gradient, as it changes what the client sends (game step 7 of
            the paper).
        noise_seed: of the defense.
        optimizer: makes the steps, and keeps its state for the next epoch; None for plain SGD.

    Returns:
        New tensors without gradients.

    References:
        Li et al., CCS 2024, section 5.1.4.
    """
    order = torch.from_numpy(rng.permutation(len(data))).to(data.y.device)
    current = {name: value.detach().clone().requires_grad_() for name, value in params.items()}
    noise = torch.Generator(order.device).manual_seed(noise_seed)
    gradient = _gradient_of(task, current, data, defense, noise)
    move = _plain(current, lr) if optimizer is None else optimizer.over(current)
    for batch in torch.split(order, batch_size):
        step = gradient(current, data.x[batch], data.y[batch])
        if defense is not None:
            sent = defense.update({name: leaf[None] for name, leaf in step.items()}, [noise])
            step = {name: leaf[0] for name, leaf in sent.items()}
        move(step)
    return {name: value.detach() for name, value in current.items()}


def _plain(leaves: Params, lr: float) -> Callable[[Params], None]:
    """Return a function that moves ``leaves`` in place by one step of plain SGD."""

    def step(gradient: Params) -> None:
        with torch.no_grad():
            for name, leaf in gradient.items():
                leaves[name].sub_(leaf, alpha=lr)

    return step


def _gradient_of(
    task: Task, params: Params, data: Dataset, defense: Defense | None, noise: torch.Generator
) -> Callable[[Params, torch.Tensor, torch.Tensor], dict[str, torch.Tensor]]:
    """Return a function ``(params, x [B, ...], y [B]) -> gradient`` under the defense.

    It is called with these ``params``, whose values change in place.
    """
    per_example = None if defense is None else defense.per_example
    if per_example is not None and per_example.clip_norm is not None:
        return clipped_gradient_function(task, params, data.x, data.y, clip=per_example.clip_norm)

    if per_example is None and not fresh_buffers(task):
        own = private(task, params)  # of the same memory as params, so no step swaps them in
        leaves = {name: one for name, one in own.model.named_parameters() if one.requires_grad}
        return lambda params, x, y: gradient_of_batch(own, leaves, {}, x, y)

    def gradient(params: Params, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        if per_example is not None:
            rngs = [noise] * len(x)
            return dict(mean_of_transformed(task, params, x, y, per_example, rngs))
        return gradient_of_batch(task, params, {**params, **fresh_buffers(task)}, x, y)

    return gradient


def outputs_of(
    task: Task, params: Params, data: Dataset, *, chunk: int = 4096
) -> torch.Tensor | None:
    """Return the model's outputs ``[n, ...]``; None where it has none, or no tensor."""
    outputs = []
    with torch.no_grad():
        for x in torch.split(data.x, chunk):
            outputs.append(functional_call(task.model, dict(params), (x,)))
            if not isinstance(outputs[-1], torch.Tensor):
                return None
    return torch.cat(outputs) if outputs else None


def predict(task: Task, params: Params, data: Dataset, *, chunk: int = 4096) -> torch.Tensor | None:
    """Return the most probable class ``[n]`` of each record.

    The result is None where the model's outputs are not scores ``[n, classes]`` of two classes or
    more: only the loss knows what such outputs mean.
    """
    outputs = outputs_of(task, params, data, chunk=chunk)
    if outputs is None or outputs.ndim != 2 or outputs.shape[1] < 2:
        return None
    return outputs.argmax(dim=1)
