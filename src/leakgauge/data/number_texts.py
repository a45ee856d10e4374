"""Which columns of numbers are written in one form, so that their numbers keep their texts.

Two different texts of such a column are two numbers. Only the texts of other columns need a closer
look (``written.remember``), which costs many times more.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyarrow import csv

BLOCK = 2**26
"""Bytes of the text that are examined at once."""

INTEGERS, WHOLE, FRACTIONS = "integers", "whole", "fractions"

_WHOLE = r"-?(?:0|[1-9]\d*)"

_FORMS = {
    "whole": rf"^{_WHOLE}$",
    "always a point": rf"^{_WHOLE}\.(?:0|\d*[1-9])$",
    "no closing zeros": rf"^{_WHOLE}(?:\.\d*[1-9])?$",
    **{f"{k} decimals": rf"^{_WHOLE}\.\d{{{k}}}$" for k in range(1, 10)},
}
"""Forms in which no two texts are one number; all exclude zeros in front."""

_MINUS_ZERO = r"^-[0.]+$"

LONGEST = 15
"""Characters of a number. It has at most 15 digits, which floats of 64 bits keep apart."""


def in_one_form(content: bytes, separator: str, columns: Mapping[int, str]) -> set[int]:
    """Return the positions of columns whose texts, apart from empty ones, have one of the forms.

    Args:
        content: a text in UTF-8 with a header.
        separator: separator of the columns.
        columns: position of each column to examine, and the kind of its numbers: ``INTEGERS`` of
            any length, ``WHOLE`` floats, or ``FRACTIONS``, where ``-0.0`` counts as ``0.0``.

    >>> kinds = {0: FRACTIONS, 1: FRACTIONS, 2: INTEGERS}
    >>> in_one_form(b"a,b,c\\n1.1,1.1,07\\n1.10,1.2,1\\n", ",", kinds)
    {1}
    """
    if not columns:
        return set()
    possible = {at: dict(_FORMS) for at in columns}
    try:
        for batch in _batches(content, separator, possible):
            for at, texts in batch:
                possible[at] = dict(_kept(texts, possible[at], columns[at]))
    except pa.ArrowInvalid:  # rows of different lengths, which pandas understands or refuses
        return set()
    return {at for at, forms in possible.items() if forms}


def _batches(
    content: bytes, separator: str, possible: Mapping[int, Mapping[str, str]]
) -> Iterator[Iterable[tuple[int, Any]]]:
    """Yield parts of the columns that can still have one form, as texts."""
    names = [f"f{at}" for at in possible]
    reader = csv.open_csv(
        pa.BufferReader(content),
        read_options=csv.ReadOptions(
            use_threads=False, block_size=BLOCK, autogenerate_column_names=True, skip_rows=0
        ),
        parse_options=csv.ParseOptions(delimiter=separator, newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            include_columns=names, column_types=dict.fromkeys(names, pa.string())
        ),
    )
    first = 1  # the header
    for batch in reader:
        rows = batch.slice(first)
        first = max(0, first - len(batch))
        yield [(at, rows[f"f{at}"]) for at, forms in possible.items() if forms]


def _kept(texts: Any, forms: Mapping[str, str], kind: str) -> Iterator[tuple[str, str]]:
    """Yield the forms that all texts have."""
    known = texts.filter(pc.greater(pc.binary_length(texts), 0))
    if len(known) == 0:
        yield from forms.items()
        return
    if kind != FRACTIONS and pc.any(pc.match_substring_regex(known, _MINUS_ZERO)).as_py():
        return
    if kind != INTEGERS and pc.max(pc.binary_length(known)).as_py() > LONGEST:
        return
    for name, form in forms.items():
        # the first text alone rules out most forms
        for some in (known[:1], known):
            if not pc.all(pc.match_substring_regex(some, form)).as_py():
                break
        else:
            yield name, form
