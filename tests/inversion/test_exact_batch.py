"""Whole batches from the gradient of a linear layer before a ReLU, and their certificate."""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import leakgauge
from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream, torch_stream
from leakgauge.core.types import Column, Dataset, Grads, Schema, Task
from leakgauge.gradients import batch_gradients, params_of
from leakgauge.inversion.exact_batch.directions import directions
from leakgauge.inversion.exact_batch.factors import factors_of
from leakgauge.inversion.exact_batch.layer import layer_before_relu
from leakgauge.inversion.exact_batch.method import ExactBatch, flags_of
from leakgauge.inversion.exact_batch.recovery import Recovery, recover
from leakgauge.inversion.exact_batch.vertices import vertices
from leakgauge.inversion.observed import AttackOptions, Knowledge, ObservedUpdates
from leakgauge.inversion.question import QUESTION
from leakgauge.inversion.report.as_json import as_json
from leakgauge.inversion.spec import InversionSpec
from leakgauge.inversion.words import NAME
from leakgauge.models import mlp
from leakgauge.runs.audit import describe, prepare_all, run_audit
from leakgauge.runs.question import Silent
from leakgauge.runs.sources import task_source
from leakgauge.runs.store import Store
from leakgauge.training import Update
from support.references.spear import spear

NUMBERS, GROUPS = 4, (2, 7, 5, 3, 6)
WIDTH = NUMBERS + sum(GROUPS)


def net(classes: int = 3, hidden: tuple[int, ...] = (120, 30), *, seed: int = 0, width=WIDTH):
    model = mlp(width, classes, hidden, generator=torch_stream(seed, "model"))
    return Task(model, cross_entropy)


def rows(count: int, *, seed: int = 0) -> Tensor:
    """Return rows of a made table: numbers, then one-hot columns."""
    rng = stream(seed, "rows")
    hot = [np.eye(width)[rng.integers(width, size=count)] for width in GROUPS]
    return torch.from_numpy(np.hstack([rng.normal(size=(count, NUMBERS)), *hot])).float()


@cache
def flags() -> Tensor:
    return torch.arange(NUMBERS, WIDTH)


def labels(count: int, classes: int = 3, *, seed: int = 0) -> Tensor:
    return torch.from_numpy(stream(seed, "labels").integers(classes, size=count))


def gradient(task: Task, x: Tensor, y: Tensor) -> Grads:
    found = batch_gradients(task, params_of(task.model), x[None], y[None])
    return {name: leaf[0] for name, leaf in found.items()}


def recovered(task: Task, grads: Grads, count: int, *, table: bool = True, **more) -> Recovery:
    leaf = next(iter(grads.values()))
    layer = layer_before_relu(
        task, params_of(task.model), torch.zeros(leaf.shape[1], dtype=leaf.dtype)
    )
    settings = {"precision": leaf.dtype, "seed": 0, "most": 20, **more}
    return recover(layer, grads, count, flags=flags() if table else None, **settings)


def found_share(truth: Tensor, found: Tensor, tolerance: float = 1e-4) -> float:
    if not len(found):
        return 0.0
    gaps = torch.cdist(truth.double(), found, p=float("inf")).amin(dim=1)
    return float((gaps <= tolerance).double().mean())


@pytest.mark.parametrize("table", [True, False])
@pytest.mark.parametrize("hidden", [(120, 30), (120,)], ids=["two layers", "one layer"])
@pytest.mark.parametrize("classes", [2, 5])
def test_all_records_and_labels_of_a_batch(hidden, classes: int, table: bool) -> None:
    """One hidden layer with two classes weighs all records of a unit alike, up to a sign."""
    task = net(classes, hidden)
    for seed in range(3):
        x, y = rows(8, seed=seed), labels(8, classes, seed=seed)
        found = recovered(task, gradient(task, x, y), 8, table=table)
        assert found.is_certified
        assert found.difference < 1e-6
        assert found_share(x, found.x) == 1.0
        order = torch.cdist(x.double(), found.x).argmin(dim=1)
        assert found.y[order].tolist() == y.tolist()


