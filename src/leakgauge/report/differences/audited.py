"""The figures and settings of an audit, for a comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from leakgauge.report.grouping import UNDEFENDED
from leakgauge.results.measurements import Measurement


@dataclass(frozen=True)
class Topic:
    """A question, its game, and the secret.

    Attributes:
        question: its name.
        game: the word of ``--ask``, or the question's name of its game.
        secret: name of the secret.
    """

    question: str
    game: str
    secret: str

    @property
    def title(self) -> str:
        """The topic in a few words.

        >>> Topic("game", "colour", "sex").title, Topic("game", "sex", "sex").title
        ('colour of sex', 'game of sex')
        """
        name = self.question if self.game in ("", self.secret) else self.game
        return f"{name} of {self.secret}" if self.secret else name


@dataclass(frozen=True)
class Audited:
    """One of two finished audits.

    Attributes:
        name: name of its folder.
        answers: the measurements by the key of their answer: a question's name, with a number
            behind if it was asked several times.
        settings: settings of each answer, by the same keys.
        identities: the sha256 of all that each answer depends on, by the same keys.
        data: name and fingerprint.
        versions: versions of the packages.
        repeat: the command that repeats it.
        missing: requested parts that were not completed, with the reasons.
    """

    name: str
    answers: Mapping[str, Sequence[Measurement]]
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    identities: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    repeat: str = ""
    missing: Sequence[str] = ()

    @cached_property
    def topics(self) -> dict[Topic, "TopicFigures"]:
        """The figures by topic, in the order of the measurements."""
        found: dict[Topic, tuple[str, list[Measurement]]] = {}
        for key, measured in self.answers.items():
            for one in measured:
                topic = Topic(one.question, one.game, one.secret)
                found.setdefault(topic, (key, []))[1].append(one)
        return {topic: TopicFigures(self, *each) for topic, each in found.items()}

    @property
    def defenses(self) -> list[str]:
        """The names of all defenses, in the order of the measurements."""
        each = (one.defense for measured in self.answers.values() for one in measured)
        return list(dict.fromkeys(each))


@dataclass(frozen=True)
class TopicFigures:
    """The figures of one topic of one audit.

    Attributes:
        audit: the audit.
        key: key of the answer.
        measurements: all figures of the topic.
    """

    audit: Audited
    key: str
    measurements: Sequence[Measurement]

    @property
    def identity(self) -> str | None:
        """The sha256 of all that the figures depend on; None if unknown."""
        return self.audit.identities.get(self.key)

    @property
    def defenses(self) -> list[str]:
        """The defenses, in the order of the measurements."""
        return list(dict.fromkeys(one.defense for one in self.measurements))

    @property
    def defended(self) -> list[str]:
        """The defenses without the undefended training."""
        return [name for name in self.defenses if name != UNDEFENDED]

    def under(self, defense: str) -> list[Measurement]:
        """Return the figures under a defense."""
        return [one for one in self.measurements if one.defense == defense]
