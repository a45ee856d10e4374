"""Tables, their roles, refusals, and columns that are left out."""

import datetime
import decimal
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from leakgauge.core.checks import InputError
from leakgauge.data import Roles, fingerprint, make_table, randhie, read_table
from leakgauge.data.columns import categories

ROLES = Roles(label="ill", secrets=("sex",))


def people(n: int = 20, **columns: object) -> pd.DataFrame:
    """A small table; a column given as None is left out."""
    base = {
        "age": np.arange(n) % 7 + 20.5,
        "town": ["north", "south"] * (n // 2),
        "sex": ["f", "f", "m", "m"] * (n // 4),
        "ill": [0, 1, 1, 0] * (n // 4),
    }
    kept = {name: values for name, values in {**base, **columns}.items() if values is not None}
    return pd.DataFrame(kept)


def holed(values: list[object], count: int = 3) -> list[object]:
    return [None] * count + values[count:]


SEXES: list[object] = ["f", "f", "m", "m"] * 5

REFUSED_ROLES = [
    (lambda: Roles("sex", ("sex",)), "'sex' is both the label and a secret"),
    (lambda: Roles("ill", ("sex", "sex")), "the secret 'sex' is named twice"),
    (lambda: Roles("ill", ("sex",), group="sex"), "'sex' is both the secret and the group"),
    (lambda: Roles("ill", ("sex",), group="ill"), "'ill' is both the label and the group"),
    (lambda: Roles("ill", ("sex",), drop=("ill",)), "'ill' is the label; it is also dropped"),
    (lambda: Roles("ill", ("sex",), drop=("sex",)), "'sex' is the secret; it is also dropped"),
    (lambda: Roles("ill", "sex"), "secrets is 'sex'; expected ('sex',)"),
    (lambda: Roles("ill", ("sex",), bins={"sex": 1}), "1 bins for 'sex'; expected 2 to 100"),
    (lambda: Roles("ill", ("sex",), bins={"age": 3}), "'age', which is neither label nor secret"),
]

REFUSED_TABLES = [
    # Names.
    (people(), Roles("il", ("sex",)), "no column 'il' for the label; did you mean 'ill'?"),
    (people(), Roles("ill", ("Sexx",)), "no column 'Sexx' for the secret; did you mean 'sex'?"),
    (people(), Roles("ill", ("sex",), group="twn"), "no column 'twn' for the group; did you"),
    (people(), Roles("ill", ("sex",), drop=("zzz",)), "no column 'zzz' for the drop; known: 'age'"),
    (people().set_axis(["a", "a", "sex", "ill"], axis=1), ROLES, "more than one column called 'a'"),
    (people().iloc[:0], ROLES, "the table is empty: it has columns but no rows"),
    (pd.DataFrame(index=range(3)), ROLES, "the table has no columns"),
    # Values of a label, a secret, a group.
    (people(sex="f"), ROLES, "secret 'sex' has one value only, 'f'"),
    (people(ill=1), ROLES, "label 'ill' has one value only, '1'"),
    (people(home="x"), Roles("ill", ("sex",), group="home"), "group 'home' has one value only"),
    (people(sex=range(20)), ROLES, "secret 'sex' has 20 different numbers; cut it into N ranges "
     "with --bins sex=N"),
    (people(sex=np.arange(20) / 4), ROLES, "numbers, with fractions; cut it into N ranges"),
    (people(200, ill=range(200)), ROLES, "label 'ill' has 200 different numbers; cut it"),
    (people(200, sex=[f"s{i}" for i in range(200)]), ROLES, "at most 100 can be used; merge some"),
    (people(), Roles("ill", ("sex",), bins={"sex": 2}), "secret 'sex' is not a column of numbers"),
    (people(sex=[0] + [1] * 19), Roles("ill", ("sex",), bins={"sex": 2}), "cannot be cut into 2 "
     "ranges: 95% of its values"),
    (people(sex=pd.date_range("2020", periods=20)), ROLES, "secret 'sex' holds dates"),
    (people(sex=holed(SEXES)), ROLES, "secret 'sex' is missing in 3 of 20 rows; remove these rows "
     "or pass drop_missing=True (--drop-missing)"),
    (people(ill=holed([0.0, 1.0] * 10)), ROLES, "label 'ill' is missing in 3 of 20 rows"),
    (people(town=holed(SEXES)), Roles("ill", ("sex",), group="town"), "group 'town' is missing in"),
    (people(ill=[np.inf, 0.0] * 10), ROLES, "label 'ill' is infinite in 10 of 20 rows"),
    # Features.
    (people(age=[np.inf, -np.inf, 1, 2] * 5), ROLES, "column 'age' is infinite in 10 of 20 rows"),
    (people(age=None, town=None), ROLES, "no feature columns are left besides the label"),
    (people(age=3, town="x"), ROLES, "column 'age' was left out: it has one value; column 'town'"),
    (people(town=[1, "a"] * 10), ROLES, "column 'town' holds a mix of int and str; expected"),
    (people(sex=[[1], [2]] * 10), ROLES, "column 'sex' holds values of type list; expected"),
    (people(sex=[1j, 2j] * 10), ROLES, "column 'sex' holds complex values; expected numbers"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED_ROLES)
def test_roles_are_refused(make, message):
    with pytest.raises(InputError) as caught:
        make()
    assert message in str(caught.value)


@pytest.mark.parametrize(("frame", "roles", "message"), REFUSED_TABLES)
def test_tables_are_refused_in_one_line(frame, roles, message):
    with pytest.raises(InputError) as caught:
        make_table(frame, roles)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def write(folder: Path, name: str, content: object) -> Path:
    path = folder / name
    if isinstance(content, pd.DataFrame):
        content.to_parquet(path)
    else:
        path.write_bytes(content)
    return path


REFUSED_FILES = [
    ("people.sav", b"", "expected a .csv, .tsv, .txt, .parquet, .feather, .xlsx, .jsonl file"),
    ("people.csv", b"", "is empty"),
    ("people.csv", b"a,b\n", "is empty: it has columns but no rows"),
    ("people.csv", b"a;b\n1,2\n3,4,5\n", "has one column, 'a;b'; name its separator by --sep"),
    ("people.csv", b"a,b\n1,2\n1,2,3\n", "is not a readable table: Expected 2 fields in line 3"),
    ("people.csv", b"a,b\n1,2,3\n4,5,6\n", "has rows with more fields than its header"),
    ("people.parquet", b"a,b\n1,2\n", "cannot be read: "),
    ("people.parquet", pd.DataFrame({"a": []}), "is empty: it has columns but no rows"),
    ("people.parquet", pd.DataFrame(index=range(3)), "has no columns"),
]


@pytest.mark.parametrize(("name", "content", "message"), REFUSED_FILES)
def test_files_are_refused_in_one_line(tmp_path, name, content, message):
    path = write(tmp_path, name, content)
    with pytest.raises(InputError) as caught:
        read_table(path)
    assert message in str(caught.value)
    assert str(path)[-8:] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="is a folder; expected a file"):
        read_table(tmp_path)


def test_every_format_reads_the_same_table(tmp_path):
    frame = people(age=[1.5, None] * 10)
    frame.to_csv(tmp_path / "p.csv", index=False)
    frame.to_csv(tmp_path / "p.tsv", index=False, sep="\t")
    frame.to_parquet(tmp_path / "p.parquet")
    read = [read_table(tmp_path / name) for name in ("p.csv", "p.tsv", "p.parquet")]
    assert len({fingerprint(table) for table in (frame, *read)}) == 1


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    (tmp_path / "p.csv").write_bytes('\ufeff"age",town\n1,"a,b"\n'.encode())
    assert read_table(tmp_path / "p.csv").to_dict("list") == {"age": [1], "town": ["a,b"]}


def test_none_is_an_answer_among_words_and_missing_among_numbers(tmp_path):
    write(tmp_path, "p.csv", b"pet,age,n\nNone,3,\ncat,None,1\nNone,4.5,2\n")
    read = read_table(tmp_path / "p.csv")
    assert read["pet"].tolist() == ["None", "cat", "None"]
    np.testing.assert_array_equal(read["age"], [3.0, np.nan, 4.5])
    np.testing.assert_array_equal(read["n"], [np.nan, 1.0, 2.0])


def test_large_whole_numbers_are_not_merged():
    large = pd.Series([2**60 + 1, 2**60, 2**60 + 1])
    found = categories(large)
    assert found.categories.tolist() == [str(2**60), str(2**60 + 1)]
    assert found.codes.tolist() == [1, 0, 1]


def test_a_named_index_becomes_a_column(tmp_path):
    people(person=range(20)).set_index("person").to_parquet(tmp_path / "p.parquet")
    assert read_table(tmp_path / "p.parquet").columns[0] == "person"


@pytest.mark.parametrize(
    ("values", "kind", "names"),
    [
        ([True, False], "category", ["False", "True"]),
        (["10", "9"], "category", ["10", "9"]),
        (pd.array([True, None] * 10, dtype="boolean"), "category", ["True"]),
        (pd.array(["a", None] * 10, dtype="string"), "category", ["a"]),
        (pd.array(["a", None] * 10, dtype="str"), "category", ["a"]),
        (np.array([True, None] * 10, dtype=object), "category", ["True"]),
        (np.array(["a", None] * 10, dtype=object), "category", ["a"]),
        (pd.Categorical([10, 9] * 10), "category", ["9", "10"]),
        (pd.Categorical(["b", None] * 10, categories=["unused", "b"]), "category", ["b"]),
        (pd.array([1, None] * 10, dtype="Int64"), "number", [1.0, None]),
        (pd.array([1.5, None] * 10, dtype="Float64"), "number", [1.5, None]),
        (pd.array([1, None] * 10, dtype="int64[pyarrow]"), "number", [1.0, None]),
        (np.array([1, None] * 10, dtype=object), "number", [1.0, None]),
        (np.array([decimal.Decimal("1.5"), None] * 10), "number", [1.5, None]),
        (np.array([3, 4], dtype=np.uint8), "number", [3.0, 4.0]),
    ],
)
def test_every_type_of_column_is_a_number_or_a_category(values, kind, names):
    values = list(values) * 10 if len(values) == 2 and not hasattr(values, "dtype") else values
    values = np.tile(values, 10) if len(values) == 2 else values
    column = make_table(people(extra=values), ROLES).features["extra"]
    if kind == "category":
        assert column.cat.categories.tolist() == names
    else:
        assert column.dtype == np.float64
        assert column.iloc[:2].replace({np.nan: None}).tolist() == names


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([f"name {i}" for i in range(20)], "it has 20 different values in 20 rows"),
        (["same"] * 20, "it has one value"),
        ([None] * 20, "it has one value"),
        ([np.nan] * 20, "it has one value"),
        ([2.0] * 20, "it has one value"),
        (pd.date_range("2020", periods=20, tz="UTC"), "it holds dates"),
        ([datetime.date(2020, 1, 1 + i) for i in range(20)], "it holds dates"),
        (pd.timedelta_range("1h", periods=20), "it holds dates"),
        (["2020-08-04", "2020-08-11"] * 10, "it holds dates"),
        (["04.08.2020", "8/24/20 10:30", None, "2020/8/4"] * 5, "it holds dates"),
        ([f"2020-08-{day:02}T10:00:00.5Z" for day in range(1, 21)], "it holds dates"),
        (["4 Aug 2020", "04-AUG-20", "Tue, 4th August 2020 10:30", None] * 5, "it holds dates"),
        (["August 4, 2020", "Sept. 1, 2020", "2020-Aug-04", "May 2020"] * 5, "it holds dates"),
        ([[1], [2]] * 10, "it holds values of type list"),
        ([{"a": 1}, None] * 10, "it holds values of type dict"),
        ([{"a": 1}, "b"] * 10, "it holds a mix of dict and str"),
        ([np.array([1.0])] * 20, "it holds values of type ndarray"),
        ([1j, 2j] * 10, "it holds complex values"),
    ],
)
def test_useless_columns_are_left_out_with_a_note(values, reason):
    table = make_table(people(extra=values), ROLES)
    assert "extra" not in table.features
    assert table.notes == (f"column 'extra' was left out: {reason}",)


@pytest.mark.parametrize(
    "values",
    [
        ["2020-08-04", "soon"],
        ["1.2.3", "1.2.4"],
        ["2020-13-40"] * 2,
        ["2019", "2020-1"],
        ["May", "August"],
        ["4 August", "32 Aug 2020"],
        ["4 Augustus 2020", "April 4"],
    ],
)
def test_texts_that_are_no_dates_stay(values):
    table = make_table(people(extra=[*values, "2020-08-04", *values] * 4), ROLES)
    assert "extra" in table.features


@pytest.mark.parametrize("name", ["Unnamed: 0", "rownames"])
@pytest.mark.parametrize("first", [0, 1, 7])
def test_row_numbers_without_a_name_are_left_out(name, first):
    """Python counts from 0, R from 1; rows that were taken out or shuffled leave gaps."""
    rows = np.random.default_rng(0).permutation(60)[:20] if first == 7 else np.arange(20) + first
    frame = people(sex=holed(SEXES), **{name: rows})
    table = make_table(frame, ROLES, drop_missing=True)
    assert f"column {name!r} was left out: it has no name and numbers the rows" in table.notes
    assert name not in table.features


def test_of_many_categories_the_frequent_ones_stay():
    rng = np.random.default_rng(0)
    code = [f"c{i}" for i in rng.zipf(1.5, size=2000) % 300] + [f"c{i}" for i in range(300)]
    table = make_table(people(2300, code=code), ROLES)
    counts = pd.Series(code).value_counts()
    kept = table.features["code"].astype(str)
    stay = set(kept) - {"other"}
    assert len(stay) == 199
    assert counts[list(stay)].min() >= counts.drop(list(stay)).max()
    assert kept.tolist() == [one if one in stay else "other" for one in code]
    gone = sum(one not in stay for one in code)
    assert table.notes == (
        f"column 'code' has 300 different values: the 199 most frequent stay, and 101 others "
        f"({gone / 2300:.0%} of the rows) became 'other'",
    )


def test_a_dropped_column_may_hold_anything():
    frame = people(notes=[[1], "a"] * 10)
    roles = Roles("ill", ("sex",), drop=("notes",))
    assert list(make_table(frame, roles).features) == ["age", "town", "sex"]
    assert fingerprint(frame) == fingerprint(frame.copy())


def test_rows_without_a_secret_are_left_out_on_request():
    table = make_table(people(sex=holed(SEXES)), ROLES, drop_missing=True)
    assert len(table) == len(table.features) == 17
    assert table.notes == ("3 rows without a value of 'sex' were left out",)
    assert table.secrets["sex"].tolist() == [1, 0, 0, 1, 1] + [0, 0, 1, 1] * 3


def test_codes_follow_size_and_missing_features_stay():
    frame = people(ill=[10.0, 9.0] * 10, age=[1.0, None] * 10, home=["b", "a"] * 10)
    table = make_table(frame, Roles("ill", ("sex",), group="home"))
    assert (table.classes, table.y[:2].tolist()) == (("9", "10"), [1, 0])
    assert table.values == {"sex": ("f", "m")}
    assert table.users is not None
    assert table.users[:3].tolist() == [0, 1, 0]
    assert int(table.features["age"].isna().sum()) == 10
    assert list(table.features) == ["age", "town", "sex"]


def test_bins_hold_about_equally_many():
    frame = people(100, sex=np.arange(100) ** 2 / 7)
    table = make_table(frame, Roles("ill", ("sex",), bins={"sex": 4}))
    assert np.bincount(table.secrets["sex"]).tolist() == [25, 25, 25, 25]
    assert table.values["sex"][0] == "<= 82.2857"
    assert "was cut into 4 ranges: <= 82.2857, (82.2857, 343]" in table.notes[0]


def test_bins_keep_equal_values_together():
    frame = people(sex=[0] * 12 + [1] * 4 + [2] * 4)
    table = make_table(frame, Roles("ill", ("sex",), bins={"sex": 4}))
    assert table.values["sex"] == ("<= 0", "(0, 1]", "> 1")
    assert "(4 were asked for; equal values stay together)" in table.notes[0]


def test_fingerprint_sees_content_only():
    frame = people(age=pd.array([1, None] * 10, dtype="Int64"), when=pd.Timestamp("2020"))
    same = frame.astype({"age": "float64", "town": "category", "sex": object})
    assert fingerprint(frame) == fingerprint(same.set_axis(range(5, 25), axis=0))
    for other in (frame[::-1], frame.assign(town="north"), frame.rename(columns={"age": "Age"})):
        assert fingerprint(other) != fingerprint(frame)


def test_randhie_needs_no_download():
    frame = randhie()
    assert frame.shape == (20190, 22)
    roles = Roles("any_visit", ("female",), group="zper")
    table = make_table(frame, roles)
    assert table.notes == ()
    assert table.values == {"female": ("no", "yes")}
    assert table.users is not None
    assert int(table.users.max()) + 1 == 5912
    assert float(table.secrets["female"].double().mean()) == pytest.approx(0.517, abs=5e-4)
    assert not {"mdvis", "meddol", "outpdol", "fchild", "time"} & set(frame)


def test_randhie_is_the_table_of_statsmodels():
    """Each value, type and row, against the file that statsmodels carries."""
    (package,) = find_spec("statsmodels").submodule_search_locations
    raw = pd.read_csv(Path(package, "datasets", "randhie", "src", "randhie.csv"))
    frame = randhie()
    derived = ["site", "female", "any_visit"]
    features = frame.columns.drop(derived)
    pd.testing.assert_frame_equal(frame[features], raw[features], check_exact=True)
    assert (frame["site"] == [f"site {one}" for one in raw["site"]]).all()
    assert ((frame["female"] == "yes") == (raw["female"] == 1)).all()
    assert ((frame["any_visit"] == "yes") == (raw["mdvis"] >= 1)).all()
    for name in ("female", "any_visit"):
        assert set(frame[name]) == {"no", "yes"}
    assert fingerprint(frame).startswith("42faa0c6cfbc12e6")  # of the runs made from that file


def test_adult_is_read_whole(data_folder):
    frame = read_table(data_folder / "adult" / "adult.parquet")
    table = make_table(frame, Roles("income", ("sex", "race"), drop=("split",)))
    assert table.notes == ()
    assert table.features.shape == (48842, 14)
    assert table.classes == ("<=50K", ">50K")
    assert np.bincount(table.secrets["sex"]).tolist() == [16192, 32650]
    assert len(table.values["race"]) == 5


def test_rare_values_of_a_secret_become_one() -> None:
    race = ["a"] * 50 + ["b"] * 40 + ["c"] * 3 + ["d"] * 2
    frame = pd.DataFrame({"ill": [0, 1] * 47 + [0], "race": race, "x": range(95)})
    table = make_table(frame, Roles("ill", ("race",), merge_rare=10))
    assert table.values["race"] == ("a", "b", "other")
    assert torch.bincount(table.secrets["race"]).tolist() == [50, 40, 5]
    assert any("2 values with fewer than 10 rows were merged" in note for note in table.notes)
    untouched = make_table(frame, Roles("ill", ("race",), merge_rare=2))
    assert untouched.values["race"] == ("a", "b", "c", "d")


def test_rare_values_of_a_label_become_one_or_are_left_out() -> None:
    race = ["a"] * 50 + ["b"] * 40 + ["c"] * 3 + ["d"] * 2
    frame = pd.DataFrame({"race": race, "age": range(95)})
    merged = make_table(frame, Roles("race", merge_rare=5))
    assert merged.classes == ("a", "b", "other")
    assert torch.bincount(merged.y).tolist() == [50, 40, 5]
    few = make_table(frame, Roles("race", merge_rare=10))
    assert few.classes == ("a", "b")
    assert few.features["age"].tolist() == list(range(90))
    assert few.notes == (
        "5 rows with rare values of label 'race' were left out, as together they are fewer than "
        "10: 'c', 'd'",
    )
