"""A run, or two runs compared, in Markdown: the body of a comment on a proposed change."""

from collections.abc import Iterable, Iterator

from leakgauge.evidence.cases import name_of
from leakgauge.evidence.gate import FigureOutcome, Gate, figure_in_words
from leakgauge.evidence.markdown_text import quiet, table
from leakgauge.evidence.parts import RunParts
from leakgauge.report.differences.compared import Differences
from leakgauge.report.wording import change, interval, number

TITLES = {
    "pass": "the rules pass",
    "fail": "a rule fails",
    "undecided": "a rule could not be evaluated",
}


def as_markdown(run: RunParts, gate: Gate, found: Differences | None = None) -> str:
    """Return the decision, the rules, the figures and what limits them, in Markdown.

    Equal runs give equal text, without times. Names of columns and files are escaped, and notify
    nobody.

    Args:
        run: the run, or the second of two.
        gate: the decision; one without rules is said to be none.
        found: the differences from a reference; None without one.
    """
    decided = bool(gate.rules or gate.broken)
    title = TITLES[gate.decision] if decided else "no rule was given"
    parts = [
        f"### leakgauge: {title}",
        _rules(gate),
        _summary(run) if found is None else _differences(found),
        *_limits(found),
        *_repeats(run, found),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _summary(run: RunParts) -> str:
    rows = [
        [quiet(row.ask), quiet(row.test), quiet(row.verdict), quiet(row.figure)]
        for part in run.parts
        for row in part.rows
    ]
    return table(["question", "test", "verdict", "figure, 95 % interval"], rows) if rows else ""


def _differences(found: Differences) -> str:
    head = ["test", "metric", "before", "after", "difference, 95 % interval", "verdict"]
    rows = [
        [
            quiet(one.title),
            quiet(one.metric.label),
            *(
                f"{number(side.estimate.value)} ({interval(side.estimate)})"
                for side in (one.before, one.after)
            ),
            change(one.estimate),
            quiet(one.verdict),
        ]
        for one in found.main
    ]
    return table(head, rows)


def _rules(gate: Gate) -> str:
    rows = [
        [f"`{rule.rule}`", _about(one), _value(one), one.outcome, quiet(one.why)]
        for rule in gate.rules
        for one in rule.figures
    ]
    rows += [["a promise", quiet(one.ask), "", "fail", quiet(one.why)] for one in gate.broken]
    if not rows:
        return ""
    return table(["rule", "figure", "value, 95 % interval", "outcome", "why"], rows)


def _about(one: FigureOutcome) -> str:
    about = one.ask or one.question
    if not about:
        return quiet(one.named)
    name = name_of(about, one.secret, one.defense, one.knowledge, one.cell)
    return quiet(f"{one.named}: {name}")


def _value(one: FigureOutcome) -> str:
    words = figure_in_words(one)
    return f"{words['value']} ({words['interval']})" if words["value"] else ""


def _limits(found: Differences | None) -> Iterator[str]:
    if found is None:
        return
    yield _listed("Read this first", found.warnings)
    yield _listed(
        "Changed settings",
        (f"{one.where}: {one.name} is {one.before} before, {one.after} after"
         for one in found.changed),
    )  # fmt: skip
    yield _listed("Not compared", found.only)
    yield _listed("Notes", found.notes)


def _listed(title: str, lines: Iterable[str]) -> str:
    items = "\n".join(f"- {quiet(line)}" for line in lines)
    return f"**{title}**\n\n{items}" if items else ""


def _repeats(run: RunParts, found: Differences | None) -> Iterator[str]:
    """Yield the commands that repeat the runs, as indented code, which no text can end."""
    if found is None:
        if run.repeat:
            yield f"Repeat it:\n\n    {_line(run.repeat)}"
        return
    for when, one in (("before", found.before), ("after", found.after)):
        if one.repeat:
            yield f"Repeat the run {when}:\n\n    {_line(one.repeat)}"


def _line(text: str) -> str:
    return " ".join(text.split())