def test_it_finds_the_records_that_random_rows_find() -> None:
    """Against a literal search of SPEAR, on float64 gradients."""
    task = Task(net(3).model.double(), cross_entropy)
    for seed in range(3):
        x, y = rows(5, seed=seed).double(), labels(5, seed=seed)
        grads = gradient(task, x, y)
        both = torch.cat([grads["0.weight"], grads["0.bias"][:, None]], dim=1)
        layer = task.model[0].weight.detach(), task.model[0].bias.detach()
        literal, _ = spear(both, *layer, 5, torch_stream(seed, "rows drawn"))
        found = recovered(task, grads, 5)
        assert found_share(literal, found.x, 1e-8) == 1.0
        assert found_share(x, literal, 1e-8) == 1.0


def test_records_that_are_no_table() -> None:
    task, x = net(10, width=20), torch.randn(10, 20, generator=torch_stream(0, "x"))
    y = labels(10, 10)
    found = recovered(task, gradient(task, x, y), 10, table=False)
    assert found.is_certified
    assert found_share(x, found.x) == 1.0


def test_float64_gradients_are_recovered_to_their_own_rounding() -> None:
    task = Task(net().model.double(), cross_entropy)
    x, y = rows(8).double(), labels(8)
    found = recovered(task, gradient(task, x, y), 8)
    assert found.is_certified
    assert found.difference < 1e-12
    assert found_share(x, found.x, 1e-11) == 1.0


def test_equal_records_lower_the_rank_and_are_not_certified() -> None:
    task, x, y = net(), rows(6), labels(6)
    x[5], y[5] = x[4], y[4]
    found = recovered(task, gradient(task, x, y), 6)
    assert (found.rank, found.is_certified) == (5, False)


@pytest.mark.parametrize(
    ("noise", "times"),
    [
        (0.0, 100),
        (1e-3, 25),
        (1e-1, 25),
        pytest.param(1e-3, 300, marks=pytest.mark.slow),
        pytest.param(1e-1, 300, marks=pytest.mark.slow),
    ],
)
def test_no_gradient_is_certified_by_chance(noise: float, times: int) -> None:
    """Gradients of nobody, and gradients with noise; small networks for the time."""
    task = net(2, (40,), width=6)
    wrong = 0
    for seed in range(times):
        if noise:
            x = torch.randn(3, 6, generator=torch_stream(seed, "x"))
            grads = gradient(task, x, labels(3, 2, seed=seed))
        else:
            grads = {name: torch.zeros_like(p) for name, p in params_of(task.model).items()}
        for name, leaf in grads.items():
            size = noise * leaf.std() if noise else 1.0
            noisy = torch.randn(leaf.shape, generator=torch_stream(seed, "noise", name))
            grads[name] = leaf + size * noisy
        wrong += recovered(task, grads, 3, table=False, most=2).is_certified
    assert wrong == 0


def test_a_certificate_needs_the_right_records_and_labels() -> None:
    """The certificate goes red where one value or one label is changed."""
    task, x, y = net(), rows(4), labels(4)
    layer = layer_before_relu(task, params_of(task.model), torch.zeros(WIDTH))
    grads = gradient(task, x, y)

    def difference(x: Tensor, y: Tensor) -> float:
        rebuilt = layer.mean_gradient(x.double(), y)
        gap = sum(float((rebuilt[n] - leaf).square().sum()) for n, leaf in grads.items())
        return (gap / sum(float(leaf.square().sum()) for leaf in grads.values())) ** 0.5

    assert difference(x, y) < 1e-6
    other, changed = x.clone(), y.clone()
    other[1, 0] += 1e-2
    changed[2] = (changed[2] + 1) % 3
    assert difference(other, y) > 1e-4
    assert difference(x, changed) > 1e-2


