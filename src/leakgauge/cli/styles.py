"""Colours of verdicts on a terminal."""

from rich.text import Text

STYLES = {
    "strong": "bold red",
    "clear": "red",
    "weak": "yellow",
    "inconclusive": "magenta",
    "none": "green",
}


def verdict_text(words: str, level: str) -> Text:
    """Return a verdict in the colour of its level."""
    return Text(words, style=STYLES.get(level, ""))
