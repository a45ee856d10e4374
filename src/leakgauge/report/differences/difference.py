"""One difference between two audits, with its verdict."""

from dataclasses import dataclass
from typing import Any

from leakgauge.report.differences.audited import Topic
from leakgauge.report.differences.pairing import FigurePair
from leakgauge.report.facts import plain_interval
from leakgauge.report.grouping import UNDEFENDED
from leakgauge.report.section import Badge
from leakgauge.results.measurements import HEADLINE, Estimate, Measurement
from leakgauge.results.metrics import Metric
from leakgauge.results.scores import smallest_detectable
from leakgauge.results.statistics import difference, no_difference

LESS, MORE = "Leaks less", "Leaks more"
LOWER, HIGHER = "Lower", "Higher"
UNSEEN = "No difference seen"
SAME = "Same run"
INVALID = "Below chance: not valid"

BADGES = {
    LESS: Badge("none", LESS),
    MORE: Badge("strong", MORE),
    LOWER: Badge("weak", LOWER),
    HIGHER: Badge("weak", HIGHER),
    UNSEEN: Badge("inconclusive", UNSEEN),
    SAME: Badge("inconclusive", SAME),
    INVALID: Badge("below", INVALID),
}
"""The badge of each verdict."""


@dataclass(frozen=True)
class AuditDifference:
    """The difference of one figure: after minus before.

    Attributes:
        topic: topic of the figure, as named in the second audit.
        metric: metric of the figure.
        before: the first audit's figure.
        after: the second audit's.
        estimate: the difference with its interval.
        main: whether the answer stands on it.
        control: whether it compares undefended trainings while the answer is about defenses.
        same: whether both audits made the figure by the same settings from the same data.
    """

    topic: Topic
    metric: Metric
    before: Measurement
    after: Measurement
    estimate: Estimate
    main: bool = False
    control: bool = False
    same: bool = False

    @property
    def verdict(self) -> str:
        """What the interval shows, in a few words."""
        if self.same:
            return SAME
        if _below_chance(self.before, self.metric) or _below_chance(self.after, self.metric):
            return INVALID
        if self.estimate.low <= 0 <= self.estimate.high:
            return UNSEEN
        up = self.estimate.low > 0
        if self.metric.of_model:
            return HIGHER if up else LOWER
        return MORE if up == self.metric.higher_is_worse else LESS

    @property
    def badge(self) -> Badge:
        """The verdict with its colour."""
        return BADGES[self.verdict]

    @property
    def smallest(self) -> float | None:
        """The smallest true difference that would have been seen in 4 of 5 repeats.

        None where both figures are of the same run.
        """
        return None if self.same else smallest_detectable(self.estimate, 0.0)

    @property
    def defenses(self) -> str:
        """The defenses before and after, in a few words."""
        one, other = (
            "no defense" if name == UNDEFENDED else name
            for name in (self.before.defense, self.after.defense)
        )
        if one == other:
            return "without a defense" if self.after.defense == UNDEFENDED else f"under {one}"
        return f"{one} \N{RIGHTWARDS ARROW} {other}"

    @property
    def knowledge(self) -> str:
        """What the adversary knows of a defense; empty without one, and for the model."""
        defended = {self.before.defense, self.after.defense} != {UNDEFENDED}
        known = self.before if self.after.defense == UNDEFENDED else self.after
        return known.knowledge if defended and not self.metric.of_model else ""

    @property
    def who(self) -> str:
        """The adversary, with both names where shadow data chose different ones."""
        names = dict.fromkeys((self.before.adversary, self.after.adversary))
        return " \N{RIGHTWARDS ARROW} ".join(names)

    @property
    def title(self) -> str:
        """The test in a few words: topic, adversary and defenses."""
        parts = (self.topic.title, self.who, self.defenses, self.knowledge)
        return ", ".join(part for part in parts if part)

    @property
    def round(self) -> str:
        """The rounds of the figures; both if they differ."""
        if self.metric.of_model:
            return ""
        words = {HEADLINE: "chosen by shadow data"}
        each = (words.get(str(one.round), str(one.round)) for one in (self.before, self.after))
        return " \N{RIGHTWARDS ARROW} ".join(dict.fromkeys(each))

    def to_json(self) -> dict[str, Any]:
        """Return the difference as plain values."""
        return {
            "question": self.topic.question,
            "ask": self.topic.game,
            "secret": self.topic.secret,
            "metric": self.after.metric,
            "main": self.main,
            "control": self.control,
            "before": _plain(self.before),
            "after": _plain(self.after),
            "difference": {
                **plain_interval(self.estimate),
                "n": self.estimate.n,
                "confidence": self.estimate.confidence,
            },
            "verdict": self.verdict,
            "smallest_detectable": self.smallest,
        }


def difference_of(topic: Topic, pair: FigurePair, *, control: bool, same: bool) -> AuditDifference:
    """Return the difference of a pair of figures of a topic.

    Raises:
        InputError: their intervals differ in confidence.
    """
    before, after = pair.estimates
    found = no_difference(after) if same else difference(before, after)
    return AuditDifference(
        topic, pair.metric, pair.before, pair.after, found, pair.main, control, same
    )


def _below_chance(one: Measurement, metric: Metric) -> bool:
    """Return whether an adversary does worse than guessing, so that its figure is invalid."""
    has_chance = metric.chance is not None and metric.higher_is_worse and not metric.of_model
    return has_chance and one.estimate.high < one.chance


def _plain(one: Measurement) -> dict[str, Any]:
    return {
        "defense": one.defense,
        "knowledge": one.knowledge,
        "adversary": one.adversary,
        "round": one.round,
        "seed": one.seed,
        **plain_interval(one.estimate),
        "n": one.estimate.n,
    }
