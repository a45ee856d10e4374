"""The part of a report on single records: which are exposed, by which attacks, and how surely."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from leakgauge.report.templates import render
from leakgauge.report.wording import count, number, percent
from leakgauge.results.exposure import (
    LEVEL,
    NOT_ATTACKED,
    AttackOverlap,
    ExposedRecord,
    Exposure,
    title_of,
)
from leakgauge.results.record_tests import DATA, SHARED, RecordTest
from leakgauge.results.statistics import Bools

MOST = 20
"""Records that the report shows, at most; ``exposure.csv`` has all."""


@dataclass(frozen=True)
class ExposureView:
    """What a page shows of the tests under one defense.

    Attributes:
        defense: name of the defense.
        says: the result in one sentence.
        numbering: how rows are counted.
        titles: title of each test.
        tests: the tests.
        overlaps: what each finds, alone or with others.
        least: for each test what it needs to name any record.
        records: the most exposed records.
        cells: text of each record's cells by test.
        notes: the worst records, and what p values suppose.
        values: row and values of the most exposed records, where the user asked for them.
    """

    defense: str
    says: str
    numbering: str
    titles: Sequence[str]
    tests: Sequence[RecordTest]
    overlaps: Sequence[AttackOverlap]
    least: Sequence[str]
    records: Sequence[ExposedRecord]
    cells: Sequence[Sequence[str]]
    notes: Sequence[str]
    values: Sequence[tuple[int, Sequence[str]]] = ()


def exposure_html(found: Sequence[Exposure], shown: pd.DataFrame | None = None) -> Markup:
    """Return the part of the page; empty where no question tested single records.

    Args:
        found: the tests under each defense.
        shown: values of exposed records as text, indexed by row; None shows none.
    """
    if not found:
        return Markup("")
    values: dict[str, Any] = {
        "views": [_with_values(view_of(one, several=len(found) > 1), shown) for one in found],
        "columns": [] if shown is None else list(shown.columns),
        "level": LEVEL,
        "most": MOST,
    }
    return render("leakgauge.report", "exposure.html.j2", values)


def _with_values(view: ExposureView, shown: pd.DataFrame | None) -> ExposureView:
    if shown is None:
        return view
    rows = [one.row for one in view.records if one.row in shown.index]
    return replace(view, values=[(row, list(shown.loc[row].to_numpy())) for row in rows])


def view_of(exposure: Exposure, *, several: bool = False) -> ExposureView:
    """Return what a page shows; ``several`` names the defense in the sentence."""
    records, tests = exposure.most(MOST), exposure.tests
    return ExposureView(
        defense=exposure.defense,
        says=exposure_sentence(exposure, several=several),
        numbering="" if exposure.numbering == DATA else exposure.numbering,
        titles=[title_of(one, tests) for one in tests],
        tests=tests,
        overlaps=exposure.overlaps,
        least=[least_named(one, len(tests)) for one in tests],
        records=records,
        cells=[[_cell(one, at, tests) for at in range(len(tests))] for one in records],
        notes=list(dict.fromkeys(line for one in tests for line in _notes(one))),
    )


def exposure_sentence(exposure: Exposure, *, several: bool = False) -> str:
    """Return how many records are named above chance, or that none could be, in words."""
    named, attacked = int(exposure.named.any(axis=1).sum()), len(exposure.rows)
    under = " without a defense" if exposure.defense == "none" else f" with {exposure.defense}"
    where = under if several else ""
    tests = exposure.tests
    unable = [one for one in tests if _least(one, len(tests)) is None]
    if len(unable) == len(tests):
        others = max(int(one.others.max(initial=0)) for one in tests)
        return (
            f"None of the {count(attacked)} attacked records could be named{where}, whatever "
            f"leaks: {count(others)} other records to compare with are too few. To name any, "
            "attack fewer records or give more data."
        )
    verb = "is" if named <= 1 else "are"
    many = count(named) if named else "None"
    relative = dict.fromkeys(one.ask for one in tests if len(one.family) and one.secret)
    than = f"; by {' and '.join(relative)}, above others with the same secret" if relative else ""
    error = f"; if nothing leaks, at most {percent(LEVEL)} of audits name one" if named else ""
    titles = " and ".join(title_of(one, tests) for one in unable)
    few = f"; {titles} could name none, for too few others" if unable else ""
    said = f"{many} of the {count(attacked)} attacked records {verb} named above chance"
    return f"{said}{where}{than}{error}{few}."


def least_named(test: RecordTest, tests: int) -> str:
    """Return how many records must score above all others before the test names one.

    Args:
        test: the test.
        tests: number of tests under the same defense.
    """
    least = _least(test, tests)
    if least is None:
        return "none: too few others"
    if least <= 1:
        return "1 record"
    return f"{count(least)} {'users' if len(test.unit) else 'records'} above all others"


def _least(test: RecordTest, tests: int) -> int | None:
    """Return how many records of a family must score above all others before one is named.

    It is the smallest number of all families; None where no p value of the test is small enough.
    """
    found = [
        needed
        for needed, records in (_needed(test, family, tests) for family in test.families)
        if needed <= 1 or (test.dependence == SHARED and needed <= records)
    ]
    return min(found, default=None)


def _needed(test: RecordTest, family: Bools, tests: int) -> tuple[int, int]:
    """Return how many records of a family must score above all others, and how many it has."""
    units = test.unit[family] if len(test.unit) else test.rows[family]
    records = len(np.unique(units))
    least = 1 / (int(test.others[family].max(initial=0)) + 1)
    corrections = tests * len(test.families)
    return math.ceil(records * corrections * least / LEVEL - 1e-9), records


def _notes(test: RecordTest) -> list[str]:
    """Return the worst record of a test, and what its p values suppose, a sentence each."""
    shared = f"The records of one user share a test of {test.ask}." if len(test.unit) else ""
    return [line for line in (test.worst, shared, test.assumes) if line]


def _cell(record: ExposedRecord, at: int, tests: Sequence[RecordTest]) -> str:
    """Return a record's figures by one test, in a few words."""
    one, test = record.figures[at], tests[at]
    if one.status == NOT_ATTACKED:
        return NOT_ATTACKED
    parts = [f"{count(one.as_high)} of {count(one.others)}"]
    if one.figure is not None:
        guess = "" if one.guess is None else f", {test.without} {number(one.guess)}"
        parts.append(f"{test.metric} {number(one.figure)}{guess}")
    return "; ".join(parts)


def exposure_as_json(found: Sequence[Exposure]) -> list[dict[str, Any]]:
    """Return the tests and the most exposed records under each defense, as plain values."""
    return [
        {
            "defense": one.defense,
            "says": exposure_sentence(one, several=len(found) > 1),
            "tests": [
                {
                    "ask": test.ask,
                    **({"secret": test.secret} if test.secret else {}),
                    "adversary": test.adversary,
                    "knowledge": test.knowledge,
                    "versus": test.versus,
                    "attacked": each.attacked,
                    "named": each.named,
                    "named_by_it_alone": each.alone,
                    "attacked_by_another_too": each.also_attacked,
                }
                for test, each in zip(one.tests, one.overlaps, strict=True)
            ],
            "records": [_record_as_json(record) for record in one.most(MOST)],
        }
        for one in found
    ]


def _record_as_json(record: ExposedRecord) -> dict[str, Any]:
    figures = [
        {"status": one.status} if one.status == NOT_ATTACKED else asdict(one)
        for one in record.figures
    ]
    return {
        "row": record.row,
        "named": record.named,
        "adjusted_p": record.adjusted,
        "by_test": figures,
    }
