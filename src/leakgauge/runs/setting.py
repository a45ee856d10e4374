"""One setting: what users read of it, which values it takes, and where help lists it."""

from dataclasses import dataclass, field
from typing import Any

from leakgauge.core.checks import LARGEST
from leakgauge.core.numbers import MOST
from leakgauge.core.parsing import Notation

ASKING, DATA, TRAINING = "What to ask", "Data", "Model and training"
ATTACK, DEFENSE, RUN = "Attack", "Defense", "Run"
SETTING = "setting"
"""The key of a field's ``Setting`` in its metadata."""

PANELS = (ASKING, DATA, TRAINING, ATTACK, DEFENSE, RUN)
"""The parts in which help lists the settings, in their order."""


@dataclass(frozen=True)
class Setting:
    """What users read of a setting, and which values it takes.

    Attributes:
        help: one line for the command line, without the default.
        least: the smallest value that is allowed; None for no limit.
        above: a value that it must exceed; None for no limit.
        most: the largest value that is allowed; None for ``MOST`` of a whole number, and for
            ``LARGEST`` of another.
        choices: the only texts that are allowed; None for any.
        cells: for a tuple: whether each value of a list in a grid is a cell; otherwise a list is
            one value.
        adds: for a tuple: whether given values are added to the default; otherwise they replace it.
        option: whether commands have an option for it.
        once: whether an option that is given twice is refused; otherwise the last one counts.
        each: whether the question is asked once for each of several given values.
        panel: the part of the help that lists it.
        notation: notation of ``NAME[:key=value,...]``; None for any other text.
    """

    help: str
    least: float | None = None
    above: float | None = None
    most: float | None = None
    choices: tuple[str, ...] | None = None
    cells: bool = False
    adds: bool = False
    option: bool = True
    once: bool = False
    each: bool = False
    panel: str = RUN
    notation: Notation | None = None

    @property
    def offered(self) -> tuple[str, ...]:
        """The texts that the shell's completion offers."""
        named = tuple(self.notation.names()) if self.notation else ()
        return (*(self.choices or ()), *named)


def setting(default: Any, help: str, panel: str = RUN, **more: Any) -> Any:  # noqa: A002
    """Return a field of a ``Spec`` with its ``Setting``; ``more`` is passed to ``Setting``."""
    about = {SETTING: Setting(help, panel=panel, **more)}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=about)
    return field(default=default, metadata=about)


@dataclass(frozen=True)
class Declared:
    """One field of a ``Spec``.

    Attributes:
        name: name of the field, which is also the key in a grid.
        kind: its type without the metadata, ``None`` and numeric refinements: ``int``, ``float``,
            ``bool``, ``str``, ``tuple`` or ``Mapping``.
        default: its default value.
        setting: what users read of it.
        item: the type of the items of a tuple, else ``kind``.
    """

    name: str
    kind: type
    default: Any
    setting: Setting
    item: type

    @property
    def most(self) -> float:
        """The largest number that it may have."""
        general = MOST if self.item is int else LARGEST
        return general if self.setting.most is None else self.setting.most

    @property
    def flag(self) -> str:
        """The option of the command line."""
        return f"--{self.name.replace('_', '-')}"


def in_digits(limit: float) -> str:
    """Return a bound as users read it.

    >>> in_digits(10_000_000), in_digits(0.5), in_digits(1e-30)
    ('10,000,000', '0.5', '1e-30')
    """
    return f"{limit:,}" if isinstance(limit, int) else f"{limit:g}"


def wanted(one: Declared) -> str:
    """Return the numbers that a setting may take, in words."""
    limits = [
        words.format(in_digits(limit))
        for words, limit in (
            ("above {}", one.setting.above),
            ("of {} or more", one.setting.least),
            ("of at most {}", one.setting.most),
        )
        if limit is not None
    ]
    number = "a whole number" if one.item is int else "a number"
    return f"{number} {' and '.join(limits)}".strip()
