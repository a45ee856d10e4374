"""Clients as they are: torch's optimizers, training mode, epochs, schedules, and their sum."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.functional import cross_entropy

from leakgauge import InputError, Task
from leakgauge.gradients import params_of
from leakgauge.training import Update
from leakgauge.training.client import Client
from leakgauge.training.local import schedule_rates
from leakgauge.training.sending import mean_update, send

OPTIMIZERS = {
    "sgd:momentum=0.9": lambda p: torch.optim.SGD(p, 0.05, 0.9),
    "adam": lambda p: torch.optim.Adam(p, 0.05),
    "adamw:weight_decay=0.1": lambda p: torch.optim.AdamW(p, 0.05, weight_decay=0.1),
    "torch.optim:NAdam": lambda p: torch.optim.NAdam(p, 0.05),
}


def task_of(*, drop: float = 0.0) -> Task:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(drop), nn.Flatten()]
    return Task(nn.Sequential(*layers, nn.Linear(64, 3)).eval(), cross_entropy)


def people(groups: int, each: int):
    torch.manual_seed(1)
    return torch.randn(groups, each, 1, 6, 6), torch.randint(3, (groups, each))


def literal(task: Task, x, y, make, *, size: int, epochs: int = 1, rates=None) -> nn.Module:
    """A client as Flower's tutorials write it: ``net.train()``, and a loop over its batches."""
    net = copy.deepcopy(task.model).train()
    optimizer, at = make(net.parameters()), 0
    for _ in range(epochs):
        for images, labels in zip(x.split(size), y.split(size), strict=True):
            if rates is not None:
                optimizer.param_groups[0]["lr"] = rates[at]
            at += 1
            optimizer.zero_grad()
            cross_entropy(net(images), labels).backward()
            optimizer.step()
    return net


def apart(update: Update, net: nn.Module) -> float:
    """The largest difference of weights and buffers."""
    own = {**update.after(), **update.buffers}
    return max(float((own[k] - v).abs().max()) for k, v in net.state_dict().items())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates_are_those_of_torch(name: str) -> None:
    task, (x, y) = task_of(), people(2, 8)
    kept = copy.deepcopy(task.model.state_dict())
    client = Client(2, 4, 0.05, optimizer=name, epochs=2, training=True)
    sent = send(task, params_of(task.model), x, y, client, seed=0)
    for update, records, labels in zip(sent.updates, x, y, strict=True):
        net = literal(task, records, labels, OPTIMIZERS[name], size=2, epochs=2)
        assert apart(update, net) < 1e-6
        assert (update.steps, update.records, update.batch_size) == (8, 8, 2)
    assert not task.model.training
    for key, value in task.model.state_dict().items():
        assert torch.equal(value, kept[key])


def test_a_schedule_gives_each_step_its_rate() -> None:
    rates = schedule_rates(torch.optim.lr_scheduler.StepLR, lr=0.05, steps=4, step_size=1)
    assert rates == pytest.approx((0.05, 0.005, 0.0005, 0.00005))
    task, (x, y) = task_of(), people(1, 8)
    client = Client(2, 4, optimizer="sgd:momentum=0.9", training=True, rates=rates)
    (update,) = send(task, params_of(task.model), x, y, client, seed=0).updates
    net = literal(task, x[0], y[0], OPTIMIZERS["sgd:momentum=0.9"], size=2, rates=rates)
    assert apart(update, net) < 1e-6


def test_one_plain_step_in_training_mode_sends_its_gradient_and_its_statistics() -> None:
    task, (x, y) = task_of(), people(1, 4)
    params = params_of(task.model)
    sent = send(task, params, x, y, Client(4, training=True), seed=0)
    net = literal(task, x[0], y[0], lambda p: torch.optim.SGD(p, 0.0), size=4)
    (update,) = sent.updates
    assert update.kind == "gradient"
    for name, leaf in net.named_parameters():
        torch.testing.assert_close(sent.grads[name][0], leaf.grad)
    for name, leaf in net.named_buffers():
        torch.testing.assert_close(update.buffers[name], leaf)
    still = send(task, params, x, y, Client(4), seed=0).grads  # another gradient in eval mode
    assert any(not torch.allclose(still[name], leaf) for name, leaf in sent.grads.items())


