"""Exact records from a first linear layer, and tables back in their columns."""

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream, torch_stream
from leakgauge.core.types import Column, Dataset, Schema, Task
from leakgauge.data import Roles, encode, make_table, read_table
from leakgauge.data.decode import column_hits, decode, fits
from leakgauge.gradients import batch_gradients, local_updates, params_of
from leakgauge.inversion.exact import (
    check_reads_records,
    first_linear,
    recover_first_layer,
    share_recovered,
)
from leakgauge.models import cnn, mlp
from leakgauge.training.update import Update


def net(inputs: int = 20, classes: int = 6, width: int = 100, *, seed: int = 0) -> Task:
    model = mlp(inputs, classes, (width,), generator=torch_stream(seed, "model")).double()
    return Task(model, cross_entropy)


def batch(size: int, *, inputs: int = 20, classes: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
    rng = stream(seed, "batch")
    x = torch.from_numpy(rng.normal(size=(1, size, inputs)))
    return x, torch.from_numpy(rng.integers(classes, size=(1, size)))


def recovered(task: Task, x: Tensor, y: Tensor, **settings):
    params = params_of(task.model)
    return recover_first_layer(task, params, batch_gradients(task, params, x, y), **settings)


def seen_alone(task: Task, x: Tensor) -> list[int]:
    """How many units each record of ``x [B, D]`` reaches alone: a literal count."""
    on = [[unit > 0 for unit in task.model[0](one).tolist()] for one in x]
    return [
        sum(mine and sum(others) == 1 for mine, *others in zip(row, *on, strict=True)) for row in on
    ]


# --- recovery -------------------------------------------------------------------------------------


def test_by_hand() -> None:
    """Units 0 and 3 saw (1, 2), unit 2 saw (5, -1), unit 1 both, unit 4 none."""
    bias = torch.tensor([[2.0, 3.0, 1.0, -1.0, 0.0]])
    weight = torch.tensor([[[2.0, 4], [7, 3], [5, -1], [-1, -2], [0, 0]]])
    task = Task(nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 2)), cross_entropy)
    params = params_of(task.model)
    grads = {"0.weight": weight, "0.bias": bias}
    found = recover_first_layer(task, params, grads)
    assert (found.x.tolist(), found.support.tolist()) == ([[1.0, 2.0]], [2])
    found = recover_first_layer(task, params, grads, agree=1)
    assert found.support.tolist() == [2, 1, 1]
    torch.testing.assert_close(found.x, torch.tensor([[1.0, 2.0], [7 / 3, 1], [5, -1]]))
    found = recover_first_layer(task, params, grads, agree=1, valid=lambda x: x[:, 1] < 0)
    assert found.x.tolist() == [[5.0, -1.0]]


@pytest.mark.parametrize("seed", range(5))
def test_one_record_is_always_recovered(seed: int) -> None:
    task, (x, y) = net(seed=seed), batch(1, seed=seed)
    found = recovered(task, x, y)
    assert found.support.tolist() == seen_alone(task, x[0])
    torch.testing.assert_close(found.x, x[0], rtol=1e-9, atol=1e-9)


def test_a_single_unit_is_enough_for_one_record() -> None:
    x, y = batch(1)
    task = net(width=1)
    with torch.no_grad():
        task.model[0].weight[0] = x[0, 0]
    torch.testing.assert_close(recovered(task, x, y).x, x[0])


@pytest.mark.parametrize("seed", range(5))
def test_several_records_are_recovered_where_units_saw_them_alone(seed: int) -> None:
    """With six classes, units that saw several records agree roughly at best."""
    task, (x, y) = net(seed=seed), batch(6, seed=seed)
    alone = seen_alone(task, x[0])
    assert max(alone) >= 2 > min(alone)
    found = recovered(task, x, y, tolerance=1e-8)
    assert sorted(found.support.tolist()) == sorted(count for count in alone if count >= 2)
    assert found.support.tolist() == sorted(found.support.tolist(), reverse=True)
    for record, count in zip(x[0], alone, strict=True):
        assert share_recovered(found.x, record[None], tolerance=1e-8) == (count >= 2)


def test_two_classes_agree_on_mixtures_that_valid_leaves_out() -> None:
    rng = stream(0, "binary")
    x = torch.from_numpy(rng.integers(2, size=(1, 4, 20)).astype(float))
    y = torch.tensor([[0, 1, 0, 1]])
    task = net(classes=2)
    plain = recovered(task, x, y)
    assert share_recovered(x[0], plain.x) < 1
    sure = recovered(task, x, y, valid=lambda x: ((x * (1 - x)).abs() < 1e-6).all(dim=1))
    assert len(sure.x) > 0
    assert share_recovered(x[0], sure.x) == 1
    assert share_recovered(sure.x, x[0]) == share_recovered(plain.x, x[0])


