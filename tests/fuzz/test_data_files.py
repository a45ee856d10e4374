"""Data files as people and programs write them, whole and broken.

What is read must be what Python's own readers find in the file, cell by cell; where it differs, a
note names the column or says what was left out.
"""

import bz2
import csv
import datetime
import gzip
import io
import json
import lzma
import math
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.feather as pf
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from leakgauge.cli.stopping import REFUSED
from leakgauge.data.read import ReadTable, read_noted
from support.fuzz import SCRIPTS, SIGNS, examples, refusal, tried

Cells = list[list[str]]

WORDS = ("", "NA", "null", "None", "nan", "n/a", "?", "-", "unknown", "Inf", "-inf", "TRUE", "no",
         "1e400", "9" * 19, "9" * 400, "9" * 5000, "007", "1.10", "1E2", "0x10", "1_0", "٣", " 5",
         "5 ", "1,5", "b\u0000c",
         "31.321,96", "$31,321.96", "(12)", "12%", "2020-02-30", "2021-01-05", "1:30", "\ufeffa",
         "'", '"', 'a"b', "a\nb", "a\r\nb", "a,b", "a;b", "a\tb", "=1+1", "#N/A")  # fmt: skip
text = st.text(SCRIPTS + SIGNS.replace("\x00", "") + "abc", max_size=6)
COLUMNS = (
    st.integers(0, 9).map(str),
    st.integers(-(10**20), 10**20).map(str),
    st.floats(-1e6, 1e6).map(repr),
    st.floats().map(repr),
    st.sampled_from(("f", "m")),
    st.sampled_from(WORDS),
    st.integers(0, 99).map("{:04d}".format),
    st.dates().map(str),
    text,
    st.one_of(st.integers(0, 99).map(str), st.sampled_from(WORDS)),
)
"""What a column may hold."""

ROLES = ("the label", "the secret")
"""Columns of tables that can be audited."""


@st.composite
def tables(draw: st.DrawFn) -> Cells:
    """Draw a header and up to 30 rows."""
    width = draw(st.integers(2, 6))  # an audit needs a label and a secret
    names = st.sampled_from(("age", "sex", "y", "a.1", "a", "Unnamed: 0", "id", "é")) | text
    header = draw(st.lists(names, min_size=width, max_size=width))
    kinds = [draw(st.sampled_from(COLUMNS)) for _ in range(width)]
    audited = draw(st.booleans())
    count = draw(st.integers(8, 30) if audited else st.integers(0, 30) | st.just(1))
    rows = [[draw(kind) for kind in kinds] for _ in range(count)]
    if not audited:
        return [header, *rows]
    rows = rows * (240 // count)
    roles = [
        ["high" if at % 2 else "low", "f" if at % 3 else "m", str(at % 7)]
        for at in range(len(rows))
    ]
    return [
        [*header, *ROLES, "a number"],
        *([*row, *of] for row, of in zip(rows, roles, strict=True)),
    ]


@dataclass(frozen=True)
class File:
    """A drawn file.

    Attributes:
        name: name of the file.
        content: its bytes.
        cells: header and rows as Python's own reader finds them; None for a broken file.
        encoded: whether the reader must guess an encoding that it may not know.
    """

    name: str
    content: bytes
    cells: Cells | None
    encoded: bool = False


def as_text(cells: Cells, separator: str, quoting: int, newline: str) -> str:
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=separator, quoting=quoting, lineterminator=newline).writerows(cells)  # type: ignore[arg-type]
    return out.getvalue()


ENCODINGS = ("utf-8",) * 4 + ("utf-8-sig", "utf-16", "cp1252", "latin-1", "utf-16-le", "shift_jis",
                              "gb18030")  # fmt: skip


@st.composite
def text_files(draw: st.DrawFn) -> File:
    """Draw a text of a table, in any separator, encoding and quoting, also packed."""
    cells = draw(tables())
    separator = draw(st.sampled_from(",,,;\t|"))
    quoting = draw(st.sampled_from((csv.QUOTE_MINIMAL, csv.QUOTE_ALL)))
    written = as_text(cells, separator, quoting, draw(st.sampled_from(("\n", "\r\n"))))
    if draw(st.integers(0, 4)) == 0:  # rows that are cut, doubled or longer; blank lines
        lines = written.split("\n")
        at = draw(st.integers(0, len(lines) - 1))
        lines[at : at + 1] = draw(st.sampled_from((
            [lines[at], lines[0]], [lines[at].rpartition(separator)[0]], [lines[at], ""],
            [lines[at] + separator + "7"], [lines[at], separator], ["  ", lines[at]],
        )))  # fmt: skip
        written = "\n".join(lines)
    encoding = draw(st.sampled_from(ENCODINGS))
    content = written.encode(encoding, "replace")
    written = content.decode(encoding)
    ending = draw(st.sampled_from((".csv", ".csv", ".tsv", ".txt")))
    name, content = _packed(f"t{ending}", content, draw(st.sampled_from(("", "", "", *PACKERS))))
    written = written.removeprefix("\ufeff")  # the mark of an encoding
    found = list(csv.reader(io.StringIO(written, newline=""), delimiter=separator))
    return File(name, content, found, encoding not in ("utf-8", "utf-8-sig", "utf-16"))


