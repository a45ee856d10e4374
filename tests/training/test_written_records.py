"""Clients whose model writes in place train as those whose model copies its records."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from hypothesis import given, reject, settings
from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.core.types import Dataset, Task
from leakgauge.defenses import none
from leakgauge.training import GradientAscent, Isolate, Participant, Protocol, State, outputs_of
from leakgauge.training.federation import federation
from leakgauge.training.sgd import train_epoch
from support.defenses import clip, dpsgd
from support.writers import Case, cases

Made = Mapping[str, Tensor]


def federated(kind: str, **changed) -> Callable[[Task, Case], Made]:
    """Return a federation of two participants with the same records, in the last round."""

    def run(task: Task, case: Case) -> Made:
        data = Dataset(case.x, case.y)
        people = [Participant(data, changed.get("defense", none())), Participant(data)]
        protocol = Protocol(kind=kind, rounds=2, lr=0.1, batch_size=2)
        more = {"strategy": changed["strategy"](case)} if "strategy" in changed else {}
        *_, last = federation(task, State.of(task.model), people, protocol, seed=0, **more)
        return last.state.shared

    return run


def epoch(task: Task, case: Case) -> Made:
    start = State.of(task.model).shared
    names = [name for name, _ in task.model.named_parameters()]
    return train_epoch(
        task,
        {name: start[name] for name in names},
        Dataset(case.x, case.y),
        lr=0.1,
        batch_size=2,
        rng=np.random.default_rng(0),
    )


def outputs(task: Task, case: Case) -> Made:
    found = outputs_of(task, {}, Dataset(case.x, case.y), chunk=2)
    return {"outputs": found}


PATHS: dict[str, Callable[[Task, Case], Made]] = {
    "fedavg": federated("fedavg"),
    "fedsgd": federated("fedsgd"),
    "clipped": federated("fedavg", defense=clip(0.5)),
    "private": federated("fedavg", defense=dpsgd(0.5, 0.1, batch_size=2)),
    "isolated": federated("fedavg", strategy=lambda case: Isolate(0)),
    "ascent": federated("fedavg", strategy=lambda case: GradientAscent(case.x, case.y, rate=0.1)),
    "epoch": epoch,
    "outputs": outputs,
}


@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=12, deadline=None)
@given(case=cases())
def test_models_train_as_their_twins(path: str, case: Case) -> None:
    before = case.copied()
    try:
        wanted = PATHS[path](Task(before.task.model.twin(), before.task.loss), before.copied())
    except InputError as error:
        if "diverged" not in str(error):
            raise
        reject()
    found = PATHS[path](case.task, case)
    case.check_unchanged(before)
    torch.testing.assert_close(dict(found), dict(wanted), rtol=1e-9, atol=1e-12)


def test_records_of_another_type_than_the_model_are_refused() -> None:
    task, data = Task(torch.nn.Linear(4, 2).bfloat16()), Dataset(torch.ones(4, 4), torch.ones(4))
    with pytest.raises(InputError, match="Linear or its loss fails in training"):
        train_epoch(
            task,
            dict(task.model.named_parameters()),
            data,
            lr=0.1,
            batch_size=2,
            rng=np.random.default_rng(0),
        )


@pytest.mark.parametrize("how", ["in place", "other data"])
def test_outputs_of_a_model_that_writes_its_weights_are_refused(how: str) -> None:
    """Each chunk would run on other weights."""

    class Shrinking(torch.nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                if how == "in place":
                    self.weight.mul_(0.5)
                else:
                    self.weight.data = self.weight.data * 0.5
            return super().forward(x)

    task = Task(Shrinking(3, 2))
    before = task.model.weight.detach().clone()
    with pytest.raises(InputError, match="writes its parameter 'weight'"):
        outputs_of(task, {}, Dataset(torch.randn(6, 3), torch.zeros(6)), chunk=2)
    assert torch.equal(task.model.weight, before)
