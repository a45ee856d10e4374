"""The Markdown page of a card, for a model card or a file of evidence."""

import functools
import re
from typing import Any

import jinja2

from leakgauge.evidence.card_model import Card, Figure
from leakgauge.evidence.context import Context
from leakgauge.report.wording import number, short

TEMPLATE = "audit-card.md.j2"
LARGE = 1000.0
_SPECIAL = re.compile(r"([|\[\]*])")


def card_page(card: Card) -> str:
    """Return the card as Markdown: tables and short sentences, and no raw HTML."""
    declared = [(_title(name), getattr(card.context, name)) for name in Context.model_fields]
    text = _environment().get_template(TEMPLATE).render(card=card, declared=declared)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


@functools.cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("leakgauge.evidence", "."),
        autoescape=False,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_escaped,
    )
    made.filters |= {"value": _value, "interval": _interval, "cell": _cell, "title": _title}
    return made


def _escaped(value: Any) -> str:
    """Text in one line that cannot end a table's cell, make a link, or be HTML.

    >>> _escaped("a|b <i>")
    'a\\\\|b &lt;i>'
    """
    text = " ".join(str(value).split()).replace("\\", "\\\\").replace("<", "&lt;")
    return _SPECIAL.sub(r"\\\1", text)


def _value(one: float | None) -> str:
    """A figure with three decimals; a large one with three digits."""
    if one is None:
        return "none"
    return short(one) if abs(one) >= LARGE else number(one)


def _interval(one: Figure | None) -> str:
    if one is None:
        return "none"
    high = "no upper end" if one.high is None else _value(one.high)
    return f"{_value(one.low)} to {high}"


def _cell(one: Figure | None) -> str:
    """A figure with its interval in one cell of a table."""
    return "not played" if one is None else f"{_value(one.value)} ({_interval(one)})"


def _title(name: str) -> str:
    return name.replace("_", " ").capitalize()
