"""Tables as people publish them: any separator, encoding, packer and format of pandas."""

import gzip
import io
import lzma
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.data.columns import numbers, refuse_infinite
from leakgauge.data.read import read_noted
from leakgauge.data.source import frame_source, open_data
from leakgauge.data.table import Roles, make_table
from leakgauge.data.text_tables import TextFormat, separator_of
from support import command

PEOPLE = pd.DataFrame(
    {"age": [31, 42, 53], "town": ["Köln", "Bonn, Süd", "a;b"], "pay": [1.5, np.nan, 3.25]}
)


def written(path: Path) -> Path:
    """The people in the format of the path's ending."""
    match path.suffix:
        case ".xlsx":
            PEOPLE.to_excel(path, index=False)
        case ".jsonl":
            PEOPLE.to_json(path, orient="records", lines=True)
        case ".feather":
            PEOPLE.to_feather(path)
        case ".parquet":
            PEOPLE.to_parquet(path)
        case ".zst":
            with pa.output_stream(path, compression="zstd") as out:
                out.write(PEOPLE.to_csv(index=False).encode())
        case _:
            PEOPLE.to_csv(path, index=False)
    return path


@pytest.mark.parametrize(
    "name",
    [
        "p.csv", "p.csv.gz", "p.CSV.bz2", "p.csv.xz", "p.csv.zip", "p.csv.zst", "p.xlsx", "p.jsonl",
        "p.feather", "p.parquet",
    ],
)  # fmt: skip
def test_every_format_gives_the_same_table(tmp_path: Path, name: str) -> None:
    read = read_noted(written(tmp_path / name))
    pd.testing.assert_frame_equal(read.frame, PEOPLE, check_dtype=False)
    assert read.notes == ()


@pytest.mark.parametrize("sep", [",", ";", "\t", "|"])
@pytest.mark.parametrize("name", ["p.csv", "p.txt"])
def test_the_separator_is_found(tmp_path: Path, sep: str, name: str) -> None:
    PEOPLE.to_csv(tmp_path / name, index=False, sep=sep)
    read = read_noted(tmp_path / name)
    pd.testing.assert_frame_equal(read.frame, PEOPLE)
    usual = {"p.csv": ",", "p.txt": "\t"}[name]
    assert [note.split(" (")[0] for note in read.notes] == (
        []
        if sep == usual
        else [
            "columns are separated by "
            + {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}[sep]
        ]
    )


def test_text_with_another_separator_inside_is_no_reason() -> None:
    rows = "a,b\n" + "".join(f'"{i}; {i}; {i}",2\n' for i in range(50))
    assert separator_of(rows, ",") == ","
    assert separator_of("a|b\n1|2,5\n2|3,5\n", ",") == "|"
    assert separator_of("one column\nof text, once\n", ",") == ","


def test_a_single_row_and_blank_lines_count_for_the_separator(tmp_path: Path) -> None:
    """The only row was taken for one that is cut, and a line of blanks for a row."""
    path = tmp_path / "p.txt"
    path.write_text("a,b\tc\n1,2\n")
    assert read_noted(path).frame.to_dict("list") == {"a": [1], "b\tc": [2]}
    assert separator_of("a;b;c,d\n1;2;3\n  \n", ",") == ";"


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("1,2,3\n4\n5,6\n\n  \n7,8,\n7,8,\n", "2 rows have fewer fields than the header (line 3)"),
        ('1,2,3\n"4,4\n",5\n', "1 row has fewer fields than the header (line 4)"),
        ("1,2,3\n4,5,\n", ""),
    ],
)
def test_rows_with_fewer_fields_than_the_header_are_told(
    tmp_path: Path, rows: str, says: str
) -> None:
    path = tmp_path / "p.csv"
    path.write_text(f"a,b,c\n{rows}")
    notes = "".join(read_noted(path).notes)
    assert says in notes if says else "fewer" not in notes


def test_a_table_whose_rows_lack_its_columns_is_refused(tmp_path: Path) -> None:
    """A header with tabs in front of rows with commas was read as two columns."""
    path = tmp_path / "p.txt"
    path.write_text("a\tb\n1,2,3\n4,5,6\n7,8\n")
    with pytest.raises(
        InputError, match="3 rows have fewer fields than the header, of 3; name the"
    ):
        read_noted(path)


def test_a_number_that_no_float_holds_is_infinite(tmp_path: Path) -> None:
    """It ended in a traceback."""
    path = tmp_path / "p.csv"
    path.write_text("a,b\n" + f"{'9' * 400},1e400\n-{'9' * 400},2\n3,inf\n")
    read = read_noted(path).frame
    assert numbers(read["a"]).tolist() == [np.inf, -np.inf, 3]
    with pytest.raises(InputError, match="'a' is infinite in 2 of 3 rows"):
        refuse_infinite(read["a"], "'a'")


