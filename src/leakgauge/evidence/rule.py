"""Rules that fail a build: ``[QUESTION-OR-ASK.]METRIC[.high|.low|.value] OP NUMBER``."""

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

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

EXAMPLE = "advantage.high > 0.05"
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
    """

    text: str
    owner: str
    metric: str
    end: str
    operator: str
    threshold: float

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


def parse_rule(text: str) -> FailRule:
    """Return the rule that a text states.

    Raises:
        InputError: it has another form, or its number cannot be read.

    >>> rule = parse_rule("property.advantage.high > 0.05")
    >>> rule.owner, rule.metric, rule.compared, rule.operator, rule.threshold
    ('property', 'advantage', 'high', '>', 0.05)
    >>> parse_rule("psnr >= 20").compared
    'high'
    """
    where = f"--fail-if is {text!r}"
    match = _FORM.fullmatch(text)
    if match is None:
        raise InputError(f"{where}; expected METRIC OP NUMBER, for example {EXAMPLE!r}")
    sign, number = match["operator"], match["number"].strip()
    require(sign in OPERATORS, f"{where}: {sign!r} is not a comparison; known: >, >=, <, <=")
    owner, metric, end = _target(match["target"].strip(), where)
    require(
        is_number(number, float),
        f"{where}: {number[:40]!r} is not a number or not finite; write one such as 0.05",
    )
    return FailRule(text.strip(), owner, metric, end, sign, float(number))


def _target(text: str, where: str) -> tuple[str, str, str]:
    parts = text.split(".")
    end = parts.pop() if len(parts) > 1 and parts[-1] in ENDS else ""
    require(
        all(re.fullmatch(r"[\w-]+", part) for part in parts),
        f"{where}: {text!r} is not a figure; expected [QUESTION.]METRIC[.high|.low|.value]",
    )
    if len(parts) == 3:
        raise InputError(f"{where}: no end {parts[2]!r}{nearest(parts[2], ENDS)}")
    require(
        len(parts) < 3, f"{where}: {text!r} has too many parts; expected [QUESTION.]METRIC[.END]"
    )
    return (parts[0] if len(parts) == 2 else "", parts[-1], end)


def check_rules(
    rules: Iterable[FailRule], asked: Sequence[Question], known: Mapping[str, Question]
) -> None:
    """Refuse rules about figures that a run will not measure.

    Args:
        rules: as parsed.
        asked: the questions of the run.
        known: all questions by name.

    Raises:
        InputError: a rule names an unknown question or metric, one that is not asked, or trips
            where little leaks without naming an end.
    """
    for rule in rules:
        _check(rule, asked, known)


def _check(rule: FailRule, asked: Sequence[Question], known: Mapping[str, Question]) -> None:
    where = f"--fail-if is {rule.text!r}"
    owners = _owners(rule, asked, known, where)
    metrics = {name: one for question in owners for name, one in question.metrics.items()}
    if rule.metric not in metrics:
        raise InputError(f"{where}: {_no_metric(rule, metrics, known)}")
    metric = metrics[rule.metric]
    require(
        rule.holds(metric.high if rule.upward else metric.low),
        f"{where}: this can never fail, since {rule.metric} lies from {metric.low:g} to "
        f"{metric.high:g}; write a number between them",
    )
    if rule.end or rule.guards(metric):
        return
    worse = "higher" if metric.higher_is_worse else "lower"
    meant = {">": "<", ">=": "<=", "<": ">", "<=": ">="}[rule.operator]
    raise InputError(
        f"{where}: a {worse} {rule.metric} is worse, so this fails where less leaks; write "
        f"{meant!r}, or name the end ({rule.metric}.{rule.compared}) if you mean it"
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
            raise InputError(f"{where}: no end {rule.metric!r}{nearest(rule.metric, ENDS)}")
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
