"""The figures as plain values, for ``--json``, and as paragraphs for the terminal."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leakgauge.report.section import Level, Line
from leakgauge.report.utility import useless_models, utilities, utility_line
from leakgauge.report.wording import quoted
from leakgauge.results.measurements import Estimate, Measurement
from leakgauge.results.model_metrics import UTILITY
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
from leakgauge.tokens.report.advice import Phase, schedule
from leakgauge.tokens.report.levels import headline, level_of_peak
from leakgauge.tokens.report.rows import Course, Curve, courses
from leakgauge.tokens.report.wording import beside_attack, trend, verdict
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
            for one in _schedule(found[0])
        ],
        "utility": {
            one.metric: _figure(one.estimate)
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
        level = _level(course)
        detail = QUESTION if not course.is_defended else f"{QUESTION}, {course.defense}"
        made.append(Line(quoted(verdict(course, level)), level, headline(level), detail))
        texts = [trend(course), *(beside_attack(one, course) for one in course.curves)]
        made += [Line(quoted(text)) for text in texts if text]
    return [*made, *(Line(quoted(utility_line(one))) for one in utilities(answer.measurements))]


def _level(course: Course) -> Level:
    return "unknown" if course.peak is None else level_of_peak(course.peak, course.placebo)


def _schedule(course: Course) -> list[Phase]:
    return schedule(course.leading, _level(course))


def _verdict(course: Course) -> Plain:
    one = course.peak
    return {
        "defense": course.defense,
        "verdict": None if one is None else headline(_level(course)),
        "step": None if one is None else int(one.details["step"]),
        "information_nats": None if one is None else _figure(one.estimate),
        "looks": None if one is None else int(one.details["looks"]),
    }


def _entry(course: Course, curve: Curve, step: int) -> Plain:
    figures = {
        name: _of(curve.figures.get(metric, {}).get(step)) for metric, name in _NAMES.items()
    }
    return {
        "step": step,
        "accuracy": _of(course.model.get(step)),
        **figures,
        "cheap": _of(course.cheap.get(step)),
        "token": curve.token,
        "estimator": curve.estimator,
        "defense": course.defense,
        "limited": curve.about(step).get("limited by its sample") == "yes",
        "attack": {name: _of(steps.get(step)) for name, steps in course.attack.items()},
    }


def _of(one: Measurement | None) -> Mapping[str, float] | None:
    return None if one is None else _figure(one.estimate)


def _figure(estimate: Estimate) -> Plain:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}
