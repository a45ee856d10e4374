"""Epochs of training as a pure function from parameters to parameters."""

from contextlib import nullcontext

import numpy as np
import torch

from leakgauge.core.rng import derive, own_randomness
from leakgauge.core.types import Dataset, Params, Task
from leakgauge.defenses import Defense
from leakgauge.gradients import params_of
from leakgauge.gradients.probing import fresh_buffers, refuse_written
from leakgauge.gradients.watching import OperationWatcher
from leakgauge.training.local import plain_sgd, refusal_in_training, train
from leakgauge.training.optimizers import Optimizing
from leakgauge.training.state import working_copy


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
        params: the parameters to start from, and any buffers; the model supplies missing ones.
        data: the private training records.
        lr: the learning rate of plain SGD; the paper uses 0.01.
        batch_size: records of a step; the last batch of an epoch may be smaller.
        rng: shuffles the records.
        defense: change of every step's gradient, as of what the client sends (game step 7 of the
            paper).
        noise_seed: seed of the defense, and of what a model in training mode draws, as for dropout.
        optimizer: makes the steps, and keeps its state for the next epoch; None for plain SGD.

    Returns:
        New tensors without gradients, by the names of ``params``.

    References:
        Li et al., CCS 2024, section 5.1.4.
    """
    order = torch.from_numpy(rng.permutation(len(data))).to(data.y.device)
    with own_randomness(derive(noise_seed, "model"), data.y.device), refusal_in_training(task):
        trained = train(
            task,
            params,
            data,
            torch.split(order, batch_size),
            over=plain_sgd(lr) if optimizer is None else optimizer.over,
            defense=defense,
            noise_seed=noise_seed,
        )
    return {name: trained[name] for name in params}


def outputs_of(
    task: Task, params: Params, data: Dataset, *, chunk: int = 4096
) -> torch.Tensor | None:
    """Return the model's outputs ``[n, ...]``; None where it has none, or no tensor.

    Raises:
        InputError: the model writes its parameters, so that a chunk would change the next one.
    """
    outputs: list[torch.Tensor] = []
    own, _ = working_copy(task, {**params_of(task.model), **params})
    seen, leaves = OperationWatcher(), dict(own.model.named_parameters())
    seen.follow(leaves)
    with torch.no_grad():
        for x in torch.split(data.x, chunk):
            with nullcontext() if outputs else seen:
                outputs.append(own.outputs(x, fresh_buffers(own)))
            if len(outputs) == 1:
                refuse_written(task.model, seen.changed(leaves))
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
