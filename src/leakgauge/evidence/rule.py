"""Rules that fail a build: ``[QUESTION-OR-ASK.]METRIC[.SIDE][.END] OP NUMBER``.

A side (``difference``, ``before`` or ``after``) makes a rule about two runs; an end is ``high``,
``low`` or ``value``.
"""

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from leakgauge.core.checks import InputError, nearest, require
from leakgauge.core.numbers import is_number
from leakgauge.results.metrics import Metric
from leakgauge.runs.question import Question, question_of

OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
HIGH, LOW, VALUE = "high", "low", "value"
ENDS = {HIGH: "the upper end", LOW: "the lower end", VALUE: "the value"}
"""The parts of a figure that a rule may compare, in words."""
DIFFERENCE, BEFORE, AFTER = "difference", "before", "after"
SIDES = {DIFFERENCE: "after minus before", BEFORE: "the reference", AFTER: "the new run"}
"""What a rule about two runs compares with its number, in words."""

_AFTER_METRIC = (*ENDS, *SIDES)

EXAMPLE = "advantage.high > 0.05"
BETWEEN = "advantage.difference.low > 0.02"
"""Examples of rules: on a run, and on the difference of two."""

OPPOSITE = {">": "<=", ">=": "<", "<": ">=", "<=": ">"}
_FORMS = "[QUESTION.]METRIC[.difference|.before|.after][.high|.low|.value]"
_FORM = re.compile(r"(?P<target>[^<>=!]+)(?P<operator>[<>=!]+)(?P<number>[^<>=!]+)")


@dataclass(frozen=True)
class FailRule:
    """A condition under which a build fails.

    Attributes:
        text: as the user wrote it.
        owner: name of a question, or a word of ``--ask``; empty for every question that measures
            the metric.
        metric: name of the metric.
        end: ``"high"``, ``"low"`` or ``"value"``; empty for the pessimistic end.
        operator: ``">"``, ``">="``, ``"<"`` or ``"<="``.
        threshold: a finite number.
        side: ``"difference"``, ``"before"`` or ``"after"`` of two runs; empty for a single run.
        required: whether the text says what must hold, not when to fail.
    """

    text: str
    owner: str
    metric: str
    end: str
    operator: str
    threshold: float
    side: str = ""
    required: bool = False

    def holds(self, value: float) -> bool:
        """Return whether a value trips the rule.

        >>> parse_rule("advantage > 0.05").holds(0.06)
        True
        """
        return OPERATORS[self.operator](value, self.threshold)

    @property
    def upward(self) -> bool:
        """Whether large values trip the rule."""
        return self.operator.startswith(">")

    @property
    def compared(self) -> str:
        """The end of the interval that is compared: where the rule names none, the worse one."""
        return self.end or (HIGH if self.upward else LOW)

    @property
    def where(self) -> str:
        """The place and text of the rule, for messages."""
        return f"{'require' if self.required else '--fail-if'} is {self.text!r}"

    @property
    def figure(self) -> str:
        """The metric with the side of two runs, as users write it."""
        return f"{self.metric}.{self.side}" if self.side else self.metric

    @property
    def of_one_run(self) -> "FailRule":
        """The same rule without its side."""
        return replace(self, side="")

    def reach(self, metric: Metric) -> tuple[float, float]:
        """Return the smallest and the largest value that the rule's figure can have."""
        if self.side == DIFFERENCE:
            return metric.low - metric.high, metric.high - metric.low
        return metric.bounds

    def guards(self, metric: Metric) -> bool:
        """Return whether the rule trips in the direction in which the metric is worse."""
        return self.upward == metric.higher_is_worse

    def asks_about(self, question: Question) -> bool:
        """Return whether the rule names a question, a word of its ``--ask``, or its metric."""
        if not self.owner:
            return self.metric in question.metrics
        return is_called(question, self.owner) or self.owner in question.asks


def is_called(question: Question, name: str) -> bool:
    """Return whether a question has a name, with or without the number of a further secret."""
    first, _, number = question.name.rpartition("-")
    return question.name == name or (first == name and number.isdigit())


def parse_rule(text: str, *, required: bool = False) -> FailRule:
    """Return the rule that a text states.

    Args:
        text: as the user wrote it.
        required: whether it says what must hold; the rule then trips where that does not hold.

    Raises:
        InputError: it has another form, or its number cannot be read.

    >>> rule = parse_rule("property.advantage.high > 0.05")
    >>> rule.owner, rule.metric, rule.compared, rule.operator, rule.threshold
    ('property', 'advantage', 'high', '>', 0.05)
    >>> parse_rule("psnr >= 20").compared
    'high'
    >>> parse_rule("advantage.difference.low > 0.02").figure
    'advantage.difference'
    >>> parse_rule("advantage <= 0.05", required=True).operator
    '>'
    """
    where = f"{'require' if required else '--fail-if'} is {text!r}"
    example = EXAMPLE.replace(">", "<=") if required else EXAMPLE
    match = _FORM.fullmatch(text)
    if match is None:
        raise InputError(f"{where}; expected METRIC OP NUMBER, for example {example!r}")
    sign, number = match["operator"], match["number"].strip()
    require(sign in OPERATORS, f"{where}: {sign!r} is not a comparison; known: >, >=, <, <=")
    owner, metric, side, end = _target(match["target"].strip(), where)
    require(
        is_number(number, float),
        f"{where}: {number[:40]!r} is not a number or not finite; write one such as 0.05",
    )
    trips = OPPOSITE[sign] if required else sign
    return FailRule(text.strip(), owner, metric, end, trips, float(number), side, required)


