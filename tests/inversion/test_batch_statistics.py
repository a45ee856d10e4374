"""Statistics of BatchNorm: against hooks, running statistics, and as a prior."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from leakgauge.core.checks import InputError
from leakgauge.core.types import Task
from leakgauge.gradients import params_of
from leakgauge.inversion.search.priors import (
    BatchStatistics,
    statistics_of,
    statistics_of_update,
    statistics_over_steps,
    step_weights,
)
from leakgauge.training.client import Client
from leakgauge.training.sending import send


def task_of(momentum: float | None = 0.1) -> Task:
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, momentum=momentum), nn.ReLU()),
        *(nn.Conv2d(4, 5, 3), nn.BatchNorm2d(5, momentum=momentum), nn.Flatten()),
        nn.Linear(20, 3),
    )
    return Task(model.double().train(), F.cross_entropy)


def people(groups: int, each: int):
    torch.manual_seed(1)
    x = 2 * torch.randn(groups, each, 1, 6, 6, dtype=torch.float64) + 1
    return x, torch.randint(3, (groups, each))


def literal(task: Task, x) -> dict:
    """Inputs of each layer by hooks, on a copy."""
    model, seen = copy.deepcopy(task.model), {}
    for name in ("1", "4"):
        model.get_submodule(name).register_forward_pre_hook(
            lambda _, given, name=name: seen.update({name: given[0]})
        )
    model(x)
    return {
        name: (value.mean((0, 2, 3)), value.var((0, 2, 3), unbiased=True))
        for name, value in seen.items()
    }


def test_statistics_are_those_of_the_layers_inputs() -> None:
    task, (x, _) = task_of(), people(2, 3)
    before = copy.deepcopy(task.model.state_dict())
    found = statistics_of(task, params_of(task.model), x)
    for row in range(2):
        for name, pair in literal(task, x[row]).items():
            for mine, theirs in zip(found[name], pair, strict=True):
                torch.testing.assert_close(mine[row], theirs)
    assert all(torch.equal(value, before[key]) for key, value in task.model.state_dict().items())
    task.model.eval()
    assert statistics_of(task, params_of(task.model), x) == {}


@pytest.mark.parametrize("momentum", [0.1, 0.7, None])
def test_running_statistics_tell_those_of_the_batches(momentum: float | None) -> None:
    """Exactly for one step; for several at a tiny rate, as the mean by ``step_weights``."""
    task, (x, y) = task_of(momentum), people(1, 6)
    task.model(people(1, 5)[0][0])  # so the layers have seen a batch before
    for steps in (1, 3):
        client = Client(6 // steps, steps, 1e-9, training=True)
        (update,) = send(task, params_of(task.model), x, y, client, seed=0).updates
        told = statistics_of_update(task.model, update)
        granted = statistics_over_steps(task, params_of(task.model), x, steps=steps)
        for name, pair in granted.items():
            for mine, theirs in zip(told[name], pair, strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
    weights = step_weights(task.model[1], 3)
    assert sum(weights) == pytest.approx(1.0)
    assert (weights[0] < weights[2]) == (momentum is not None)


def test_a_sum_of_clients_tells_their_mean() -> None:
    task, (x, y) = task_of(), people(1, 6)
    client = Client(3, 1, training=True, summed=2)
    (update,) = send(task, params_of(task.model), x, y, client, seed=0).updates
    told = statistics_of_update(task.model, update)
    granted = statistics_over_steps(task, params_of(task.model), x, clients=2)
    torch.testing.assert_close(told["4"][0], granted["4"][0])


def test_the_prior_is_the_papers_over_the_layers() -> None:
    task, (x, _) = task_of(), people(2, 3)
    params = params_of(task.model)
    known = statistics_of(task, params, x)
    prior = BatchStatistics(known).prior(task, params)
    torch.testing.assert_close(prior(x, torch.arange(2)), torch.zeros(2).double())
    guess = people(2, 3)[0] * 0.5
    wanted = 0.0
    ours, theirs = literal(task, guess[1]), literal(task, x[0])
    for name in ours:
        for mine, other in zip(ours[name], theirs[name], strict=True):
            wanted += float((mine - other).detach().norm()) / 2
    assert float(prior(guess[1:], torch.tensor([0]))) == pytest.approx(wanted)
    leaf = x.clone().requires_grad_()  # at the truth the slope is a number
    prior(leaf, torch.arange(2)).sum().backward()
    assert leaf.grad.isfinite().all()


def test_uninformative_input_is_refused() -> None:
    task, (x, y) = task_of(), people(1, 2)
    (update,) = send(task, params_of(task.model), x, y, Client(2, training=True), seed=0).updates
    update.buffers.pop("1.running_mean")
    with pytest.raises(InputError, match="cannot be inferred; send buffers"):
        statistics_of_update(task.model, update)
    with pytest.raises(InputError, match="no BatchNorm in training mode"):
        BatchStatistics({}).prior(task, params_of(task.model))