def _zipped(content: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("t.csv", content)
    return out.getvalue()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zip": _zipped,
}  # fmt: skip


def _packed(name: str, content: bytes, packer: str) -> tuple[str, bytes]:
    if not packer or (packer == ".zip" and not name.endswith(".csv")):
        return name, content
    return name + packer, PACKERS[packer](content)


VALUES = (
    st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1), st.floats(), st.booleans(),
    text, st.sampled_from(WORDS[:10]), st.none(), st.dates(),
)  # fmt: skip
NESTED = (st.lists(st.integers(), max_size=2), st.dictionaries(st.sampled_from("ab"), text),
          st.binary(max_size=3), st.decimals(-99, 99, allow_nan=False, places=2), st.datetimes(),
          st.timedeltas())  # fmt: skip


@st.composite
def binary_files(draw: st.DrawFn) -> File:
    """Draw a workbook, JSON lines, Parquet or Feather with values of any types."""
    ending = draw(st.sampled_from((".xlsx", ".jsonl", ".parquet", ".feather")))
    names = draw(st.lists(st.sampled_from(("age", "sex", "y", "é", "b c", "0")) | text, min_size=1,
                          max_size=5, unique=True))  # fmt: skip
    kinds = [*VALUES, *(NESTED if ending in (".parquet", ".feather") else ())]
    columns = {}
    count = draw(st.integers(0, 15))
    for name in names:
        kind = draw(st.sampled_from(kinds))
        kind = kind | st.none() if draw(st.booleans()) else kind
        columns[name] = draw(st.lists(kind, min_size=count, max_size=count))
    rows = [[values[at] for values in columns.values()] for at in range(count)]
    out = io.BytesIO()
    if ending == ".xlsx":
        book = openpyxl.Workbook()
        for row in [names, *rows]:
            book.active.append([_cell(value) for value in row])  # type: ignore[union-attr]
        book.save(out)
        sheet = openpyxl.load_workbook(io.BytesIO(out.getvalue())).active
        found = [list(row) for row in sheet.iter_rows(values_only=True)]  # type: ignore[union-attr]
        cells = [["" if one is None else str(one) for one in row] for row in found]
        while not any(row[-1] for row in cells) and len(cells[0]) > 1:
            cells = [row[:-1] for row in cells]  # a blank column at the end is none
    elif ending == ".jsonl":
        lines = [json.dumps(dict(zip(names, row, strict=True)), default=str) for row in rows]
        out.write("\n".join(lines).encode())
        cells = [names, *([_as_text(one) for one in json.loads(line).values()] for line in lines)]
    else:
        try:
            table = pa.table({name: pa.array(values) for name, values in columns.items()})
            (pq.write_table if ending == ".parquet" else pf.write_feather)(table, out)
        except (pa.ArrowException, OverflowError):
            return File("t.parquet", b"PAR1", None)
        lists = table.to_pydict()
        cells = [names, *([_as_text(lists[name][at]) for name in names] for at in range(count))]
    return File(f"t{ending}", out.getvalue(), cells)


def _cell(value: Any) -> Any:
    """Return a value that openpyxl writes: no signs of control, and numbers that Excel has."""
    if isinstance(value, str):
        value = openpyxl.cell.cell.ILLEGAL_CHARACTERS_RE.sub("", value)
        return None if value.startswith("=") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _as_text(value: Any) -> str:
    if isinstance(value, datetime.timedelta):
        return repr(value.total_seconds())
    return "" if value is None else str(value)


ENDINGS = (".csv", ".xlsx", ".parquet", ".jsonl", ".feather", "", ".npz", ".gz", ".csv.zst", ".zip",
           ".pkl", ".é")  # fmt: skip
NOTHING = (b"", b"\n", b"\n\n\n", b",", b"a", b"a\n", b'"', b"\xff\xfe", b"\xef\xbb\xbf",
           b"\x00" * 99)  # fmt: skip


