"""Read YAML and JSON that come from outside, within bounds of size, depth, digits and aliases."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from leakgauge.core.checks import InputError, require
from leakgauge.core.numbers import DIGITS, is_number

LARGEST_FILE = 200_000
"""Largest size of a file that a user writes, in bytes; the parser needs seconds for it."""

DEPTH = 50
"""Largest number of lists and mappings inside each other."""

VALUES = 2_000_000
"""Largest number of values, where each use of an alias counts as a copy."""

_SPECIAL = re.compile(r"[-+]?\.(inf|nan)", re.IGNORECASE)
_NUMBERS = {"tag:yaml.org,2002:int": int, "tag:yaml.org,2002:float": float}
_DATE = "tag:yaml.org,2002:timestamp"


class _Strict(yaml.SafeLoader):
    """YAML without repeated keys, of which PyYAML would silently take the last.

    It holds text that can be written: no half of a character (``"\\ud800"``).
    """

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Refuse values inside too many others, before the rest is read."""
        self.depth += 1
        require(self.depth <= DEPTH, f"nests too deeply, in more than {DEPTH} levels")
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that stands twice."""
        seen = set()
        for key in (str(key.value) for key, _ in node.value):
            if key in seen:
                raise ConstructorError(None, None, f"key {key!r} stands twice", node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        """Refuse text that is not UTF-8, and numbers in other notations than that of people."""
        value = super().construct_scalar(node)
        try:  # JSON, which YAML contains, writes some characters as two halves
            value = str(value).encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError as error:
            reason = f"{value!r} is no text"
            raise ConstructorError(None, None, reason, node.start_mark) from error
        kind = _NUMBERS.get(node.tag)
        if kind is not None and not (is_number(str(value), kind) or _SPECIAL.fullmatch(str(value))):
            raise ValueError(f"{str(value)[:40]!r} is not a number of at most {DIGITS} digits")
        if kind is int and re.fullmatch("[-+]?0[0-9]+", str(value)):  # YAML takes it for octal
            raise ValueError(f"{value!r} begins with 0")
        return value


class _Texts(_Strict):
    """The same with numbers and dates as the texts that a user wrote: 1.10 is not 1.1."""


for _tag in (*_NUMBERS, _DATE):
    _Texts.add_constructor(_tag, lambda loader, node: node.value)


def parse_yaml(text: str | bytes, *, texts: bool = False) -> Any:
    """Return what YAML holds.

    Args:
        text: the content of a file.
        texts: whether numbers and dates stay texts.

    Raises:
        InputError: with the reason alone, such as ``"is not YAML: ..."``: it is not YAML, nests too
            deeply, has too many values, or a value that cannot be read.

    >>> parse_yaml("a: 1.10"), parse_yaml("a: 1.10", texts=True)
    ({'a': 1.1}, {'a': '1.10'})
    """
    try:
        loader = (_Texts if texts else _Strict)(text)
        node = loader.get_single_node()
        if node is None:
            return None
        require(_size(node, {}, 1) <= VALUES, f"has more than {VALUES:,} values, by its aliases")
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise InputError(f"is not YAML: {' '.join(str(error).split())}") from error
    except InputError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise _unreadable(error) from error


def parse_json(text: str | bytes) -> Any:
    """Return what JSON holds; ``NaN`` is a number, as Python and pandas write it.

    Raises:
        InputError: with the reason alone: it is not JSON, nests too deeply, or has a value that
            cannot be read.

    >>> parse_json('{"a": [1]}')
    {'a': [1]}
    """
    try:
        found = json.loads(text)
        _check(found, 1)
    except InputError:
        raise
    except json.JSONDecodeError as error:
        raise InputError(f"is not JSON: {error}") from error
    except RecursionError as error:
        raise InputError("nests too deeply") from error
    except ValueError as error:
        raise _unreadable(error) from error
    return found


def read_written(path: Path, expected: str, *, texts: bool = False) -> Any:
    """Return what a YAML file of a user holds.

    Args:
        path: the file.
        expected: what the file is, for refusals.
        texts: whether numbers and dates stay texts.

    Raises:
        InputError: with the reason alone, as ``parse_yaml``; the file is missing or too large.
    """
    return parse_yaml(written_text(path, expected), texts=texts)


def written_text(path: Path, expected: str) -> str:
    """Return the text of a file of a user, of at most ``LARGEST_FILE`` bytes.

    Raises:
        InputError: with the reason alone: the file is missing, too large or not UTF-8.
    """
    try:
        size = path.stat().st_size
        require(
            size <= LARGEST_FILE,
            f"has {size:,} bytes; expected {expected} of at most {LARGEST_FILE:,}",
        )
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InputError(f"no such file; expected {expected}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read ({error})") from error
    return text


def _unreadable(error: Exception) -> InputError:
    """Return the refusal of a date that does not exist, or of a number of thousands of digits."""
    reason = str(error).partition(";")[0]
    return InputError(f"has a value that cannot be read ({reason}); write it as text")


def _size(node: yaml.Node, known: dict[int, int], depth: int) -> int:
    """Return the number of values below a node, with a copy for each alias."""
    require(depth <= DEPTH, f"nests too deeply, in more than {DEPTH} levels or in itself")
    if id(node) not in known or isinstance(node, yaml.ScalarNode):
        children = node.value if isinstance(node, yaml.CollectionNode) else ()
        parts = [part for one in children for part in (one if isinstance(one, tuple) else (one,))]
        known[id(node)] = 1 + sum(_size(part, known, depth + 1) for part in parts)
    return known[id(node)]


def _check(value: Any, depth: int) -> None:
    """Refuse values inside too many others, and text that cannot be written."""
    require(depth <= DEPTH, f"nests too deeply, in more than {DEPTH} levels")
    if isinstance(value, str):
        require(_is_text(value), f"has {value[:40]!r}, which is no text")
    elif isinstance(value, list | Mapping):
        for part in [*value, *(value.values() if isinstance(value, Mapping) else ())]:
            _check(part, depth + 1)


def _is_text(value: str) -> bool:
    return value.encode("utf-8", "replace").decode() == value