def test_a_column_of_a_workbook_without_a_name_has_that_of_a_csv(tmp_path: Path) -> None:
    """It was called nan."""
    twice = PEOPLE.set_axis(["a", None, "c"], axis=1)
    twice.to_excel(tmp_path / "p.xlsx", index=False)
    twice.to_csv(tmp_path / "p.csv", index=False)
    for name in ("p.xlsx", "p.csv"):
        assert read_noted(tmp_path / name).frame.columns.tolist() == ["a", "Unnamed: 1", "c"]


def test_a_separator_and_an_encoding_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_bytes("a:b\nä:1\nö:2\n".encode("cp437"))
    read = read_noted(path, TextFormat(":", "cp437"))
    assert read.frame.to_dict("list") == {"a": ["ä", "ö"], "b": [1, 2]}
    assert read.notes == ()
    tabs = tmp_path / "p.tsv"
    tabs.write_text("a\tb\n1\t2\n")
    assert read_noted(tabs, TextFormat.of("tab", None)).frame.shape == (1, 2)
    with pytest.raises(InputError, match="expected one character, or tab"):
        TextFormat.of("::", None)
    with pytest.raises(InputError, match="--encoding is 'utf-9', which Python does not know"):
        read_noted(path, TextFormat(None, "utf-9"))
    with pytest.raises(InputError, match="is not utf-8 text; name another --encoding"):
        read_noted(path, TextFormat(None, "utf-8"))
    with pytest.raises(InputError, match="--sep is about a text file"):
        read_noted(written(tmp_path / "p.parquet"), TextFormat(";"))
    with pytest.raises(InputError, match="'randhie' is a dataset"):
        open_data("randhie", text=TextFormat(";"))


@pytest.mark.parametrize(
    ("encoding", "says"),
    [("utf-8-sig", ""), ("utf-16", "UTF-16"), ("cp1252", "read as Windows-1252")],
)
def test_encodings_are_found(tmp_path: Path, encoding: str, says: str) -> None:
    path = tmp_path / "p.csv"
    PEOPLE.to_csv(path, index=False, encoding=encoding)
    read = read_noted(path)
    pd.testing.assert_frame_equal(read.frame, PEOPLE)
    assert (says in "".join(read.notes)) if says else read.notes == ()


def test_decimal_commas_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("pay;place\n3,14;1,a\n2;2,b\n;3,c\n")
    read = read_noted(path)
    assert read.frame["pay"].tolist()[:2] == [3.14, 2.0]
    assert read.frame["place"].tolist() == ["1,a", "2,b", "3,c"]
    assert "numbers have decimal commas, as 3,14" in read.notes


def test_columns_with_one_name_are_numbered(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("a,b,a,a.1\n1,2,3,4\n")
    read = read_noted(path)
    assert read.frame.to_dict("list") == {"a": [1], "b": [2], "a.2": [3], "a.1": [4]}
    assert read.notes == ("2 columns are called 'a'; read as 'a', 'a.2'",)
    twice = PEOPLE.set_axis(["a", "b", "a"], axis=1)
    assert frame_source(twice).frame.columns.tolist() == ["a", "b", "a.1"]
    twice.to_excel(tmp_path / "p.xlsx", index=False)
    assert read_noted(tmp_path / "p.xlsx").frame.columns.tolist() == ["a", "b", "a.1"]


def test_the_first_sheet_is_read_and_the_others_are_told(tmp_path: Path) -> None:
    with pd.ExcelWriter(tmp_path / "p.xlsx") as book:
        PEOPLE.to_excel(book, sheet_name="people", index=False)
        PEOPLE.to_excel(book, sheet_name="notes", index=False)
    assert read_noted(tmp_path / "p.xlsx").notes == (
        "the sheet 'people' was read, not 'notes' (--sheet names another)",
    )


def test_an_archive_holds_one_table(tmp_path: Path) -> None:
    path = tmp_path / "p.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("in/a.csv", "a,b\n1,2\n")
        archive.writestr("__MACOSX/in/._a.csv", "x")
        archive.writestr("readme.md", "x")
    assert read_noted(path).frame.to_dict("list") == {"a": [1], "b": [2]}
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("b.csv", "a,b\n1,2\n")
    with pytest.raises(InputError, match=r"holds 2 tables: 'in/a\.csv', 'b\.csv'; unpack it"):
        read_noted(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.csv.gz", b"a,b\n1,2\n"),
        ("p.csv.gz", gzip.compress(b"a,b\n1,2\n" * 9, mtime=0)[:-9]),
        ("p.csv.bz2", b"a"),
        ("p.csv.zst", b"a,b\n1,2\n"),
        ("p.csv.xz", lzma.compress(b"a,b\n1,2\n")[:-7]),
        ("p.zip", b"PK"),
        ("p.xlsx", b"PK"),
        ("p.feather", b"ARROW"),
        ("p.parquet", b"PAR1"),
        ("p.jsonl", b'{"a": '),
        ("p.csv", bytes(500)),
    ],
)
def test_damaged_files_are_one_line(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"cannot be read|is not a text file") as refused:
        read_noted(path)
    assert "\n" not in str(refused.value)


