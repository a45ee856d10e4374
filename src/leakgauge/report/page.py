"""The page of a report: a summary of all questions, next steps, and their sections."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leakgauge.core.checks import require
from leakgauge.report.levels import LEAKS
from leakgauge.report.section import LEVELS, Row, Section, asked_about
from leakgauge.report.templates import render
from leakgauge.report.wording import label, number
from leakgauge.results.measurements import Measurement


@dataclass(frozen=True)
class Page:
    """The contents of an audit's report.

    Attributes:
        command: the command of the run.
        sections: one for each answered question.
        measurements: measurements of all questions.
        data: name and fingerprint.
        versions: versions of the packages that computed the figures.
        repeat: the command that repeats the run; empty if no command does.
        not_asked: reasons of the questions that were not asked, and what would allow them.
        refused: reasons by question, for questions that could not be answered.
    """

    command: str
    sections: Sequence[Section]
    measurements: Sequence[Measurement]
    data: Mapping[str, Any]
    versions: Mapping[str, str]
    repeat: str = ""
    not_asked: Sequence[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)


def render_page(page: Page) -> str:
    """Return one self-contained HTML page; equal measurements give equal bytes.

    Raises:
        InputError: the page has no sections.
    """
    require(len(page.sections) > 0, "got no answers; a report needs at least one")
    rows = [(section.name, row) for section in page.sections for row in section.rows]
    secrets = [row.secret for _, row in rows if row.secret]
    missing = [text for section in page.sections for text in section.missing]
    values = {
        "page": page,
        "first": next(iter(page.measurements), None),
        "secrets": list(dict.fromkeys(secrets or [one.secret for one in page.measurements[:1]])),
        "rows": [(name, row, asked_about(row, [one for _, one in rows])) for name, row in rows],
        "links": {one.name: link_of(one, page.sections) for one in page.sections},
        "next_steps": next_steps(page.sections),
        "next_commands": [one.next_command for one in page.sections if one.next_command],
        "missing": [*missing, *(f"{name}: {reason}" for name, reason in page.refused.items())],
        "warnings": warnings_of(page.sections),
        "private": any(section.private for section in page.sections),
        "versions": page.versions,
    }
    return str(render("leakgauge.report", "page.html.j2", values))


def warnings_of(sections: Sequence[Section]) -> list[str]:
    """Return what changes the meaning of figures, each once."""
    return list(dict.fromkeys(text for section in sections for text in section.warnings))


def link_of(section: Section, sections: Sequence[Section]) -> str:
    """Return the text of the link to a section; with its secret where a question has several."""
    question = section.name.rstrip("0123456789").rstrip("-")
    several = sum(one.name.startswith(question) for one in sections) > 1
    secret = next((row.secret for row in section.rows if row.secret), "")
    return f"{label(question)}: {secret}" if several and secret else label(section.name)


def strongest(sections: Sequence[Section]) -> Row | None:
    """Return the row of the strongest finding; None without rows."""
    rows = [row for section in sections for row in section.rows]
    return max(rows, key=lambda row: (LEVELS[row.level], row.strength), default=None)


def next_steps(sections: Sequence[Section]) -> list[str]:
    """Return the strongest finding and the next steps, one sentence each."""
    top = strongest(sections)
    if top is None:
        return []
    if top.level in LEAKS:
        figure = ""
        if top.estimate is not None:
            figure = f": {top.metric} {number(top.estimate.value)} ({top.interval})"
        steps = [f"The strongest finding is `{top.ask}`: {top.verdict}{figure}."]
    elif top.level == "inconclusive":
        steps = [f"`{top.ask}` is inconclusive: {top.text}"]
    else:
        steps = [
            "No question shows a leak. That holds for these adversaries and this much data; a "
            "stronger adversary may see more."
        ]
    effects = [section.effect.text for section in sections if section.effect is not None]
    if not effects and top.level in LEAKS:
        effects = list(dict.fromkeys(section.untried for section in sections))
    return steps + [text for text in effects if text]