def test_linear_programs_find_records_at_vertices() -> None:
    task, x, y = net(), rows(8), labels(8)
    grads = gradient(task, x, y)
    both = torch.cat([grads["0.weight"], grads["0.bias"][:, None]], dim=1)
    layer = task.model[0]
    factors = factors_of(both, layer.weight, layer.bias, most=8, precision=torch.float32)
    programs = vertices(factors, flags(), stream(0, "programs"))
    tried = [next(programs) for _ in range(60)]
    true = [one for one in tried if one is not None and found_share(one[None], x.double(), 1e-2)]
    confirmed = [one for one in tried if one is not None and factors.confirmed(one) is not None]
    assert len(true) >= 4
    assert len(confirmed) == len(true)


def test_sparse_directions_are_the_columns_of_records() -> None:
    """Against the definition: the gradient of each record at the layer's output."""
    task, x, y = net(), rows(8), labels(8)
    layer = layer_before_relu(task, params_of(task.model), torch.zeros(WIDTH))
    columns = layer.gradients(x.double(), y).T
    left = torch.linalg.qr(columns)[0]
    true = nn.functional.normalize(torch.linalg.lstsq(left, columns).solution, dim=0)
    rounds = directions(left, torch_stream(0, "starts"))
    found = torch.stack([one for _ in range(3) for one in next(rounds)])
    assert float((found @ true).abs().amax(dim=0).min()) > 1 - 1e-6


def test_the_gradient_at_the_layers_output_is_that_of_finite_differences() -> None:
    task, x, y = net(), rows(3).double(), labels(3)
    layer = layer_before_relu(task, params_of(task.model), torch.zeros(WIDTH))
    found, model = layer.gradients(x, y), net().model.double()

    def loss(record: int, step: Tensor) -> float:
        z = model[0](x[record]) + step
        return cross_entropy(model[1:](z[None]), y[record : record + 1]).item()

    for record in range(3):
        for unit in range(0, 120, 17):
            step = torch.zeros(120, dtype=torch.float64)
            step[unit] = 1e-6
            slope = (loss(record, step) - loss(record, -step)) / 2e-6
            assert slope == pytest.approx(float(found[record, unit]), abs=1e-7)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2)), "no ReLU follows"),
        (nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1)), "two or more classes"),
        (nn.Sequential(nn.Linear(5, 8, bias=False), nn.ReLU(), nn.Linear(8, 2)), "without a bias"),
    ],
)
def test_models_that_leave_no_zeros_are_refused(model: nn.Module, said: str) -> None:
    with pytest.raises(InputError, match=said):
        layer_before_relu(Task(model, cross_entropy), params_of(model), torch.zeros(5))


def test_flags_are_one_hot_columns_and_marks_of_missing_numbers() -> None:
    columns = (
        Column("age", "number", 0, 2, missing=True),
        Column("sex", "category", 2, 4, ("f", "m")),
        Column("height", "number", 4, 5),
    )
    assert flags_of(Schema(columns, "y", (), {})).tolist() == [1, 2, 3]
    assert flags_of(None) is None


def rebuilt(task: Task, grads: Grads, count: int, **settings):
    seen = ObservedUpdates(
        params_of(task.model), {n: leaf[None] for n, leaf in grads.items()}, (count, WIDTH)
    )
    known = Knowledge(torch.full((WIDTH,), -5.0), torch.full((WIDTH,), 5.0))
    return ExactBatch(**settings).rebuild(task, seen, known, AttackOptions(seed=0))


