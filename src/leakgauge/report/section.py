"""The parts of a report that a question gives: summary rows, a section, charts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from markupsafe import Markup

from leakgauge.report.wording import interval, number
from leakgauge.results.measurements import Estimate

if TYPE_CHECKING:
    from torch import Tensor

Level = Literal["strong", "clear", "weak", "inconclusive", "none", "below", "unknown"]
"""Amount of leakage, which colours a badge; ``inconclusive`` may hide some, ``below`` is invalid,
``unknown`` has no verdict."""

LEVELS: Mapping[str, int] = {
    "strong": 6, "clear": 5, "weak": 4, "inconclusive": 3, "unknown": 2, "below": 1, "none": 0,
}  # fmt: skip
"""The urgency of each level."""


@dataclass(frozen=True)
class Badge:
    """A verdict in a few words.

    Attributes:
        level: the amount of leakage.
        words: the verdict.
        strength: strength of the leak, from 0 (none) to 1 (full); orders the badges of one level.
        broken: whether a stated promise does not hold; it fails a build.
    """

    level: Level
    words: str
    strength: float = 0.0
    broken: bool = False


@dataclass(frozen=True)
class Standing:
    """The place of a figure among reference audits.

    Attributes:
        above: number of reference audits with a smaller figure.
        equal: number with the same figure, to three decimals.
        low: number with a figure below the lower end of the interval.
        high: number with a figure below the upper end.
        of: number of reference audits.
    """

    above: int
    equal: int
    low: int
    high: int
    of: int

    @property
    def words(self) -> str:
        """The place in a few words."""
        which = f"of {self.of} reference audits of tables"
        ends = f" ({self.low} to {self.high} over its interval)" if self.low < self.high else ""
        if not self.equal:
            return f"higher than in {self.above or 'none'} {which}{ends}"
        same = "all" if self.equal == self.of else str(self.equal)
        if not self.above:
            return f"the same as in {same} {which}"
        return f"higher than in {self.above} {which}, and the same as in {same}{ends}"


@dataclass(frozen=True)
class Cause:
    """A known cause of leakage that a run shows.

    Attributes:
        name: its name.
        words: the cause in a few words, with its figures.
        shared: number of reference audits that show it, too.
    """

    name: str
    words: str
    shared: int = 0


@dataclass(frozen=True)
class Row:
    """One line of the report's summary.

    Attributes:
        ask: the word of ``--ask``.
        verdict: the verdict in a few words.
        level: its level.
        text: the result in one or two sentences, for non-specialist readers.
        metric: title of the headline figure; empty without one.
        estimate: the headline figure.
        chance: its value where nothing leaks; None if unknown.
        strength: strength of the leak, from 0 (none) to 1 (full); orders the rows of one level.
        test: the test in a few words, if the question has several.
        secret: name of the secret; empty if the question has no such column.
        broken: whether a stated promise does not hold; it fails a build.
        open_end: whether the interval has no upper end; ``estimate.high`` is a stand-in then.
        remedy: what helps where the answer is inconclusive, in a sentence; empty if unknown.
        beyond: headline figure less that of the strongest baseline without gradients; None without
            such a baseline.
        standing: its place among reference audits; None without enough of them.
        causes: its known causes.
    """

    ask: str
    verdict: str
    level: Level
    text: str
    metric: str = ""
    estimate: Estimate | None = None
    chance: float | None = None
    strength: float = 0.0
    test: str = ""
    secret: str = ""
    broken: bool = False
    open_end: bool = False
    remedy: str = ""
    beyond: Estimate | None = None
    standing: Standing | None = None
    causes: Sequence[Cause] = ()

    @property
    def context(self) -> str:
        """The place and the known causes in one or two sentences; empty without both."""
        place = f"The figure is {self.standing.words}." if self.standing else ""
        several = "s" if len(self.causes) > 1 else ""
        known = "; ".join(self._told(one) for one in self.causes)
        return " ".join(filter(None, [place, f"Known cause{several}: {known}." if known else ""]))

    def _told(self, cause: Cause) -> str:
        if self.standing is None:
            return cause.words
        shared = f"{cause.shared} of them" if cause.shared else "none of them"
        return f"{cause.words}, as in {shared}"

    @property
    def interval(self) -> str:
        """The interval of the headline figure as text; empty without one."""
        if self.estimate is None:
            return ""
        return f"{number(self.estimate.low)} or more" if self.open_end else interval(self.estimate)

    @property
    def figure(self) -> str:
        """The headline figure with its interval, as text; empty without one."""
        one = self.estimate
        return f"{self.metric} {number(one.value)}, {self.interval}" if one else ""


def asked_about(row: Row, rows: Sequence[Row]) -> str:
    """Return the word that a row answers, with its secret if the rows have several."""
    several = len({one.secret for one in rows if one.secret}) > 1
    return f"{row.ask} of {row.secret}" if several and row.secret else row.ask


@dataclass(frozen=True)
class DefenseEffect:
    """The effect of a section's best defense against an adversary that knows it.

    Attributes:
        defense: its name.
        text: the leakage without and with it and its cost, in one sentence.
    """

    defense: str
    text: str


@dataclass(frozen=True)
class Line:
    """One paragraph of the terminal's answer.

    Attributes:
        text: plain text.
        level: colours the first line.
        heading: a line above the text; empty for none.
        detail: dimmed text behind the heading.
    """

    text: str
    level: Level | None = None
    heading: str = ""
    detail: str = ""


@dataclass(frozen=True)
class Section:
    """A question's part of the report.

    Attributes:
        name: the question's name: anchor of the section and prefix of the anchors inside.
        title: its heading.
        html: its content, without the heading.
        rows: its lines in the summary.
        tests: one row per test, the worst first; empty if the summary has all.
        lines: the answer for the terminal at full length.
        missing: requested parts that were not completed, one sentence each.
        warnings: what changes the meaning of the figures, each with advice.
        effect: effect of the best defense; None without defenses.
        untried: the next step after a leak without any defense; empty for none.
        next_command: the command that improves this answer; empty for none.
        caveat: what the interval of the headline leaves out, in one sentence; empty for nothing.
        nav: anchors inside and their titles.
        style: CSS of this section.
        private: whether it shows private records.
        pictures: images of the section, uint8 ``[n, c, h, w]``, by title.
    """

    name: str
    title: str
    html: Markup
    rows: Sequence[Row]
    tests: Sequence[Row] = ()
    lines: Sequence[Line] = ()
    missing: Sequence[str] = ()
    warnings: Sequence[str] = ()
    effect: DefenseEffect | None = None
    untried: str = "No defense was tried. Name one with `--defense` to see what it is worth."
    next_command: str = ""
    caveat: str = ""
    nav: Sequence[tuple[str, str]] = ()
    style: str = ""
    private: bool = False
    pictures: "Mapping[str, Tensor]" = field(default_factory=dict, compare=False)


ONE_TRAINING = "One training: another --seed shows how far others differ."
"""What an interval leaves out where a question has no setting for several seeds."""


@dataclass(frozen=True)
class Chart:
    """A chart of a grid's page.

    Attributes:
        caption: text above it.
        says: the chart in words, for screen readers.
        svg: the chart; None without data.
        legend: HTML below it.
        note: a sentence below it.
        names: meanings of its numbers 1, 2, ...
    """

    caption: str
    says: str
    svg: Markup | None
    legend: Markup = Markup("")  # noqa: RUF009 - immutable
    note: str = ""
    names: Sequence[str] = ()