@st.composite
def broken_files(draw: st.DrawFn) -> File:
    """Draw a file that is cut, has changed bytes, another ending, or nothing at all."""
    whole = draw(text_files() | binary_files())
    content = bytearray(whole.content)
    way = draw(st.sampled_from(("cut", "bytes", "ending", "nothing", "noise", "inside", "double")))
    name = whole.name
    if way == "cut":
        content = content[: draw(st.integers(0, len(content)))]
    elif way == "bytes":
        for _ in range(draw(st.integers(1, 5))):
            if content:
                content[draw(st.integers(0, len(content) - 1))] = draw(st.integers(0, 255))
    elif way == "ending":
        name = "t" + draw(st.sampled_from(ENDINGS))
    elif way == "nothing":
        content = bytearray(draw(st.sampled_from(NOTHING)))
    elif way == "noise":
        content = bytearray(draw(st.binary(max_size=200)))
    elif way == "inside":
        packer = draw(st.sampled_from([*PACKERS]))
        half = content[: len(content) // 2]
        name, content = f"t.csv{packer}", bytearray(PACKERS[packer](bytes(content))[: len(half)])
    else:
        content = content * 2
    return File(name, bytes(content), None)


FILES = st.one_of(text_files(), text_files(), binary_files(), broken_files())


def unlike(found: Any, wrote: str) -> bool:
    """Return whether a value that was read is another than the text of the file."""
    if isinstance(found, str):
        return str(found) != wrote
    if isinstance(found, list | dict | np.ndarray):
        return False  # no feature, and named as such
    if isinstance(found, datetime.timedelta):
        found = found.total_seconds()
    if isinstance(found, float) and math.isnan(found):
        return wrote.strip().lower() not in ("", "nan")
    try:
        if float(found) == float(wrote) or math.isclose(float(found), float(wrote), rel_tol=1e-12):
            return wrote.isdecimal() and isinstance(found, int) and int(wrote) != int(found)
    except (TypeError, ValueError, OverflowError):
        pass
    return str(found).lower() != wrote.lower()


def agrees(name: str, table: ReadTable, cells: Cells) -> None:
    """Ask that a table is what the file holds, or that its notes name what differs."""
    is_text = any(ending in name for ending in (".csv", ".tsv", ".txt"))
    blank = [is_text and len(row) < 2 and not "".join(row).strip() for row in cells]
    header, *rows = [row for row, skipped in zip(cells, blank, strict=True) if not skipped]
    while name.endswith(".xlsx") and rows and not any(rows[-1]):
        rows.pop()  # blank rows at the end are no rows
    notes = "\n".join(table.notes)
    frame = table.frame
    if "separated by" in notes and frame.shape[1] != len(header):
        return
    assert frame.shape[1] == len(header), (frame, notes)
    if "the header; left out" in notes:
        rows = [row for row in rows if row != header]
    assert len(frame) == len(rows), (frame, notes)
    if any(len(row) < len(header) for row in rows):
        assert "fewer fields than the header" in notes, (frame, notes)
    repeated = Counter(header)
    for at, (called, wrote) in enumerate(zip(frame.columns, header, strict=True)):
        same = str(called) == wrote or (not wrote and str(called).startswith("Unnamed"))
        assert same or repeated[wrote] > 1, (called, wrote)
        column = frame.iloc[:, at].tolist()
        for found, row in zip(column, rows, strict=True):
            missing = pd.isna(found) if pd.api.types.is_scalar(found) else False
            text_ = row[at] if at < len(row) else ""
            if not (missing and not text_.strip()) and unlike(found, text_):
                said = repr(str(called)) in notes or "decimal commas" in notes
                assert said, (called, found, text_, notes)


def of_file(folder: Path, one: File) -> None:
    path = folder / one.name
    path.write_bytes(one.content)
    tables_: list[ReadTable] = []
    refusal(lambda: tables_.append(read_noted(path)))
    table = tables_[0] if tables_ else None
    if table is not None and one.cells is not None and not one.encoded:
        agrees(one.name, table, one.cells)
    names = ["y", "sex"] if table is None else [*map(str, table.frame.columns), "sex"]
    label, secret = ROLES if set(ROLES) <= set(names) else names[:2]
    words = ("--label", label, "--secret", secret, "--trials", 60, "--rounds", 1, "--batch-size", 4,
             "--adversary", "logistic", "--shadow", 20, "--workers", 1)  # fmt: skip
    ended = tried("audit", path, *words, cwd=folder, measure=len(one.content) % 4 == 0)
    if table is None:
        assert ended.returncode == REFUSED, ended
    path.unlink()


def end_soundly(folder: Path, monkeypatch: pytest.MonkeyPatch, count: int, of: int = 0) -> None:
    """Ask that files are read as they are, or refused, and that an audit of them ends soundly."""
    examples(count, FILES, lambda one: of_file(folder, one), of=of)


def test_12_data_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end_soundly(tmp_path, monkeypatch, 12)


@pytest.mark.slow
def test_150_data_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end_soundly(tmp_path, monkeypatch, 150, of=1)
