"""Whole batches of inputs to a linear layer that records do not enter as they are."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import leakgauge
from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream, torch_stream
from leakgauge.core.types import Dataset, Grads, Task
from leakgauge.gradients import batch_gradients, params_of
from leakgauge.inversion.exact_batch.factors import FactoredGradient, factors_of
from leakgauge.inversion.exact_batch.layer import layer_before_relu
from leakgauge.inversion.exact_batch.peeling import peeled
from leakgauge.inversion.exact_batch.rays import rows_behind_relu
from leakgauge.inversion.exact_batch.recovery import Recovery, recover
from leakgauge.inversion.exact_batch.searching import Searcher
from leakgauge.inversion.question import QUESTION
from leakgauge.inversion.report.as_json import as_json
from leakgauge.inversion.spec import InversionSpec
from leakgauge.inversion.words import NAME
from leakgauge.runs.audit import describe, prepare_all, run_audit
from leakgauge.runs.question import Silent
from leakgauge.runs.sources import task_source
from leakgauge.runs.store import Store
from leakgauge.training import Update


def network(units: int = 60) -> nn.Sequential:
    """Return a network for images of 10 x 10 pixels, the same at each call."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first = nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Flatten()
        return nn.Sequential(*first, nn.Linear(128, units), nn.ReLU(), nn.Linear(units, 3))


