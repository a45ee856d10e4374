"""A step of a search reads no number: a GPU would stop and wait for each reading."""

import importlib
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Task
from leakgauge.gradients import batch_gradients, params_of
from leakgauge.inversion.double_backward import difference
from leakgauge.inversion.double_backward.gradients import differentiable_gradients
from leakgauge.inversion.search.engine import reconstruct
from leakgauge.inversion.search.objective import Cosine
from leakgauge.inversion.search.presets import preset
from leakgauge.models import initialise

READINGS = {
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.is_nonzero.default,
    torch.ops.aten.equal.default,
    torch.ops.aten.nonzero.default,
    torch.ops.aten.masked_select.default,
    torch.ops.aten.repeat_interleave.Tensor,
}
"""Operations that need the values of a tensor on the host."""


class Readings(TorchDispatchMode):
    """Counts readings of tensors, also those by a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.count: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        masks = func.overloadpacket in (torch.ops.aten.index, torch.ops.aten.index_put_) and any(
            isinstance(index, Tensor) and index.dtype == torch.bool for index in args[1]
        )
        self.count += int(masks or func in READINGS)
        return func(*args, **(kwargs or {}))


class Lists(TorchFunctionMode):
    """Counts ``tolist``, which torch does not dispatch on a CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.count: int = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += int(func is Tensor.tolist)
        return func(*args, **(kwargs or {}))


def net() -> Task:
    model = nn.Sequential(
        *(nn.Conv2d(3, 6, 3, stride=2), nn.BatchNorm2d(6), nn.ReLU()),
        *(nn.Conv2d(6, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 10)),
    )
    return Task(initialise(model, "he", generator=torch_stream(0, "net")).eval(), F.cross_entropy)


def readings_of(settings: Any, iterations: int) -> int:
    task, drawn = net(), torch_stream(0, "x")
    x, y = torch.randn(2, 1, 3, 8, 8, generator=drawn), torch.tensor([[1], [2]])
    wanted = batch_gradients(task, params_of(task.model), x, y, method="loop")
    given: dict[str, Any] = {"low": torch.tensor(-1.0), "high": torch.tensor(1.0), "labels": y}
    with Readings() as read, Lists() as lists:
        reconstruct(
            *(task, params_of(task.model), wanted, replace(settings, iterations=iterations)),
            **given,
            shape=(1, 3, 8, 8),
            seed=0,
        )
    return read.count + lists.count


@pytest.fixture
def device_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the path of a GPU; Adam counts its steps on the CPU there."""
    monkeypatch.setattr(difference, "reads_cheaply", lambda device: False)
    monkeypatch.setattr(importlib.import_module("torch.optim.adam"), "_get_value", lambda step: 1.0)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("inverting-gradients", {"restarts": 2}),
        ("agic", {}),
        ("leakgauge", {"slope": "difference"}),
        *(
            pytest.param(name, changed, marks=pytest.mark.slow)
            for name, changed in [
                ("inverting-gradients", {}),
                ("inverting-gradients", {"slope": "difference"}),
                ("agic", {"slope": "difference"}),
                ("agic", {"restarts": 2}),
                ("leakgauge", {}),
                ("leakgauge", {"restarts": 2}),
            ]
        ),
    ],
)
@pytest.mark.usefixtures("device_rules")
def test_more_iterations_read_no_more(name: str, changed: dict[str, Any]) -> None:
    settings = replace(preset(name), rescale=False, **changed)
    assert readings_of(settings, 6) == readings_of(settings, 2)


def test_a_search_that_stops_early_reads_who_moves() -> None:
    settings = replace(preset("inverting-gradients"), patience=50, rescale=False)
    assert readings_of(settings, 6) > readings_of(settings, 2)


def test_without_readings_the_slope_by_difference_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task, drawn = net(), torch_stream(1, "x")
    x, y = torch.randn(1, 2, 3, 8, 8, generator=drawn), torch.tensor([[1, 2]])
    params = params_of(task.model)
    wanted = batch_gradients(task, params, x.flip(1), y, method="loop")
    guess, slopes = x.clone().requires_grad_(), []
    for cheap in (True, False):
        monkeypatch.setattr(difference, "reads_cheaply", lambda device, cheap=cheap: cheap)
        found = difference.Difference(task, params, Cosine(), wanted)(guess, y, torch.tensor([0]))
        slopes.append(torch.autograd.grad(found.sum(), guess)[0])
    exact = Cosine()(differentiable_gradients(task, params, guess, y), wanted)
    slopes.append(torch.autograd.grad(exact.sum(), guess)[0])
    for slope in slopes[:2]:
        assert (slope - slopes[2]).norm() < 0.05 * slopes[2].norm()
