"""What users may write as ``NAME[:key=value,...]``: for completion, the schema and its page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NEEDED = "needed"
"""Stands for the default of a key that has none."""


@dataclass(frozen=True)
class Key:
    """A key behind a name.

    Attributes:
        kind: float, int, bool or str.
        default: its default value; ``NEEDED`` where it must be given.
    """

    kind: type
    default: Any


@dataclass(frozen=True)
class Notation:
    """The names that a setting takes, and the keys behind each.

    Attributes:
        names: returns the names; quick, loads no torch.
        keys: returns the keys of a name; may load torch.
        own: whether ``MODULE:NAME[:key=value,...]`` is allowed too.
    """

    names: Callable[[], Sequence[str]]
    keys: Callable[[str], Mapping[str, Key]]
    own: bool = False
