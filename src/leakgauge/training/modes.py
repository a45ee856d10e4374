"""The modes in which models run: in training, and without what nobody can repeat."""

import copy

import torch

from leakgauge.core.types import Task


def in_training(task: Task) -> Task:
    """Return the task on a copy of its model in training mode.

    >>> in_training(Task(torch.nn.Linear(2, 1).eval())).model.training
    True
    """
    return Task(copy.deepcopy(task.model).train(), task.loss)


def repeatable(task: Task) -> Task:
    """Return the task on a copy of its model without dropout; without any, the task itself.

    Dropout's masks are random, and nobody but the client knows them.

    >>> dropping = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(2, 1))
    >>> [layer.training for layer in repeatable(Task(dropping)).model]
    [False, True]
    """
    if not any(map(draws, task.model.modules())):
        return task
    model = copy.deepcopy(task.model)
    for module in filter(draws, model.modules()):
        module.eval()
    return Task(model, task.loss)


def draws(module: torch.nn.Module) -> bool:
    """Return whether a layer is dropout that draws random numbers in its mode."""
    layer = torch.nn.modules.dropout._DropoutNd
    return isinstance(module, layer) and module.training and module.p > 0
