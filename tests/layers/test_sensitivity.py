"""Sensitivity of gradients by layer, against double backward and per-example gradients."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from leakgauge.core.checks import InputError
from leakgauge.core.types import Task
from leakgauge.gradients import params_of, per_example_gradients
from leakgauge.layers.sensitivity import direction_sensitivity, jacobian_sensitivity
from leakgauge.models import build
from support.references.layers import jacobian_in_the_label

CLASSES = 3
P = {"F": 2, "1": 1, "inf": math.inf}


class Words(nn.Module):
    """Embedding, normalisation, linear layers over places and alone, convolution, recurrence."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 6, padding_idx=0)
        self.norm = nn.LayerNorm(6)
        self.each = nn.Linear(6, 5)
        self.local = nn.Conv1d(5, 4, 3, padding=1)
        self.shift = nn.LayerNorm(8)
        self.shift.weight.requires_grad_(False)
        self.out = nn.Linear(4 * 8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.each(self.norm(self.words(x))))
        return self.out(functional.relu(self.shift(self.local(x.mT))).flatten(1))


LAYERS = ["words", "norm", "each", "local", "out"]


@pytest.fixture
def task() -> Task:
    model = Words().double()
    generator = torch.Generator().manual_seed(0)
    for leaf in model.parameters():
        nn.init.normal_(leaf, std=0.5, generator=generator)
    return Task(model)


def records(count: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    words = torch.randint(7, (count, 8), generator=generator)
    return words, torch.randint(CLASSES, (count,), generator=generator)


def close(found: Tensor, exact: Tensor) -> bool:
    return bool((found - exact).norm() <= 1e-9 * exact.norm())


def test_the_jacobian_is_that_of_double_backward(task: Task) -> None:
    """At a soft label: the gradient is linear in the label, so its Jacobian is the same there."""
    (x, y), params = records(), params_of(task.model)
    soft = torch.rand(6, CLASSES, generator=torch.Generator().manual_seed(2)).double().softmax(1)
    exact = jacobian_in_the_label(task, params, x, soft)
    found = jacobian_sensitivity(task, params, x, y)
    assert list(found) == LAYERS
    for name, one in found.items():
        assert one.size == exact[f"{name}.weight"].shape[1] == params[f"{name}.weight"].numel()
        for norm, p in P.items():
            wanted = torch.linalg.vector_norm(exact[f"{name}.weight"].flatten(1), p, dim=1)
            assert close(one.norms[norm], wanted)


def test_norms_and_ranges_are_those_of_each_records_gradients(task: Task) -> None:
    (x, y), params = records(), params_of(task.model)
    columns = [per_example_gradients(task, params, x, torch.full_like(y, c)) for c in range(3)]
    own = per_example_gradients(task, params, x, y)
    for name, one in jacobian_sensitivity(task, params, x, y).items():
        whole = torch.cat([column[f"{name}.weight"].flatten(1) for column in columns], dim=1)
        for norm, p in P.items():
            assert close(one.norms[norm], torch.linalg.vector_norm(whole, p, dim=1))
        grad = own[f"{name}.weight"].flatten(1)
        assert close(one.range, grad.amax(1) - grad.amin(1))


def test_convolutions_of_images_in_float32() -> None:
    model = build("alexnet", channels=3, classes=2, side=8, generator=torch.Generator())
    x = torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([0, 1, 1, 0, 1])
    task, params = Task(model), params_of(model)
    exact = jacobian_columns(Task(copy.deepcopy(model).double()), x.double(), y)
    for name, one in jacobian_sensitivity(task, params, x, y).items():
        whole = exact[f"{name}.weight"]
        for norm, p in P.items():
            wanted = torch.linalg.vector_norm(whole, p, dim=1)
            torch.testing.assert_close(one.norms[norm], wanted, rtol=1e-5, atol=0)


def jacobian_columns(task: Task, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    labels = [torch.full_like(y, c) for c in range(2)]
    columns = [per_example_gradients(task, params_of(task.model), x, label) for label in labels]
    return {k: torch.cat([one[k].flatten(1) for one in columns], dim=1) for k in columns[0]}


def test_the_estimate_is_equation_10(task: Task) -> None:
    (x, y), params = records(), params_of(task.model)
    exact = jacobian_in_the_label(task, params, x, functional.one_hot(y, CLASSES).double())
    own = per_example_gradients(task, params, x, y)["out.weight"]
    out = jacobian_sensitivity(task, params, x, y, layers=["out"])["out"]
    psi = {"F": math.sqrt(96), "1": 96, "inf": 1}
    for norm, p in P.items():
        each = [
            float(torch.linalg.vector_norm((jacobian / (grad.max() - grad.min())).flatten(), p))
            for jacobian, grad in zip(exact["out.weight"], own, strict=True)
        ]
        assert out.estimate(norm) == pytest.approx(sum(each) / 6 / psi[norm])
        assert out.estimate(norm, normalised=False) == pytest.approx(sum(each) / 6)
        middle = sum(sorted(each)[2:4]) / 2 / psi[norm]
        assert out.estimate(norm, how="median") == pytest.approx(middle)
        raw = float(out.norms[norm].mean()) / psi[norm]
        assert out.estimate(norm, bounded=False) == pytest.approx(raw)


def test_chunks_and_the_model_do_not_matter(task: Task) -> None:
    (x, y), params = records(9), params_of(task.model)
    before = copy.deepcopy(task.model.state_dict())
    whole = jacobian_sensitivity(task, params, x, y)
    single = jacobian_sensitivity(task, params, x, y, max_bytes=1)
    for name, one in whole.items():
        assert close(single[name].range, one.range)
        assert all(close(single[name].norms[norm], one.norms[norm]) for norm in P)
    assert all(torch.equal(leaf, before[key]) for key, leaf in task.model.state_dict().items())
    assert not any(module._forward_hooks for module in task.model.modules())


def test_a_record_without_range_is_left_out_and_counted() -> None:
    model = nn.Linear(2, 2, bias=False)
    params = {"weight": torch.eye(2)}
    x, y = torch.tensor([[1000.0, 0.0], [1.0, 2.0], [0.5, 0.1]]), torch.tensor([0, 1, 1])
    found = jacobian_sensitivity(Task(model), params, x, y)[""]
    rest = jacobian_sensitivity(Task(model), params, x[1:], y[1:])[""]
    assert found.left_out == 1
    assert rest.left_out == 0
    assert found.estimate() == rest.estimate()
    assert found.estimate(bounded=False) > 100 * rest.estimate(bounded=False)
    sure = jacobian_sensitivity(Task(model), params, x[:1], y[:1])[""]
    assert math.isnan(sure.estimate())


def test_a_sure_record_dominates_the_mean_but_not_the_median() -> None:
    """With p of the true class near 1 the range falls as 1 - p, the Jacobian stays."""
    x, y = torch.tensor([[15.0, 0.0], *[[0.1, 0.0]] * 4]), torch.zeros(5, dtype=torch.int64)
    task = Task(nn.Linear(2, 2, bias=False))
    found = jacobian_sensitivity(task, {"weight": torch.eye(2)}, x, y)[""]
    assert found.estimate() > 1e4 > 10 > found.estimate(how="median")


class Smoothed(nn.CrossEntropyLoss):
    def __init__(self) -> None:
        super().__init__(label_smoothing=0.1)


@pytest.mark.parametrize(
    "loss",
    ["mse", "bce", Smoothed(), nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 3.0]).double())],
    ids=["mse", "bce", "smoothed", "weighted"],
)
def test_another_loss_is_refused_in_one_line(task: Task, loss) -> None:
    x, y = records()
    with pytest.raises(InputError, match="not the plain cross entropy") as refusal:
        jacobian_sensitivity(Task(task.model, loss), params_of(task.model), x, y)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(),
        lambda outputs, y: functional.nll_loss(outputs.log_softmax(1), y),
        lambda outputs, y: functional.cross_entropy(outputs, y, reduction="none"),
    ],
)
def test_cross_entropy_by_another_name_is_taken(task: Task, loss) -> None:
    (x, y), params = records(), params_of(task.model)
    plain = jacobian_sensitivity(task, params, x, y)["each"]
    found = jacobian_sensitivity(Task(task.model, loss), params, x, y)["each"]
    assert close(found.norms["F"], plain.norms["F"])


