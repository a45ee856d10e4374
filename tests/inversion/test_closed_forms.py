"""Closed forms on random models and losses: they equal plain autograd, or they are refused."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from leakgauge import InputError, Task, from_arrays
from leakgauge.gradients import batch_gradients, params_of, per_example_gradients
from leakgauge.gradients.factored.factors import factors
from leakgauge.inversion.exact import check_reads_records, recover_first_layer
from leakgauge.inversion.labels.inference import infer_labels
from leakgauge.layers.sensitivity import jacobian_sensitivity
from leakgauge.runs.sources import task_source

CLASSES = 4
Loss = Callable[[Tensor, Tensor], Tensor]


class Net(nn.Module):
    """A network whose layers share weights, or whose outputs are not those of its last layer."""

    def __init__(self, kind: str, *, bias: bool) -> None:
        super().__init__()
        self.kind = kind
        self.first, self.head = nn.Linear(4, 4, bias=bias), nn.Linear(4, CLASSES, bias=bias)
        if kind == "tied":
            self.head.weight = self.first.weight
        elif kind == "learned scale":
            self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.first(x))
        if self.kind == "shared":
            hidden = torch.relu(self.first(hidden))
        found = self.head(hidden)
        if self.kind == "scaled":
            found = 3 * found
        elif self.kind == "learned scale":
            found = self.scale * found
        elif self.kind == "beside":
            found = found + functional.linear(x, self.first.weight)
        return found


KINDS = ("plain", "shared", "tied", "scaled", "learned scale", "beside")
READABLE = ("plain", "scaled")
"""Kinds whose first layer is linear, and has its weights and the records for itself."""


def focal(outputs: Tensor, y: Tensor) -> Tensor:
    logp = outputs.log_softmax(1).gather(1, y[:, None])[:, 0]
    return ((1 - logp.exp()) ** 2 * -logp).mean()


LOSSES: dict[str, Loss] = {
    "plain": functional.cross_entropy,
    "weights": nn.CrossEntropyLoss(torch.linspace(0.5, 2, CLASSES, dtype=torch.float64)),
    "smoothing": nn.CrossEntropyLoss(label_smoothing=0.2),
    "focal": focal,
    "penalty on outputs": lambda o, y: functional.cross_entropy(o, y) + o.square().mean() / 9,
}


def drawn(kind: str, loss: Loss, seed: int, *, bias: bool = True) -> tuple[Task, Tensor, Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        task = Task(Net(kind, bias=bias).double(), loss)
        return task, torch.randn(6, 4, dtype=torch.float64), torch.randint(CLASSES, (6,))


def by_autograd(task: Task, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Return the gradients of the records, one by one."""
    each = []
    for row in range(len(x)):
        loss = task.loss(task.model(x[row : row + 1]), y[row : row + 1])
        leaves = list(task.model.parameters())
        each.append(torch.autograd.grad(loss, leaves, materialize_grads=True, allow_unused=True))
    names = [name for name, _ in task.model.named_parameters()]
    return {
        name: torch.stack(one) for name, one in zip(names, zip(*each, strict=True), strict=True)
    }


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.sampled_from(sorted(LOSSES)),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_factors_are_gradients_of_all_records(kind: str, loss: str, bias: bool, seed: int) -> None:
    """Also where the first two records switch a second use of a weight off."""
    task, x, y = drawn(kind, LOSSES[loss], seed, bias=bias)
    found = factors(task, params_of(task.model), x, y)
    made = {name: leaf for one in found.values() for name, leaf in one.gradient().items()}
    wanted = by_autograd(task, x, y)
    torch.testing.assert_close(made, {name: wanted[name] for name in made}, rtol=1e-6, atol=1e-9)
    if loss != "plain":
        return
    norms = [by_autograd(task, x, torch.full_like(y, label)) for label in range(CLASSES)]
    for name, one in jacobian_sensitivity(task, params_of(task.model), x, y).items():
        weight = f"{name}.weight" if name else "scale"
        squares = sum(each[weight].reshape(len(x), -1).square().sum(1) for each in norms)
        torch.testing.assert_close(one.norms["F"], squares.sqrt(), rtol=1e-6, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(KINDS), st.sampled_from(sorted(LOSSES)), st.integers(0, 10**6))
def test_division_gives_the_record_or_is_refused(kind: str, loss: str, seed: int) -> None:
    task, x, y = drawn(kind, LOSSES[loss], seed)
    params, sent = params_of(task.model), by_autograd(task, x[:1], y[:1])
    if kind not in READABLE:
        with pytest.raises(InputError, match="the first layer"):
            check_reads_records(task, params, x[:1])
        return
    check_reads_records(task, params, x[:1])
    if sent["first.bias"].abs().max() < 1e-12:
        return  # no unit is switched on
    found = recover_first_layer(task, params, sent)
    torch.testing.assert_close(found.x[:1], x[:1])


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(KINDS), st.sampled_from(sorted(LOSSES)), st.integers(0, 10**6))
def test_labels_are_exact_or_refused(kind: str, loss: str, seed: int) -> None:
    task, x, y = drawn(kind, LOSSES[loss], seed)
    sent = by_autograd(task, x[:1], y[:1])
    if sent["head.bias"].abs().max() < 1e-12 or not bool(sent["first.weight"].any()):
        return
    ask = lambda: infer_labels(task, params_of(task.model), sent, 1, like=x[None])  # noqa: E731
    if kind in ("tied", "beside"):
        with pytest.raises(InputError, match=r"the last nn\.Linear"):
            ask()
        return
    assert ask().labels.flatten().tolist() == y[:1].tolist()


def test_a_penalty_on_weights_is_refused_in_every_path() -> None:
    model = Net("plain", bias=True)

    def penalised(outputs: Tensor, y: Tensor) -> Tensor:
        weights = model.first.weight.square().sum()
        return functional.cross_entropy(outputs, y) + weights / 2

    task, params = Task(model, penalised), params_of(model)
    x, y = torch.randn(3, 4), torch.tensor([0, 1, 2])
    sent = {name: leaf[:1] for name, leaf in by_autograd(task, x, y).items()}
    for path in (
        lambda: batch_gradients(task, params, x[None], y[None]),
        lambda: batch_gradients(task, params, x[None], y[None], method="loop"),
        lambda: per_example_gradients(task, params, x, y),
        lambda: factors(task, params, x, y),
        lambda: infer_labels(task, params, sent, 1, like=x[None]),
        lambda: task_source(task, from_arrays(x, y, {})),
    ):
        with pytest.raises(InputError, match=r"reads a trainable tensor \[4, 4\] itself"):
            path()
