"""Values of settings from the text of a command line."""

from collections.abc import Collection, Mapping
from typing import Any

from leakgauge.core.checks import require
from leakgauge.core.numbers import is_number, read_number
from leakgauge.runs.setting import Declared, wanted


def read_value(one: Declared, text: str, where: str) -> Any:
    """A value of ``--set`` or of an option, from its text.

    Lists are separated by commas outside of settings: ``prune:rate=0.9,sign`` is two values, and
    ``dpsgd:clip=2,noise=0.1`` is one.

    Raises:
        InputError: the text is not such a value.
    """
    if one.kind is tuple:
        return tuple(read_item(one, part, where) for part in split_list(text))
    if one.kind is Mapping:
        return read_counts(split_list(text, names=False), where)
    return read_item(one, text, where)


def read_item(one: Declared, text: str, where: str) -> Any:
    """Return one value of a setting, or one item of a list, from its text.

    Raises:
        InputError: the text is not such a value.
    """
    if one.item is bool:
        require(text in ("true", "false"), f"{where} is {text!r}; expected true or false")
        return text == "true"
    if one.item is str:
        return text
    return read_number(text, one.item, where, wanted(one))


def split_list(text: str, *, names: bool = True) -> list[str]:
    """Split at commas; with ``names``, a part ``key=value`` belongs to the name before it.

    >>> split_list("prune:rate=0.9,sign,dpsgd:clip=2,noise=0.1")
    ['prune:rate=0.9', 'sign', 'dpsgd:clip=2,noise=0.1']
    """
    parts: list[str] = []
    for part in text.split(","):
        continues = names and "=" in part and ":" not in part and parts and ":" in parts[-1]
        if continues:
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return [part for part in parts if part]


def read_counts(given: Collection[str], where: str) -> dict[str, int]:
    """``["age=4"]`` as ``{"age": 4}``.

    Raises:
        InputError: a text is not of that form, or names a column twice.
    """
    counts: dict[str, int] = {}
    for text in given:
        name, equals, number = text.rpartition("=")
        require(
            bool(name and equals and is_number(number)),
            f"{where} is {text!r}; expected COL=N, for example age=4",
        )
        require(name not in counts, f"{where} names {name!r} twice; name it once")
        counts[name] = int(number)
    return counts
