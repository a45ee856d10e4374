"""Small repairs of a table read from a file, each with a note."""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import pandas as pd

from leakgauge.data.columns import quoted


def numbered(names: Sequence[Hashable]) -> tuple[list[str], list[str]]:
    """Return unique names, and a note for each repeated one.

    >>> numbered(["age", "sex", "age"])
    (['age', 'sex', 'age.1'], ["2 columns are called 'age'; read as 'age', 'age.1'"])
    """
    texts = [str(name) for name in names]
    taken, counts = set(texts), Counter(texts)
    new: list[str] = []
    seen: dict[str, list[str]] = {}
    for text in texts:
        name = text
        if text in seen:
            number = len(seen[text])
            while (name := f"{text}.{number}") in taken:
                number += 1
            taken.add(name)
        seen.setdefault(text, []).append(name)
        new.append(name)
    notes = [
        f"{counts[text]} columns are called {text!r}; read as {quoted(names)}"
        for text, names in seen.items()
        if len(names) > 1
    ]
    return new, notes


def alike(column: "pd.Series[Any]") -> list[str]:
    """Return the values of a column of text that differ from another only in case or blanks.

    >>> alike(pd.Series(["White", "white ", "Black", None]))
    ['White', 'white ']
    """
    if pd.api.types.is_numeric_dtype(column.dtype):
        return []
    names = [value for value in column.dropna().unique() if isinstance(value, str)]
    plain = [" ".join(name.split()).casefold() for name in names]
    counts = Counter(plain)
    return [name for name, one in zip(names, plain, strict=True) if counts[one] > 1]