def test_bad_labels_and_layers_are_refused(task: Task) -> None:
    (x, y), params = records(), params_of(task.model)
    with pytest.raises(InputError, match="y has 1 to 3; expected 0 to 2"):
        jacobian_sensitivity(task, params, x, y + 1)
    with pytest.raises(InputError, match=r"y is \[6\] torch.float32; expected classes"):
        jacobian_sensitivity(task, params, x, y.float())
    with pytest.raises(InputError, match=r"no layer 'ouf'.*did you mean 'out'"):
        jacobian_sensitivity(task, params, x, y, layers=["ouf"])
    with pytest.raises(InputError, match="x is empty"):
        jacobian_sensitivity(task, params, x[:0], y[:0])


@pytest.mark.parametrize("max_bytes", [1, 2**28])
def test_the_direction_is_the_difference_of_mean_gradients(task: Task, max_bytes: int) -> None:
    (x, y), params = records(7), params_of(task.model)
    has = torch.tensor([True, False, False, True, False, False, False])
    exact = per_example_gradients(task, params, x, y)
    found = direction_sensitivity(task, params, x, y, has, max_bytes=max_bytes)
    assert list(found) == LAYERS
    for name, one in found.items():
        grads = exact[f"{name}.weight"].flatten(1)
        step, mean = grads[has].mean(0) - grads[~has].mean(0), grads.mean(0)
        ends = float(mean.max() - mean.min())
        for norm, p in P.items():
            psi = grads.shape[1] ** (1 / p)
            wanted = float(torch.linalg.vector_norm(step, p))
            assert one.estimate(norm) == pytest.approx(wanted / ends / psi)
            assert one.estimate(norm, bounded=False) == pytest.approx(wanted / psi)


def test_the_direction_takes_any_loss_and_needs_both_groups(task: Task) -> None:
    x, y = records()
    of_numbers = Task(nn.Sequential(nn.Flatten(), nn.Linear(8, 1)).double(), "mse")
    params = params_of(of_numbers.model)
    has = torch.arange(6) < 2
    numbers = x.double()
    found = direction_sensitivity(of_numbers, params, numbers, y.double(), has, layers=["1"])
    assert found["1"].size == 8
    assert found["1"].estimate() > 0
    with pytest.raises(InputError, match="0 of 6 records have the property"):
        direction_sensitivity(task, params_of(task.model), x, y, has & False)
    with pytest.raises(InputError, match=r"has_property is \[6\] torch.int64"):
        direction_sensitivity(task, params_of(task.model), x, y, has.long())
