"""The section of the timeline in a report; it reads measurements and computes none."""

from dataclasses import replace as changed
from pathlib import Path
from typing import Any

from markupsafe import Markup

from leakgauge.core.checks import InputError
from leakgauge.inference.settings import InferenceSettings
from leakgauge.report.facts import other_facts
from leakgauge.report.section import Chart, Level, Row, Section
from leakgauge.report.templates import render
from leakgauge.report.utility import about_utility, useless_models, utilities, words_of
from leakgauge.runs.question import Answer, Question
from leakgauge.runs.repeat import repeat_audit
from leakgauge.runs.spec import declared, make_spec
from leakgauge.tokens.metrics import METRICS
from leakgauge.tokens.report.advice import LEAST, NO_GUARANTEE, schedule
from leakgauge.tokens.report.as_json import lines
from leakgauge.tokens.report.charts import bound_chart, scores_chart
from leakgauge.tokens.report.levels import (
    CLEAR_NATS,
    ENOUGH,
    NOTHING_NATS,
    STRONG_NATS,
    headline,
    level_of_peak,
    strength_of,
)
from leakgauge.tokens.report.rows import Course, courses
from leakgauge.tokens.report.wording import (
    about_attack,
    beside_attack,
    ends,
    figure,
    ignorant_steps,
    kind_of,
    limited_steps,
    trend,
    verdict,
)
from leakgauge.tokens.spec import TimelineSpec
from leakgauge.tokens.words import QUESTION, TOKENS

PARTS = ("records", "columns", "private", "test", "users")
"""Sizes of the data, in the order of the report."""

_NAV = (
    ("verdict", "Verdict"),
    ("curves", "Curves"),
    ("checkpoints", "Checkpoints"),
    ("advice", "Advice"),
    ("data", "Data"),
    ("settings", "Settings"),
)


def section(answer: Answer, question: Question, folder: Path) -> Section:
    """Return the section of an answer. The same measurements give the same bytes.

    Args:
        answer: of the question.
        question: whose name is the prefix of the anchors.
        folder: not used; the figures are all that is shown.
    """
    run, at = answer.run, question.name
    found = courses(answer.measurements)
    learned = utilities(answer.measurements)
    first = found[0]
    level = level_in(first)
    html = render(
        "leakgauge.tokens.report",
        "section.html.j2",
        {
            "at": at,
            "run": run,
            "courses": [(one, level_in(one), _texts(one)) for one in found],
            "charts": [_charts(one, f"{at}-{number}") for number, one in enumerate(found)],
            "headline": headline,
            "figure": figure,
            "ends": ends,
            "kind_of": kind_of,
            "limited": limited_steps,
            "ignorant": ignorant_steps,
            "beside": beside_attack,
            "model_name": _model_name(first),
            "schedule": schedule(first.leading, level),
            "no_guarantee": NO_GUARANTEE,
            "least": LEAST,
            "missing": answer.missing,
            "learned": [about_utility(one) for one in learned],
            "parts": {name: run.data[name] for name in PARTS if name in run.data},
            "rest": other_facts({k: v for k, v in run.data.items() if k not in PARTS}),
            "strong": STRONG_NATS,
            "clear": CLEAR_NATS,
            "nothing": NOTHING_NATS,
            "enough": ENOUGH,
            "cell": _cell,
            "titles": {name: metric.label for name, metric in METRICS.items()},
        },
    )
    return Section(
        name=at,
        title=question.title,
        html=html,
        rows=[_summary(answer, course) for course in found],
        lines=lines(answer),
        missing=answer.missing,
        warnings=[*run.warnings, *useless_models(learned)],
        next_command=next_command(run.settings, question),
        nav=[(f"{at}-{anchor}", text) for anchor, text in _NAV],
        style=_STYLE,
    )


