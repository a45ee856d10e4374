"""A user's model trains in the mode in which it comes; questions that cannot do so refuse it."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import InputError
from leakgauge.core.rng import derive, stream
from leakgauge.core.types import Dataset, Task
from leakgauge.data.source import Source
from leakgauge.layers.run import preparing as layers
from leakgauge.layers.spec import LayersSpec
from leakgauge.membership.run import preparing as membership
from leakgauge.membership.run.target_model import trained_target
from leakgauge.membership.run.training import MembershipRecipe
from leakgauge.membership.spec import QUESTION, MembershipSpec
from leakgauge.runs.records import IN_TRAINING_MODE, in_training_mode
from leakgauge.runs.work import WorkFolder
from leakgauge.tokens.run import preparing as tokens
from leakgauge.tokens.run.measuring import measured
from leakgauge.tokens.run.training import trained
from leakgauge.tokens.spec import TimelineSpec
from leakgauge.tokens.words import CHECKPOINT, IN_EVALUATION, STREAM


def source(model: nn.Module, records: int = 900) -> Source:
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=(records, 6)), dtype=torch.float32)
    y, secret = (torch.tensor(rng.integers(2, size=records)) for _ in range(2))
    data = Dataset(x, y, secrets={"s": secret})
    return Source(
        "m:t", pd.DataFrame(), None, None, "0", task=Task(model, cross_entropy), dataset=data
    )


def network(*inside: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), *inside, nn.ReLU(), nn.Linear(8, 2))


def silent(*_: Any) -> None:
    """Say nothing of the progress."""


class Silent:
    step = staticmethod(silent)


@pytest.mark.parametrize(
    ("inside", "named"),
    [
        (nn.BatchNorm1d(8), "BatchNorm1d"),
        (nn.Dropout(0.5), "Dropout"),
        (nn.LSTM(8, 8, num_layers=2, dropout=0.1), "LSTM"),
        (nn.LayerNorm(8), ""),
        (nn.LSTM(8, 8), ""),
    ],
)
def test_modules_with_two_modes_are_named(inside: nn.Module, named: str) -> None:
    assert in_training_mode(source(network(inside).train())) == named
    assert in_training_mode(source(network(inside).eval())) == ""


@pytest.mark.parametrize("inside", [nn.BatchNorm1d(8), nn.Dropout(0.5)])
@pytest.mark.parametrize("training", [True, False])
def test_membership_trains_in_the_mode_of_the_model(
    inside: nn.Module, tmp_path: Path, *, training: bool
) -> None:
    """The trained tensors are those of a plain loop of torch over the same batches."""
    torch.manual_seed(0)
    model = network(inside).train(training)
    spec = MembershipSpec(task="m:t", rounds=3, optimizer="adam:lr=0.01", batch_size=50)
    prepared = membership.prepare(spec, source(model))
    recipe = MembershipRecipe(prepared.task, prepared.spec)
    target = trained_target(
        prepared.data, prepared.roles, recipe, 0, WorkFolder(tmp_path), Silent()
    )
    members = prepared.roles.members
    expected = _plain_loop(model, prepared.data.rows(members), spec)
    for name, leaf in target.snapshots[-1].model.state_dict().items():
        torch.testing.assert_close(leaf, expected[name], rtol=1e-4, atol=1e-5)
    assert not target.snapshots[-1].model.training
    assert not target.views
    assert model.training == training, "the user's model must stay as it is"
    noted = any("it is trained so" in one for one in prepared.run.notes)
    assert noted == training == (IN_TRAINING_MODE in prepared.run.data)


def _plain_loop(model: nn.Module, data: Dataset, spec: MembershipSpec) -> dict[str, torch.Tensor]:

    own = copy.deepcopy(model)
    moving = torch.optim.Adam(own.parameters(), lr=0.01)
    for number in range(1, spec.rounds + 1):
        order = stream(spec.seed, QUESTION, "target", number).permutation(len(data))
        noise = derive(spec.seed, "none", "target", number)
        torch.manual_seed(derive(noise, "model"))
        for batch in torch.split(torch.from_numpy(order), spec.batch_size):
            moving.zero_grad()
            cross_entropy(own(data.x[batch]), data.y[batch]).backward()
            moving.step()
    return own.state_dict()


def test_the_mode_is_part_of_what_a_folder_belongs_to() -> None:
    model = network(nn.BatchNorm1d(8))
    both = [
        membership.prepare(MembershipSpec(task="m:t"), source(model.train(mode))).run.data
        for mode in (True, False)
    ]
    assert both[0] != both[1]


@pytest.mark.parametrize("pairs", [CHECKPOINT, STREAM])
def test_a_timeline_says_whose_gradients_it_measured(pairs: str, tmp_path: Path) -> None:
    spec = TimelineSpec(
        task="m:t", pairs=pairs, checkpoints=(4,), iterations=60, critic_iterations=5, records=300
    )
    prepared = tokens.prepare(spec, source(network(nn.BatchNorm1d(8)).train(), 3000))
    at = trained(prepared, "none", WorkFolder(tmp_path), Silent())[-1]
    count = at.tensors["1.num_batches_tracked"]
    assert int(count) == 240, "training in training mode moves the running statistics"
    assert not at.task(prepared.task)[0].model.training
    figures = measured(prepared, at)["figures"]
    told = {IN_EVALUATION in one["details"] for one in figures if "token" in one["details"]}
    assert told == {pairs == CHECKPOINT}


def test_layers_refuses_training_mode_in_one_line() -> None:
    with pytest.raises(InputError, match="comes in training mode and holds BatchNorm1d"):
        layers.prepare(
            LayersSpec(task="m:t", secret="s"), source(network(nn.BatchNorm1d(8)).train())
        )
