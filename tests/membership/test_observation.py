"""What is seen of records: outputs, losses that do not round to 0, hidden outputs, gradients."""

import math

import pytest
import torch
from torch import nn

from leakgauge.core.checks import InputError
from leakgauge.core.losses import log_losses
from leakgauge.core.types import Dataset, Task
from leakgauge.gradients import params_of, per_example_gradients
from leakgauge.membership.observation import hidden_outputs, observe
from support.worlds import network, noise


def seen(task: Task, data: Dataset, **wanted):
    return observe((task,), data, **wanted)


def test_losses_stay_exact_where_probabilities_round_to_one() -> None:
    gaps = torch.tensor([0.5, 5.0, 36.0, 50.0, 300.0], dtype=torch.float64)
    outputs = torch.stack([gaps, torch.zeros(5), torch.zeros(5)], dim=1).double()
    labels = torch.zeros(5, dtype=torch.int64)
    found = log_losses(nn.functional.cross_entropy, outputs, labels)
    exact = [math.log(math.log1p(2 * math.exp(-gap))) for gap in gaps.tolist()]
    assert found.tolist() == pytest.approx(exact, rel=1e-12)
    wrong = log_losses(nn.functional.cross_entropy, -outputs, labels).exp()
    assert wrong.tolist() == pytest.approx(
        nn.functional.cross_entropy(-outputs, labels, reduction="none").tolist(), rel=1e-12
    )


@pytest.mark.parametrize("loss", ["mse", nn.functional.l1_loss])
def test_losses_of_numbers_are_those_of_the_task(loss) -> None:
    task = Task(nn.Linear(4, 1).double(), loss)
    x, y = torch.randn(7, 4, dtype=torch.float64), torch.randn(7, 1, dtype=torch.float64)
    one = seen(task, Dataset(x, y))
    each = [task.mean_loss(task.model(x[[i]]), y[[i]]).item() for i in range(7)]
    assert one.log_loss[:, 0].exp().tolist() == pytest.approx(each)
    assert one.classes == 0
    assert torch.allclose(one.outputs[:, 0], task.model(x))


def test_gradients_and_norms_are_those_of_each_record() -> None:
    task, data = network(seed=0), noise(9, seed=0)
    layers = [name for name, part in task.model.named_modules() if isinstance(part, nn.Linear)]
    one = seen(task, data, layers=layers)
    double = Task(network(seed=0).model.double(), task.loss)
    exact = per_example_gradients(double, params_of(double.model), data.x.double(), data.y)
    for name in layers:
        both = torch.cat([exact[f"{name}.{part}"].flatten(1) for part in ("weight", "bias")], 1)
        assert torch.allclose(one.log_norms[name][:, 0].exp(), both.norm(dim=1), rtol=1e-5)
        kernels = torch.randn(5, exact[f"{name}.weight"].shape[2])
        projected = one.gradients[name][0].project(kernels)
        wanted = exact[f"{name}.weight"].float() @ kernels.T
        assert torch.allclose(projected, wanted, rtol=1e-4, atol=1e-6)
    total = torch.cat([leaf.flatten(1) for leaf in exact.values()], 1).norm(dim=1)
    assert torch.allclose(one.log_norm[:, 0].exp(), total, rtol=1e-5)


def test_hidden_outputs_are_those_of_the_layer_and_no_hook_stays() -> None:
    task, data = network(seed=1), noise(6, seed=1)
    first = next(name for name, part in task.model.named_modules() if isinstance(part, nn.Linear))
    before = {name: leaf.clone() for name, leaf in task.model.state_dict().items()}
    found = hidden_outputs(task, data.x, [first])
    assert torch.allclose(found[first], task.model.get_submodule(first)(data.x.flatten(1)).relu())
    assert not any(part._forward_hooks for part in task.model.modules())
    assert all(torch.equal(before[name], leaf) for name, leaf in task.model.state_dict().items())


@pytest.mark.parametrize("inplace", [False, True])
def test_hidden_outputs_are_those_after_an_activation_that_takes_them(inplace: bool) -> None:
    """Of a layer whose output goes elsewhere first, they are the layer's own."""
    relu = nn.ReLU(inplace=inplace)
    model = nn.Sequential(nn.Linear(4, 6), relu, nn.Linear(6, 6), nn.LayerNorm(6), nn.Tanh())
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    found = hidden_outputs(Task(model), x, ["0", "2", "3"])
    after = {name: model[: int(name) + 1](x) for name in found}
    assert torch.allclose(found["0"], after["0"].relu())
    assert torch.allclose(found["2"], after["2"])
    assert torch.allclose(found["3"], after["3"].tanh())


