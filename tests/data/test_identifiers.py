"""Identifiers are text: as many users as different texts, whatever numbers they look like."""

import io
import json
import string
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.data.missing import NONE_TOO
from leakgauge.data.read import read_noted
from leakgauge.data.source import explained, open_data
from leakgauge.data.table import Roles, Table, make_table
from leakgauge.data.text_tables import TextFormat
from leakgauge.data.written import Written, read_values, remember

ROLES = Roles("ill", ("sex",), group="user")

numbers_as_text = st.one_of(
    st.integers(0, 10**4).map(str),
    st.integers(0, 99).map(lambda n: f"{n:04d}"),
    st.integers(0, 99).map(lambda n: f"{n:03d}"),
    st.integers(10**18, 10**18 + 40).map(str),
    st.integers(10**20, 10**20 + 40).map(str),
    st.tuples(st.integers(0, 9), st.sampled_from(["1", "10", "100", "5", "50"])).map(
        lambda pair: f"{pair[0]}.{pair[1]}"
    ),
    st.tuples(st.integers(1, 9), st.integers(1, 4)).map(lambda pair: f"{pair[0]}E{pair[1]}"),
    st.sampled_from(["1,5", "1,50", "1,000", "1000", "$1,000", "1.000", "-0", "0", "+1"]),
)
words = st.text(string.ascii_letters + string.digits + " .-_#", min_size=1, max_size=6).filter(
    lambda text: text == text.strip()
)
special = st.sampled_from(
    ["NA", "Null", "None", "nan", "True", "true", "TRUE", "inf", "Infinity", "?", "-", "unknown"]
)
identifiers = st.one_of(
    st.lists(numbers_as_text, min_size=2, max_size=30),
    st.lists(st.one_of(numbers_as_text, words, special), min_size=2, max_size=30),
    st.lists(st.one_of(numbers_as_text, special), min_size=2, max_size=30),
)


def people(users: list[str]) -> pd.DataFrame:
    rng = stream(0, "people")
    n = len(users)
    return pd.DataFrame(
        {
            "user": users,
            "age": rng.normal(size=n).round(6),
            "ill": np.arange(n) % 2,
            "sex": np.array(["f", "m"])[np.arange(n) % 2],
        }
    )


def written(frame: pd.DataFrame, sep: str = ",", name: str = "people.csv") -> Table:
    """The table after a way through a file."""
    with TemporaryDirectory() as folder:
        path = Path(folder, name)
        frame.to_csv(path, index=False, sep=sep)
        source = open_data(path)
        with explained(source):
            return make_table(source.frame, ROLES)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(identifiers, st.sampled_from([",", ";", "\t"]))
@example(["0012", "012", "12"], ",")
@example(["1.1", "1.10", "1.2"], ",")
@example(["1E2", "100", "1e2"], ",")
@example([str(10**18 + i) for i in range(9)], ",")
@example([str(i) for i in range(100, 130)] + ["x7"], ",")
@example(["True", "true", "TRUE"], ",")
def test_users_are_equal_where_python_says_that_their_texts_are(users: list[str], sep: str) -> None:
    users = [*users, *users[:3]]
    if len(set(users)) < 2:
        return
    try:
        table = written(people(users), sep)
    except InputError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        # Only words for missing values may refuse, and each is named with the way to keep it.
        assert "'user' is missing in" in refusal
        assert "as missing" in refusal
        assert any(repr(one) in refusal for one in set(users) if not one[0].isdigit())
        return
    assert table.users is not None
    codes = table.users.tolist()
    pairs = set(zip(users, codes, strict=True))
    assert len(pairs) == len(set(users)) == len(set(codes)) == len(table.user_names)


@pytest.mark.parametrize("blank", [False, True])
def test_long_numbers_beside_a_blank_stay_apart(tmp_path: Path, blank: bool) -> None:
    ids = [1234567890123456700 + i for i in range(40)]
    values: list[int | None] = [*ids, *ids]
    values[0] = None if blank else values[0]
    frame = people([str(one) for one in range(80)])
    frame["user"] = pd.array(values, dtype="Int64")
    frame.to_csv(tmp_path / "p.csv", index=False)
    frame.to_parquet(tmp_path / "p.parquet")
    frame.to_feather(tmp_path / "p.feather")
    rows = [
        {**row, "user": user} for row, user in zip(frame.to_dict("records"), values, strict=True)
    ]
    lines = "\n".join(json.dumps({k: v for k, v in row.items() if v is not None}) for row in rows)
    (tmp_path / "p.jsonl").write_text(lines)
    for name in ("p.csv", "p.parquet", "p.feather", "p.jsonl"):
        table = make_table(read_noted(tmp_path / name).frame, ROLES, drop_missing=blank)
        assert sorted(table.user_names) == sorted(map(str, ids)), name


