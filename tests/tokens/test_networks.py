"""What is watched of the paper's networks (section 4.1)."""

import pytest
import torch

from leakgauge.core.types import Task
from leakgauge.gradients import params_of
from leakgauge.gradients.walk import walk
from leakgauge.models import build
from leakgauge.tokens.features import WATCHED, check_names, record_features

WATCHES = {
    "lenet-relu": (768, ["convolution"] * 3),  # the width that the paper names
    "alexnet-3fc": (512, ["convolution"] * 3),
    "cnn-2": (128, ["convolution"] * 2),
    "mlp-4": (128, ["linear"] * 4),
}


@pytest.mark.parametrize("name", WATCHES)
def test_features_and_layers_are_those_that_the_paper_watches(name: str) -> None:
    model = build(name, channels=3, classes=10, side=32, generator=torch.Generator().manual_seed(0))
    task, x = Task(model), torch.randn(3, 3, 32, 32)
    watched = WATCHED[name]
    check_names(task, x, watched.features, list(watched.layers))
    width, kinds = WATCHES[name]
    assert record_features(task, params_of(model), x, watched.features).shape == (3, width)
    known = {one.name: one for one in walk(task, x)}
    assert [known[layer].kind for layer in watched.layers] == kinds


def test_alexnets_layers_are_the_last_three_convolutions() -> None:
    model = build(
        "alexnet-3fc", channels=3, classes=10, side=32, generator=torch.Generator().manual_seed(0)
    )
    every = [one.name for one in walk(Task(model)) if one.kind == "convolution"]
    assert len(every) == 5
    assert list(WATCHED["alexnet-3fc"].layers) == every[-3:]
