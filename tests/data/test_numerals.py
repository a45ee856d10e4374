"""Numbers as people write them, words among them, sheets, and headers that come again."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import leakgauge as lg
from leakgauge.core.checks import InputError
from leakgauge.data.columns import kind_of, numbers
from leakgauge.data.encoding import encode
from leakgauge.data.numerals import cleaned
from leakgauge.data.read import FORMATS, read_noted
from leakgauge.data.source import open_data
from leakgauge.data.table import Roles, make_table
from leakgauge.data.text_tables import TextFormat

PAY = np.random.default_rng(0).lognormal(9, 1, size=200).round(2)
HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "data.md"


def german(value: float) -> str:
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


WRITTEN = {
    "comma": lambda value: f"{value:,.2f}",
    "dot": german,
    "dollar": lambda value: f"${value:,.2f}",
    "euro": lambda value: f"{german(value)} €",
    "blank": lambda value: f"{value:,.2f}".replace(",", " ").replace(".", ","),
    "swiss": lambda value: f"CHF {value:,.2f}".replace(",", "'"),
    "minus": lambda value: f"-{value:,.2f}",
    "parentheses": lambda value: f"({value:,.2f})",
}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.decimals(-(10**9), 10**9, places=2), st.sampled_from([".", ","]))
def test_a_formatted_number_is_read_as_it_was_written(value, mark):
    text = f"{value:,.2f}" if mark == "." else german(value)
    assert float(cleaned(text, mark)) == float(value)


@pytest.mark.parametrize("text", ["1,23,4", "12.", "1.2.3", "$", "a1", "1 2", "--1", "(1", "1e5x"])
def test_other_texts_are_no_numbers(text):
    assert cleaned(text, ".") is None or text == "1 2"
    assert cleaned("1 2", ".") is None


@pytest.mark.parametrize("how", WRITTEN)
@pytest.mark.parametrize("ending", ["csv", "xlsx", "parquet"])
def test_formatted_columns_are_numbers_with_a_note(tmp_path, how, ending):
    texts = [WRITTEN[how](value) for value in PAY]
    path = write(tmp_path / f"p.{ending}", pd.DataFrame({"pay": texts, "sex": list("fm") * 100}))
    read = read_noted(path)
    sign = -1 if how in ("minus", "parentheses") else 1
    np.testing.assert_array_equal(numbers(read.frame["pay"]), sign * PAY)
    assert read.notes == (
        f"column 'pay' holds numbers such as {texts[0]!r}; read as {sign * PAY[0]:.2f}",
    )


def write(path: Path, frame: pd.DataFrame) -> Path:
    writer = {".csv": frame.to_csv, ".xlsx": frame.to_excel, ".parquet": frame.to_parquet}
    writer[path.suffix](path, index=False)
    return path


def test_an_ambiguous_column_is_named_and_a_mark_decides(tmp_path):
    texts = [f"{value // 1000},{value % 1000:03d}" for value in range(1001, 1400)]
    path = write(tmp_path / "p.csv", pd.DataFrame({"pay": texts, "sex": ["f", "m", "f"] * 133}))
    read = read_noted(path)
    assert kind_of(read.frame["pay"]) == "category"
    assert read.notes == (
        "column 'pay' stays text: '1,001' can mean 1001 or 1.001; say which by --decimal . or "
        "--decimal ,",
    )
    for mark, scale in ((".", 1), (",", 1000)):
        chosen = read_noted(path, TextFormat(decimal=mark))
        expected = np.arange(1001, 1400) / scale
        np.testing.assert_allclose(numbers(chosen.frame["pay"]), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("other", ["1.5", "2,5"])
def test_the_other_columns_decide_an_ambiguous_one_aloud(tmp_path, other):
    texts = [f"{value // 1000},{value % 1000:03d}" for value in range(1001, 1400)]
    beside = [other.replace("5", str(n)) for n in range(10, 409)]
    path = write(tmp_path / "p.csv", pd.DataFrame({"pay": texts, "rate": beside}))
    read = read_noted(path)
    scale = 1 if "." in other else 1000
    np.testing.assert_allclose(numbers(read.frame["pay"]), np.arange(1001, 1400) / scale)
    assert any("'pay': '1,001' was read as" in note for note in read.notes)


def test_dots_between_thousands_are_understood_next_to_decimal_commas(tmp_path):
    path = tmp_path / "p.csv"
    rows = "\n".join(f"{n // 1000}.{n % 1000:03d};{n / 8:.3f}".replace(f";{n / 8:.3f}", f";{n},5")
                     for n in range(31000, 31400))  # fmt: skip
    path.write_text(f"pay;rate\n{rows}\n")
    read = read_noted(path)
    assert numbers(read.frame["pay"]).tolist() == list(range(31000, 31400))
    assert any("'pay' holds numbers such as '31.000'; read as 31000" in one for one in read.notes)


def test_words_for_unknown_among_numbers_are_missing_and_named(tmp_path):
    rng = np.random.default_rng(0)
    ages = rng.integers(18, 90, size=2000).astype(str).astype(object)
    holes = rng.random(2000) < 0.15
    ages[holes] = rng.choice(["unknown", "-", "?"], size=int(holes.sum()))
    for ending in ("csv", "xlsx"):
        path = write(
            tmp_path / f"p.{ending}", pd.DataFrame({"age": ages, "sex": list("fm") * 1000})
        )
        read = read_noted(path)
        values = numbers(read.frame["age"])
        np.testing.assert_array_equal(np.isnan(values), holes)
        assert values[~holes].tolist() == ages[~holes].astype(float).tolist()
        assert f"{int(holes.sum())} values" in read.notes[0]
        assert all(repr(word) in read.notes[0] for word in ("unknown", "-", "?"))


def test_a_header_that_comes_again_is_left_out_and_named(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(18, 90, size=1500), "sex": list("fm") * 750})
    head, *rows = frame.to_csv(index=False).splitlines()
    (tmp_path / "p.csv").write_text("\n".join([head, *rows[:998], head, *rows[998:]]) + "\n")
    read = read_noted(tmp_path / "p.csv")
    pd.testing.assert_frame_equal(read.frame, frame)
    assert read.notes == ("line 1000 repeats the header; left out",)
    cells = pd.concat([frame[:5], pd.DataFrame([["age", "sex"]], columns=list(frame)), frame[5:]])
    read = read_noted(write(tmp_path / "p.xlsx", cells))
    pd.testing.assert_frame_equal(read.frame, frame)
    assert read.notes == ("row 7 repeats the header; left out",)


def test_a_sheet_is_named_or_numbered(tmp_path):
    path = tmp_path / "p.xlsx"
    with pd.ExcelWriter(path) as book:
        for number, name in enumerate(["about", "people"], start=1):
            pd.DataFrame({"n": [number], "b": [0]}).to_excel(book, sheet_name=name, index=False)
    for sheet in ("people", "2"):
        read = read_noted(path, TextFormat(sheet=sheet))
        assert (read.frame["n"].tolist(), read.notes) == ([2], ())
    with pytest.raises(InputError, match="--sheet is 'poeple', which the workbook does not have"):
        read_noted(path, TextFormat(sheet="poeple"))
    with pytest.raises(InputError, match=r"--sheet is about \.xlsx"):
        read_noted(write(tmp_path / "p.csv", pd.DataFrame({"a": [1], "b": [2]})),
                   TextFormat(sheet="2"))  # fmt: skip
    with pytest.raises(InputError, match=r"no column 'ill' .*--sheet names another"):
        lg.audit(lg.load(path, label="ill", secret="b"))
    data = lg.load(path, sheet="people")
    assert data.source.frame["n"].tolist() == [2]
    with pytest.raises(InputError, match="--sheet is about a file"):
        lg.load(pd.DataFrame({"a": [1]}), sheet="people")


def test_refusal_and_page_name_all_formats(tmp_path):
    (tmp_path / "p.sav").write_bytes(b"")
    with pytest.raises(InputError) as refused:
        read_noted(tmp_path / "p.sav")
    page = HOW_TO.read_text("utf-8")
    for ending in (".csv", ".tsv", ".txt", ".parquet", ".feather", ".xlsx", ".jsonl", ".gz",
                   ".bz2", ".xz", ".zst", ".zip", ".npz"):  # fmt: skip
        assert ending in FORMATS
        assert ending in str(refused.value)
        assert f"`{ending}`" in page


def test_what_a_notebook_shows_has_no_rows():
    names = [f"Smith{i}" for i in range(40)]
    frame = pd.DataFrame({"name": names, "age": np.arange(40) + 0.125, "ill": [0, 1] * 20})
    roles = Roles("ill", group="name")
    data = lg.load(frame, label="ill", group="name")
    table = make_table(frame, roles)
    records = encode(table, fit_on=__import__("torch").arange(40))
    for shown in (data, data.source, open_data("randhie"), table, records):
        assert "Smith" not in repr(shown)
        assert not any(f"{value}" in repr(shown) for value in frame["age"])
        assert len(repr(shown)) < 200
    assert repr(data) == "<Data: <Source 'table': 40 rows, 3 columns>, label 'ill', group 'name'>"
