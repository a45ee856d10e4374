"""Pairs the figures of two audits for a comparison."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.report.differences.audited import Topic, TopicFigures
from leakgauge.report.grouping import UNDEFENDED, group_tests
from leakgauge.results.measurements import HEADLINE, SECONDS, Estimate, Measurement
from leakgauge.results.metrics import Metric, metric_named
from leakgauge.results.scores import ADVANTAGE, SUCCESS
from leakgauge.results.statistics import has_interval

Metrics = Mapping[str, Metric]


@dataclass(frozen=True)
class FigurePair:
    """The same figure of both audits.

    Attributes:
        before: figure of the first audit.
        after: figure of the second.
        metric: metric of both.
        main: whether the answer stands on the pair.
        widened: both estimates for the difference, where an interval was cut to nothing; None for
            those of the figures.
    """

    before: Measurement
    after: Measurement
    metric: Metric
    main: bool
    widened: tuple[Estimate, Estimate] | None = None

    @property
    def estimates(self) -> tuple[Estimate, Estimate]:
        """The estimates that make the difference, before and after."""
        return self.widened or (self.before.estimate, self.after.estimate)

    @property
    def has_intervals(self) -> bool:
        """Whether both figures have an interval, so that they can be compared."""
        return all(has_interval(one) for one in self.estimates)

    def uncut(self, before: Sequence[Measurement], after: Sequence[Measurement]) -> "FigurePair":
        """Return the pair with the intervals of advantages that were cut to nothing at 0.

        An advantage is never below 0, so that of an adversary below guessing has the interval 0
        to 0. The success rate behind it says how wide the test is.

        Args:
            before: all figures of the first audit under the same defense.
            after: those of the second.
        """
        if self.before.metric != ADVANTAGE:
            return self
        sides = (self.before, before), (self.after, after)
        return replace(self, widened=(_uncut(*sides[0]), _uncut(*sides[1])))


def _uncut(one: Measurement, side: Sequence[Measurement]) -> Estimate:
    found = one.estimate
    same = (one.knowledge, *_key(one)[::2])
    success = next(
        (each for each in side
         if each.metric == SUCCESS and (each.knowledge, *_key(each)[::2]) == same),
        None,
    )  # fmt: skip
    if success is None or has_interval(found) or success.chance >= 1:
        return found
    width = (success.estimate.high - success.estimate.value) / (1 - success.chance)
    return replace(found, high=found.value + width)


def paired_topics(
    before: Mapping[Topic, TopicFigures], after: Mapping[Topic, TopicFigures]
) -> list[tuple[Topic, Topic]]:
    """Return the topics of both audits in pairs.

    A question with another secret is paired with itself if both audits have a single secret.
    """
    same = [(topic, topic) for topic in after if topic in before]
    left = [topic for topic in before if topic not in after]
    new = [topic for topic in after if topic not in before]
    alike = [
        (one, other)
        for one, other in product(left, new)
        if _kind(one) == _kind(other)
        and sum(_kind(each) == _kind(one) for each in left) == 1
        and sum(_kind(each) == _kind(one) for each in new) == 1
    ]
    return [*same, *alike]


def _kind(topic: Topic) -> tuple[str, str]:
    return topic.question, "" if topic.game == topic.secret else topic.game


def paired_defenses(
    before: TopicFigures, after: TopicFigures, *, wanted: Sequence[str] = (), against: str = ""
) -> list[tuple[str, str]]:
    """Return the defenses to compare, (before, after), the main ones first.

    A defense is compared with itself where both audits have it, and else with no defense, also
    where the second audit has none at all: the defense was removed. No defense is compared with no
    defense, which shows what else changed.

    Args:
        before: figures of the first audit.
        after: figures of the second.
        wanted: defenses of the second audit; empty for all.
        against: defense of the first audit; empty for the one that fits.
    """
    chosen = [name for name in after.defenses if name in wanted] if wanted else after.defended
    removed = [] if wanted or against or after.defended else before.defended
    pairs = [(name, UNDEFENDED) for name in removed if UNDEFENDED in after.defenses]
    if not pairs:
        names = chosen or after.defenses[:1]
        pairs = [(_counterpart(name, before, against), name) for name in names]
    if UNDEFENDED in before.defenses and UNDEFENDED in after.defenses:
        pairs.append((UNDEFENDED, UNDEFENDED))
    return list(dict.fromkeys((one, other) for one, other in pairs if one))


def _counterpart(name: str, before: TopicFigures, against: str) -> str:
    known = before.defenses
    if against:
        return against if against in known else ""
    if name in known or UNDEFENDED in known:
        return name if name in known else UNDEFENDED
    return known[0] if len(known) == 1 else ""


def attacks(
    before: Sequence[Measurement], after: Sequence[Measurement], metrics: Metrics
) -> tuple[list[FigurePair], list[Measurement]]:
    """Return the adversaries' figures under two defenses in pairs, and those of only one side.

    The answer stands on the headline metric, over all rounds, of the stronger adversary:
    one that knows the defense or one that does not. Where both audits chose an adversary by
    shadow data, it stands on those two.
    """
    sides = [_of_attacks(side, metrics) for side in (before, after)]
    knows = paired_knowledge(*sides)
    known_by = {
        (one, other): (_knowing(sides[0], one), _knowing(sides[1], other)) for one, other in knows
    }
    chiefs = {pair: _chief(one, other, metrics) for pair, (one, other) in known_by.items()}
    chosen = max(
        knows, key=lambda pair: (_leaks(chiefs[pair], metrics), ADAPTIVE in pair), default=None
    )
    pairs: list[FigurePair] = []
    for pair, (one, other) in known_by.items():
        chief = chiefs[pair] if pair == chosen else []
        pairs += [FigurePair(a, b, metric_named(a.metric, metrics), True) for a, b in chief]
        main_pairs = {(id(a), id(b)) for a, b in chief}
        pairs += [
            FigurePair(a, b, metric_named(a.metric, metrics), False)
            for a, b in _matched(one, other)
            if (id(a), id(b)) not in main_pairs
        ]
    met = {id(each) for pair in pairs for each in (pair.before, pair.after)}
    return pairs, [each for side in sides for each in side if id(each) not in met]


def of_model(
    before: Sequence[Measurement], after: Sequence[Measurement], metrics: Metrics
) -> list[FigurePair]:
    """Return the last figures of the trained models in pairs; those in tables are the main ones."""
    one, other = ({each.metric: each for each in side} for side in (before, after))
    found = [(name, metric_named(name, metrics)) for name in one if name in other]
    return [
        FigurePair(one[name], other[name], metric, metric.tabled and not metric.higher_is_worse)
        for name, metric in found
        if metric.of_model
    ]


def paired_knowledge(
    before: Sequence[Measurement], after: Sequence[Measurement]
) -> list[tuple[str, str]]:
    """Return the knowledge of the adversaries in pairs (before, after).

    Without a defense all knowledge is the same, so such an adversary is compared with both.
    """
    one, other = (list(dict.fromkeys(each.knowledge for each in side)) for side in (before, after))
    bare, bared = (all(each.defense == UNDEFENDED for each in side) for side in (before, after))
    if bare == bared:
        return [(each, each) for each in other if each in one]
    return list(product(one, other))


def _of_attacks(side: Sequence[Measurement], metrics: Metrics) -> list[Measurement]:
    return [
        one
        for one in side
        if one.metric != SECONDS and not metric_named(one.metric, metrics).of_model
    ]


def _chief(
    before: Sequence[Measurement], after: Sequence[Measurement], metrics: Metrics
) -> list[tuple[Measurement, Measurement]]:
    """Return the figures that the answer stands on."""
    measured = {one.metric for one in before} & {one.metric for one in after}
    known = [name for name in metrics if name in measured]
    names = [name for name in known if metrics[name].headline] or known[:1]
    led = [(a, b) for a, b in _matched(before, after) if a.round == HEADLINE and a.metric in names]
    return led or list(_wholes(before, after, names))


def _knowing(side: Sequence[Measurement], knowledge: str) -> list[Measurement]:
    return [one for one in side if one.knowledge == knowledge]


def _leaks(chief: Sequence[tuple[Measurement, Measurement]], metrics: Metrics) -> float:
    """Return the largest leakage in both audits together; minus infinity without figures.

    Both count, so that the order of the audits changes the sign of the difference alone.
    """
    signs = {name: 1 if metrics[name].higher_is_worse else -1 for name in metrics}
    return max(
        (signs[b.metric] * (a.estimate.value + b.estimate.value) for a, b in chief),
        default=-math.inf,
    )


def _wholes(
    before: Sequence[Measurement], after: Sequence[Measurement], names: Sequence[str]
) -> Iterator[tuple[Measurement, Measurement]]:
    """Yield the figures over all rounds of each adversary that both audits have."""
    one, other = ({test.adversary: test for test in group_tests(side)} for side in (before, after))
    for who, name in product(one, names):
        if who in other:
            a, b = one[who].whole(name), other[who].whole(name)
            if a is not None and b is not None:
                yield a, b


def _matched(
    before: Sequence[Measurement], after: Sequence[Measurement]
) -> list[tuple[Measurement, Measurement]]:
    """Return the same figures of the same adversaries, and headlines of different adversaries.

    Shadow data choose the adversary of a headline in each audit.
    """
    known = {_key(one): one for one in before}
    pairs = [(known[_key(one)], one) for one in after if _key(one) in known]
    met = {id(one) for pair in pairs for one in pair}
    left, new = (
        [one for one in side if one.round == HEADLINE and id(one) not in met]
        for side in (before, after)
    )
    chosen = [(a, b) for a, b in product(left, new) if a.metric == b.metric]
    return pairs + [(a, b) for a, b in chosen if sum(a.metric == c.metric for c, _ in chosen) == 1]


def _key(one: Measurement) -> tuple[str, str, int | str]:
    """Return what identifies a figure within a test."""
    return one.adversary, one.metric, one.round
