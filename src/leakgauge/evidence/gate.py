"""Checks the rules of a build on a finished run, and writes the decision to its folder."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from leakgauge.core.files import write_text
from leakgauge.evidence.counted import counted, is_valid, protected, smallest_visible
from leakgauge.evidence.parts import RunPart, RunParts
from leakgauge.evidence.rule import ENDS, VALUE, FailRule, is_called
from leakgauge.report.facts import plain_interval
from leakgauge.report.wording import short
from leakgauge.results.measurements import Measurement
from leakgauge.results.metrics import Metric
from leakgauge.results.statistics import has_interval

GATE_FILE = "gate.json"
FAILED, UNMEASURED = 3, 2
"""Exit codes of a failed rule or promise, and of a rule without figures."""

PASS, TRIPPED, TOO_LITTLE = "pass", "tripped", "too little data"
NO_INTERVAL, NOT_VALID, NOT_MEASURED = "no interval", "not valid", "not measured"

GateDecision = Literal["pass", "fail", "undecided"]


@dataclass(frozen=True)
class FigureOutcome:
    """A figure, and whether it passes a rule.

    Attributes:
        question: name of its question; with a number, if the run has several secrets.
        ask: the word of ``--ask``; empty if nothing was measured.
        cell: settings in which the cells of a grid differ; empty in an audit.
        secret: name of the secret.
        defense: defense of the training; ``"none"`` without one.
        knowledge: knowledge of the adversary.
        adversary: name of the adversary.
        metric: name of the metric.
        round: round of the figure; ``"headline"`` or ``"accumulated"`` for all of them.
        end: compared end: ``"high"``, ``"low"`` or ``"value"``.
        value: value of the figure; None, as the next five, if nothing was measured.
        low: lower end of its interval.
        high: upper end of its interval.
        n: number of trials or records.
        chance: value where nothing leaks.
        smallest_detectable: the smallest leak that the test sees with 80 % power; None if the rule
            is not about a leak.
        threshold: threshold of the rule.
        outcome: ``"pass"``, or why the rule does not pass: ``"tripped"``, ``"too little data"``,
            ``"no interval"``, ``"not valid"`` or ``"not measured"``.
        why: the outcome in a sentence.
    """

    question: str
    ask: str
    cell: str
    secret: str
    defense: str
    knowledge: str
    adversary: str
    metric: str
    round: int | str
    end: str
    value: float | None
    low: float | None
    high: float | None
    n: int | None
    chance: float | None
    smallest_detectable: float | None
    threshold: float
    outcome: str
    why: str


@dataclass(frozen=True)
class RuleOutcome:
    """The outcome of a rule.

    Attributes:
        rule: its text.
        figures: checked figures; at least one.
    """

    rule: str
    figures: Sequence[FigureOutcome]

    @property
    def outcome(self) -> GateDecision:
        """Whether the rule passes; any figure that does not pass decides."""
        found = {one.outcome for one in self.figures}
        if found - {PASS, NOT_MEASURED}:
            return "fail"
        return "undecided" if NOT_MEASURED in found or not found else "pass"


@dataclass(frozen=True)
class BrokenPromise:
    """A promise that does not hold.

    Attributes:
        question: name of the question.
        ask: the word of ``--ask``.
        cell: settings in which the cells of a grid differ.
        why: the verdict in words.
    """

    question: str
    ask: str
    cell: str
    why: str


@dataclass(frozen=True)
class Gate:
    """The decision on a run.

    Attributes:
        rules: outcome of each rule.
        broken: promises that do not hold; they fail a build without any rule.
    """

    rules: Sequence[RuleOutcome] = ()
    broken: Sequence[BrokenPromise] = ()

    @property
    def decision(self) -> GateDecision:
        """``"fail"`` if a rule or a promise fails, else ``"undecided"`` if a figure is missing."""
        if self.broken:
            return "fail"
        found = {one.outcome for one in self.rules}
        return "fail" if "fail" in found else "undecided" if "undecided" in found else "pass"

    @property
    def passed(self) -> bool:
        """Whether every rule passes and no promise is broken."""
        return self.decision == "pass"

    @property
    def exit_code(self) -> int:
        """0 for a pass, 3 for a failure, 2 for a rule without figures."""
        return {"pass": 0, "fail": FAILED, "undecided": UNMEASURED}[self.decision]

    @property
    def figures(self) -> list[FigureOutcome]:
        """The figures of all rules."""
        return [figure for one in self.rules for figure in one.figures]

    def as_json(self) -> dict[str, Any]:
        """Return decision, rules, figures and broken promises as plain values."""
        return {
            "decision": self.decision,
            "rules": [
                {
                    "rule": one.rule,
                    "outcome": one.outcome,
                    "figures": [asdict(figure) for figure in one.figures],
                }
                for one in self.rules
            ],
            "broken": [asdict(one) for one in self.broken],
        }

    def __str__(self) -> str:
        lines = [
            f"{one.rule}: {one.outcome} ({'; '.join(dict.fromkeys(f.why for f in one.figures))})"
            for one in self.rules
        ]
        return "\n".join([*lines, *(f"{one.ask}: {one.why}" for one in self.broken)])


def evaluate_rules(rules: Sequence[FailRule], run: RunParts) -> Gate:
    """Return the decision on a run by rules that ``check_rules`` accepted."""
    broken = [
        BrokenPromise(part.called, row.ask, part.cell, row.verdict)
        for part in run.parts
        for row in part.rows
        if row.broken
    ]
    return Gate([RuleOutcome(rule.text, _figures(rule, run)) for rule in rules], broken)


def write_gate(folder: Path, gate: Gate) -> None:
    """Write ``gate.json``; a gate without rules and broken promises removes an older one."""
    path = folder / GATE_FILE
    if gate.rules or gate.broken:
        write_text(path, json.dumps(gate.as_json(), indent=2, allow_nan=False) + "\n")
    else:
        path.unlink(missing_ok=True)


def _figures(rule: FailRule, run: RunParts) -> list[FigureOutcome]:
    """Return the figures of a rule and the missing ones: a rule without figures never passes."""
    asked = [part for part in run.parts if rule.asks_about(part.question)]
    found = {part.key: _of_part(rule, part) for part in asked}
    outcomes = [one for each in found.values() for one in each]
    outcomes += [
        _missing(rule, part, text)
        for part in asked
        for text in part.missing
        if _concerns(text, rule, part)
    ]
    silent = [part for part in asked if not found[part.key] and not part.missing]
    named = asked if not outcomes else silent if rule.owner else []
    outcomes += [_missing(rule, part, _not_measured(rule, part)) for part in named]
    if not outcomes:
        outcomes.append(_missing(rule, None, f"no question of this run measures {rule.metric!r}"))
    return outcomes


def _of_part(rule: FailRule, part: RunPart) -> list[FigureOutcome]:
    metric = part.question.metrics.get(rule.metric)
    if metric is None:
        return []
    figures = counted(part.measurements, rule.metric, metric)
    return [
        _checked(rule, one, metric, part)
        for one in protected(figures, part.measurements)
        if rule.owner in ("", part.ask_of(one)) or is_called(part.question, rule.owner)
    ]


def _checked(rule: FailRule, one: Measurement, metric: Metric, part: RunPart) -> FigureOutcome:
    guards = rule.guards(metric)
    least = smallest_visible(one, metric, part.measurements) if guards else None
    outcome, why = _outcome(rule, one, metric, least, part)
    return FigureOutcome(
        question=part.called,
        ask=part.ask_of(one),
        cell=part.cell,
        secret=one.secret,
        defense=one.defense,
        knowledge=one.knowledge,
        adversary=one.adversary,
        metric=one.metric,
        round=one.round,
        end=rule.compared,
        **plain_interval(one.estimate),
        n=one.estimate.n,
        chance=one.chance,
        smallest_detectable=least,
        threshold=rule.threshold,
        outcome=outcome,
        why=why,
    )


def _outcome(
    rule: FailRule, one: Measurement, metric: Metric, least: float | None, part: RunPart
) -> tuple[str, str]:
    """Return whether a figure passes, and why; a tripped rule comes before too little data."""
    end: float = getattr(one.estimate, rule.compared)
    beyond = f"{'above' if rule.upward else 'below'} {rule.threshold:g}"
    compared = f"{ENDS[rule.compared]} {signed(end)}"
    if rule.holds(end):
        equal = end == rule.threshold
        return TRIPPED, f"{compared} is {'at the limit' if equal else beyond}"
    leak = rule.guards(metric) and not metric.of_model
    if leak and not is_valid(one, metric, part.measurements):
        return NOT_VALID, "the adversary does worse than guessing, so the test does not count"
    if least is None and (one.estimate.n < 2 or (leak and not has_interval(one.estimate))):
        return NO_INTERVAL, f"the figure has no interval (n = {one.estimate.n}); use more data"
    if least is not None and rule.holds(least):
        return TOO_LITTLE, _too_little(rule, one, least, beyond)
    return PASS, f"{compared} is not {beyond}"


def _too_little(rule: FailRule, one: Measurement, least: float, beyond: str) -> str:
    if rule.holds(one.chance):
        return f"guessing alone gives {signed(one.chance)}, {beyond}: no amount of data passes this"
    return (
        f"the smallest leak that this test could have seen is {signed(least)}, {beyond}; use more "
        "trials or records"
    )


def _concerns(text: str, rule: FailRule, part: RunPart) -> bool:
    """Return whether a missing part may concern the rule; other words of ``--ask`` do not."""
    others = [word for word in part.question.asks if word != rule.owner]
    named = rule.owner in part.question.asks and len(part.question.asks) > 1
    return not (named and any(text.startswith(word) for word in others))


def _not_measured(rule: FailRule, part: RunPart) -> str:
    measured = dict.fromkeys(one.metric for one in part.measurements if ":" not in one.metric)
    known = ", ".join(name for name in part.question.metrics if name in measured)
    return f"{rule.metric!r} was not measured; measured: {known or 'nothing'}"


def _missing(rule: FailRule, part: RunPart | None, why: str) -> FigureOutcome:
    question = "" if part is None else part.called
    return FigureOutcome(
        question=question, ask="", cell="" if part is None else part.cell, secret="", defense="",
        knowledge="", adversary="", metric=rule.metric, round="", end=rule.compared, value=None,
        low=None, high=None, n=None, chance=None, smallest_detectable=None,
        threshold=rule.threshold, outcome=NOT_MEASURED, why=why,
    )  # fmt: skip


def figure_in_words(one: FigureOutcome | Measurement) -> Mapping[str, str]:
    """Return value and interval of a figure as text; empty if nothing was measured."""
    estimate = one.estimate if isinstance(one, Measurement) else one
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return {VALUE: "", "interval": ""}
    interval = f"{signed(estimate.low)} to {signed(estimate.high)}"
    return {VALUE: signed(estimate.value), "interval": interval}


def signed(value: float) -> str:
    """Return a figure with three digits, with its sign where it is negative.

    >>> signed(-0.0123), signed(0.5)
    ('\u22120.0123', '0.5')
    """
    return short(value) if value >= 0 else f"\u2212{short(-value)}"