_STYLE = """
.key.bound::before { height: 0; border-top: 2px solid var(--accent); }
.key.placebo::before { background: color-mix(in srgb, var(--muted) 30%, transparent); }
.key.accuracy::before { height: 0; border-top: 2px dotted var(--ink); }
.key.mismatched::before { height: 0; border-top: 2px dashed var(--ink); }
.timeline-charts .legend { margin: 8px 0 0; }
"""


def level_in(course: Course) -> Level:
    """Return the level of a training's largest bound."""
    return "unknown" if course.peak is None else level_of_peak(course.peak, course.placebo)


def next_command(settings: Any, question: Question) -> str:
    """Return the command that looks with the other token, too; empty where both were used."""
    if not (settings.get("data") or settings.get("task")):
        return ""
    known = declared(TimelineSpec)
    given = {key: settings[key] for key in settings if key in known}
    given.pop("features", None)
    given.pop("layers", None)
    if settings.get("task"):
        given.pop("label", None)  # the task has its own
    try:
        spec = make_spec(TimelineSpec, given)
    except InputError:  # a run of other settings than this version has
        return ""
    assert isinstance(spec, TimelineSpec)
    if set(spec.token) == set(TOKENS):
        return ""
    both = changed(spec, token=TOKENS)
    return repeat_audit("audit", {question.name: (question, both)}, InferenceSettings)


def _texts(course: Course) -> dict[str, Any]:
    return {
        "says": verdict(course, level_in(course)),
        "trend": trend(course),
        "attack": about_attack(course),
    }


def _charts(course: Course, name: str) -> list[tuple[Chart, Chart]]:
    steps = course.steps
    under = f", under {course.defense}" if course.is_defended else ""
    made = []
    for number, curve in enumerate(course.curves):
        if not curve.steps:
            continue
        bound = Chart(
            f"Held-out {kind_of(curve.estimator)} in nats: {curve.title}{under}",
            f"The held-out {kind_of(curve.estimator)} at each checkpoint with the placebo's and "
            "the accuracy; the table below has them.",
            bound_chart(curve, course.model, course.cheap, steps, name=f"{name}-bound-{number}"),
            _legend(
                bound=kind_of(curve.estimator),
                mismatched="linear-Gaussian measure" if course.cheap else "",
                placebo="placebo",
                accuracy=_model_name(course),
            ),
        )
        scores = Chart(
            f"Scores of the critic: {curve.title}{under}",
            "The critic's mean score of matched and of mismatched pairs at each checkpoint.",
            scores_chart(curve, steps, name=f"{name}-scores-{number}"),
            _legend(bound="matched", mismatched="mismatched"),
        )
        made.append((bound, scores))
    return made


def _legend(**keys: str) -> Markup:
    entry = Markup('<span class="key {}">{}</span>')
    return Markup("").join(entry.format(kind, text) for kind, text in keys.items() if text)


def _model_name(course: Course) -> str:
    one = next(iter(course.model.values()), None)
    if one is None:
        return ""
    return words_of(changed(one, metric=one.metric.partition(": ")[2])).name


def _cell(one: Any) -> Markup:
    """Return a figure with its interval as a table's cell."""
    if one is None:
        return Markup('<td class="missing"><span>not measured</span></td>')
    text = Markup("<strong>{}</strong>").format(figure(one.value))
    if one.low != one.high:
        text += Markup("<span>{}</span>").format(ends(one))
    return Markup("<td>{}</td>").format(text)


def _summary(answer: Answer, course: Course) -> Row:
    test = course.defense if course.is_defended else ""
    one = course.peak
    if one is None:
        text = " ".join(answer.missing) or "No critic was judged."
        return Row(QUESTION, "Not measured", "unknown", text, test=test)
    level = level_in(course)
    return Row(
        ask=QUESTION,
        verdict=headline(level),
        level=level,
        text=" ".join(filter(None, (verdict(course, level), trend(course)))),
        metric=f"largest held-out {kind_of(one.details['estimator'])}, nats",
        estimate=one.estimate,
        chance=0.0,
        strength=strength_of(one.estimate),
        test=test,
    )
