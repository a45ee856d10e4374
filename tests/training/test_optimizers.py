"""Optimizers of training: against torch.optim on a plain loop; plain SGD stays as it is."""

import copy
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from leakgauge import InputError, Task
from leakgauge.core.rng import stream
from leakgauge.core.types import Dataset
from leakgauge.gradients import params_of
from leakgauge.inference import Energies
from leakgauge.inference.run.training import trajectory
from leakgauge.training.catalog import parse_optimizer, text_of
from leakgauge.training.optimizers import Optimizing
from leakgauge.training.sgd import train_epoch
from support.synthetic import records, small_stage

NAMES = [
    ("sgd:momentum=0.9,nesterov=1", lambda p: torch.optim.SGD(p, 0.1, 0.9, nesterov=True)),
    ("sgd:lr=0.2,weight_decay=0.1", lambda p: torch.optim.SGD(p, 0.2, weight_decay=0.1)),
    ("adam:lr=0.003,beta1=0.8", lambda p: torch.optim.Adam(p, 0.003, (0.8, 0.999))),
    ("adamw", lambda p: torch.optim.AdamW(p, 0.1)),
    ("rmsprop:momentum=0.5", lambda p: torch.optim.RMSprop(p, 0.1, momentum=0.5)),
    ("adagrad:lr_decay=0.01", lambda p: torch.optim.Adagrad(p, 0.1, 0.01)),
    ("torch.optim:NAdam", lambda p: torch.optim.NAdam(p, 0.1)),
    ("sgd", lambda p: torch.optim.SGD(p, 0.1)),
]


def case() -> tuple[Task, Dataset]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    return Task(model, cross_entropy), Dataset(torch.randn(50, 4), torch.arange(50) % 2)


@pytest.mark.parametrize(("text", "make"), NAMES)
def test_epochs_are_those_of_torch_bit_by_bit(text, make) -> None:
    task, data = case()
    named = parse_optimizer(text, lr=0.1)
    optimizer = None if named is None else Optimizing(named)
    params = params_of(task.model)
    for epoch in range(3):
        params = train_epoch(
            task, params, data, lr=0.1, batch_size=8, rng=stream(epoch, "e"), optimizer=optimizer
        )
    literal = make(list(task.model.parameters()))
    for epoch in range(3):
        order = torch.from_numpy(stream(epoch, "e").permutation(len(data)))
        for rows in order.split(8):
            literal.zero_grad()
            cross_entropy(task.model(data.x[rows]), data.y[rows]).backward()
            literal.step()
    for name, leaf in task.model.named_parameters():
        assert torch.equal(params[name], leaf)


@pytest.mark.parametrize(("text", "make"), [NAMES[2], NAMES[-1]])
def test_an_audit_trains_as_torch_bit_by_bit(text, make) -> None:
    """It is a federation of one participant, with an optimizer that persists over rounds."""
    stage = small_stage(records(0.0, n=1800), Energies(batches=50), rounds=3, optimizer=text)
    if text == "sgd":
        stage = replace(stage, spec=replace(stage.spec, lr=0.1))
    model = copy.deepcopy(stage.task.model)
    literal, data = make(list(model.parameters())), stage.private
    for number, params in enumerate(trajectory(stage)):
        for name, leaf in model.named_parameters():
            assert torch.equal(params[name], leaf)
        rng = stream(stage.spec.seed, stage.game.name, "train", number + 1)
        for rows in torch.from_numpy(rng.permutation(len(data))).split(stage.batch_size):
            literal.zero_grad()
            cross_entropy(model(data.x[rows]), data.y[rows]).backward()
            literal.step()
    assert number == 3


def test_a_resumed_training_ends_at_the_same_parameters() -> None:
    """The momentum of the rounds before a kill counts after it."""
    stage = small_stage(
        records(0.0, n=1800), Energies(batches=50), rounds=3, optimizer="adam:lr=0.01"
    )
    whole = list(trajectory(stage))
    resumed = list(trajectory(stage, after=2, params=whole[2]))
    assert len(whole) == 4
    assert len(resumed) == 1
    for name, leaf in whole[3].items():
        assert torch.equal(resumed[0][name], leaf)
    plain = list(islice(trajectory(small_stage(records(0.0, n=1800), rounds=3)), 2))
    assert any(not torch.equal(plain[1][name], leaf) for name, leaf in whole[1].items())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("adm", "optimizer 'adm' is not known; did you mean 'adam'"),
        ("adam:momentum=1", "has no setting 'momentum'"),
        ("adam:lr=fast", "lr is 'fast'; expected a number"),
        ("adam:lr=-1", "Invalid learning rate"),
        ("torch.optim:LBFGS", "cannot step on a gradient alone"),
        ("torch.nn:Identity", "made Identity; expected a torch.optim.Optimizer"),
        ("", "--optimizer is empty; name one of sgd, adam"),
    ],
)
def test_a_wrong_optimizer_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        parse_optimizer(text, lr=0.1)
    assert "\n" not in str(refused.value)


def test_python_users_pass_a_class_or_a_function() -> None:
    assert text_of(torch.optim.NAdam).startswith("torch.optim.")
    assert parse_optimizer(text_of(torch.optim.NAdam), lr=0.1) is not None
    with pytest.raises(InputError, match=r"expected text, such as 'adam:lr=0\.001'"):
        text_of(lambda params: torch.optim.SGD(params, 0.1))
    with pytest.raises(InputError, match="expected text"):
        text_of(np.zeros(1))
