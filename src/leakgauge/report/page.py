"""The page of a report: a card for each answer, next steps, and the folded evidence."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from leakgauge.core.checks import require
from leakgauge.report.levels import LEAKS
from leakgauge.report.section import LEVELS, ONE_TRAINING, Row, Section, asked_about
from leakgauge.report.templates import render
from leakgauge.report.warned import together, warnings_of
from leakgauge.report.wording import marked
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
        records: the part on single records; empty where no question tested them.
    """

    command: str
    sections: Sequence[Section]
    measurements: Sequence[Measurement]
    data: Mapping[str, Any]
    versions: Mapping[str, str]
    repeat: str = ""
    not_asked: Sequence[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    records: Markup = Markup("")  # noqa: RUF009 - immutable


def render_page(page: Page) -> str:
    """Return one self-contained HTML page; equal measurements give equal bytes.

    Raises:
        InputError: the page has no sections.
    """
    require(len(page.sections) > 0, "got no answers; a report needs at least one")
    rows = [(section.name, row) for section in page.sections for row in section.rows]
    rows.sort(key=lambda pair: (LEVELS[pair[1].level], pair[1].strength), reverse=True)
    secrets = [row.secret for _, row in rows if row.secret]
    missing = [text for section in page.sections for text in section.missing]
    bodies, rules = {}, []
    for section in page.sections:
        bodies[section.name], found = folded(section)
        rules += found
    values = {
        "page": page,
        "first": next(iter(page.measurements), None),
        "secrets": list(dict.fromkeys(secrets or [one.secret for one in page.measurements[:1]])),
        "rows": [(name, row, asked_about(row, [one for _, one in rows])) for name, row in rows],
        "titles": {one.name: title_of(one, page.sections) for one in page.sections},
        "caveats": caveats_of(page.sections),
        "bodies": bodies,
        "rules": list(dict.fromkeys(rules)),
        "not_asked": [text.partition(":")[0].strip("`") for text in page.not_asked],
        "next_steps": next_steps(page.sections),
        "next_commands": [one.next_command for one in page.sections if one.next_command],
        "missing": [*missing, *(f"{name}: {reason}" for name, reason in page.refused.items())],
        "warnings": together(warnings_of(page.sections)),
        "private": any(section.private for section in page.sections),
        "versions": page.versions,
    }
    return str(render("leakgauge.report", "page.html.j2", values))


def title_of(section: Section, sections: Sequence[Section]) -> str:
    """Return the title of a section, with its secret where a question has several sections."""
    question = section.name.rstrip("0123456789").rstrip("-")
    several = sum(one.name.startswith(question) for one in sections) > 1
    secret = next((row.secret for row in section.rows if row.secret), "")
    told = not several or not secret or section.title.endswith(secret)
    return section.title if told else f"{section.title} {secret}"


def caveats_of(sections: Sequence[Section]) -> list[str]:
    """Return what intervals leave out, each once; the general sentence where no other says it."""
    found = list(dict.fromkeys(section.caveat for section in sections if section.caveat))
    return [one for one in found if one != ONE_TRAINING] or found


_PARAGRAPH = re.compile(r"<p\b([^>]*)>(.*?)</p>", re.DOTALL)
RULE = 'class="small rule"'
"""Attribute of a paragraph on how the words of a verdict are chosen; the page shows each once."""


def folded(section: Section) -> tuple[Markup, list[Markup]]:
    """Return the content of a section without what its cards say, and its rules on words.

    A reader sees the cards first, so a paragraph that repeats a part of them is left out.
    """
    said, rules = " ".join(str(marked(row.text)) for row in section.rows), []

    def kept(match: re.Match[str]) -> str:
        attributes, text = match.groups()
        if RULE in attributes:
            rules.append(Markup(text.strip()))  # escaped by the section's template
            return ""
        return "" if text.strip() in said and text.count(" ") >= FEW_WORDS else match.group()

    return Markup(_PARAGRAPH.sub(kept, str(section.html))), rules


WHY = "Its card says why."
"""What helps where no remedy is known: the reason."""

FEW_WORDS = 8
"""Number of blanks from which a paragraph counts as a sentence of its own."""


def strongest(sections: Sequence[Section]) -> Row | None:
    """Return the row of the strongest finding; None without rows."""
    rows = [row for section in sections for row in section.rows]
    return max(rows, key=lambda row: (LEVELS[row.level], row.strength), default=None)


def next_steps(sections: Sequence[Section]) -> list[str]:
    """Return the next steps after the strongest finding, one sentence each."""
    top = strongest(sections)
    if top is None:
        return []
    if top.level in LEAKS:
        several = sum(len(section.rows) for section in sections) > 1  # the strongest is first
        steps = [] if several else [f"The strongest finding is `{top.ask}`: {top.verdict}."]
    elif top.level == "inconclusive":
        steps = [f"`{top.ask}`: {top.verdict[:1].lower()}{top.verdict[1:]}. {top.remedy or WHY}"]
    else:
        steps = [
            "No question shows a leak. That holds for these adversaries and this much data; a "
            "stronger adversary may see more."
        ]
    effects = [section.effect.text for section in sections if section.effect is not None]
    if not effects and top.level in LEAKS:
        effects = list(dict.fromkeys(section.untried for section in sections))
    said = " ".join(row.text for section in sections for row in section.rows)
    return steps + [text for text in effects if text and text not in said]
