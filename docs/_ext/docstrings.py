"""Keep the first sentence of a property whole: napoleon would read it as ``type: text``."""

from typing import Any

from sphinx.application import Sphinx

COLON, STAND_IN = ":", "\N{RATIO}"
KINDS = ("property", "attribute")


def hide(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Replace the colons of a property's first lines before napoleon sees them."""
    _replace(what, lines, COLON, STAND_IN)


def show(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Restore the colons after napoleon."""
    _replace(what, lines, STAND_IN, COLON)


def _replace(what: str, lines: list[str], old: str, new: str) -> None:
    if what in KINDS:
        for number, line in enumerate(lines):
            if not line.strip():
                break
            lines[number] = line.replace(old, new)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect both functions before and after napoleon, which has priority 500."""
    app.connect("autodoc-process-docstring", hide, priority=400)
    app.connect("autodoc-process-docstring", show, priority=600)
    return {"parallel_read_safe": True}