def limits(*junk: str) -> pd.DataFrame:
    rng = stream(0, "limits")
    values = [*map(str, rng.integers(1000, size=400)), *junk]
    return pd.DataFrame({"LIMIT_BAL": values, "sex": ["f", "m"] * (len(values) // 2)})


def test_a_few_junk_values_leave_a_column_of_numbers_one(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    limits("n/a?", "unknown").to_csv(path, index=False)
    read = read_noted(path)
    assert numbers(read.frame["LIMIT_BAL"]).dtype == float
    assert np.isnan(numbers(read.frame["LIMIT_BAL"])).sum() == 2
    assert read.notes == (
        "column 'LIMIT_BAL' holds numbers but for 2 values, 'n/a?', 'unknown', which count as "
        "missing",
    )
    limits(*["n/a?"] * 40).to_csv(path, index=False)  # a tenth is no accident
    read = read_noted(path)
    assert "n/a?" in set(read.frame["LIMIT_BAL"])
    assert read.notes == (
        "column 'LIMIT_BAL' stays text: it holds numbers but for 40 values (9%), 'n/a?'; "
        "--missing 'n/a?' counts such a word as missing",
    )


def test_text_beside_few_numbers_stays_a_category(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    pd.DataFrame({"rooms": ["1", "2", "3"] * 100 + ["more"] * 3, "b": 1}).to_csv(path, index=False)
    read = read_noted(path)
    assert read.notes == ()
    assert set(read.frame["rooms"]) == {"1", "2", "3", "more"}


def test_values_that_differ_only_in_case_or_blanks_are_told() -> None:
    rows = {"race": ["White", "white ", "Black", "Black"] * 3, "sex": list("fm") * 6}
    people = pd.DataFrame({**rows, "ill": [0, 1] * 6, "age": range(12)})
    table = make_table(people, Roles("ill", ("sex",)))
    assert table.notes == (
        "column 'race' has values that differ only in case or blanks: 'White', 'white '; merge "
        "them if they mean the same",
    )


def test_a_table_comes_through_the_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.TextIOWrapper(io.BytesIO(b"a;b\n1;2\n"))
    monkeypatch.setattr("sys.stdin", text)
    source = open_data("-")
    assert source.frame.to_dict("list") == {"a": [1], "b": [2]}
    assert source.name == "standard input"
    with pytest.raises(InputError, match="the standard input is empty"):
        open_data("-")


def test_an_audit_says_how_the_table_was_read(tmp_path: Path) -> None:
    people = limits().assign(label=lambda frame: (frame["LIMIT_BAL"].astype(int) > 500) * 1)
    people.to_csv(tmp_path / "p.csv", index=False, sep=":")
    done = command.run(
        "audit", "p.csv", "--sep", ":", "--label", "label", "--secret", "sex", "--adversary",
        "energies", "--rounds", 1, "--trials", 120, "--shadow", 100, "--batch-size", 4,
        "--out", "run", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "--sep :" in done.stdout
    assert "sep: ':'" in (tmp_path / "run" / "run.yaml").read_text()


@pytest.mark.parametrize("ending", ["csv", "xlsx"])
def test_a_column_may_be_called_self(ending: str, tmp_path: Path) -> None:
    """As in HMDA's table of loans: whether an applicant is self-employed."""
    path = tmp_path / f"loans.{ending}"
    frame = pd.DataFrame({"self": ["yes", "no", ""] * 4, "deny": ["1,5", "2,5", "3,5"] * 4})
    write = frame.to_csv if ending == "csv" else frame.to_excel
    write(path, index=False)
    read = open_data(str(path)).frame
    assert list(read["self"].dropna().unique()) == ["yes", "no"]


def test_dates_of_every_format_are_left_out_alike(tmp_path):
    """A table of text writes dates as text, and other formats have a type for them."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "born": pd.to_datetime("1970-01-01") + pd.to_timedelta(rng.integers(0, 90, 400), "D"),
            "x": rng.normal(size=400),
            "label": rng.choice(["y", "n"], 400),
            "sex": rng.choice(["f", "m"], 400),
        }
    )
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_excel(tmp_path / "a.xlsx", index=False)
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True, date_format="iso")
    for kind in ("csv", "parquet", "xlsx", "jsonl"):
        source = open_data(str(tmp_path / f"a.{kind}"))
        table = make_table(source.frame, Roles(label="label", secrets=("sex",)))
        assert "born" not in table.features, kind
        assert "column 'born' was left out: it holds dates" in table.notes, kind
