"""Colours of verdicts on a terminal."""

STYLES = {
    "strong": "bold red",
    "clear": "red",
    "weak": "yellow",
    "inconclusive": "magenta",
    "none": "green",
}
