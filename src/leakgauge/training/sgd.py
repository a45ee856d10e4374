"""Plain SGD as a pure function: parameters in, parameters out."""

import numpy as np
import torch
from torch.func import functional_call

from leakgauge.types import Dataset, Params, Task


def train_epoch(
    task: Task,
    params: Params,
    data: Dataset,
    *,
    lr: float,
    batch_size: int,
    rng: np.random.Generator,
) -> dict[str, torch.Tensor]:
    """One pass over ``data`` in shuffled batches (Li et al., CCS 2024, section 5.1.4).

    Args:
        task: the model and its loss; the module is not changed.
        params: the parameters to start from.
        data: the private training records.
        lr: the learning rate; the paper takes 0.01.
        batch_size: records a step; the last batch of an epoch may be smaller.
        rng: shuffles the records.

    Returns:
        The parameters after the pass, new tensors without gradients.
    """
    order = torch.from_numpy(rng.permutation(len(data))).to(data.y.device)
    current = {name: value.detach().clone().requires_grad_() for name, value in params.items()}
    leaves = list(current.values())
    for batch in torch.split(order, batch_size):
        loss = task.loss(functional_call(task.model, current, (data.x[batch],)), data.y[batch])
        steps = torch.autograd.grad(loss, leaves, allow_unused=True)
        with torch.no_grad():
            for leaf, step in zip(leaves, steps, strict=True):
                if step is not None:
                    leaf.sub_(step, alpha=lr)
    return {name: value.detach() for name, value in current.items()}


def predict(task: Task, params: Params, data: Dataset, *, chunk: int = 4096) -> torch.Tensor | None:
    """The most probable class ``[n]`` of each record.

    None where the model's outputs are no scores ``[n, classes]`` of two classes or more: what
    they mean is between the model and its loss.
    """
    found = []
    with torch.no_grad():
        for x in torch.split(data.x, chunk):
            outputs = functional_call(task.model, dict(params), (x,))
            if not (isinstance(outputs, torch.Tensor) and outputs.ndim == 2):
                return None
            if outputs.shape[1] < 2:
                return None
            found.append(outputs.argmax(dim=1))
    return torch.cat(found) if found else None
