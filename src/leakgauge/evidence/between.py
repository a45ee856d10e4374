"""Checks rules on two runs: on the differences of their figures, or on the figures of one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leakgauge.core.checks import InputError, require
from leakgauge.evidence.counted import is_valid
from leakgauge.evidence.evaluation import (
    concerns,
    evaluate_rules,
    figures_of,
    limit_of,
    missing_figure,
    not_measured,
    outcome_of,
    tripped,
)
from leakgauge.evidence.gate import (
    NO_INTERVAL,
    NOT_VALID,
    PASS,
    TOO_LITTLE,
    FigureOutcome,
    Gate,
    RuleOutcome,
    signed,
)
from leakgauge.evidence.parts import RunPart, RunParts, parts_of_audit
from leakgauge.evidence.rule import AFTER, BEFORE, BETWEEN, DIFFERENCE, ENDS, FailRule, check_rule
from leakgauge.report.differences.compared import Differences
from leakgauge.report.differences.difference import AuditDifference
from leakgauge.report.facts import plain_interval
from leakgauge.results.measurements import Measurement
from leakgauge.results.metrics import Metric
from leakgauge.results.statistics import has_interval
from leakgauge.runs.audit import AuditRun
from leakgauge.runs.differences import compare_runs
from leakgauge.runs.question import Question

Figure = tuple[Measurement, RunPart]


@dataclass(frozen=True)
class TwoRuns:
    """A reference and a new run, with their differences.

    Attributes:
        before: the reference.
        after: the new run.
        differences: all differences that ``compare`` finds.
        chosen: whether the user chose the defenses to compare; figures under others do not count.
    """

    before: RunParts
    after: RunParts
    differences: Differences
    chosen: bool = False


def two_runs(
    before: AuditRun,
    after: AuditRun,
    parts: RunParts,
    known: Mapping[str, Question],
    *,
    defenses: Sequence[str] = (),
    against: str = "",
) -> TwoRuns:
    """Return two audits with their differences.

    Args:
        before: the reference.
        after: the new audit.
        parts: the questions of the new audit.
        known: all questions by name.
        defenses: defenses of the new audit to compare; empty for all.
        against: defense of the reference; empty for the one that fits.

    Raises:
        InputError: as for ``compare_runs``.
    """
    found = compare_runs(before, after, known, defenses=defenses, against=against)
    reference = parts_of_audit(before, None, known)
    return TwoRuns(reference, parts, found, chosen=bool(defenses or against))


def check_sides(rules: Sequence[FailRule], runs: TwoRuns, known: Mapping[str, Question]) -> None:
    """Refuse rules on two runs about what one of them did not measure.

    Raises:
        InputError: a rule names no side, or a figure that a run does not have.
    """
    check_reference(rules, runs.before, known)
    for rule in rules:
        if rule.side != BEFORE:
            _require_measured(rule, runs.after, "the new run", known)


def check_reference(
    rules: Sequence[FailRule], before: RunParts, known: Mapping[str, Question]
) -> None:
    """Refuse rules on two runs about what the reference did not measure.

    Raises:
        InputError: a rule names no side, or a figure that the reference does not have.
    """
    for rule in rules:
        if rule.side != AFTER:
            _require_measured(rule, before, "the reference", known)
        require(
            bool(rule.side),
            f"{rule.where}: of which run? Write {rule.metric}.{DIFFERENCE}, as in {BETWEEN!r}, "
            f"or {rule.metric}.{AFTER} or {rule.metric}.{BEFORE}",
        )


def _require_measured(
    rule: FailRule, run: RunParts, which: str, known: Mapping[str, Question]
) -> None:
    try:
        check_rule(rule, run.questions, known)
    except InputError as error:
        raise InputError(f"{error} (of {which}, {str(run.folder)!r})") from error
    asked = [part for part in run.parts if rule.asks_about(part.question)]
    if any(figures_of(rule, part) for part in asked):
        return
    why = "; ".join(dict.fromkeys(not_measured(rule, part) for part in asked))
    raise InputError(f"{rule.where}: {which}, {str(run.folder)!r}, does not have it: {why}")


def no_worse(run: RunParts, metrics: Sequence[str], by: float) -> list[str]:
    """Return what must hold of the differences of metrics that are not to be worse.

    Args:
        run: the new run.
        metrics: ``METRIC`` or ``QUESTION.METRIC``; empty for the headline of each question.
        by: the change that is tolerated, 0 or more.

    Raises:
        InputError: ``by`` is negative or not finite.
    """
    require(0 <= by < math.inf, f"by is {by}; expected a finite number of 0 or more")
    named = {name: one for each in run.questions for name, one in each.metrics.items()}
    texts = []
    for text in metrics or _headlines(run):
        metric = named.get(text.rpartition(".")[2])
        down = metric is not None and not metric.higher_is_worse
        texts.append(f"{text}.{DIFFERENCE}." + (f"high >= {-by:g}" if down else f"low <= {by:g}"))
    return texts


def _headlines(run: RunParts) -> list[str]:
    """Return the headline metrics that a run measured, with the words of their questions."""
    found = {
        f"{part.ask_of(one)}.{one.metric}": None
        for part in run.parts
        for one in part.measurements
        if one.metric in part.question.metrics and part.question.metrics[one.metric].headline
    }
    return list(found)


def evaluate_between(rules: Sequence[FailRule], runs: TwoRuns) -> Gate:
    """Return the decision on two runs by rules that ``check_sides`` accepted.

    A rule on the lower end of a difference fails where an increase is shown: with intervals of
    95 %, an unchanged figure fails in at most 2.5 % of runs. A rule on the upper end fails unless
    an increase is excluded. A figure of only one of the two runs never passes.
    """
    outcomes = [RuleOutcome(rule.text, _outcomes(rule, runs)) for rule in rules]
    return Gate(outcomes, against=str(runs.before.folder))


def _outcomes(rule: FailRule, runs: TwoRuns) -> Sequence[FigureOutcome]:
    if rule.side == DIFFERENCE:
        return _of_differences(rule, runs)
    (one,) = evaluate_rules([rule], runs.before if rule.side == BEFORE else runs.after).rules
    return one.figures


def _of_differences(rule: FailRule, runs: TwoRuns) -> list[FigureOutcome]:
    """Return the differences of a rule, and the figures without a partner."""
    before, after = _figures(rule, runs.before), _figures(rule, runs.after)
    outcomes: list[FigureOutcome] = []
    met: set[int] = set()
    for one, part in after:
        rows = [row for row in runs.differences.rows if row.after == one and not row.control]
        found = _favoured(rows, before)
        met |= {id(other) for other, _ in before if any(other == row.before for row in found)}
        outcomes += [_judged(rule, row, part, runs.before) for row in found]
        if not found and not runs.chosen:
            outcomes.append(_alone(rule, one, part, "the reference"))
    alone = [] if runs.chosen else [each for each in before if id(each[0]) not in met]
    outcomes += [_alone(rule, one, part, "the new run") for one, part in alone]
    for run in (runs.before, runs.after):
        outcomes += [
            missing_figure(rule, part, text)
            for part in run.parts
            if rule.asks_about(part.question)
            for text in part.missing
            if concerns(text, rule, part)
        ]
    return outcomes or [missing_figure(rule, None, "the two runs have no such figure in common")]


def _figures(rule: FailRule, run: RunParts) -> list[Figure]:
    asked = [part for part in run.parts if rule.asks_about(part.question)]
    return [(one, part) for part in asked for one in figures_of(rule, part)]


def _favoured(
    rows: Sequence[AuditDifference], before: Sequence[Figure]
) -> Sequence[AuditDifference]:
    """Return the differences whose reference counts; the first one where none of them does."""
    return [row for row in rows if any(row.before == one for one, _ in before)] or rows[:1]


def _alone(rule: FailRule, one: Measurement, part: RunPart, other: str) -> FigureOutcome:
    """Return the outcome of a figure that has no interval, or no partner in the other run."""
    about = missing_figure(rule, part, f"{other} has no such figure to compare with")
    if has_interval(one.estimate):
        return about
    why = f"the figure has no interval (n = {one.estimate.n}); use more data"
    empty = dict.fromkeys(("value", "low", "high", "chance", "smallest_detectable"))
    return outcome_of(rule, one, part, **empty, n=one.estimate.n, outcome=NO_INTERVAL, why=why)


def _judged(
    rule: FailRule, one: AuditDifference, part: RunPart, reference: RunParts
) -> FigureOutcome:
    outcome, why = _outcome(rule, one, part, reference)
    if one.before.defense != one.after.defense:
        why = f"{why} ({one.defenses})"
    smallest = one.smallest if rule.guards(one.metric) else None
    return outcome_of(
        rule,
        one.after,
        part,
        **plain_interval(one.estimate),
        n=one.estimate.n,
        chance=0.0,
        smallest_detectable=smallest if smallest is None or rule.upward else -smallest,
        outcome=outcome,
        why=why,
        before=plain_interval(one.before.estimate),
        after=plain_interval(one.after.estimate),
    )


def _outcome(
    rule: FailRule, one: AuditDifference, part: RunPart, reference: RunParts
) -> tuple[str, str]:
    """Return whether a difference passes, and why."""
    end: float = getattr(one.estimate, rule.compared)
    if one.same and not rule.holds(end):
        return PASS, "both folders hold the same run"
    if not is_valid(one.after, one.metric, part.measurements):
        return NOT_VALID, "the new run's adversary does worse than guessing, so it does not count"
    if rule.holds(end):
        known = [each for other in reference.parts for each in other.measurements]
        if rule.guards(one.metric) and not is_valid(one.before, one.metric, known):
            return NOT_VALID, "the reference's adversary does worse than guessing; make it anew"
        return tripped(rule, end)
    passes = f"{ENDS[rule.compared]} {signed(end)} is not {limit_of(rule)}"
    if one.smallest is None or not rule.guards(one.metric):
        return PASS, passes
    if one.smallest >= _largest_leak(one.after, one.metric):
        return TOO_LITTLE, (
            f"even a change from no leak to a complete one could be missed (a change below "
            f"{signed(one.smallest)}); use more trials or records"
        )
    return PASS, f"{passes}; a change below {signed(one.smallest)} could be missed"


def _largest_leak(one: Measurement, metric: Metric) -> float:
    """Return the distance from guessing to a complete leak; infinite without a bound."""
    if metric.of_model:
        return math.inf
    return abs((metric.high if metric.higher_is_worse else metric.low) - one.chance)
