"""A user's model that acts otherwise in training is named where it is audited in another mode."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from leakgauge.core.types import Dataset, Task
from leakgauge.data.source import Source
from leakgauge.layers.run import preparing as layers
from leakgauge.layers.spec import LayersSpec
from leakgauge.membership.run import preparing as membership
from leakgauge.membership.spec import MembershipSpec
from leakgauge.runs.records import evaluation_mode
from leakgauge.tokens.run import preparing as tokens
from leakgauge.tokens.spec import TimelineSpec


def source(model: nn.Module) -> Source:
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=(900, 6)), dtype=torch.float32)
    y, secret = (torch.tensor(rng.integers(2, size=900)) for _ in range(2))
    data = Dataset(x, y, secrets={"s": secret})
    return Source(
        "m:t", pd.DataFrame(), None, None, "0", task=Task(model, cross_entropy), dataset=data
    )


def network(*inside: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), *inside, nn.ReLU(), nn.Linear(8, 2))


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
    found = evaluation_mode(source(network(inside).train()))
    assert [f"holds {named}:" in one for one in found] == ([True] if named else [])
    assert evaluation_mode(source(network(inside).eval())) == []


@pytest.mark.parametrize(
    ("prepare", "spec"),
    [
        (membership.prepare, MembershipSpec(task="m:t")),
        (layers.prepare, LayersSpec(task="m:t", secret="s")),
        (tokens.prepare, TimelineSpec(task="m:t")),
    ],
)
def test_each_question_that_trains_in_evaluation_mode_says_so(prepare: Any, spec: Any) -> None:
    run = prepare(spec, source(network(nn.BatchNorm1d(8)).train())).run
    assert any("it is trained in evaluation mode here" in one for one in run.warnings)
