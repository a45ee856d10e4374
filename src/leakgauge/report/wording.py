"""Text of numbers and settings in reports."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from leakgauge.results.measurements import Estimate

_NAMES = {"lr": "learning rate", "max_bytes": "memory bound in bytes"}


def number(value: float) -> str:
    """Return a figure with three decimals, the most that intervals of these runs support.

    Only an exact 0 or 1 is shown as such: 1.000 claims certainty.

    >>> number(0.99712), number(0.99996), number(1.0), number(2e-7), number(-0.0001)
    ('0.997', 'over 0.999', '1.000', 'below 0.001', '0.000')
    """
    return _rounded(value, 3, 1.0).replace("-", "\u2212")


def percent(value: float) -> str:
    """Return a share in per cent with one decimal; only an exact share is 0 or 100 %.

    >>> percent(0.99712), percent(0.999998), percent(1.0), percent(0.5), percent(1e-5)
    ('99.7 %', 'over 99.9 %', '100 %', '50 %', 'below 0.1 %')
    """
    return _rounded(100 * value, 1, 100.0).removesuffix(".0") + " %"


def _rounded(value: float, decimals: int, top: float) -> str:
    """Return a rounded value, or what bounds it if it would round to 0 or the top."""
    text, step = f"{value:.{decimals}f}", 10**-decimals
    if float(text) == 0:
        return f"below {step}" if value > 0 else f"{0:.{decimals}f}"
    if float(text) == top and value < top:
        return f"over {top - step:.{decimals}f}"
    return text


def count(value: object) -> str:
    """Return a whole number in groups of three digits; other values as ``plain`` does.

    >>> count(45222)
    '45,222'
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return plain(value)


def plain(value: Any) -> str:
    """Return the value of a setting as text for readers.

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
    """Return a figure of any size with three digits.

    >>> short(24787.7), short(0.012345), short(0.0), short(4.3e14)
    ('24,800', '0.0123', '0', 'above a million')
    """
    if value > 1e6:
        return "above a million"
    if 0 < value < 1e-4:
        return "below 0.0001"
    return f"{float(f'{value:.3g}'):,.12g}"


def interval(estimate: Estimate) -> str:
    """Return the two ends of the interval.

    >>> interval(Estimate(0.9, 0.85, 0.95, 100))
    '0.850 to 0.950'
    """
    return f"{number(estimate.low)} to {number(estimate.high)}"


def signed(value: float) -> str:
    """Return a difference with its sign and three decimals.

    >>> signed(0.0042), signed(-0.31), signed(0.0001), signed(0.0)
    ('+0.004', '\u22120.310', '+0.000', '0.000')
    """
    return f"{value:{'+' if value else ''}.3f}".replace("-", "\u2212")


def change(difference: Estimate) -> str:
    """Return a difference with the two ends of its interval.

    >>> change(Estimate(0.01, 0.004, 0.02, 100))
    '+0.010 (+0.004 to +0.020)'
    """
    return f"{signed(difference.value)} ({signed(difference.low)} to {signed(difference.high)})"


def label(name: str) -> str:
    """Return a key as text for readers.

    >>> label("shadow_trials")
    'Shadow trials'
    """
    words = _NAMES.get(name, name).replace("_", " ").strip()
    return words[:1].upper() + words[1:]


def quoted(text: str) -> str:
    """Return a sentence for a terminal: names between backticks stand between quotes.

    >>> quoted("the secret `sex`")
    "the secret 'sex'"
    """
    return text.replace("`", "'")


def marked(text: str) -> Markup:
    """Return text as escaped HTML, with `backticks` as code and no break before per cent signs.

    >>> marked("can tell `<b>`: 5 %")
    Markup('can tell <code>&lt;b&gt;</code>: 5\\xa0%')
    """
    safe = str(escape(text)).replace(" %", "\u00a0%")
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", safe))