@pytest.mark.parametrize("steps", [1, 4])
def test_weights_after_local_training_do_as_well(steps: int) -> None:
    """The record's share in each step differs; its quotient does not."""
    task, (x, y) = net(), batch(1)
    params = params_of(task.model)
    x, y = x[:, None].expand(1, steps, 1, 20), y[:, None].expand(1, steps, 1)
    change = local_updates(task, params, x, y, lr=0.01)
    after = {name: value + change[name][0] for name, value in params.items()}
    update = Update("weights", after, params, lr=0.01, steps=steps)
    found = recover_first_layer(task, params, update.as_gradient())
    torch.testing.assert_close(found.x, x[0, 0])


def test_agreeing_units_are_joined_by_least_squares() -> None:
    """Against the solver of NumPy: b_i x = W_i."""
    bias = torch.tensor([3.0, -1.0, 2.0], dtype=torch.float64)
    weight = bias[:, None] * torch.tensor([[1.0, 2], [1.00005, 2], [1, 1.99996]])
    grads = {"0.weight": weight[None], "0.bias": bias[None]}
    found = recover_first_layer(net(2, width=3), params_of(net(2, width=3).model), grads)
    wanted = np.linalg.lstsq(bias[:, None].numpy(), weight.numpy())[0]
    np.testing.assert_allclose(found.x.numpy(), wanted, rtol=1e-12)


def test_a_unit_that_is_rounding_alone_is_no_candidate() -> None:
    task = net(inputs=2, width=2)
    grads = {
        "0.weight": torch.tensor([[[1.0, 2], [1e-6, 1e-7]]]),
        "0.bias": torch.tensor([[1.0, 1e-12]]),
    }
    assert recover_first_layer(task, params_of(task.model), grads).x.tolist() == [[1.0, 2.0]]


# --- refusals -------------------------------------------------------------------------------------

ZERO = {"0.weight": torch.zeros(1, 100, 20), "0.bias": torch.zeros(1, 100)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "the gradient of '0.bias' is all zero"),
        ({"0.bias": torch.full((1, 100), torch.inf)}, "'0.bias' is not finite everywhere"),
        ({"0.bias": torch.zeros(2, 100)}, "'0.bias' is [2, 100]; expected [1, 100]: one update"),
        ({"0.weight": torch.zeros(1, 9, 20)}, "'0.weight' is [1, 9, 20]; expected [1, 100, 20]"),
    ],
)
def test_refused_gradients(change: dict[str, Tensor], message: str) -> None:
    task = net()
    with pytest.raises(InputError) as caught:
        recover_first_layer(task, params_of(task.model), {**ZERO, **change})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (cnn(3, 10, generator=torch.Generator()), "the first layer '0' is Conv2d; exact recovery"),
        (nn.Linear(3, 2, bias=False), "the first layer '' is Linear without a bias; exact"),
        (nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 2)), "the first layer '0' is LayerNorm"),
        (nn.ReLU(), "ReLU has no layer with parameters"),
    ],
)
def test_refused_models(model: nn.Module, message: str) -> None:
    with pytest.raises(InputError) as caught:
        first_linear(model)
    assert message in str(caught.value)


def test_a_gradient_that_is_missing_is_refused() -> None:
    task = net()
    with pytest.raises(
        InputError, match=r"^the gradient of '0.bias', the first layer, is missing$"
    ):
        recover_first_layer(task, params_of(task.model), {"0.weight": ZERO["0.weight"]})


# --- tables ---------------------------------------------------------------------------------------

FRAME = pd.DataFrame(
    {
        "age": [20.0, None, 40.0, 60.0, 30.0, None],
        "town": ["a", "b", None, "a", "c", "b"],
        "sex": ["f", "m", "f", "m", "f", "m"],
        "flat": [3.0, 3.0, 3.0, 3.0, 7.0, 3.0],
        "ill": [0, 1, 0, 1, 0, 1],
    }
)


def encoded(fit_on: int = 6) -> tuple[Dataset, Schema]:
    table = make_table(FRAME, Roles("ill", ("sex",)))
    data = encode(table, fit_on=torch.arange(fit_on), keep=("sex",), dtype=torch.float64)
    assert data.schema is not None
    return data, data.schema


def values(column: pd.Series) -> list:
    return [None if pd.isna(value) else value for value in column]


def test_decode_gives_the_table_back() -> None:
    data, schema = encoded()
    found = decode(data.x, schema)
    assert found.columns.tolist() == ["age", "town", "sex", "flat"]
    for name in found:
        assert values(found[name]) == pytest.approx(values(FRAME[name]))


def test_decode_of_a_rebuilt_row_takes_what_is_largest() -> None:
    """And of a category that the encoding does not know, nothing."""
    data, schema = encoded(fit_on=4)
    assert values(decode(data.x, schema)["town"]) == ["a", "b", None, "a", None, "b"]
    assert fits(data.x, schema).all()
    rough = 0.6 * data.x[:4] + 0.1 * torch.from_numpy(stream(0, "r").uniform(-1, 1, (4, 8)))
    assert values(decode(rough, schema)["town"]) == ["a", "b", None, "a"]
    assert not fits(rough, schema).any()


