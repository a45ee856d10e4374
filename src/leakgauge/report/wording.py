"""How numbers and settings are written."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from leakgauge.results.measurements import Estimate

_NAMES = {"lr": "learning rate", "max_bytes": "memory bound in bytes"}


def number(value: float) -> str:
    """A figure with three decimals, or as many as tell it from 0 and 1, and a true minus sign.

    >>> number(0.99712), number(0.99996), number(1.0)
    ('0.997', '0.99996', '1.000')
    """
    return _fixed(value, 3, 1.0).replace("-0.000", "0.000").replace("-", "\u2212")


def percent(value: float) -> str:
    """A share in per cent, with as many decimals as tell it from 0 and 100.

    >>> percent(0.99712), percent(0.99996), percent(0.5)
    ('99.7 %', '99.996 %', '50 %')
    """
    return _fixed(100 * value, 1, 100.0).removesuffix(".0") + " %"


def _fixed(value: float, decimals: int, top: float) -> str:
    """Rounded, but never to 0 or the top what is not: a figure of 1 would claim certainty."""
    for places in range(decimals, decimals + 4):
        text = f"{value:.{places}f}"
        if float(text) == value or float(text) not in (0.0, top):
            break
    return text


def count(value: object) -> str:
    """A whole number in groups of three; anything else as ``plain`` writes it.

    >>> count(45222)
    '45,222'
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return plain(value)


def plain(value: Any) -> str:
    """Any setting's value as a reader would write it.

    >>> plain(["property", "attribute"]), plain(None), plain(True), plain({"F": 0.5})
    ('property, attribute', 'not set', 'yes', 'F: 0.5')
    """
    if value is None or value in ("", [], (), {}):
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {plain(item)}" for key, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(plain(item) for item in value)
    return str(value)


def short(value: float) -> str:
    """Three digits, for figures of any size.

    >>> short(24787.7), short(0.012345), short(0.0), short(4.3e14)
    ('24,800', '0.0123', '0', 'above a million')
    """
    if value > 1e6:
        return "above a million"
    if 0 < value < 1e-4:
        return "below 0.0001"
    return f"{float(f'{value:.3g}'):,.12g}"


def interval(estimate: Estimate) -> str:
    """The interval's two ends.

    >>> interval(Estimate(0.9, 0.85, 0.95, 100))
    '0.850 to 0.950'
    """
    return f"{number(estimate.low)} to {number(estimate.high)}"


def label(name: str) -> str:
    """A key as a reader would write it.

    >>> label("shadow_trials")
    'Shadow trials'
    """
    words = _NAMES.get(name, name).replace("_", " ").strip()
    return words[:1].upper() + words[1:]


def marked(text: str) -> Markup:
    """Plain text as HTML: escaped, `backticks` as code, numbers kept with their per cent sign.

    >>> marked("can tell `<b>`: 5 %")
    Markup('can tell <code>&lt;b&gt;</code>: 5\\xa0%')
    """
    safe = str(escape(text)).replace(" %", "\u00a0%")
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", safe))
