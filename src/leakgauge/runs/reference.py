"""Where a figure stands among reference audits of public tables, and its known causes.

``reference-audits.json`` holds figures alone, no records. They were measured once, with the default
settings and seed 0, by ``experiments/reference/tables.py``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources

import pydantic
from pydantic import BaseModel, ConfigDict

from leakgauge.report.levels import LEAKS
from leakgauge.report.section import Cause, Row, Section, Standing
from leakgauge.report.wording import percent
from leakgauge.results.measurements import Measurement
from leakgauge.results.scores import ACCURACY, TRAIN_ACCURACY
from leakgauge.runs.audit import AuditRun
from leakgauge.runs.question import Answer
from leakgauge.runs.spec import NONE

FILE = "reference-audits.json"
FEWEST = 10
"""Number of reference audits below which a place among them tells nothing."""

GAP = 0.1
"""Difference of the accuracies on training records and on others that counts as overfitting."""

ROUNDING = 0.0005
"""Largest difference of two figures that are shown alike."""

IMBALANCED = 0.9
"""Share of the most frequent label that counts as an imbalance."""

ONE_RECORD, OVERFITTING, IMBALANCE = "one record", "overfitting", "label imbalance"


class ReferenceFigure(BaseModel):
    """The leading figure of one word of ``--ask`` in a reference audit.

    Attributes:
        ask: the word.
        metric: title of the metric.
        value: the figure.
        causes: its known causes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    ask: str
    metric: str
    value: float
    causes: tuple[str, ...] = ()


class ReferenceAudit(BaseModel):
    """An audit of a public table.

    Attributes:
        data: name of the table.
        fingerprint: digest of its content.
        label: column that the model predicts.
        secret: column that adversaries infer.
        records: number of records.
        columns: number of features.
        figures: leading figures.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: str
    fingerprint: str
    label: str
    secret: str
    records: int
    columns: int
    figures: tuple[ReferenceFigure, ...]


@cache
def reference_audits() -> tuple[ReferenceAudit, ...]:
    """Return the reference audits of tables."""
    text = resources.files("leakgauge.runs").joinpath(FILE).read_text("utf-8")
    return pydantic.TypeAdapter(tuple[ReferenceAudit, ...]).validate_json(text)


def with_standing(sections: Sequence[Section], audit: AuditRun) -> list[Section]:
    """Return the sections of an audit with the place and the causes of each summary figure.

    Data other than tables have no reference audits, so their figures have no place. The table
    itself does not count where it is one of the reference audits.
    """
    is_table = any("columns" in one.run.data for one in audit.answers.values())
    others = [
        one
        for one in (reference_audits() if is_table else ())
        if one.fingerprint != audit.description.data.get("fingerprint")
    ]
    placed = []
    for section, answer in zip(sections, audit.answers.values(), strict=True):
        causes = causes_of(answer)
        rows = [_placed(row, causes, others) for row in section.rows]
        placed.append(replace(section, rows=tuple(rows)))
    return placed


def _placed(row: Row, causes: Mapping[str, str], audits: Iterable[ReferenceAudit]) -> Row:
    if row.estimate is None:
        return row
    same = [
        figure
        for one in audits
        for figure in one.figures
        if (figure.ask, figure.metric) == (row.ask, row.metric)
    ]
    known = tuple(
        Cause(name, words, sum(name in one.causes for one in same))
        for name, words in causes.items()
        if row.level in LEAKS  # nothing has a cause where nothing was found
    )
    return replace(row, standing=standing(row, [one.value for one in same]), causes=known)


def standing(row: Row, values: Sequence[float]) -> Standing | None:
    """Return the place of a row's figure among ``values``; None where these are too few.

    >>> from leakgauge.results.measurements import Estimate
    >>> row = Row("property", "Weak leakage", "weak", "", estimate=Estimate(0.7, 0.6, 0.8, 100))
    >>> standing(row, [0.5, 0.65, 0.75, 0.9] * 3).words
    'higher than in 6 of 12 reference audits of tables (3 to 9 over its interval)'
    """
    one = row.estimate
    if one is None or len(values) < FEWEST:
        return None
    ends = (one.value, one.low, one.value if row.open_end else one.high)
    above, low, high = (sum(value < end - ROUNDING for value in values) for end in ends)
    equal = sum(abs(value - one.value) <= ROUNDING for value in values)
    return Standing(above, equal, low, high, len(values))


def causes_of(answer: Answer) -> dict[str, str]:
    """Return the known causes of leakage that an answer shows, with words on each.

    Where the accuracy on the training records was measured, overfitting is one; elsewhere batches
    of one record, and labels most of which are the same.
    """
    of_model = {one.metric: one for one in _without_defense(answer.measurements)}
    exact, usual = of_model.get(TRAIN_ACCURACY), of_model.get(ACCURACY)
    if exact is not None and usual is not None:
        before, after = exact.estimate.value, usual.estimate.value
        words = (
            f"the model is right on {percent(before)} of its training records and on "
            f"{percent(after)} of others (overfitting)"
        )
        return {OVERFITTING: words} if before - after >= GAP else {}
    found: dict[str, str] = {}
    if answer.run.settings.get("batch_size") == 1:
        found[ONE_RECORD] = "a batch is one record"
    if usual is not None and usual.chance is not None and usual.chance >= IMBALANCED:
        found[IMBALANCE] = f"{percent(usual.chance)} of the records have the same label"
    return found


def _without_defense(measurements: Iterable[Measurement]) -> list[Measurement]:
    return [one for one in measurements if one.defense in ("", NONE)]
