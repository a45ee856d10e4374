"""YAML and JSON from outside: bounded, typed, and refused in one line."""

import contextlib
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge.core.checks import InputError
from leakgauge.core.files import read_yaml, write_sealed
from leakgauge.core.outside import LARGEST_FILE, parse_json, parse_yaml, read_written
from leakgauge.evidence.context import read_context
from leakgauge.runs.grid_file import read_grid_file

NINE = ", ".join(["*{}"] * 9)
STEPS = list(itertools.pairwise("abcdefghij"))
LAUGHS = "\n".join(
    ["- &a [x, x]", *(f"- &{new} [{NINE.replace('{}', old)}]" for old, new in STEPS)]
)
MERGES = "\n".join(
    ["- &a {x: 1}", *(f"- &{new} {{<<: [{NINE.replace('{}', old)}]}}" for old, new in STEPS)]
)
WRONG = {
    "month 13": ("a: 2026-13-01", "month"),
    "an offset of days": ("a: 2026-01-01 00:00:00 +99:99", "cannot be read"),
    "10,000 digits": ("a: " + "9" * 10_000, "40 digits"),
    "digits in base 16": ("a: 0x" + "f" * 5000, "40 digits"),
    "base 60": ("a: 1:30", "40 digits"),
    "base 8": ("a: 010", "begins with 0"),
    "nesting": ("[" * 5000, "nests too deeply"),
    "nesting in bounds of Python": ("[" * 60 + "]" * 60, "nests too deeply"),
    "a list in itself": ("&a [*a]", "nests too deeply"),
    "laughs": (LAUGHS, "values, by its aliases"),
    "merges": (MERGES, "values, by its aliases"),
    "half a character": ('a: "\\ud800"', "is no text"),
    "no date": ("a: !!timestamp x", "cannot be read"),
    "no truth": ("a: !!bool x", "cannot be read"),
    "no whole number": ("a: !!int x", "cannot be read"),
    "no number": ("a: !!float x", "cannot be read"),
    "bytes": ("a: !!binary x", "is not YAML"),
    "code": ("a: !!python/object:os.system x", "is not YAML"),
    "a list as key": ("? [a]\n: b", "is not YAML"),
    "twice": ("a: 1\na: 2", "stands twice"),
    "not YAML": ("a: [", "is not YAML"),
}


@pytest.mark.parametrize("name", WRONG)
def test_yaml_outside_of_the_bounds_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    """Wherever it comes from: a context, a grid, a folder of a run."""
    text, says = WRONG[name]
    with pytest.raises(InputError, match=says) as refused:
        parse_yaml(text)
    assert "\n" not in str(refused.value)
    path = tmp_path / "x.yaml"
    path.write_text(text, encoding="utf-8")
    for read in (read_context, read_grid_file):
        with pytest.raises(InputError) as refused:
            read(path)
        assert "\n" not in str(refused.value)
    write_sealed(path, text.encode())
    with pytest.raises(InputError, match="damaged"):
        read_yaml(path)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text("abcdef", min_size=1, max_size=3), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(PLAIN)
def test_what_is_written_is_read_as_yaml_and_as_json(value: Any) -> None:
    assert parse_yaml(yaml.safe_dump(value)) == value
    if isinstance(value, str | int):  # YAML takes 1e-5, without a point, for text
        assert parse_yaml(json.dumps(value)) == value
    assert parse_json(json.dumps(value)) == value


@settings(max_examples=150, deadline=None)
@given(st.text(st.sampled_from("a1:- [{]}&*!|>'\"#\n\t?,<.~%@\\u\ud800é٣"), max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_yaml, parse_json):
        with contextlib.suppress(InputError):
            parse(text)


@pytest.mark.parametrize(
    "text", ["{", "[" * 100_000, "9" * 5000, '"\\ud800"', "[" * 60 + "]" * 60, "\ufeff{}"]
)
def test_json_outside_of_the_bounds_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_json(text)


def test_a_large_file_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a" * (LARGEST_FILE + 1))
    with pytest.raises(InputError, match="200,001 bytes; expected a grid of at most 200,000"):
        read_written(path, "a grid")


def test_a_declaration_is_the_text_that_was_written(tmp_path: Path) -> None:
    path = tmp_path / "release.yaml"
    path.write_text("version: 1.10\nretention: 1:30\nsystem: 0x10\nowner: [007, '']\n")
    found = read_context(path)
    assert (found.version, found.retention, found.system) == ("1.10", "1:30", "0x10")
    assert found.owner == "007; not declared"
    path.write_text("date: 2026-02-30\n")
    with pytest.raises(InputError, match=r"date is '2026-02-30'.*day"):
        read_context(path)
