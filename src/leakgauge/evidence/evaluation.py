"""Checks the rules of a build on a finished run."""

from collections.abc import Sequence
from typing import Any

from leakgauge.evidence.counted import counted, is_blind, is_valid, protected, smallest_visible
from leakgauge.evidence.gate import (
    NO_INTERVAL,
    NOT_MEASURED,
    NOT_VALID,
    PASS,
    TOO_LITTLE,
    TRIPPED,
    BrokenPromise,
    FigureOutcome,
    Gate,
    RuleOutcome,
    signed,
)
from leakgauge.evidence.parts import RunPart, RunParts
from leakgauge.evidence.rule import ENDS, FailRule, is_called
from leakgauge.report.facts import plain_interval
from leakgauge.results.measurements import Measurement
from leakgauge.results.metrics import Metric
from leakgauge.results.statistics import has_interval


def evaluate_rules(rules: Sequence[FailRule], run: RunParts) -> Gate:
    """Return the decision on a run by rules that ``check_rules`` accepted."""
    broken = [
        BrokenPromise(part.called, row.ask, part.cell, row.verdict)
        for part in run.parts
        for row in part.rows
        if row.broken
    ]
    return Gate([RuleOutcome(rule.text, _figures(rule, run)) for rule in rules], broken)


def _figures(rule: FailRule, run: RunParts) -> list[FigureOutcome]:
    """Return the figures of a rule and the missing ones: a rule without figures never passes."""
    asked = [part for part in run.parts if rule.asks_about(part.question)]
    found = {part.key: _of_part(rule, part) for part in asked}
    outcomes = [one for each in found.values() for one in each]
    outcomes += [
        missing_figure(rule, part, text)
        for part in asked
        for text in part.missing
        if concerns(text, rule, part)
    ]
    silent = [part for part in asked if not found[part.key] and not part.missing]
    named = asked if not outcomes else silent if rule.owner else []
    outcomes += [missing_figure(rule, part, not_measured(rule, part)) for part in named]
    if not outcomes:
        outcomes.append(
            missing_figure(rule, None, f"no question of this run measures {rule.metric!r}")
        )
    return outcomes


def _of_part(rule: FailRule, part: RunPart) -> list[FigureOutcome]:
    metric = part.question.metrics.get(rule.metric)
    if metric is None:
        return []
    return [_checked(rule, one, metric, part) for one in figures_of(rule, part)]


def figures_of(rule: FailRule, part: RunPart) -> list[Measurement]:
    """Return the figures of a question or cell that a rule is about."""
    metric = part.question.metrics.get(rule.metric)
    if metric is None:
        return []
    figures = counted(part.measurements, rule.metric, metric)
    return [
        one
        for one in protected(figures, part.measurements)
        if rule.owner in ("", part.ask_of(one)) or is_called(part.question, rule.owner)
    ]


def _checked(rule: FailRule, one: Measurement, metric: Metric, part: RunPart) -> FigureOutcome:
    guards = rule.guards(metric)
    least = smallest_visible(one, metric, part.measurements) if guards else None
    outcome, why = _outcome(rule, one, metric, least, part)
    return outcome_of(
        rule,
        one,
        part,
        **plain_interval(one.estimate),
        n=one.estimate.n,
        chance=one.chance,
        smallest_detectable=least,
        outcome=outcome,
        why=why,
    )


def outcome_of(rule: FailRule, one: Measurement, part: RunPart, **values: Any) -> FigureOutcome:
    """Return the outcome of a rule on a figure, with the names that identify the figure.

    Args:
        rule: the rule.
        one: the figure.
        part: question or cell of the figure.
        values: the other fields.
    """
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
        threshold=rule.threshold,
        side=rule.side,
        **values,
    )


def _outcome(
    rule: FailRule, one: Measurement, metric: Metric, least: float | None, part: RunPart
) -> tuple[str, str]:
    """Return whether a figure passes, and why; a tripped rule comes before too little data."""
    end: float = getattr(one.estimate, rule.compared)
    beyond, compared = limit_of(rule), f"{ENDS[rule.compared]} {signed(end)}"
    if rule.holds(end):
        return tripped(rule, end)
    leak = rule.guards(metric) and not metric.of_model
    if leak and not is_valid(one, metric, part.measurements):
        return NOT_VALID, "the adversary does worse than guessing, so the test does not count"
    if leak and is_blind(one, metric):
        return TOO_LITTLE, metric.blind_why
    if least is None and (one.estimate.n < 2 or (leak and not has_interval(one.estimate))):
        return NO_INTERVAL, f"the figure has no interval (n = {one.estimate.n}); use more data"
    if least is not None and rule.holds(least):
        return TOO_LITTLE, _too_little(rule, one, least, beyond)
    return PASS, f"{compared} is not {beyond}"


def limit_of(rule: FailRule) -> str:
    """Return what trips a rule, in words: ``"above 0.05"``."""
    return f"{'above' if rule.upward else 'below'} {rule.threshold:g}"


def tripped(rule: FailRule, end: float) -> tuple[str, str]:
    """Return the outcome of a rule that an end of an interval trips, and the reason."""
    beyond = "at the limit" if end == rule.threshold else limit_of(rule)
    return TRIPPED, f"{ENDS[rule.compared]} {signed(end)} is {beyond}"


def _too_little(rule: FailRule, one: Measurement, least: float, beyond: str) -> str:
    if rule.holds(one.chance):
        return f"guessing alone gives {signed(one.chance)}, {beyond}: no amount of data passes this"
    return (
        f"the smallest leak that this test could have seen is {signed(least)}, {beyond}; use more "
        "trials or records"
    )


def concerns(text: str, rule: FailRule, part: RunPart) -> bool:
    """Return whether a missing part may concern the rule; other words of ``--ask`` do not."""
    others = [word for word in part.question.asks if word != rule.owner]
    named = rule.owner in part.question.asks and len(part.question.asks) > 1
    return not (named and any(text.startswith(word) for word in others))


def not_measured(rule: FailRule, part: RunPart) -> str:
    """Return the reason for which a question has no figure of a rule, in words."""
    measured = dict.fromkeys(one.metric for one in part.measurements if ":" not in one.metric)
    known = ", ".join(name for name in part.question.metrics if name in measured)
    return f"{rule.metric!r} was not measured; measured: {known or 'nothing'}"


def missing_figure(rule: FailRule, part: RunPart | None, why: str) -> FigureOutcome:
    """Return the outcome of a figure that was not measured, with the reason."""
    question = "" if part is None else part.called
    return FigureOutcome(
        question=question, ask="", cell="" if part is None else part.cell, secret="", defense="",
        knowledge="", adversary="", metric=rule.metric, round="", end=rule.compared, value=None,
        low=None, high=None, n=None, chance=None, smallest_detectable=None,
        threshold=rule.threshold, outcome=NOT_MEASURED, why=why, side=rule.side,
    )  # fmt: skip
