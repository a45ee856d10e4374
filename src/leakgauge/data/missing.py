"""Words for a missing value, and what is said of them."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from leakgauge.core.checks import require
from leakgauge.core.names import few
from leakgauge.data.columns import quoted
from leakgauge.data.replaced import with_columns
from leakgauge.data.written import distinct

MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null"),
)
"""Words for a missing value among numbers: those of pandas except "None"."""

NONE_TOO = frozenset((*MISSING[1:], "None"))
"""Words that stand for a missing number in a column of a few different numbers, too."""

PLACEHOLDERS = frozenset(
    (
        *("?", "??", "-", "--", ".", "..", "*", "na", "n.a.", "nil", "none", "unknown", "unk"),
        *("missing", "undefined", "not available", "not known", "not stated", "not reported"),
    )
)
"""Words, in lower case, that stand for a missing number however often they come."""

_MOST = 6
"""Number of columns that a note names."""


def is_placeholder(word: str) -> bool:
    """Return whether a word among numbers stands for a missing one.

    >>> is_placeholder(" Unknown"), is_placeholder("more")
    (True, False)
    """
    plain = word.strip()
    return plain in NONE_TOO or plain.lower() in PLACEHOLDERS


def words_in(column: "pd.Series[Any]") -> list[str]:
    """Return the words of a column of text that stand for a missing value among numbers."""
    if pd.api.types.is_numeric_dtype(column.dtype):
        return []
    return [one for one in distinct(column) if isinstance(one, str) and one in NONE_TOO]


def name_missing(columns: Mapping[str, Iterable[str]]) -> list[str]:
    """Return a note for each word that counts as missing in columns of numbers.

    Args:
        columns: words by the name of the column.

    >>> name_missing({"age": ["NA"], "pay": ["NA"]})
    ["'NA' counts as missing in the columns of numbers 'age', 'pay' (--keep-na keeps it)"]
    """
    return [
        f"{word!r} counts as missing in the {_of(names, 'numbers')} (--keep-na keeps it)"
        for word, names in _by_word(columns).items()
    ]


def name_kept(columns: Mapping[str, Iterable[str]]) -> list[str]:
    """Return a note for each word that could mean missing and is a value of columns of text.

    >>> name_kept({"region": ["NA"]})
    ["'NA' is a value of the column of text 'region' (--missing NA counts it as missing)"]
    """
    return [
        f"{word!r} is a value of the {_of(names, 'text')} (--missing {shlex.quote(word)} counts "
        "it as missing)"
        for word, names in _by_word(columns).items()
    ]


def without_words(frame: pd.DataFrame, words: Sequence[str]) -> pd.DataFrame:
    """Return the table with the given words missing, in columns of text.

    Raises:
        InputError: no column holds a word.
    """
    wanted, met = set(words), set[str]()
    hidden: dict[str, Any] = {}
    for name, column in frame.items():
        if wanted and not pd.api.types.is_numeric_dtype(column.dtype):
            found = np.array([isinstance(one, str) and one in wanted for one in column])
            met |= set(column[found])
            hidden |= {str(name): column.mask(found)} if found.any() else {}
    refuse_absent(words, met)
    return with_columns(frame, hidden)


def _of(names: list[str], kind: str) -> str:
    return f"column{'s' if len(names) > 1 else ''} of {kind} {few(names, _MOST)}"


def _by_word(columns: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, words in columns.items():
        for word in words:
            found.setdefault(word, []).append(name)
    return found


def refuse_absent(words: Sequence[str], found: Iterable[str]) -> None:
    """Refuse a word that is counted as missing though no column holds it."""
    met = set(found)
    absent = [word for word in words if word not in met]
    require(
        not absent,
        f"--missing is {quoted(absent)}, which no column holds; correct it or leave it out",
    )
