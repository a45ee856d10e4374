"""The base class of defense settings, which build a defense."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar

from leakgauge.defenses.defense import Defense


@dataclass(frozen=True)
class DefenseSettings(ABC):
    """Settings of one defense. Subclasses are frozen dataclasses, checked when made.

    Keyword-only fields appear in ``name`` only where they differ from their default.

    Attributes:
        word: the name of the defense, without settings.
    """

    word: ClassVar[str]

    def __post_init__(self) -> None:
        self.build(batch_size=1)

    @property
    def name(self) -> str:
        """The text from which ``parse_defense`` reads these settings.

        >>> from leakgauge.defenses import Prune, Sign
        >>> Prune(rate=0.9).name, Prune(whole=True).name, Sign(layers="first").name
        ('prune:rate=0.9', 'prune:rate=0.99,whole=1', 'sign:layers=first')
        """
        shown = [
            f"{one.name}={_text(getattr(self, one.name))}"
            for one in fields(self)
            if not one.kw_only or getattr(self, one.name) != one.default
        ]
        return f"{self.word}:{','.join(shown)}" if shown else self.word

    @abstractmethod
    def build(self, *, batch_size: int) -> Defense:
        """Return the defense of a client that trains on batches of ``batch_size`` records."""


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.12g}"
