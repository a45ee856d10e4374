"""Simulation of clients as torch trains them, and what an attacker assumes of unknown training."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from leakgauge.core.checks import InputError
from leakgauge.core.types import Task
from leakgauge.gradients import params_of
from leakgauge.inversion.attack import assumed_steps, assumptions
from leakgauge.inversion.observed import Knowledge
from leakgauge.inversion.search.objective import Cosine
from leakgauge.inversion.search.settings import SearchSettings
from leakgauge.inversion.search.simulate import LocalSteps, simulated_gradients
from leakgauge.training.client import Client
from leakgauge.training.sending import send
from support.attacks import attack_sent

LOW, HIGH = torch.tensor(-3.0), torch.tensor(3.0)
OPTIMIZERS = [
    "sgd:momentum=0.9,weight_decay=0.1",
    "adam",
    "adamw",
    "rmsprop:momentum=0.5",
    "adagrad",
]


def task_of(*, norm: bool = False, drop: float = 0.0) -> Task:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3, padding=1), *([nn.BatchNorm2d(4)] if norm else []), nn.Tanh()]
    layers += [nn.Dropout(drop)] if drop else []
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64, 3)).double().eval()
    return Task(model, F.cross_entropy)


def people(groups: int, each: int):
    torch.manual_seed(1)
    x = torch.randn(groups, each, 1, 4, 4, dtype=torch.float64)
    return x, torch.randint(3, (groups, each))


def steps_of(client: Client) -> LocalSteps:
    return replace(assumed_steps(client, simulate=True), softness=0.0)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_at_the_truth_the_simulation_is_what_torch_sends(optimizer: str, norm: bool) -> None:
    """Four steps in training mode, with a schedule: the update of torch's own optimizer."""
    task, (x, y) = task_of(norm=norm), people(2, 4)
    rates = (0.02, 0.02, 0.01, 0.01)
    client = Client(2, 2, optimizer=optimizer, epochs=2, training=True, rates=rates)
    sent = send(task, params_of(task.model), x, y, client, seed=0)
    training = Task(task.model, task.loss)
    training.model.train()
    found = simulated_gradients(training, params_of(task.model), x, y, steps_of(client))
    for name, leaf in sent.grads.items():
        torch.testing.assert_close(found[name], leaf, rtol=1e-6, atol=1e-6)


def test_a_sum_of_clients_is_simulated_as_their_mean() -> None:
    task, (x, y) = task_of(), people(2, 12)
    client = Client(2, 2, 0.05, optimizer="sgd:momentum=0.9", summed=3)
    sent = send(task, params_of(task.model), x, y, client, seed=0)
    found = simulated_gradients(task, params_of(task.model), x, y, steps_of(client))
    for name, leaf in sent.grads.items():
        torch.testing.assert_close(found[name], leaf)
    with pytest.raises(InputError, match="10 records do not fall into 6 equal batches"):
        simulated_gradients(task, params_of(task.model), x[:, :10], y[:, :10], steps_of(client))


@pytest.mark.parametrize("optimizer", ["sgd:momentum=0.9", "adam"])
def test_the_slope_is_that_of_differences(optimizer: str) -> None:
    task, (x, y) = task_of(), people(1, 4)
    local = LocalSteps(2, 0.05, optimizer=optimizer)  # Adam's steps are soft

    def distance(records):
        found = simulated_gradients(task, params_of(task.model), records, y, local)
        return sum((leaf - 0.1).square().sum() for leaf in found.values())

    guess = x.clone().requires_grad_()
    distance(guess).backward()
    along = torch.randn_like(x)
    step = 1e-5
    slope = (distance(x + step * along) - distance(x - step * along)) / (2 * step)
    torch.testing.assert_close((guess.grad * along).sum(), slope, rtol=1e-4, atol=1e-6)
    if optimizer == "adam":  # The steps as they are have hardly any slope in the first one.
        bare = replace(local, softness=0.0, steps=1)
        hard = x.clone().requires_grad_()
        simulated_gradients(task, params_of(task.model), hard, y, bare)["0.weight"].sum().backward()
        assert float(hard.grad.abs().max()) < 1e-4


@pytest.mark.parametrize(
    "optimizer", [pytest.param("sgd", marks=pytest.mark.slow), "sgd:momentum=0.9"]
)
def test_the_attack_rebuilds_through_the_steps(optimizer: str) -> None:
    """Steps that go far: only who simulates them finds the records."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 12, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(192, 4)]
    task = Task(nn.Sequential(*layers).double().eval(), F.cross_entropy)
    x, _ = people(1, 2)
    x, y = x.clamp(-1, 1), torch.tensor([[0, 2]])
    client = Client(1, 2, 0.5, optimizer=optimizer)
    sent = send(task, params_of(task.model), x, y, client, seed=0)
    settings = SearchSettings(Cosine(), "adam", 0.1, iterations=300, schedule="cosine")

    def error(*, simulate: bool) -> float:
        given = (task, params_of(task.model), sent, settings, client, (LOW, HIGH))
        found = attack_sent(*given, record=(1, 4, 4), seed=0, labels=y, simulate=simulate)
        return float((found.x - x).square().mean().sqrt())

    assert error(simulate=True) < 0.05
    assert error(simulate=False) > 0.1


def test_what_is_assumed_is_stated() -> None:
    client = Client(2, 2, 0.05, optimizer="adam", epochs=2, reshuffle=True, training=True)
    unknown = ("rate", "optimizer")
    local = assumed_steps(client, simulate=True, unknown=unknown)
    known = Knowledge(LOW, HIGH, steps=local, simulate=True, unknown=unknown)
    assert (local.optimizer, local.lr, set(local.rates)) == ("sgd", 0.001, {0.001})
    said = assumptions(task_of(drop=0.5), client, known)
    assert len(said) == 4
    for words in ("plain SGD", "assumes 0.001", "of the first", "without dropout"):
        assert any(words in one for one in said)
    told = assumptions(task_of(), replace(client, reshuffle=False), Knowledge(LOW, HIGH))
    assert told == ()


def test_an_unknown_rate_does_not_reach_the_attacker() -> None:
    """Updates at two rates, one a multiple of the other, look alike to it."""
    task, (x, y) = task_of(), people(1, 2)
    settings = SearchSettings(Cosine(), iterations=3, rescale=True)
    found = []
    for rate in (1e-6, 1e-7):  # so small that no step moves the next gradient
        client = Client(1, 2, rate)
        sent = send(task, params_of(task.model), x, y, client, seed=0)
        given = (task, params_of(task.model), sent, settings, client, (LOW, HIGH))
        unknown = {"labels": y, "unknown": ("rate",)}
        found.append(attack_sent(*given, record=(1, 4, 4), seed=0, **unknown).x)
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


def test_an_optimizer_without_a_rule_is_refused_only_where_it_is_simulated() -> None:
    client = Client(1, 2, 0.05, optimizer="torch.optim:NAdam")
    assert assumed_steps(client).optimizer == "sgd"
    with pytest.raises(InputError, match=r"no attack simulates steps of 'torch\.optim:NAdam'"):
        assumed_steps(client, simulate=True)
