"""Reads one run of a bundle: its leading figures with their verdicts, its date and its report."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from leakgauge.core.checks import InputError
from leakgauge.core.versions import versions
from leakgauge.report.bundle.entry import Entry, RunFigure, strongest
from leakgauge.report.compare import Comparison, Group, distinguishing_names, groups, title_of
from leakgauge.results.measurements import ADVERSARY, REPORT_FILE, Measurement
from leakgauge.results.metrics import metric_named
from leakgauge.runs.assessment import Finding, leading
from leakgauge.runs.audit import UNFINISHED, AuditRun
from leakgauge.runs.page import read_audit, read_comparison, render_folder
from leakgauge.runs.question import Question, answering, ask_of
from leakgauge.runs.store import CELL_FILE, Description, Store, files_of, read_description
from leakgauge.runs.timings import read_timings

IN_TITLE = ("data", "ask", "secret", "defense", ADVERSARY)
"""Settings of a grid's cell that a figure names by itself."""

_MISFITS = (LookupError, TypeError, ValueError, AttributeError)
"""What a room raises for figures that it does not expect; ``InputError`` is among them."""

_OURS = re.compile(
    r'<!doctype html>\s*<html lang="en">\s*<head>\s*(<meta (?!http-equiv)[^>]*>\s*)*'
    r'<meta http-equiv="Content-Security-Policy" '
    r"content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
)
"""The beginning of each report: a browser that reads it runs no script and loads nothing."""

_PRIVATE = '<p class="private-note">'
"""What a report with private records has; names in it are escaped."""


@dataclass(frozen=True, eq=False)
class ReadRun:
    """A run of a bundle.

    Attributes:
        entry: its line of the list.
        report: its report as HTML; empty where none can be made.
        audit: the audit, if it can be compared.
    """

    entry: Entry
    report: str
    audit: AuditRun | None = None


def read_run(folder: Path, name: str, questions: Mapping[str, Question]) -> ReadRun:
    """Return what a bundle shows of a run.

    Args:
        folder: folder of the run.
        name: its label.
        questions: all that are installed, by name.

    Raises:
        InputError: it is damaged, nothing in it is finished, or its question is not installed.
    """
    described = read_description(folder)
    newer = _newer(described)
    try:
        read = (_grid if described.is_grid else _audit)(folder, described, name, questions)
    except _MISFITS as error:
        raise InputError("; ".join(filter(None, [_why(error), newer]))) from error
    entry = replace(read.entry, notes=[*filter(None, [newer]), *read.entry.notes])
    return _with_report(replace(read, entry=entry), folder, questions)


def _why(error: Exception) -> str:
    """Return why a run cannot be read, in one line."""
    if isinstance(error, InputError):
        return str(error)
    return f"its figures are those of another version ({type(error).__name__}: {error})"


def _audit(
    folder: Path, described: Description, name: str, questions: Mapping[str, Question]
) -> ReadRun:
    audit = read_audit(folder, described)
    points: list[RunFigure] = []
    for key, answer in audit.answers.items():
        question = answering(key, questions)
        if question is None:
            raise InputError(f"the question {key!r} is not installed; install its package")
        findings = question.assessment(answer, files_of(Store(folder), key)).findings
        points += _strongest_of_each([_point(one, question, audit) for one in leading(findings)])
    left = [key for key, why in audit.refused.items() if why == UNFINISHED]
    warned = sum(len(answer.run.warnings) for answer in audit.answers.values())
    words = "1 warning" if warned == 1 else f"{warned} warnings"
    notes = [*audit.missing, *([f"{words} in its report"] if warned else [])]
    entry = _entry(folder, described, name, points, notes, list(audit.answers))
    apart = f"{name} is not finished ({', '.join(left)}), so it is not compared." if left else ""
    return ReadRun(replace(entry, apart=apart), "", None if left else audit)


def _strongest_of_each(points: Sequence[RunFigure]) -> list[RunFigure]:
    """Return the strongest figure of each topic and defense."""
    defenses = dict.fromkeys(one.defense for one in points)
    each = (strongest(one for one in points if one.defense == name) for name in defenses)
    return [point for found in each for point in found.values()]