def perceptron() -> nn.Sequential:
    """Return a network with two hidden layers for images of 10 x 10 pixels."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first = nn.Flatten(), nn.Linear(100, 80), nn.ReLU()
        return nn.Sequential(*first, nn.Linear(80, 40), nn.ReLU(), nn.Linear(40, 3))


def batch(count: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 1, 10, 10, generator=torch_stream(seed, "x"))
    return x, torch.from_numpy(stream(seed, "y").integers(3, size=count))


def gradient(model: nn.Module, x: Tensor, y: Tensor) -> Grads:
    found = batch_gradients(Task(model, cross_entropy), params_of(model), x[None], y[None])
    return {name: leaf[0] for name, leaf in found.items()}


def layer_of(model: nn.Module, name: str = ""):
    task = Task(model, cross_entropy)
    record = torch.zeros(1, 10, 10, dtype=next(model.parameters()).dtype)
    return layer_before_relu(task, params_of(model), record, name)


def recovered(model: nn.Module, grads: Grads, count: int, name: str = "") -> Recovery:
    precision = next(iter(grads.values())).dtype
    layer = layer_of(model, name)
    return recover(layer, grads, count, flags=None, precision=precision, seed=0, most=5)


@pytest.mark.parametrize(
    ("model", "name", "before", "count"),
    [(network(), "", 3, 8), (perceptron(), "3", 3, 8), (network(16), "3", 3, 12)],
    ids=["after convolutions", "second layer", "few units"],
)
def test_the_inputs_to_a_layer_are_those_of_the_forward_pass(
    model: nn.Sequential, name: str, before: int, count: int
) -> None:
    """16 units show 12 records: the zeros of inputs tell what those of units are too few for."""
    x, y = batch(count)
    found = recovered(model, gradient(model, x, y), count, name)
    true = model[:before](x).detach().double()
    gaps = torch.cdist(true, found.x, p=float("inf"))
    assert float(gaps.amin(dim=1).max()) < 1e-4 * float(true.max())
    assert found.y[gaps.argmin(dim=1)].tolist() == y.tolist()
    assert found.is_certified


def test_float64_gradients_give_inputs_to_their_rounding() -> None:
    model, (x, y) = network().double(), batch(8)
    found = recovered(model, gradient(model, x.double(), y), 8)
    gaps = torch.cdist(model[:3](x.double()).detach(), found.x, p=float("inf")).amin(dim=1)
    assert found.difference < 1e-12
    assert float(gaps.max()) < 1e-11


def test_a_model_that_begins_with_a_linear_layer_gives_records() -> None:
    layer = layer_of(perceptron())
    assert (layer.name, layer.reads_records, layer.is_behind_relu) == ("1", True, False)
    inner = layer_of(network())
    assert (inner.name, inner.reads_records, inner.is_behind_relu) == ("3", False, True)


def test_edges_are_the_planted_rows() -> None:
    """Of sparse rows that were mixed, and of none that is a difference of two."""
    rng = stream(0, "planted")
    rows = np.maximum(rng.normal(size=(10, 60)), 0)
    mixed = rng.normal(size=(30, 10)) @ np.hstack([rows, np.ones((10, 1))])
    whole = torch.from_numpy(mixed)
    factors = factors_of(
        whole, torch.zeros(30, 60), torch.zeros(30), most=10, precision=torch.float64
    )
    found = (rows_behind_relu(factors, stream(0, "edges")) @ factors.right)[:, :-1]
    gaps = torch.cdist(torch.from_numpy(rows), found, p=float("inf"))
    assert gaps.shape == (10, 10)
    assert float(gaps.amin(dim=1).max()) < 1e-8


@pytest.mark.parametrize("noise", [1e-3, None])
def test_noise_is_never_certified(noise: float | None) -> None:
    model, (x, y) = network(), batch(6)
    for seed in range(2):
        grads = gradient(model, x, y)
        for name, leaf in grads.items():
            drawn = torch.randn(leaf.shape, generator=torch_stream(seed, name))
            grads[name] = drawn if noise is None else leaf + noise * leaf.std() * drawn
        assert not recovered(model, grads, 6).is_certified


def test_the_certificate_needs_right_inputs_and_labels() -> None:
    model, (x, y) = network(), batch(6)
    grads, layer = gradient(model, x, y), layer_of(model)

    def difference(inputs: Tensor, labels: Tensor) -> float:
        own = layer.mean_gradient(inputs, labels)
        assert set(own) == {"3.weight", "3.bias", "5.weight", "5.bias"}
        return max(float((own[name] - grads[name]).norm() / grads[name].norm()) for name in own)

    inputs = model[:3](x).detach().double()
    other, changed = inputs.clone(), y.clone()
    other[2, 5] += 1e-2
    changed[3] = (changed[3] + 1) % 3
    assert difference(inputs, y) < 1e-6
    assert difference(other, y) > 1e-4
    assert difference(inputs, changed) > 1e-2


class TwoAtATime(Searcher):
    """Returns true records, two at each call."""

    def __init__(self, x: Tensor) -> None:
        super().__init__(None, behind_relu=False, seed=0, idle=1, rounds=1)
        self.left = list(x)
        self.ranks: list[int] = []

    def records(self, factors: FactoredGradient) -> Tensor:
        self.ranks.append(factors.rank)
        return torch.stack([self.left.pop(), self.left.pop()])


def test_known_records_are_taken_off_a_gradient() -> None:
    """Each two of them lower its rank by two, under the label that they have."""
    model, (x, y) = network(), batch(8)
    layer, grads = layer_of(model), gradient(model, x, y)
    inputs = layer.inputs(x).detach()
    whole = torch.cat([grads["3.weight"], grads["3.bias"][:, None]], dim=1).double()
    factors = factors_of(whole, layer.weight, layer.bias, most=8, precision=torch.float32)
    searcher = TwoAtATime(inputs)
    found, labels = peeled(layer, searcher, whole, factors, 8, torch.float32)
    assert searcher.ranks == [8, 6, 4, 2]
    assert torch.equal(found.flip(0), inputs)
    assert labels.flip(0).tolist() == y.tolist()


class Bypassed(nn.Module):
    """A linear layer that its inputs pass by, too."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.wide, self.last = nn.Linear(100, 20), nn.Linear(20, 20), nn.Linear(20, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x.flatten(1)).tanh()
        return self.last(self.wide(hidden).relu() + hidden)


