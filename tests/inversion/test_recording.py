"""A recording repeats a computation to the last bit, or is not used."""

import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from leakgauge.core.precision import full_precision
from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Task
from leakgauge.gradients import batch_gradients, params_of
from leakgauge.inversion.double_backward.convolution import lasting
from leakgauge.inversion.double_backward.difference import Difference
from leakgauge.inversion.double_backward.gradients import differentiable_gradients
from leakgauge.inversion.double_backward.recording import (
    RecordedObjective,
    Recording,
    with_slopes,
)
from leakgauge.inversion.search import engine
from leakgauge.inversion.search.objective import Cosine, against
from leakgauge.inversion.search.presets import preset
from leakgauge.models import initialise, slim


def drawn() -> torch.Generator:
    return torch_stream(0, "net")


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.second, self.short = nn.Conv2d(4, 6, 3, 2, 1), nn.Conv2d(4, 6, 1, 2)
        self.head = nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.first(x)))
        return self.head(F.relu(self.second(x) + self.short(x)).mean((2, 3)))


class Written(nn.Module):
    """Writes in place, and normalises by the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(144, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.first(x.mul_(0.5))), inplace=True)
        return self.head(x.flatten(1))


NETS = {
    "slim": lambda: slim(3, 10, 8, 8, generator=drawn()),
    "residual": lambda: initialise(Residual(), "he", generator=drawn()),
    "written": lambda: initialise(Written(), generator=drawn()),
}


def step_of(name: str, rows: int, *, training: bool = False, device: str = "cpu"):
    """Return the objective, records and labels of ``rows`` targets of two records."""
    model = NETS[name]().train(training).to(device)
    task, params = Task(model, F.cross_entropy), params_of(model)
    x, y = torch.randn(rows, 2, 3, 8, 8, generator=torch_stream(0, "x")), torch.tensor([[1, 2]])
    x, y = x.to(device), y.expand(rows, 2).to(device)
    wanted = batch_gradients(task, params, x.flip(1), y, method="loop")
    compared = against(Cosine(), wanted)
    return (lambda x, y: compared(differentiable_gradients(task, params, x, y))), x, y


def slope(objective, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    value = objective(x, y)
    return value.detach(), torch.autograd.grad(
        (value * torch.arange(1, 1 + len(x)).to(x)).sum(), x
    )[0]


@pytest.mark.parametrize(
    ("rows", "training"),
    [
        (2, False),
        (1, True),
        pytest.param(1, False, marks=pytest.mark.slow),
        pytest.param(2, True, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", NETS)
def test_a_recording_is_the_step_to_the_last_bit(name: str, rows: int, training: bool) -> None:
    objective, x, y = step_of(name, rows, training=training)
    recorded = RecordedObjective(objective)
    for scale in (1.0, -0.5, 2.0, 0.1):
        one, other = slope(recorded, scale * x, y), slope(objective, scale * x, y)
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])
    assert recorded.replays


def test_soft_labels_have_their_slope() -> None:
    objective, x, _ = step_of("slim", 1)
    recorded, y = RecordedObjective(objective), torch.rand(1, 2, 10, generator=drawn())
    for scale in (1.0, 0.5, 2.0):
        given = x.clone().requires_grad_(), (scale * y).requires_grad_()
        pairs = [torch.autograd.grad(one(*given).sum(), given) for one in (recorded, objective)]
        assert all(torch.equal(one, other) for one, other in zip(*pairs, strict=True))


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: (x if x.sum() > 0 else -x,),
        lambda x: (x * x.sum().item(),),
        lambda x: (x * x.tolist()[0],),
        lambda x: (x * float(x.numpy()[0]),),
        lambda x: (x + torch.rand_like(x),),
        lambda x: (x * random.random(),),
    ],
    ids=["branch", "item", "list", "array", "random", "python random"],
)
def test_what_does_not_repeat_itself_is_computed_each_time(compute) -> None:
    recording = Recording(compute)
    for value in (1.0, -2.0, 3.0):
        recording(torch.tensor([value]))
    assert not recording.replays
    if compute.__code__.co_names[-1:] != ("random",):
        torch.manual_seed(0)
        found = recording(torch.tensor([-4.0]))[0]
        torch.manual_seed(0)
        assert torch.equal(found, compute(torch.tensor([-4.0]))[0])


def test_constants_are_computed_once() -> None:
    weight = torch.randn(30, 30, generator=drawn())
    recording = Recording(lambda x: (x @ weight.exp().t(),))
    for _ in range(3):
        recording(torch.ones(1, 30))
    targets = [str(node.target) for node in recording.operations]
    assert [name for name in targets if name.startswith("aten")] == ["aten.mm.default"]


def test_a_constant_that_is_written_is_made_anew() -> None:
    weight = torch.ones(3)
    recording = Recording(lambda x: (weight.clone().add_(x),))
    found = [recording(torch.full((3,), value))[0].tolist() for value in (1.0, 2.0, 3.0, 4.0)]
    assert found == [[2.0] * 3, [3.0] * 3, [4.0] * 3, [5.0] * 3]
    assert recording.replays


def test_known_slopes_are_those_of_autograd() -> None:
    x = torch.randn(3, 4, generator=drawn(), requires_grad=True)
    value = with_slopes(x.detach().square().sum(1), [2 * x.detach()], [x])
    unit = torch.tensor([1.0, 2.0, 0.0])
    torch.testing.assert_close(
        torch.autograd.grad(value, x, unit)[0], 2 * x.detach() * unit[:, None]
    )


@pytest.mark.parametrize("name", ["slim", "residual"])
def test_the_slope_by_difference_is_recorded_to_the_last_bit(name: str) -> None:
    model = NETS[name]().eval()
    task = Task(model, F.cross_entropy)
    params = {key: lasting(value) for key, value in params_of(model).items()}
    x, y = torch.randn(2, 1, 3, 8, 8, generator=torch_stream(0, "x")), torch.tensor([[1], [2]])
    wanted = batch_gradients(task, params, -x, y, method="loop")
    pair = [Difference(task, params, Cosine(), wanted, recorded=flag) for flag in (True, False)]
    rows = torch.arange(2)
    for scale in (1.0, 0.5, 2.0):
        one, other = [slope(lambda x, y, d=d: d(x, y, rows), scale * x, y) for d in pair]
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])


@pytest.mark.parametrize("how", ["exact", "difference"])
def test_a_long_search_ends_as_without_recording(how: str, monkeypatch) -> None:
    task = Task(NETS["slim"]().eval(), F.cross_entropy)
    x, y = torch.randn(2, 1, 3, 8, 8, generator=torch_stream(0, "x")), torch.tensor([[1], [2]])
    wanted = batch_gradients(task, params_of(task.model), x, y, method="loop")
    settings = replace(preset("inverting-gradients", iterations=12), boxed=False, slope=how)
    found = []
    for least in (10, 20):
        monkeypatch.setattr(engine, "RECORDED_FROM", least)
        given = task, params_of(task.model), wanted, settings
        found.append(engine.reconstruct(*given, shape=(1, 3, 8, 8), labels=y, seed=0))
    assert torch.equal(found[0].x, found[1].x)
    assert torch.equal(found[0].losses, found[1].losses)


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


@needs_gpu
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("name", NETS)
def test_on_a_gpu_a_recording_becomes_one_graph(name: str, rows: int) -> None:
    """Its results stay after later calls, and are those of the CPU up to rounding."""
    on_cpu, x, y = step_of(name, rows)
    with full_precision():
        objective = step_of(name, rows, device="cuda")[0]
        recorded = RecordedObjective(objective)
        found = [
            slope(recorded, scale * x.cuda(), y.cuda()) for scale in (1.0, -0.5, 2.0, 0.1, 3.0)
        ]
    assert recorded.on_gpu
    for scale, (value, way) in zip((1.0, -0.5, 2.0, 0.1, 3.0), found, strict=True):
        wanted = slope(on_cpu, scale * x, y)
        torch.testing.assert_close(value.cpu(), wanted[0], rtol=1e-4, atol=1e-5)
        assert float((way.cpu() - wanted[1]).norm()) < 2e-3 * float(wanted[1].norm())


@needs_gpu
def test_what_a_gpu_cannot_capture_is_repeated_as_it_is() -> None:
    recording = Recording(lambda x: (x[x > 0].sum()[None],))
    found = [float(recording(torch.tensor([-1.0, v], device="cuda"))[0]) for v in (1.0, 2, 3, 4, 5)]
    assert found == [1, 2, 3, 4, 5]
    assert not recording.on_gpu