def test_dropout_draws_by_the_seed_alone() -> None:
    task, (x, y) = task_of(drop=0.5), people(2, 4)
    params, client = params_of(task.model), Client(4, training=True)

    def sent(seed: int):
        torch.manual_seed(torch.initial_seed() + 1)  # the global state is nothing to it
        return send(
            task, params, x[:1].repeat(2, 1, 1, 1, 1), y[:1].repeat(2, 1), client, seed=seed
        )

    one, again, other = (sent(seed).grads["5.weight"] for seed in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert not torch.equal(one[0], one[1])  # each client draws for itself


def test_a_later_pass_may_have_another_order() -> None:
    task, (x, y) = task_of(), people(1, 8)
    params = params_of(task.model)
    client = Client(2, 4, 0.05, epochs=2, training=True)
    fixed, mixed = (
        send(task, params, x, y, replace(client, reshuffle=shuffle), seed=0).grads["5.weight"]
        for shuffle in (False, True)
    )
    assert not torch.allclose(fixed, mixed)
    once = replace(client, epochs=1)  # the first pass takes the records as they come
    first, second = (
        send(task, params, x, y, replace(once, reshuffle=shuffle), seed=0).grads["5.weight"]
        for shuffle in (False, True)
    )
    assert torch.equal(first, second)


def test_a_sum_is_the_mean_of_its_clients() -> None:
    task, (x, y) = task_of(), people(2, 12)
    params = params_of(task.model)
    client = Client(2, 2, 0.05, optimizer="sgd:momentum=0.9", training=True)
    summed = replace(client, summed=3)
    assert (summed.own_records, summed.records) == (4, 12)
    together = send(task, params, x, y, summed, seed=0)
    alone = send(task, params, x.reshape(6, 4, 1, 6, 6), y.reshape(6, 4), client, seed=0)
    assert len(together.updates) == 2
    for name, leaf in together.grads.items():
        rows = alone.grads[name]
        torch.testing.assert_close(leaf, torch.stack([rows[:3].mean(0), rows[3:].mean(0)]))
    assert together.updates[0].records == 12
    with pytest.raises(InputError, match="one kind, with equal steps"):
        mean_update([alone.updates[0], replace(alone.updates[1], records=3)])


def test_an_update_says_its_optimizer_also_in_its_file(tmp_path: Path) -> None:
    task, (x, y) = task_of(), people(1, 4)
    client = Client(2, 2, optimizer="sgd:momentum=0.9", training=True, rates=(0.1, 0.05))
    (update,) = send(task, params_of(task.model), x, y, client, seed=0).updates
    path = tmp_path / "update.safetensors"
    update.save(path)
    read = Update.load(path)
    assert (read.optimizer, read.rates) == ("sgd:momentum=0.9", (0.1, 0.05))
    for name, leaf in update.as_gradient().items():
        torch.testing.assert_close(read.as_gradient()[name], leaf)
    with pytest.raises(InputError, match="1 rates came for 2 local steps"):
        replace(update, rates=(0.1,))


def test_a_file_names_no_code(tmp_path: Path) -> None:
    before = {"w": torch.zeros(1)}
    path = tmp_path / "update.safetensors"
    Update("change", {"w": torch.ones(1)}, before, lr=0.1, optimizer="adam").save(path)
    header = {
        "format": "leakgauge update 2",
        "kind": "change",
        "names": '["w"]',
        "lr": "0.1",
        "optimizer": "os:system",
    }
    save_file(load_file(path), path, header)
    with pytest.raises(InputError, match="optimizer of an update is 'os'"):
        Update.load(path)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"optimizer": "adm"}, "optimizer 'adm' is not known"),
        ({"epochs": 0}, "number of local epochs is 0"),
        ({"summed": 0}, "number of summed clients is 0"),
        ({"local_steps": 2, "rates": (0.1,)}, "1 rates came for 2 local steps"),
        ({"rates": (-0.1,)}, "local learning rate is -0.1"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(settings, said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        Client(**settings)
    assert "\n" not in str(refused.value)
