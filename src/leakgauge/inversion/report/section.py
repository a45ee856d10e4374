"""The section of a report on rebuilt records: verdict, records, figures and curves."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from torch import Tensor

from leakgauge.inversion.metrics.table import (
    COLUMNS,
    LEAST_SURE,
    LOSS,
    METRICS,
    MOST_SURE,
    PSNR,
)
from leakgauge.inversion.report.by_scores import InversionVerdict
from leakgauge.inversion.report.curves import draw_curves, line_style
from leakgauge.inversion.report.effect import effect_of, next_command
from leakgauge.inversion.report.ladder import breaking, draw_ladder, ladder_of, ladder_sentence
from leakgauge.inversion.report.levels import (
    Guessed,
    by_nearness,
    guesses_of,
    joint_sentence,
    sentence,
    statement,
    worst,
)
from leakgauge.inversion.report.records import RecordRows, gallery, read_pictures, read_rows
from leakgauge.inversion.report.threat_model import threat_model
from leakgauge.inversion.run.kept import FACTS_FILE, TRUTH, read_facts
from leakgauge.inversion.words import AGAINST_SERVERS, BY_SERVER, NAME, REMEDIES
from leakgauge.report.facts import other_facts, parts
from leakgauge.report.grouping import Test, group_tests
from leakgauge.report.section import Line, Row, Section
from leakgauge.report.templates import render
from leakgauge.report.wording import number, short
from leakgauge.results.measurements import Measurement
from leakgauge.results.metrics import titles
from leakgauge.runs.question import Answer, Question
from leakgauge.runs.repeat import with_fixes
from leakgauge.runs.spec import NONE

PACKAGE = "leakgauge.inversion.report"
CURVES = (PSNR, LOSS)
COLUMN = f"{COLUMNS}: "
"""Prefix of the metric names of single columns."""

TITLES = titles(METRICS)


def section(answer: Answer, question: Question, folder: Path) -> Section:
    """Return the section of an answer, with the records in the run folder.

    Raises:
        InputError: the kept records are damaged, or of another run.
    """
    tests = group_tests(answer.measurements)
    pictures, rows = read_pictures(folder, len(tests)), read_rows(folder, len(tests))
    is_update = answer.run.settings.get("update") is not None
    kept = is_update or (folder / FACTS_FILE).is_file()
    facts = read_facts(folder, len(tests)) if kept else []
    labels = facts[0]["labels"] if is_update else None
    return section_of(answer, pictures, rows, labels=labels, guesses=guesses_of(facts, tests))


def section_of(
    answer: Answer,
    pictures: Mapping[str, Tensor],
    rows: Mapping[str, RecordRows],
    *,
    labels: Sequence[int] | None = None,
    guesses: Sequence[Guessed] = (),
) -> Section:
    """Return the section of an answer, with these records.

    Args:
        answer: answer to the question.
        pictures: uint8 ``[n, c, h, w]`` by ``"truth"`` and by the number of the attempt.
        rows: rows of a table, by the same names.
        labels: labels inferred from a real client's update, if they may be shown.
        guesses: guesses without the update, from ``guesses_of``.
    """
    tests = group_tests(answer.measurements)
    values = _values(answer, tests, pictures, rows, guesses)
    undefended = [test for test in tests if test.defense == NONE] or tests
    names = {TRUTH: TRUTH} | {str(at): test.who for at, test in enumerate(tests)}
    says = [*map(sentence, tests), *filter(None, [values["ladder_says"]])]
    if labels is not None:
        how = answer.run.settings["labels"]
        said = ["unknown" if one < 0 else str(one) for one in labels]
        says.append(f"labels ({how}): {', '.join(said)}")
    return Section(
        name=NAME,
        title="Can the records be rebuilt?",
        html=render(PACKAGE, "section.html.j2", values),
        rows=[_row(*worst(tests))],
        tests=[replace(_row(*one), test=one[0].who) for one in by_nearness(tests)],
        lines=[*map(Line, says)],
        missing=answer.missing,
        warnings=list(answer.run.warnings),
        effect=effect_of(tests),
        next_command=next_command(with_fixes(answer.run), worst(undefended)[1].level),
        nav=_nav(values),
        style=files(PACKAGE).joinpath("section.css").read_text("utf-8"),
        private=bool(pictures or rows),
        pictures={name: pictures[key] for key, name in names.items() if key in pictures},
    )


def _values(
    answer: Answer,
    tests: list[Test],
    pictures: Mapping[str, Tensor],
    rows: Mapping[str, RecordRows],
    guesses: Sequence[Guessed],
) -> dict[str, Any]:
    """Return the values of the template, by name."""
    steps = ladder_of(tests)
    curves = {name: draw_curves(tests, name, name=f"{NAME}-{name}") for name in CURVES}
    return {
        "at": NAME,
        "threat_model": threat_model(answer.run),
        "against_server": any(BY_SERVER in test.adversary for test in tests) and AGAINST_SERVERS,
        "run": answer.run,
        "verdicts": [_verdict(*one) for one in by_nearness(tests)],
        "missing": answer.missing,
        "titles": [test.who for test in tests],
        "figures": [{name: test.at(name) for name in TITLES if test.at(name)} for test in tests],
        "metrics": {name: text for name, text in TITLES.items() if any(t.at(name) for t in tests)},
        "count": answer.measurements[0].estimate.n,
        "columns": _columns(tests),
        "sure": _sure(tests),
        "epochs": [(test.who, one.round, one) for test in tests for one in test.single(PSNR)],
        "joints": [text for test in tests if (text := joint_sentence(test))],
        "guesses": guesses,
        "ladder": steps,
        "breaks": breaking(steps),
        "ladder_says": ladder_sentence(steps),
        "ladder_chart": draw_ladder(steps, name=f"{NAME}-ladder"),
        "curves": {name: svg for name, svg in curves.items() if svg is not None},
        "legend": _legend(tests),
        "gallery": gallery(pictures),
        "true_known": TRUTH in pictures or TRUTH in rows,
        "rows": rows,
        "redacted": bool(answer.run.settings.get("redact")),
        "parts": parts(answer.run.data),
        "rest": other_facts(answer.run.data),
    }


def _verdict(test: Test, verdict: InversionVerdict) -> dict[str, Any]:
    """Return the template's values for an attempt's verdict."""
    text = statement(test)
    shown = {"verdict": verdict, "title": test.who, "text": text[:1].upper() + text[1:]}
    if verdict.figure is None:
        return {**shown, "value": ""}
    metric, one = METRICS[verdict.figure.metric], verdict.figure.estimate
    written = number if metric.is_share else short
    return shown | {
        "label": metric.label,
        "value": written(one.value),
        "ends": f"{written(one.low)} to {written(one.high)}" if one.n > 1 else "",
        "guess": written(verdict.figure.chance),
    }


def _row(test: Test, verdict: InversionVerdict) -> Row:
    row = Row(
        NAME,
        verdict.words,
        verdict.level,
        sentence(test),
        strength=verdict.strength,
        remedy=REMEDIES.get(verdict.words, ""),
    )
    figure = verdict.figure
    # The loss is not a distance to the truth, and a single record has no interval.
    if figure is None or figure.estimate.n == 1:
        return row
    label = METRICS[figure.metric].label
    return replace(row, metric=label, estimate=figure.estimate, chance=figure.chance)


def _nav(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the anchors inside the section, and their titles."""
    present = {
        "Ladder": values["ladder"],
        "Records": values["gallery"] or values["rows"],
        "Figures": values["metrics"],
        "Curves": values["curves"],
        "Data": True,
    }
    return [(f"{NAME}-{name.lower()}", name) for name, shown in present.items() if shown]


def _columns(tests: Sequence[Test]) -> dict[str, list[Measurement | None]]:
    """Return the accuracy of each original column of a table, for each attempt."""
    names = dict.fromkeys(m for test in tests for m in test.metrics if m.startswith(COLUMN))
    return {name.removeprefix(COLUMN): [test.at(name) for test in tests] for name in names}


def _sure(tests: Sequence[Test]) -> list[tuple[str, list[Measurement]]]:
    """Return how often the most and the least confident cells are right, by attempt and kind."""
    return [
        (f"{test.who}: {kind}", [most, least])
        for test in tests
        for kind in ("categories", "numbers")
        if (most := test.at(f"{MOST_SURE}: {kind}")) and (least := test.at(f"{LEAST_SURE}: {kind}"))
    ]


def _legend(tests: Sequence[Test]) -> list[tuple[str, str, str]]:
    """Return name, colour and dash of each attempt with a curve."""
    return [
        (test.who, *line_style(number))
        for number, test in enumerate(tests)
        if any((one := test.at(name)) and one.curve for name in CURVES)
    ]