class Shared(nn.Module):
    """A linear layer that runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.last = nn.Linear(100, 100), nn.Linear(100, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.wide(self.wide(x.flatten(1)).relu()).relu())


@pytest.mark.parametrize(
    ("model", "name", "said"),
    [
        (Bypassed(), "wide", "not the only way"),
        (Bypassed(), "", "no ReLU follows the layer 'first'"),
        (Shared(), "", "does not see each record once"),
        (perceptron(), "4", "no linear layer '4'; it has 1, 3, 5"),
        (perceptron(), "5", "no ReLU follows"),
        (nn.Sequential(nn.Conv2d(1, 3, 10), nn.Flatten()), "", "has no nn.Linear"),
    ],
)
def test_layers_whose_inputs_do_not_tell_the_gradient_are_refused(
    model: nn.Module, name: str, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        layer_of(model, name)


def test_a_report_says_which_layer_was_read_and_how_much_is_exact(tmp_path: Path) -> None:
    rng, path = stream(0, "people"), tmp_path / "people.csv"
    frame = pd.DataFrame(rng.normal(size=(200, 12)), columns=[f"c{at}" for at in range(12)])
    frame["ill"] = rng.choice(["no", "yes"], 200)
    frame.to_csv(path, index=False)
    result = leakgauge.audit(
        path,
        ask="reconstruction",
        label="ill",
        hidden=(60, 60),
        method="exact-batch:layer=2",
        images=8,
        batch_size=4,
    )
    figures = {one.metric: one for one in result.measurements}
    assert figures["layer_inputs"].estimate.value == 1.0
    assert figures["layer_inputs"].details["layer"] == "2"
    assert figures["layer_certified"].estimate.n == 2
    assert "certified" not in figures
    (row,) = result.verdicts
    assert (row.level, row.verdict) == ("clear", "Layer inputs exact")
    assert "exact for 8 of 8 records" in row.text
    assert "2 of 2 updates are certified" in row.text
    assert any("a guess in place of each record" in text for text in result.warnings)


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_a_clients_update_gives_certified_inputs_as_a_file(tmp_path: Path, noise: float) -> None:
    model, (x, y) = network(), batch(6)
    grads = gradient(model, x, y)
    grads = {n: leaf + noise * torch.randn_like(leaf) for n, leaf in grads.items()}
    path = tmp_path / "sent.safetensors"
    Update("gradient", grads, params_of(model), batch_size=6).save(path)
    public = Dataset(*batch(50, seed=1))
    spec = InversionSpec(task="mine:build", update=str(path), method=("exact-batch",))
    resolved = prepare_all(
        {NAME: (QUESTION, spec)}, source=task_source(Task(model, cross_entropy), public)
    )
    audit = run_audit(tmp_path / "run", describe("invert", resolved), resolved, progress=Silent())
    folder = Store(tmp_path / "run").folder(NAME)
    found = as_json(audit.answers[NAME], folder)
    assert (found["layer"], found["layer_certified"]) == ("3", not noise)
    (row,) = QUESTION.section(audit.answers[NAME], folder).rows
    assert row.verdict == ("Not scored" if noise else "Layer inputs certified")
    kept = load_file(folder / "rebuilt.safetensors")
    if not noise:
        true = model[:3](x).detach().double()
        gaps = torch.cdist(true, kept["layer_inputs"], p=float("inf"))
        assert float(gaps.amin(dim=1).max()) < 1e-4
        assert kept["labels"][gaps.argmin(dim=1)].tolist() == y.tolist()


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (nn.BCEWithLogitsLoss(), "the loss refuses a class as the label"),
        (nn.MSELoss(), "compares each of the outputs"),
        (
            lambda made, y: cross_entropy(made["scores"], y),
            "outputs are InAMapping; exact-batch expects",
        ),
    ],
)
def test_losses_without_classes_are_refused_in_one_line(loss, message: str) -> None:
    class InAMapping(dict):
        """Outputs in a mapping."""

    class Mapped(nn.Sequential):
        def forward(self, x):
            scores = super().forward(x)
            return scores if isinstance(loss, nn.Module) else InAMapping(scores=scores)

    model = Mapped(nn.Linear(5, 30), nn.ReLU(), nn.Linear(30, 3))
    task = Task(model, loss)
    with pytest.raises(InputError, match=message):
        layer_before_relu(task, params_of(model), torch.randn(5))


def test_class_weights_in_float32_are_taken() -> None:
    model = nn.Sequential(nn.Linear(5, 30), nn.ReLU(), nn.Linear(30, 3))
    task = Task(model, nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 5.0])))
    layer = layer_before_relu(task, params_of(model), torch.randn(5))
    x, y = torch.randn(4, 5), torch.tensor([0, 1, 2, 2])
    found = layer.mean_gradient(layer.inputs(x), y)
    exact = batch_gradients(task, params_of(model), x[None], y[None])
    for name, leaf in found.items():
        torch.testing.assert_close(leaf.float(), exact[name][0])
