"""A run in the list of a bundle, and its leading figures."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from leakgauge.report.grouping import UNDEFENDED
from leakgauge.report.section import LEVELS, Level
from leakgauge.report.wording import interval, number
from leakgauge.results.measurements import Estimate

LEVEL_WORDS: Mapping[Level, str] = {
    "strong": "Strong",
    "clear": "Clear",
    "weak": "Weak",
    "inconclusive": "Inconclusive",
    "none": "None found",
    "below": "Not valid",
    "unknown": "No verdict",
}
"""Words of the filter for each level of a verdict."""


@dataclass(frozen=True, kw_only=True)
class RunFigure:
    """A leading figure of a run, with its verdict.

    Attributes:
        data: name of the data.
        fingerprint: sha256 of the data; empty if unknown.
        ask: the word of ``--ask``.
        secret: name of the secret; empty if the question has none.
        defense: name of the defense.
        adversary: name of the adversary.
        metric: label of the metric.
        estimate: the figure with its interval.
        chance: its value where nothing leaks.
        verdict: the verdict in a few words.
        level: level of the verdict.
        higher_is_worse: whether a higher value means more leakage.
        open_end: whether the interval has no upper end; ``estimate.high`` is a stand-in then.
        where: settings that distinguish the cell of a grid, in words; empty in an audit.
    """

    data: str
    ask: str
    secret: str
    defense: str
    adversary: str
    metric: str
    estimate: Estimate
    chance: float
    verdict: str
    level: Level
    fingerprint: str = ""
    higher_is_worse: bool = True
    open_end: bool = False
    where: str = ""

    @property
    def topic(self) -> str:
        """The question and the secret in a few words."""
        return f"{self.ask} of {self.secret}" if self.secret else self.ask

    @property
    def under(self) -> str:
        """The defense in a few words."""
        return "no defense" if self.defense == UNDEFENDED else self.defense

    @property
    def title(self) -> str:
        """The topic, the defense and the settings of a grid's cell in a few words."""
        defended = "" if self.defense == UNDEFENDED else self.defense
        return ", ".join(part for part in (self.topic, defended, self.where) if part)

    @property
    def interval(self) -> str:
        """The interval as text."""
        one = self.estimate
        return f"{number(one.low)} or more" if self.open_end else interval(one)

    @property
    def urgency(self) -> tuple[int, float]:
        """A key that orders points by their leakage, the strongest last."""
        value = self.estimate.value
        return LEVELS[self.level], value if self.higher_is_worse else -value


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A run in the list.

    Attributes:
        name: label that no other run of the page has.
        command: the command that made it.
        when: when it was finished, in UTC.
        points: its leading figures.
        recorded: whether the run says when it was finished; else ``when`` is its files' date.
        apart: why it is not compared with others, in a sentence; empty where it is.
        href: address of its report, relative to the page; empty without one.
        private: whether its report shows private records.
        notes: what limits its meaning, such as questions that are not finished.
    """

    name: str
    command: str
    when: datetime
    points: Sequence[RunFigure]
    recorded: bool = True
    apart: str = ""
    href: str = ""
    private: bool = False
    notes: Sequence[str] = ()

    @property
    def data(self) -> list[str]:
        """The names of its data, each once."""
        return list(dict.fromkeys(one.data for one in self.points))

    @property
    def defenses(self) -> list[str]:
        """The defenses that it tried, each once."""
        names = dict.fromkeys(one.defense for one in self.points)
        return [name for name in names if name != UNDEFENDED]

    @property
    def top(self) -> list[RunFigure]:
        """The strongest figure of each topic, the strongest first."""
        return sorted(strongest(self.points).values(), key=lambda one: one.urgency, reverse=True)


def strongest(points: Iterable[RunFigure]) -> dict[str, RunFigure]:
    """Return the figure that leaks most of each topic, by topic."""
    found: dict[str, RunFigure] = {}
    for one in points:
        known = found.get(one.topic)
        if known is None or one.urgency > known.urgency:
            found[one.topic] = one
    return found
