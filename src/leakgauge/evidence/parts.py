"""The parts of a finished run that rules check: questions of an audit, or cells of a grid."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leakgauge.report.compare import Comparison, FinishedCell, groups, varying
from leakgauge.report.section import Row, Section
from leakgauge.report.wording import plain
from leakgauge.results.measurements import REPORT_FILE, Measurement
from leakgauge.runs.audit import AuditRun
from leakgauge.runs.page import read_audit, read_comparison, sections_of
from leakgauge.runs.question import Answer, Question, answering, ask_of
from leakgauge.runs.store import read_description


@dataclass(frozen=True)
class RunPart:
    """A question of an audit, or a cell of a grid.

    Attributes:
        key: key of the part in the run's folder.
        question: its question.
        cell: settings in which the cells of a grid differ, in words; empty in an audit.
        measurements: its figures; empty if unfinished.
        missing: requested parts that were not completed, each with the reason.
        rows: its rows in the report's summary.
        settings: settings of the figures, as plain values.
    """

    key: str
    question: Question
    cell: str = ""
    measurements: Sequence[Measurement] = ()
    missing: Sequence[str] = ()
    rows: Sequence[Row] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def called(self) -> str:
        """The name of the question in outcomes, with the number of a further secret."""
        return self.question.name

    def ask_of(self, one: Measurement) -> str:
        """Return the word of ``--ask`` that a figure answers."""
        return ask_of(one, self.question)


@dataclass(frozen=True)
class RunParts:
    """A run that rules check.

    Attributes:
        name: name of its data, or of the grid.
        command: its command.
        folder: its folder.
        parts: finished and unfinished parts.
        not_asked: why other questions are not asked.
        repeat: the command line that repeats it; empty if unknown.
    """

    name: str
    command: str
    folder: Path
    parts: Sequence[RunPart]
    not_asked: Sequence[str] = ()
    repeat: str = ""

    @property
    def report(self) -> Path:
        """The page of the run."""
        return self.folder / REPORT_FILE

    @property
    def questions(self) -> list[Question]:
        """The questions of the parts, each once."""
        return list({one.question.name: one.question for one in self.parts}.values())


def read_run(folder: Path, questions: Mapping[str, Question]) -> RunParts:
    """Return the parts of the run that a folder holds.

    Raises:
        InputError: the folder does not contain a run, is damaged, or contains no finished part.
    """
    description = read_description(folder)
    if description.is_grid:
        return parts_of_grid(*read_comparison(folder, questions), folder)
    audit = read_audit(folder, description)
    return parts_of_audit(audit, sections_of(audit, questions), questions)


def parts_of_audit(
    audit: AuditRun, sections: Sequence[Section] | None, questions: Mapping[str, Question]
) -> RunParts:
    """Return the questions of an audit, answered or refused.

    Args:
        audit: audit, just run or read from its folder.
        sections: sections of its report, one per answer, in the same order; None leaves out the
            rows of the summary.
        questions: all by name.
    """
    rows: Mapping[str, Sequence[Row]] = dict.fromkeys(audit.answers, ())
    if sections is not None:
        rows = {name: one.rows for name, one in zip(audit.answers, sections, strict=True)}
    description = audit.description
    parts = [
        _answered(name, question, audit.answers[name], rows[name], description.settings)
        if name in audit.answers
        else RunPart(name, question, missing=(audit.refused.get(name, "not finished"),))
        for name in description.cells
        if (question := answering(name, questions)) is not None
    ]
    name = str(description.data.get("name", ""))
    return RunParts(
        name, description.command, audit.path, parts, description.notes, description.repeat
    )


def _answered(
    name: str, question: Question, answer: Answer, rows: Sequence[Row], settings: Mapping[str, Any]
) -> RunPart:
    given = {**answer.run.settings, **settings.get(name, {})}
    return RunPart(name, question, "", answer.measurements, answer.missing, rows, given)


def parts_of_grid(comparison: Comparison, question: Question, folder: Path) -> RunParts:
    """Return the cells of a grid; those that are not finished are one part without figures."""
    names = varying([one.settings for one in comparison.cells.values()])
    parts = [_cell(key, question, one, names) for key, one in comparison.cells.items()]
    left = comparison.asked - len(parts)
    if left > 0:
        text = f"{left} of {comparison.asked} cells are refused or not finished"
        parts.append(RunPart("", question, "cells without figures", missing=(text,)))
    return RunParts(comparison.name, "run", folder, parts)


def _cell(key: str, question: Question, cell: FinishedCell, names: Sequence[str]) -> RunPart:
    shown = [name for name in (*names, "seed") if name in cell.settings]
    words = ", ".join(f"{name} {plain(cell.settings[name])}" for name in shown)
    ask = next(iter(question.asks))
    badges = [question.badge(group) for group in groups({key: cell}, question.metrics)]
    rows = [Row(ask, one.words, one.level, one.words, broken=one.broken) for one in badges if one]
    return RunPart(key, question, words or key, cell.measurements, (), rows, cell.settings)