def test_the_method_says_why_records_are_missing() -> None:
    task, x, y = net(), rows(6), labels(6)
    whole = rebuilt(task, gradient(task, x, y), 6)
    assert whole.notes == ()
    assert whole.certified.tolist() == [1.0]
    x[5], y[5] = x[4], y[4]
    twice = rebuilt(task, gradient(task, x, y), 6)
    assert "show fewer than 6 records" in twice.notes[0]
    assert twice.certified.tolist() == [0.0]
    noisy = {n: leaf + 0.01 * torch.randn_like(leaf) for n, leaf in gradient(task, x, y).items()}
    assert "not the plain gradient of 6 records" in rebuilt(task, noisy, 6).notes[0]
    many, their = rows(40), labels(40)
    short = rebuilt(task, gradient(task, many, their), 40, rounds=1)
    assert any("the search ended" in note or "show fewer" in note for note in short.notes)


def test_a_report_says_what_is_certified(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    rng = stream(0, "people")
    frame = pd.DataFrame({"age": rng.normal(40, 10, 200), "height": rng.normal(170, 9, 200)})
    frame["city"] = rng.choice(["Rome", "Oslo", "Lima", "Cork"], 200)
    frame["ill"] = rng.choice(["no", "yes"], 200)
    frame.to_csv(path, index=False)
    result = leakgauge.audit(path, ask="reconstruction", label="ill", images=8, batch_size=4)
    figures = {one.metric: one.estimate for one in result.measurements}
    assert (figures["records"].value, figures["certified"].value) == (1.0, 1.0)
    assert (figures["records"].n, figures["certified"].n) == (8, 2)
    assert "2 of 2 updates are certified" in result.to_html()


def test_a_search_that_found_nothing_is_not_a_verdict(tmp_path: Path) -> None:
    """40 records in a network of 20 units: the rank shows that the search could not see them."""
    rng, path = stream(0, "many"), tmp_path / "many.csv"
    frame = pd.DataFrame(rng.normal(size=(200, 30)), columns=[f"c{at}" for at in range(30)])
    frame["ill"] = rng.choice(["no", "yes"], 200)
    frame.to_csv(path, index=False)
    settings = {"label": "ill", "images": 40, "batch_size": 40, "hidden": [20]}
    result = leakgauge.audit(path, ask="reconstruction", **settings)
    (row,) = result.verdicts
    assert (row.level, row.verdict) == ("inconclusive", "Search not finished")
    assert "more records may leak than were found" in row.text
    assert "--batch-size" in row.remedy


def test_a_clients_update_is_certified_without_the_truth(tmp_path: Path) -> None:
    """As a user would: the update as a file, and one whose labels stay unknown."""
    torch.manual_seed(0)
    layers = nn.Linear(16, 300), nn.ReLU(), nn.Linear(300, 4)
    task = Task(nn.Sequential(nn.Flatten(), *layers), cross_entropy)
    x, y = torch.rand(6, 1, 4, 4), labels(6, 4)
    public = Dataset(torch.rand(50, 1, 4, 4), torch.arange(50) % 4)
    for noise, said in ((0.0, "Records certified"), (1.0, "Not scored")):
        grads = gradient(task, x, y)
        grads = {n: leaf + noise * torch.randn_like(leaf) for n, leaf in grads.items()}
        path = tmp_path / f"sent-{noise:g}.safetensors"
        Update("gradient", grads, params_of(task.model), batch_size=6).save(path)
        spec = InversionSpec(task="mine:build", update=str(path), method=("exact-batch",))
        resolved = prepare_all({NAME: (QUESTION, spec)}, source=task_source(task, public))
        folder = tmp_path / f"run-{noise:g}"
        audit = run_audit(folder, describe("invert", resolved), resolved, progress=Silent())
        section = QUESTION.section(audit.answers[NAME], Store(folder).folder(NAME))
        found = as_json(audit.answers[NAME], Store(folder).folder(NAME))
        assert (section.rows[0].verdict, found["certified"]) == (said, noise == 0)
        assert found["iterations"] == 0
        if noise:
            assert found["labels"] == [-1] * 6
            assert any("not the plain gradient" in text for text in found["warnings"])
            assert "unknown, unknown" in str(section.lines)
        else:
            assert sorted(found["labels"]) == sorted(y.tolist())
