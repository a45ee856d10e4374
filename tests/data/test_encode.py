"""The encoding against scikit-learn, and back from the schema to the table."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from leakgauge.core.checks import InputError
from leakgauge.data import Roles, encode, make_table, read_table, split_records

FRAME = pd.DataFrame(
    {
        "age": [20.0, None, 40.0, 60.0, 1000.0, None],
        "town": ["a", "b", None, "a", "c", "b"],
        "sex": ["f", "m", "f", "m", "f", "m"],
        "flat": [3.0, 3.0, 3.0, 3.0, 7.0, 3.0],
        "ill": [0, 1, 0, 1, 0, 1],
    }
)
TABLE = make_table(FRAME, Roles("ill", ("sex",)))
PRIVATE = torch.tensor([0, 1, 2, 3])


def test_what_each_position_holds():
    data = encode(TABLE, fit_on=PRIVATE, dtype=torch.float64)
    scale = float(np.std([20, 40, 60]))
    age = [-20 / scale, 0, 0, 20 / scale, 960 / scale, 0]
    expected = [
        # age, its absence, town a, b, its absence, flat
        [age[0], 0, 1, 0, 0, 0],
        [age[1], 1, 0, 1, 0, 0],
        [age[2], 0, 0, 0, 1, 0],
        [age[3], 0, 1, 0, 0, 0],
        [age[4], 0, 0, 0, 0, 4],  # town c is unknown to the private part
        [age[5], 1, 0, 1, 0, 0],
    ]
    torch.testing.assert_close(data.x, torch.tensor(expected, dtype=torch.float64))
    assert data.schema is not None
    spans = [(c.name, c.kind, c.start, c.stop, c.missing) for c in data.schema.columns]
    assert spans == [
        ("age", "number", 0, 2, True),
        ("town", "category", 2, 5, True),
        ("flat", "number", 5, 6, False),
    ]
    assert (data.schema.label, data.schema.classes) == ("ill", ("0", "1"))
    assert data.schema.secrets == {"sex": ("f", "m")}
    assert data.y.tolist() == data.secrets["sex"].tolist() == [0, 1, 0, 1, 0, 1]


def test_nothing_is_learnt_outside_the_private_part():
    changed = FRAME.assign(age=FRAME["age"].where(FRAME.index < 4, 5.0))
    changed["town"] = changed["town"].where(FRAME.index < 4, "z")
    other = make_table(changed, Roles("ill", ("sex",)))
    rows = PRIVATE
    one, two = encode(TABLE, fit_on=rows), encode(other, fit_on=rows)
    assert torch.equal(one.x[rows], two.x[rows])
    assert one.schema == two.schema


def test_a_kept_secret_keeps_its_place():
    data = encode(TABLE, fit_on=PRIVATE, keep=("sex",))
    assert data.schema is not None
    assert [c.name for c in data.schema.columns] == ["age", "town", "sex", "flat"]
    sex = data.schema.column("sex")
    assert torch.equal(data.x[:, sex.start : sex.stop].argmax(1), data.secrets["sex"])


def decode(data, column):
    """The original values behind one column of x."""
    block = data.x[:, column.start : column.stop].double().numpy()
    values, absent = (block[:, :-1], block[:, -1] == 1) if column.missing else (block, None)
    if column.kind == "number":
        found = values[:, 0] * column.scale + column.mean
        return found if absent is None else np.where(absent, np.nan, found)
    found = np.array(column.categories, dtype=object)[values.argmax(1)]
    found[values.sum(1) == 0] = None
    return found


def assert_recovers(frame, data):
    for column in data.schema.columns:
        found = decode(data, column)
        if column.kind == "number":
            np.testing.assert_allclose(found, frame[column.name].astype(float), rtol=1e-9)
        else:
            original = frame[column.name].astype(object)
            assert found.tolist() == original.where(original.notna(), None).tolist()


def test_the_table_is_recovered_through_the_schema():
    assert_recovers(
        FRAME, encode(TABLE, fit_on=torch.arange(6), keep=("sex",), dtype=torch.float64)
    )


def test_adult_equals_scikit_learn_fitted_on_the_private_part(data_folder):
    frame = read_table(data_folder / "adult" / "adult.parquet")
    table = make_table(frame, Roles("income", ("sex",), drop=("split",)))
    rng = np.random.default_rng(0)
    split = split_records(table.secrets["sex"], label=table.y, rng=rng)
    data = encode(table, fit_on=split.private, dtype=torch.float64)
    assert data.schema is not None
    rows = split.private.numpy()
    for column in data.schema.columns:
        values = frame[[column.name]]
        if column.kind == "number":
            expected = StandardScaler().fit(values.iloc[rows]).transform(values)
        else:
            encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
            expected = encoder.fit(values.iloc[rows]).transform(values)
        found = data.x[:, column.start : column.stop].numpy()
        np.testing.assert_allclose(found, expected, atol=1e-12, err_msg=column.name)
    assert data.x.shape[1] == data.schema.columns[-1].stop
    assert "sex" not in [column.name for column in data.schema.columns]
    torch.testing.assert_close(encode(table, fit_on=split.private).x.double(), data.x)
    assert_recovers(frame.iloc[rows[:2000]], data.rows(split.private[:2000]))


def test_a_column_that_is_missing_throughout_the_private_part():
    table = make_table(FRAME, Roles("ill", ("sex",)))
    data = encode(table, fit_on=torch.tensor([1, 5]))
    assert data.x[:, :2].tolist()[:2] == [[20.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize(
    ("frame", "settings", "message"),
    [
        (FRAME, {"fit_on": torch.tensor([], dtype=torch.int64)}, "no private records"),
        (FRAME, {"fit_on": PRIVATE, "keep": ("sx",)}, "cannot keep 'sx', no secret; did you mean"),
        (FRAME.assign(age=[1e308, -1e308] * 3), {"fit_on": PRIVATE}, "'age' holds numbers too"),
        (FRAME.assign(age=[1, 2, 3, 4, 1e300, 5]), {"fit_on": PRIVATE}, "'age' holds numbers too"),
    ],
)
def test_refusals(frame, settings, message):
    with pytest.raises(InputError) as caught:
        encode(make_table(frame, Roles("ill", ("sex",))), **settings)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "numbers", [[0, 1, 0, 1, 7, 0], [0.0, 1.0, None, 0.0, 7.0, 1.0], [1, 1, 1, 1, 0, 1]]
)
def test_columns_of_0_and_1_stay_as_they_are_unless_asked(numbers: list[float | None]) -> None:
    """What lies outside of the private part decides nothing: 7 stays 7."""
    frame = FRAME[["ill", "sex"]].assign(known=numbers, other=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    table = make_table(frame, Roles("ill", ("sex",)))
    data = encode(table, fit_on=PRIVATE, dtype=torch.float64)
    assert data.schema is not None
    first = data.schema.columns[0]
    assert (first.name, first.mean, first.scale) == ("known", 0.0, 1.0)
    wanted = [0.0 if value is None else float(value) for value in numbers]
    assert data.x[:, 0].tolist() == wanted
    assert data.schema.columns[1].mean == 2.5
    scaled = encode(table, fit_on=PRIVATE, dtype=torch.float64, scale_binary=True)
    assert float(scaled.x[PRIVATE, 0].mean()) == pytest.approx(0.0, abs=1e-12)


def test_a_numeric_label_of_0_and_1_stays_as_it_is_unless_asked() -> None:
    table = make_table(FRAME[["age", "ill"]].fillna(1.0), Roles("ill", (), numeric=True))
    assert encode(table, fit_on=PRIVATE).y.tolist() == FRAME["ill"].tolist()
    assert encode(table, fit_on=PRIVATE, scale_binary=True).y.tolist() == [-1, 1, -1, 1, -1, 1]