def _target(text: str, where: str) -> tuple[str, str, str, str]:
    """Return question or word, metric, side and end of the figure that a rule names."""
    parts = text.split(".")
    end = parts.pop() if len(parts) > 1 and parts[-1] in ENDS else ""
    side = parts.pop() if len(parts) > 1 and parts[-1] in SIDES else ""
    require(
        all(re.fullmatch(r"[\w-]+", part) for part in parts),
        f"{where}: {text!r} is not a figure; expected {_FORMS}",
    )
    if len(parts) == 3:
        raise InputError(f"{where}: no end {parts[2]!r}{nearest(parts[2], _AFTER_METRIC)}")
    require(len(parts) < 3, f"{where}: {text!r} has too many parts; expected {_FORMS}")
    return (parts[0] if len(parts) == 2 else "", parts[-1], side, end)


def check_rules(
    rules: Iterable[FailRule], asked: Sequence[Question], known: Mapping[str, Question]
) -> None:
    """Refuse rules about figures that a run will not measure.

    Args:
        rules: as parsed.
        asked: the questions of the run.
        known: all questions by name.

    Raises:
        InputError: a rule names an unknown question or metric, one that is not asked, or two runs,
            or trips where little leaks without naming an end.
    """
    for rule in rules:
        require(
            not rule.side,
            f"{rule.where}: {rule.figure} is about two runs; name the other one by audit "
            "--against BASE, by leakgauge compare BASE NEW, or by against= in Python",
        )
        check_rule(rule, asked, known)


def check_rule(rule: FailRule, asked: Sequence[Question], known: Mapping[str, Question]) -> None:
    """Refuse a rule, on one run or on two, about a figure that a run will not measure.

    Raises:
        InputError: as for ``check_rules``.
    """
    where = rule.where
    owners = _owners(rule, asked, known, where)
    metrics = {name: one for question in owners for name, one in question.metrics.items()}
    if rule.metric not in metrics:
        raise InputError(f"{where}: {_no_metric(rule, metrics, known)}")
    metric = metrics[rule.metric]
    lowest, highest = rule.reach(metric)
    require(
        rule.holds(highest if rule.upward else lowest),
        f"{where}: this can never fail, since {rule.figure} lies from {lowest:g} to {highest:g}; "
        "write a number between them",
    )
    if rule.end or rule.guards(metric):
        return
    worse = "higher" if metric.higher_is_worse else "lower"
    meant = {">": "<", ">=": "<=", "<": ">", "<=": ">="}[rule.operator]
    written = OPPOSITE[meant] if rule.required else meant
    raise InputError(
        f"{where}: a {worse} {rule.metric} is worse, so this fails where less leaks; write "
        f"{written!r}, or name the end ({rule.figure}.{rule.compared}) if you mean it"
    )


def _owners(
    rule: FailRule, asked: Sequence[Question], known: Mapping[str, Question], where: str
) -> Sequence[Question]:
    """Return the questions of the run that the rule is about."""
    if not rule.owner:
        return asked
    words = [*known, *(word for one in known.values() for word in one.asks)]
    if rule.owner not in words:
        metrics = {name for one in known.values() for name in one.metrics}
        if rule.owner in metrics and rule.metric not in metrics:
            raise InputError(
                f"{where}: no end {rule.metric!r}{nearest(rule.metric, _AFTER_METRIC)}"
            )
        raise InputError(
            f"{where}: no question {rule.owner!r}{nearest(rule.owner, dict.fromkeys(words))}"
        )
    owner = known.get(rule.owner) or question_of(rule.owner, known)
    assert owner is not None
    mine = [one for one in asked if is_called(one, owner.name)]
    word = rule.owner if rule.owner in owner.asks else next(iter(owner.asks))
    require(bool(mine), f"{where}: {rule.owner} is not asked; add --ask {word}, or leave it out")
    return mine


def _no_metric(rule: FailRule, metrics: Iterable[str], known: Mapping[str, Question]) -> str:
    """Return why the run does not measure the metric of a rule."""
    others = [one for one in known.values() if rule.metric in one.metrics]
    if others and not rule.owner:
        words = " or ".join(f"--ask {next(iter(one.asks))}" for one in others)
        return f"no question of this run measures {rule.metric!r}; add {words}"
    plain = [name for name in metrics if ":" not in name]
    return f"no metric {rule.metric!r}{nearest(rule.metric, plain)}"
