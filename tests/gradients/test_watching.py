"""What a watched pass is seen to do."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from leakgauge.gradients.watching import OperationWatcher
from leakgauge.models import slim

MODELS = {
    "mlp": (nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)), (6,)),
    "slim": (slim(3, 10, generator=torch.Generator()), (3, 32, 32)),
    "attention": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (4, 8)),
    "gru": (nn.GRU(5, 4, batch_first=True), (3, 5)),
}


@pytest.mark.parametrize("name", MODELS)
def test_operations_are_counted_as_by_torchs_counter(name: str) -> None:
    model, shape = MODELS[name]
    x = torch.ones(2, *shape)
    with FlopCounterMode(display=False) as expected:
        model(x)
    with OperationWatcher() as seen:
        model(x)
    assert seen.flops == expected.get_total_flops()
    assert seen.flops > 0 or name == "gru"  # torch has no formula for its kernel


def test_a_compiled_model_is_watched_too() -> None:
    model = nn.Linear(4, 3)
    with OperationWatcher() as seen:
        torch.compile(model, backend="eager")(torch.ones(2, 4))
    assert seen.flops == 2 * 2 * 4 * 3
