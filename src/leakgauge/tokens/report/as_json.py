"""The figures as plain values, for ``--json``, and as paragraphs for the terminal."""

from pathlib import Path
from typing import Any

from leakgauge.report.facts import plain_interval
from leakgauge.report.section import Line
from leakgauge.report.utility import useless_models, utilities, utility_line
from leakgauge.report.wording import quoted
from leakgauge.results.measurements import Measurement
from leakgauge.results.metrics import UTILITY
from leakgauge.runs.question import Answer
from leakgauge.tokens.metrics import (
    GAP,
    GAP_IN_SAMPLE,
    GAP_PLACEBO,
    IN_SAMPLE,
    INFORMATION,
    MATCHED,
    MISMATCHED,
    PLACEBO,
)
from leakgauge.tokens.report.levels import headline, level_of_peak
from leakgauge.tokens.report.rows import Course, InformationCurve, courses, schedule
from leakgauge.tokens.report.wording import ranks_of_attack, trend, verdict
from leakgauge.tokens.words import QUESTION

Plain = dict[str, Any]

_NAMES = {
    INFORMATION: "information_nats",
    PLACEBO: "placebo",
    IN_SAMPLE: "information_in_sample",
    GAP: "critic_gap",
    GAP_PLACEBO: "critic_gap_placebo",
    GAP_IN_SAMPLE: "critic_gap_in_sample",
    MATCHED: "critic_matched",
    MISMATCHED: "critic_mismatched",
}


def as_json(answer: Answer, folder: Path) -> Plain:
    """Return one entry for each checkpoint and critic, the verdicts, and the advice."""
    run, found = answer.run, courses(answer.measurements)
    first = found[0]
    return {
        "label": run.settings.get("label", ""),
        "seed": run.settings["seed"],
        "verdict": [_verdict(course) for course in found],
        "timeline": [
            _entry(course, curve, step)
            for course in found
            for curve in course.curves
            for step in course.steps
            if step in curve.steps
        ],
        "schedule": [
            {"from": one.start, "to": one.end, "noise": one.multiplier}
            for one in schedule(first.leading, level_of_peak(first.peak, first.placebo))
        ],
        "utility": {
            one.metric: plain_interval(one.estimate)
            for one in answer.measurements
            if one.metric in UTILITY
        },
        "warnings": [*run.warnings, *useless_models(utilities(answer.measurements))],
        "missing": list(answer.missing),
    }


def lines(answer: Answer) -> list[Line]:
    """Return the paragraphs that the terminal prints."""
    made = []
    for course in courses(answer.measurements):
        if course.peak is None:
            continue
        level = level_of_peak(course.peak, course.placebo)
        detail = QUESTION if not course.is_defended else f"{QUESTION}, {course.defense}"
        made.append(Line(quoted(verdict(course, level)), level, headline(level), detail))
        texts = [trend(course), *(ranks_of_attack(one, course) for one in course.curves)]
        made += [Line(quoted(text)) for text in texts if text]
    return [*made, *(Line(quoted(utility_line(one))) for one in utilities(answer.measurements))]


def _verdict(course: Course) -> Plain:
    one, level = course.peak, level_of_peak(course.peak, course.placebo)
    return {
        "defense": course.defense,
        "verdict": None if one is None else headline(level),
        "step": None if one is None else int(one.details["step"]),
        "information_nats": _of(one),
        "looks": None if one is None else int(one.details["looks"]),
    }


def _entry(course: Course, curve: InformationCurve, step: int) -> Plain:
    return {
        "step": step,
        "accuracy": _of(course.model.get(step)),
        **{name: _of(curve.figures.get(key, {}).get(step)) for key, name in _NAMES.items()},
        "cheap": _of(course.cheap.get(step)),
        "token": curve.token,
        "estimator": curve.estimator,
        "defense": course.defense,
        "limited": curve.about(step).get("limited by its sample") == "yes",
        "attack": {name: _of(steps.get(step)) for name, steps in course.attack.items()},
    }


def _of(one: Measurement | None) -> dict[str, float] | None:
    return None if one is None else plain_interval(one.estimate)
