"""Writes the page of a folder: the report of an audit, or the comparison of a grid."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pydantic

from leakgauge.core.checks import InputError, require
from leakgauge.core.files import read_yaml, write_text
from leakgauge.report.compare import Comparison, FinishedCell, PaperFigure
from leakgauge.report.exposure import exposure_html
from leakgauge.report.page import Page, render_page
from leakgauge.report.section import Section
from leakgauge.results.exposure import Exposure
from leakgauge.results.measurements import (
    MEASUREMENTS_FILE,
    REPORT_FILE,
    RUN_FILE,
    Measurement,
    read_measurements,
)
from leakgauge.runs.audit import REFUSED_FILE, UNFINISHED, AuditRun
from leakgauge.runs.exposed_values import values_shown
from leakgauge.runs.exposure import exposures_of, write_exposure
from leakgauge.runs.question import Answer, Question, answering
from leakgauge.runs.reference import with_standing
from leakgauge.runs.store import Description, Store, files_of, key_of, read_description
from leakgauge.runs.timings import Timing, read_timings

_PAPER = pydantic.TypeAdapter(list[PaperFigure])


def write_page(folder: Path, questions: Mapping[str, Question]) -> Path:
    """Write ``report.html`` from what a folder holds.

    Raises:
        InputError: the folder does not contain a run with a finished cell.
    """
    path = folder / REPORT_FILE
    write_text(path, render_folder(folder, questions))
    return path


def render_folder(folder: Path, questions: Mapping[str, Question]) -> str:
    """Return the page of a folder as HTML.

    Raises:
        InputError: the folder does not contain a run with a finished cell.
    """
    description = read_description(folder)
    if description.is_grid:
        return _rendered_grid(folder, questions)
    audit = read_audit(folder, description)
    return render_audit(audit, sections_of(audit, questions))


def read_audit(folder: Path, description: Description | None = None) -> AuditRun:
    """Read the finished questions of an audit.

    Raises:
        InputError: the folder is damaged, its ``measurements.jsonl`` was changed, or nothing in it
            is finished.
    """
    described = description or read_description(folder)
    store = Store(folder)
    answers = {key: _own(store, key, described) for key in described.cells if store.has(key)}
    require(bool(answers), f"nothing in {str(folder)!r} is finished; repeat the command to resume")
    refused = read_yaml(folder / REFUSED_FILE) if (folder / REFUSED_FILE).is_file() else {}
    left = [key for key in described.cells if key not in answers and key not in refused]
    reasons = dict.fromkeys(left, UNFINISHED)
    audit = AuditRun(folder, described, answers, {**refused, **reasons})
    require(
        bool(left)
        or not (folder / MEASUREMENTS_FILE).is_file()
        or read_measurements(folder) == audit.measurements,
        f"{str(folder / MEASUREMENTS_FILE)!r} does not hold the figures of the cells; repeat the "
        "command of the run to make it anew",
    )
    return audit


def _own(store: Store, key: str, described: Description) -> Answer:
    """Return the answer of a finished question; refuse one of another run."""
    identity, answer = store.read(key)
    require(
        key_of(identity) == described.identities.get(key),
        f"{str(store.folder(key))!r} belongs to another run than {RUN_FILE}; repeat the command "
        "of the run to make it anew",
    )
    return answer


def sections_of(audit: AuditRun, questions: Mapping[str, Question]) -> list[Section]:
    """Return the section of each answered question, with the place of its figures.

    Raises:
        InputError: a question is not installed here.
    """
    sections = []
    store = Store(audit.path)
    for name, answer in audit.answers.items():
        question = answering(name, questions)
        if question is None:
            raise InputError(f"the question {name!r} is not installed; install its package")
        sections.append(question.section(answer, files_of(store, name)))
    placed = with_standing(sections, audit)
    if values_shown(audit.path) is not None:
        placed[0] = replace(placed[0], private=True)
    return placed


def write_report(
    audit: AuditRun, questions: Mapping[str, Question], sections: Sequence[Section] = ()
) -> Path:
    """Write the report of an audit into its folder, and its exposure by record."""
    path, found = audit.path / REPORT_FILE, exposures_of(audit)
    write_text(path, _rendered_audit(audit, sections or sections_of(audit, questions), found))
    write_exposure(audit, found)
    return path


def render_audit(audit: AuditRun, sections: Sequence[Section]) -> str:
    """Return the report of an audit as one HTML page; the same measurements give the same bytes."""
    return _rendered_audit(audit, sections, exposures_of(audit))


def _rendered_audit(
    audit: AuditRun, sections: Sequence[Section], exposed: Sequence[Exposure]
) -> str:
    return render_page(
        Page(
            command=audit.description.command,
            sections=tuple(sections),
            measurements=tuple(audit.measurements),
            data=audit.description.data,
            versions=audit.description.versions,
            repeat=audit.description.repeat,
            not_asked=audit.description.notes,
            refused=audit.refused,
            records=exposure_html(exposed, values_shown(audit.path)),
        )
    )


def _rendered_grid(folder: Path, questions: Mapping[str, Question]) -> str:
    """Return the page of a grid from its store.

    Raises:
        InputError: no cell is finished, or its question is not installed.
    """
    from leakgauge.report.compare_page import render_comparison  # its charts are slow to load

    comparison, question = read_comparison(folder, questions)
    require(bool(comparison.cells), f"no cell in {str(folder)!r} is finished; run the grid first")
    return render_comparison(
        comparison, question.metrics, badge=question.badge, charts=question.charts
    )


def read_comparison(folder: Path, questions: Mapping[str, Question]) -> tuple[Comparison, Question]:
    """Read what the folder of a grid holds, and the question that its cells ask.

    Raises:
        InputError: the folder does not contain a grid, or was damaged.
    """
    description, store = read_description(folder), Store(folder)
    settings: Mapping[str, Any] = description.settings
    require(description.is_grid, f"{str(folder)!r} holds no grid; expected the --out of one")
    cells = {key: store.read(key) for key in description.cells if store.has(key)}
    timings = read_timings(folder)
    name = str(settings.get("question"))
    require(name in questions, f"the question {name!r} is not installed; install its package")
    try:
        comparison = Comparison(
            name=settings["name"],
            about=settings["about"],
            size=settings["size"],
            asked=settings["asked"],
            cells={
                key: FinishedCell(
                    identity["settings"],
                    [*answer.measurements, *_times(timings, key)],
                    answer.run.warnings,
                )
                for key, (identity, answer) in cells.items()
            },
            grids=settings["grids"],
            paper=_PAPER.validate_python(settings["paper"]),
        )
    except (KeyError, TypeError, pydantic.ValidationError) as error:
        raise InputError(
            f"{str(folder / RUN_FILE)!r} is damaged ({type(error).__name__}); run the grid again"
        ) from error
    return comparison, questions[name]


def _times(timings: Mapping[str, Timing], key: str) -> Sequence[Measurement]:
    """Return the figures of time of a cell, if they are known."""
    return timings[key].figures if key in timings else ()