def test_column_hits_by_hand() -> None:
    columns = (
        Column("age", "number", 0, 2, (), True, mean=40, scale=10),
        Column("sex", "category", 2, 4, ("f", "m")),
    )
    schema = Schema(columns, "ill", (), {})
    truth = torch.tensor([[0.0, 0, 1, 0], [0.5, 0, 0, 1], [0, 1, 1, 0], [1.0, 0, 0, 1]])
    found = torch.tensor([[0.04, 0.1, 3, -2], [0.56, 0, 1, 0], [7, 0.9, 0.1, 0], [1, 1, 0.4, 0.3]])
    hits = column_hits(found, truth, schema)
    assert hits["age"].tolist() == [True, False, True, False]
    assert hits["sex"].tolist() == [True, False, True, False]


@pytest.mark.parametrize(
    ("row", "right"),
    [
        ([1.3, 0, 0, 1, 0], True),
        ([0.0, 1, 0, 0, 1], True),
        ([0.4, 1, 0, 0, 1], False),  # missing, and yet a value
        ([0.4, 0.5, 0, 0, 1], False),  # half missing
        ([0.4, 0, 0, 0.5, 0.5], False),
        ([0.4, 0, 0, 1, 1], False),
        ([0.4, 0, -0.1, 1, 0], False),
        ([0.4, 0, 0, 0, 0], True),  # an unknown category
    ],
)
def test_what_can_be_an_encoded_record(row: list[float], right: bool) -> None:
    columns = (
        Column("age", "number", 0, 2, missing=True),
        Column("town", "category", 2, 5, ("a", "b"), missing=True),
    )
    assert fits(torch.tensor([row]), Schema(columns, "ill", (), {})).tolist() == [right]


def test_rows_that_do_not_fit_the_schema_are_refused() -> None:
    data, schema = encoded()
    with pytest.raises(InputError, match=r"^rows are \[6, 3\]; expected \[n, \d+\], as the schema"):
        decode(data.x[:, :3], schema)
    with pytest.raises(InputError, match=r"^rebuilt rows are \[2, \d+\], the true ones \[6, "):
        column_hits(data.x[:2], data.x, schema)
    with pytest.raises(InputError, match="the schema has no encoded columns"):
        decode(data.x, Schema((), "y", (), {}))


# --- Adult ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def adult(data_folder: Path) -> tuple[pd.DataFrame, Dataset]:
    frame = read_table(data_folder / "adult" / "adult.parquet")
    table = make_table(frame, Roles("income", ("sex",), drop=("split",)))
    return frame, encode(table, fit_on=torch.arange(20000), keep=("sex",))


def test_one_record_of_adult_every_column_right(adult: tuple[pd.DataFrame, Dataset]) -> None:
    frame, data = adult
    assert data.schema is not None
    generator = torch_stream(0, "model")
    task = Task(mlp(data.x.shape[1], 2, generator=generator), cross_entropy)
    for row in stream(0, "rows").choice(20000, 20, replace=False).tolist():
        x, y = data.x[row], data.y[row]
        found = recovered(task, x[None, None], y[None, None])
        assert len(found.x) == 1
        assert float((found.x[0] - x).abs().max()) <= 1e-4
        rebuilt = decode(found.x, data.schema).iloc[0]
        for column in data.schema.columns:
            wanted = frame[column.name].iloc[row]
            if column.kind == "number":
                assert round(rebuilt[column.name]) == wanted, column.name
            else:
                assert rebuilt[column.name] == wanted, column.name


@pytest.mark.parametrize(("width", "size", "least"), [(100, 4, 0.8), (1000, 4, 0.98)])
def test_batches_of_adult(adult, width: int, size: int, least: float) -> None:
    _, data = adult
    valid = partial(fits, schema=data.schema)
    task = Task(
        mlp(data.x.shape[1], 2, (width,), generator=torch_stream(0, "model")), cross_entropy
    )
    shares, wrong = [], 0
    for trial in range(15):
        rows = torch.from_numpy(stream(trial, "rows").choice(20000, size, replace=False))
        found = recovered(task, data.x[rows][None], data.y[rows][None], valid=valid)
        shares.append(share_recovered(found.x, data.x[rows]))
        wrong += share_recovered(data.x[rows], found.x) < 1 and len(found.x) > 0
    assert np.mean(shares) >= least
    assert wrong <= 1


# --- what division assumes of a model -------------------------------------------------------------


class Standardised(nn.Module):
    """Its first layer sees other values than the records."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer((x - 1) / 2).relu())


class Twice(Standardised):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x) + self.layer(x))


class Squared(Standardised):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x * x))


@pytest.mark.parametrize("model", [Standardised(), Twice(), Squared()])
def test_a_first_layer_that_does_not_see_the_records_is_refused(model: nn.Module) -> None:
    params = dict(model.named_parameters())
    with pytest.raises(InputError, match="does not get each record once and as it is") as caught:
        check_reads_records(Task(model), params, torch.zeros(5, 3))
    assert "\n" not in str(caught.value)


def test_a_first_layer_that_sees_the_records_is_not() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.ReLU(), nn.BatchNorm1d(4))
    check_reads_records(Task(model), dict(model.named_parameters()), torch.zeros(5, 2, 3))