def test_texts_of_one_number_are_named_where_they_count_as_numbers(tmp_path: Path) -> None:
    doses = [f"{a}.{b}" for a in range(1, 5) for b in ("1", "10", "100", "2", "20")]
    frame = people([f"u{i}" for i in range(40)]).assign(dose=doses * 2)
    frame.to_csv(tmp_path / "p.csv", index=False)
    table = make_table(open_data(tmp_path / "p.csv").frame, ROLES)
    assert table.features["dose"].tolist() == [float(one) for one in doses * 2]
    assert (
        "column 'dose': 20 different texts are 8 numbers, as '1.1' and '1.10' are one; as --group "
        "each text is a user"
    ) in table.notes


def test_numbers_of_one_text_each_are_plain_numbers(tmp_path: Path) -> None:
    frame = people([f"u{i}" for i in range(40)]).assign(dose=np.arange(40) % 7 / 4)
    frame.to_csv(tmp_path / "p.csv", index=False)
    read = read_noted(tmp_path / "p.csv")
    assert read.notes == ()
    assert (read.frame["dose"].dtype, read.frame["ill"].dtype) == (np.float64, np.int64)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(numbers_as_text.filter(lambda one: "," not in one), min_size=1, max_size=30))
def test_remembered_numbers_are_those_that_were_read(texts: list[str]) -> None:
    values = pd.read_csv(io.StringIO("n\n" + "\n".join(texts)))["n"]
    if values.dtype == object or pd.api.types.is_string_dtype(values.dtype):
        return
    column = remember(pd.Series(texts), values)
    assert read_values(column).tolist() == values.tolist()
    assert read_values(column).dtype == values.dtype
    if len(set(texts)) > values.nunique():
        assert [str(one) for one in column] == texts
        assert all(isinstance(one, Written) for one in column)


REGIONS = [["NA", "EU", "APAC"][i % 3] for i in range(60)]


@pytest.mark.parametrize("word", ["NA", "Null", "None", "null", "n/a", "nan"])
@pytest.mark.parametrize("ending", ["csv", "xlsx", "parquet"])
def test_a_word_among_words_is_a_value_and_named(tmp_path: Path, word: str, ending: str) -> None:
    frame = people([f"u{i}" for i in range(60)])
    frame["sex"] = [word if one == "NA" else one for one in REGIONS]
    path = tmp_path / f"p.{ending}"
    {"csv": frame.to_csv, "xlsx": frame.to_excel}.get(ending, frame.to_parquet)(path, index=False)
    source = open_data(path)
    table = make_table(source.frame, ROLES)
    assert set(table.values["sex"]) == {word, "EU", "APAC"}
    if word in NONE_TOO:
        assert source.notes == (
            f"{word!r} is a value of the column of text 'sex' (--missing {word} counts it as "
            "missing)",
        )
        again = open_data(path, text=TextFormat(missing=(word,)))
        assert int(again.frame["sex"].isna().sum()) == 20


@pytest.mark.parametrize("ending", ["csv", "xlsx"])
def test_a_word_among_numbers_is_missing_and_named(tmp_path: Path, ending: str) -> None:
    frame = people([f"u{i}" for i in range(60)])
    frame["sex"] = [1, 2, "NA"] * 20
    path = tmp_path / f"p.{ending}"
    (frame.to_csv if ending == "csv" else frame.to_excel)(path, index=False)
    source = open_data(path)
    said = "'NA' counts as missing in the column of numbers 'sex' (--keep-na keeps it)"
    assert source.notes == (said,)
    with (
        pytest.raises(InputError, match="'sex' is missing in 20 of 60 rows") as refused,
        explained(source),
    ):
        make_table(source.frame, ROLES)
    assert said in str(refused.value)
    if ending == "csv":
        kept = open_data(path, text=TextFormat(keep_na=True))
        assert make_table(kept.frame, ROLES).values["sex"] == ("1", "2", "NA")


def test_a_word_that_no_column_holds_is_refused(tmp_path: Path) -> None:
    for ending in ("csv", "parquet"):
        path = tmp_path / f"p.{ending}"
        frame = people(["a", "b", "c"])
        (frame.to_csv if ending == "csv" else frame.to_parquet)(path, index=False)
        with pytest.raises(InputError, match="--missing is 'nope', which no column holds"):
            open_data(path, text=TextFormat(missing=("nope",)))
