"""Pairs are rows of the table with one cell changed; canaries are worse than any record drawn."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream, torch_stream
from leakgauge.core.types import Dataset, Task
from leakgauge.data import Roles, encode, make_table
from leakgauge.data.counterfactual import with_value
from leakgauge.gradients import params_of
from leakgauge.guarantee import Craft, NeighbourPair, attribute_of, choose_pairs, craft
from leakgauge.guarantee.search import version_distance
from leakgauge.models import mlp
from support.references import guarantee as literal

ROLES = Roles(label="ill", secrets=("sex",))
FIT_ON = 200
CLIP = 1.0


def frame(n: int = 240) -> pd.DataFrame:
    rng = stream(0, "frame")
    return pd.DataFrame(
        {
            "age": rng.integers(20, 60, size=n).astype(float),
            "job": rng.choice(["cook", "nurse", "pilot"], size=n),
            "sex": rng.choice(["d", "f", "m"], size=n, p=[0.2, 0.4, 0.4]),
            "weight": np.where(rng.random(n) < 0.1, np.nan, rng.normal(70, 10, size=n).round()),
            "ill": rng.integers(2, size=n),
        }
    )


def encoded(table: pd.DataFrame) -> Dataset:
    made = make_table(table, ROLES)
    rows = torch.arange(FIT_ON)
    return encode(made, fit_on=rows, keep=("sex",), dtype=torch.float64)


DATA = encoded(frame())


def task(hidden: int = 20) -> Task:
    generator = torch_stream(0, "model")
    model = mlp(DATA.x.shape[1], 2, (hidden,), generator=generator).double()
    return Task(model, cross_entropy)


# --- pairs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sex", "job", "age", "weight"])
def test_a_version_is_the_row_of_an_altered_table(name: str) -> None:
    """The last rows teach the encoding nothing: there the table itself is altered."""
    table = frame()
    private = DATA.rows(torch.arange(FIT_ON, len(table)))
    for pair in choose_pairs(private, name, 4, rng=stream(0, "pairs")):
        x, y = pair.versions()
        (row,) = torch.nonzero((private.x == pair.x).all(dim=1)).flatten()[:1].tolist()
        for version, value in enumerate(pair.attribute.values):
            other = table.copy()
            other.loc[FIT_ON + row, name] = float(value) if name in ("age", "weight") else value
            expected = encoded(other).x[FIT_ON + row]
            torch.testing.assert_close(x[version], expected, rtol=1e-6, atol=1e-6)
            assert y[version] == private.y[row]
        torch.testing.assert_close(x[0], private.x[row], rtol=1e-6, atol=1e-6)
        assert len(torch.unique(x, dim=0)) == len(x)
        assert len(x) == (2 if name in ("age", "weight") else 3)  # every value, or two numbers
        assert pair.attribute.among == 4  # age, job, sex, weight


def test_pairs_are_of_different_records_and_follow_from_the_seed() -> None:
    pairs, again = (choose_pairs(DATA, "sex", 60, rng=stream(3, "p")) for _ in range(2))
    assert len({tuple(pair.x.tolist()) for pair in pairs}) == 60
    assert all(torch.equal(a.x, b.x) for a, b in zip(pairs, again, strict=True))
    assert [p.attribute.values for p in pairs] == [p.attribute.values for p in again]
    assert {pair.attribute.values for pair in pairs} == {
        (own, *sorted(set("dfm") - {own})) for own in "dfm"
    }


def test_an_attribute_has_each_value_as_its_own_now_and_then() -> None:
    drawn = [attribute_of(DATA, "sex", rng=stream(seed)).values for seed in range(40)]
    assert {values[0] for values in drawn} == set("dfm")
    assert all(set(values) == set("dfm") for values in drawn)
    ages = attribute_of(DATA, "age", rng=stream(0)).values
    assert len(set(ages)) == 2


def test_altered_takes_any_category_and_leaves_secrets_alone() -> None:
    found = with_value(DATA, "job", 2)
    job = DATA.schema.column("job")  # type: ignore[union-attr]
    assert found.x[:, job.start : job.stop].tolist() == [[0.0, 0.0, 1.0]] * len(DATA)
    assert torch.equal(found.secrets["sex"], DATA.secrets["sex"])


def one_sex() -> Dataset:
    return DATA.rows(torch.nonzero(DATA.secrets["sex"] == 1).flatten())


@pytest.mark.parametrize(
    ("data", "name", "says"),
    [
        (DATA, "ill", "'ill', but the data do not say where it stands"),
        (DATA, "jbo", "did you mean 'job'"),
        (one_sex(), "sex", "one value only in these records, 'f'"),
        (replace(DATA, schema=None), "sex", "do not say where it stands"),
    ],
)
def test_attributes_that_have_no_two_versions(data: Dataset, name: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        attribute_of(data, name, rng=stream(0))
    with pytest.raises(InputError, match=says):
        choose_pairs(data, name, 1, rng=stream(0))


def test_values_that_no_record_has() -> None:
    with pytest.raises(InputError, match="no record has 'x'"):
        attribute_of(DATA, "sex", values=("x", "f"))
    for values in (("f", "f"), ("f", "m", "f"), ("f",)):
        with pytest.raises(InputError, match="two or more different values"):
            attribute_of(DATA, "sex", values=values)
    with pytest.raises(InputError, match="1000 records are requested"):
        choose_pairs(DATA, "sex", 1000, rng=stream(0))


# --- distances ------------------------------------------------------------------------------------


def literal_distance(pair: NeighbourPair, distance: str, clip: float) -> float:
    """With several new values: the root of the mean of squares, or the mean of cosines."""
    x, y = pair.versions()
    of = task()
    own, *new = (literal.gradient(of, params_of(of.model), x[h], y[h]) for h in range(len(x)))
    if distance == "cosine":
        return float(np.mean([1 - own @ one / (own.norm() * one.norm()) for one in new]))
    squares = [
        (literal.clipped(own, clip) - literal.clipped(one, clip)).square().sum() for one in new
    ]
    return math.sqrt(np.mean(squares))


@pytest.mark.parametrize("distance", ["cosine", "clipped"])
@pytest.mark.parametrize("clip", [0.3, 50.0])
@pytest.mark.parametrize("name", ["sex", "age"])
def test_distances_are_the_literal_ones(distance, clip: float, name: str) -> None:
    for pair in choose_pairs(DATA, name, 5, rng=stream(1, "p")):
        of = task()
        between = version_distance(
            of, params_of(of.model), pair.attribute, DATA.x[:2], DATA.y[:2], clip=clip
        )
        found = between.measure(pair.x[None], pair.y[None], distance)
        assert float(found) == pytest.approx(literal_distance(pair, distance, clip), rel=1e-9)


@pytest.mark.parametrize("distance", ["cosine", "clipped"])
@pytest.mark.parametrize("name", ["sex", "age"])
def test_slopes_are_finite_differences(distance, name: str) -> None:
    pair = choose_pairs(DATA, name, 1, rng=stream(2, "p"))[0]
    of = Task(nn.Sequential(nn.Linear(DATA.x.shape[1], 6), nn.Tanh(), nn.Linear(6, 2)).double(),
              cross_entropy)  # fmt: skip
    between = version_distance(
        of, params_of(of.model), pair.attribute, DATA.x[:2], DATA.y[:2], clip=0.5
    )

    def measured(x: Tensor) -> Tensor:
        return between.measure(x, pair.y[None], distance)

    assert torch.autograd.gradcheck(measured, pair.x[None].clone().requires_grad_())


# --- canaries -------------------------------------------------------------------------------------


def crafted(clip: float = CLIP, **settings):
    attribute = attribute_of(DATA, "sex", values=("f", "m"))
    return craft(
        task(), None, DATA, attribute, Craft(**settings), clip=clip, rng=stream(0, "craft")
    )


@pytest.mark.parametrize("distance", ["cosine", "clipped"])
@pytest.mark.parametrize("domain", ["valid", "box", "free"])
def test_a_canary_lies_in_its_domain(domain, distance) -> None:
    found = crafted(domain=domain, distance=distance, steps=10, restarts=2)
    x = found.pair.versions()[0]
    assert found.distance == pytest.approx(literal_distance(found.pair, "clipped", CLIP), rel=1e-9)
    assert found.distance_over_clip == found.distance / CLIP
    assert found.pair.origin == f"crafted-{domain}"
    low, high = DATA.x.amin(dim=0), DATA.x.amax(dim=0)
    if domain != "free":
        assert ((x >= low) & (x <= high)).all()
    if domain == "valid":
        for column in DATA.schema.columns:  # type: ignore[union-attr]
            place = slice(column.start, column.stop)
            for version in x:
                assert (DATA.x[:, place] == version[place]).all(dim=1).any(), column.name


def test_crafted_is_worse_than_the_worst_of_many_records() -> None:
    """And a larger domain is worse still; two clipped gradients are at most 2 clips apart."""
    attribute = attribute_of(DATA, "sex", values=("f", "m"))
    drawn = max(
        literal_distance(NeighbourPair(x, torch.tensor(label), attribute), "clipped", CLIP)
        for x in DATA.x[:100]
        for label in (0, 1)
    )
    valid, box, free = (
        crafted(domain=domain, steps=60, restarts=2).distance for domain in ("valid", "box", "free")
    )
    assert drawn < valid <= box
    assert valid < free <= 2 * CLIP


def test_a_canary_cannot_pass_orthogonal_gradients() -> None:
    """With one label, two classes and ReLU units all products of both gradients are positive."""
    found = crafted(domain="free", clip=0.01, steps=60, restarts=2)
    assert 0.5 < found.distance_over_clip <= math.sqrt(2) + 1e-9


def test_crafting_follows_from_the_seed_and_leaves_the_data() -> None:
    before = DATA.x.clone()
    one, other = (crafted(domain="box", steps=20, restarts=2).pair for _ in range(2))
    assert torch.equal(one.x, other.x)
    assert torch.equal(DATA.x, before)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"domain": "sphere"}, "domain is 'sphere'"),
        ({"distance": "l1"}, "distance is 'l1'"),
        ({"restarts": 0}, "number of restarts is 0"),
        ({"domain": "valid", "sweeps": 0}, "expected 1 sweep or more"),
        ({"restarts": 500}, "500 restarts need as many records"),
        ({"lr": 0.0}, "lr is 0"),
        ({"clip": 0.0}, "clip is 0"),
    ],
)
def test_refusals(settings, says: str) -> None:
    with pytest.raises(InputError, match=says):
        crafted(**settings)