def _point(one: Finding, question: Question, audit: AuditRun) -> RunFigure:
    fingerprint = str(audit.description.data.get("fingerprint", ""))
    shown = _figure(one.figure, question)
    return replace(
        shown, verdict=one.verdict, level=one.level, open_end=one.open_end, fingerprint=fingerprint
    )


def _figure(one: Measurement, question: Question) -> RunFigure:
    metric = metric_named(one.metric, question.metrics)
    return RunFigure(
        data=one.dataset,
        ask=ask_of(one, question),
        secret=one.secret,
        defense=one.defense,
        adversary=one.adversary,
        metric=metric.label,
        estimate=one.estimate,
        chance=one.chance,
        verdict="",
        level="unknown",
        higher_is_worse=metric.higher_is_worse,
    )


def _grid(
    folder: Path, described: Description, name: str, questions: Mapping[str, Question]
) -> ReadRun:
    comparison, question = read_comparison(folder, questions)
    if not comparison.cells:
        raise InputError(f"no cell in {str(folder)!r} is finished; repeat the command to resume")
    left = comparison.asked - len(comparison.cells)
    notes = [f"{left} of {comparison.asked} cells are refused or not finished"] if left > 0 else []
    points = _points_of_grid(comparison, question)
    entry = _entry(folder, described, name, points, notes, list(comparison.cells))
    apart = f"{name} is a grid. Its own report compares its cells."
    return ReadRun(replace(entry, apart=apart), "")


def _points_of_grid(comparison: Comparison, question: Question) -> list[RunFigure]:
    each = groups(comparison.cells, question.metrics)
    names = distinguishing_names([one.settings for one in each])
    where = [one for one in names if one not in IN_TITLE]
    return [point for one in each for point in _point_of_group(one, question, where)]


def _point_of_group(group: Group, question: Question, where: Sequence[str]) -> list[RunFigure]:
    """Return the headline of cells that differ in their seed; none without a figure."""
    attacks = {name: one for name, one in question.metrics.items() if not one.of_model}
    known = sorted(attacks, key=lambda name: not attacks[name].headline)
    headline = next((group.means[name] for name in known if name in group.means), None)
    if headline is None:
        return []
    shown, badge = _figure(headline, question), question.badge(group)
    if badge is not None:
        shown = replace(shown, verdict=badge.words, level=badge.level)
    return [replace(shown, where=title_of(group.settings, where))]


def _entry(
    folder: Path,
    described: Description,
    name: str,
    points: Sequence[RunFigure],
    notes: Sequence[str],
    finished: Sequence[str],
) -> Entry:
    when, recorded = _date(folder, finished)
    return Entry(
        name=name,
        command=described.command,
        when=when,
        recorded=recorded,
        points=points,
        notes=notes,
    )


def _date(folder: Path, finished: Sequence[str]) -> tuple[datetime, bool]:
    """Return when the last cell was finished, and whether the run says so; else its files do."""
    timings = read_timings(folder)
    times = [timings[key].finished for key in finished if key in timings]
    known = [one for one in times if one is not None]
    if known:
        return max(known).astimezone(UTC), True
    store = Store(folder)
    written = max((store.folder(key) / CELL_FILE).stat().st_mtime for key in finished)
    return datetime.fromtimestamp(written, UTC), False


def _newer(described: Description) -> str:
    """Return a note on a run of a later version; empty for others."""
    made, own = described.versions.get("leakgauge", ""), versions()["leakgauge"]
    if _parts(made) <= _parts(own):
        return ""
    return f"made by leakgauge {made}, and this is {own}: what is new in it is not read; update"


def _parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def _with_report(read: ReadRun, folder: Path, questions: Mapping[str, Question]) -> ReadRun:
    """Return the run with its report; one that is missing or foreign is made anew."""
    entry, path = read.entry, folder / REPORT_FILE
    report = path.read_text("utf-8", errors="replace") if path.is_file() else ""
    notes = list(entry.notes)
    if not _OURS.match(report) or "<script" in report.lower():
        if report:
            notes.append("its report was not written by leakgauge, and is made anew")
        try:
            report = render_folder(folder, questions)
        except _MISFITS as error:
            report = ""
            why = _why(error).replace(str(folder), entry.name)
            notes.append(f"its report cannot be made: {why}")
    private = _PRIVATE in report
    return replace(read, report=report, entry=replace(entry, private=private, notes=notes))