class Sequences(nn.Module):
    """Classifies sequences ``[n, 5]`` of tokens by a recurrent layer or by attention."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.words, self.head = kind, nn.Embedding(9, 4), nn.Linear(4, 2)
        self.inner = {
            "lstm": lambda: nn.LSTM(4, 4, batch_first=True),
            "time first": lambda: nn.GRU(4, 4),
            "cell": lambda: nn.LSTMCell(4, 4),
            "attention": lambda: nn.MultiheadAttention(4, 2, batch_first=True),
            "each": lambda: nn.LSTM(4, 4),
        }[kind]()

    def forward(self, x):
        words = self.words(x)
        if self.kind == "attention":
            return self.head(self.inner(words, words, words)[0].mean(1))
        if self.kind == "cell":
            states = [None]
            for at in range(x.shape[1]):
                states.append(self.inner(words[:, at], states[-1]))
            return self.head(states[-1][0])
        if self.kind == "time first":
            return self.head(self.inner(words.transpose(0, 1))[0][-1])
        if self.kind == "each":
            return torch.stack([self.head(self.inner(one)[0][-1]) for one in words])
        return self.head(self.inner(words)[0][:, -1])


@pytest.mark.parametrize("kind", ["lstm", "time first", "cell", "attention", "each"])
@pytest.mark.parametrize("count", [1, 5, 300])
def test_hidden_outputs_of_sequences_have_a_row_for_each_record(kind: str, count: int) -> None:
    """They are the first outputs, at each place, of the module itself for a record alone."""
    torch.manual_seed(0)
    model = Sequences(kind).eval()
    x = torch.randint(9, (count, 5))
    name = "inner.out_proj" if kind == "attention" else "inner"  # runs within the module around it
    found = hidden_outputs(Task(model), x, [name])[name]
    with torch.no_grad():
        for row, one in enumerate(model.words(x[:7])):
            if kind == "cell":
                state, expected = None, []
                for word in one:
                    state = model.inner(word[None], state)
                    expected.append(state[0][0])
                alone = torch.cat(expected)
            elif kind == "attention":
                alone = model.inner(one[None], one[None], one[None])[0].flatten()
            else:
                alone = model.inner(one)[0].flatten()
            torch.testing.assert_close(found[row], alone)
    assert len(found) == count


def test_a_layer_without_an_axis_of_records_is_refused() -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.all, self.head = nn.Linear(4, 3), nn.Linear(4, 2)

        def forward(self, x):
            return self.head(x) + self.all(x.mean(0)).sum()

    with pytest.raises(InputError, match=r"layer 'all' gives \[3\] for 2 records and \[3\] for 3"):
        hidden_outputs(Task(Pooled()), torch.ones(4, 4), ["all"])


def test_snapshots_rows_and_records_stay_in_order() -> None:
    tasks, data = (network(seed=0), network(seed=1)), noise(8, seed=0)
    layer = next(n for n, part in tasks[0].model.named_modules() if isinstance(part, nn.Linear))
    both = observe(tasks, data, layers=[layer], hidden=[layer])
    # kernels for few and for many records differ in the last digits
    rows = torch.tensor([5, 2])
    for number, task in enumerate(tasks):
        alone = observe((task,), data.rows(rows), layers=[layer], hidden=[layer])
        part = both.at(number).rows(rows)
        assert torch.allclose(part.outputs, alone.outputs, rtol=1e-5, atol=1e-6)
        assert torch.allclose(part.log_loss, alone.log_loss, rtol=1e-5, atol=1e-6)
        assert torch.allclose(part.hidden[layer], alone.hidden[layer], rtol=1e-5, atol=1e-6)
        assert torch.allclose(part.log_norms[layer], alone.log_norms[layer], rtol=1e-5, atol=1e-6)


def test_a_snapshot_that_is_not_finite_is_refused_by_its_number() -> None:
    sound, broken = network(seed=0), network(seed=0)
    with torch.no_grad():
        next(broken.model.parameters())[0, 0] = math.inf
    with pytest.raises(InputError, match=r"snapshot 2 gives outputs that are not finite for \d+"):
        observe((sound, broken), noise(4, seed=0))


def test_gradients_of_members_that_are_known_by_heart_do_not_round_to_zero() -> None:
    task, data = network(seed=0), noise(5, seed=0)
    with torch.no_grad():
        last = task.model.get_submodule("4")
        last.bias.zero_()
        last.weight.mul_(1e3)
    sure = data.rows(torch.arange(5))
    labels = task.model(sure.x).argmax(1)
    seen_ = observe((task,), Dataset(sure.x, labels), layers=["4"])
    double = task.model.double()
    x = sure.x.double()
    features = double[:4](x)
    outputs = double[4](features)
    p = torch.softmax(outputs, 1)
    p[torch.arange(5), labels] = -(
        p.scatter(1, labels[:, None], 0.0).sum(1)
    )  # p - 1, without rounding
    exact = p.norm(dim=1) * (features.square().sum(1) + 1).sqrt()
    assert exact.min() < 1e-12
    assert torch.allclose(seen_.log_norm[:, 0], exact.log(), rtol=1e-3)
