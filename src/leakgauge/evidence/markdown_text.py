"""Text for Markdown that a name of the user cannot break."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

_SPECIAL = re.compile(r"([|\[\]*])")


def escaped(value: Any) -> str:
    """Return text in one line that cannot end a table's cell, make a link, or be HTML.

    >>> escaped("a|b <i>")
    'a\\\\|b &lt;i>'
    """
    text = " ".join(str(value).split()).replace("\\", "\\\\").replace("<", "&lt;")
    return _SPECIAL.sub(r"\\\1", text)


def quiet(value: Any) -> str:
    """Return escaped text that notifies nobody where it is posted as a comment.

    >>> quiet("@team | #1")
    '&#64;team \\\\| &#35;1'
    """
    return escaped(value).replace("#", "&#35;").replace("@", "&#64;")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown already.

    >>> print(table(["a", "b"], [["1", "2"]]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(head)}", *lines[1:]])
