"""Format text as Markdown."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with bars inside cells escaped.

    >>> print(table(("a", "b"), [("1", "x|y")]), end="")
    | a | b |
    |---|---|
    | 1 | x\\|y |
    """
    lines = [[_cell(one) for one in row] for row in rows]
    return "".join(
        f"| {' | '.join(line)} |\n" if line[0] != "---" else f"|{'|'.join(line)}|\n"
        for line in [list(head), ["---"] * len(head), *lines]
    )


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def plain(text: str) -> str:
    """Return text with Markdown and HTML characters escaped.

    >>> plain("a_b <c> *d*")
    'a\\\\_b &lt;c&gt; \\\\*d\\\\*'
    """
    for sign in "\\`*_[]$":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("<", "&lt;").replace(">", "&gt;")
