"""The section of the timeline in a report, made from measurements alone."""

from collections.abc import Mapping
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

from markupsafe import Markup

from leakgauge.inference.spec import InferenceSpec
from leakgauge.report.facts import other_facts, parts
from leakgauge.report.section import ONE_TRAINING, Chart, Row, Section
from leakgauge.report.templates import render
from leakgauge.report.utility import about_utility, useless_models, utilities, words_of
from leakgauge.runs.question import Answer, Question
from leakgauge.runs.repeat import repeat_audit, spec_of_run, with_fixes
from leakgauge.tokens.metrics import METRICS
from leakgauge.tokens.report.as_json import lines
from leakgauge.tokens.report.charts import bound_chart, scores_chart
from leakgauge.tokens.report.levels import (
    NOTHING_NATS,
    STRONG_NATS,
    headline,
    level_of_peak,
    strength_of,
)
from leakgauge.tokens.report.rows import LEAST, NO_GUARANTEE, Course, courses, schedule
from leakgauge.tokens.report.wording import (
    about_attack,
    ends,
    figure,
    ignorant_steps,
    kind_of,
    limited_steps,
    ranks_of_attack,
    trend,
    verdict,
)
from leakgauge.tokens.spec import TimelineSpec
from leakgauge.tokens.words import CLEAR_NATS, QUESTION, TOKENS

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
        answer: the answer of the question.
        question: the question; its name is the prefix of the anchors.
    """
    run, at = answer.run, question.name
    found, learned = courses(answer.measurements), utilities(answer.measurements)
    levels = [level_of_peak(one.peak, one.placebo) for one in found]
    texts = [
        {"says": verdict(one, level), "trend": trend(one), "attack": about_attack(one)}
        for one, level in zip(found, levels, strict=True)
    ]
    html = render(
        "leakgauge.tokens.report",
        "section.html.j2",
        {
            "at": at,
            "run": run,
            "courses": list(zip(found, levels, texts, strict=True)),
            "charts": [_charts(one, f"{at}-{number}") for number, one in enumerate(found)],
            "headline": headline,
            "figure": figure,
            "ends": ends,
            "kind_of": kind_of,
            "limited": limited_steps,
            "ignorant": ignorant_steps,
            "ranks": ranks_of_attack,
            "model_name": _model_name(found[0]),
            "schedule": schedule(found[0].leading, levels[0]),
            "no_guarantee": NO_GUARANTEE,
            "least": LEAST,
            "missing": answer.missing,
            "learned": [about_utility(one) for one in learned],
            "parts": parts(run.data),
            "rest": other_facts(run.data),
            "strong": STRONG_NATS,
            "clear": CLEAR_NATS,
            "nothing": NOTHING_NATS,
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
        untried="" if any(one.is_defended for one in found) else Section.untried,
        caveat=ONE_TRAINING,
        next_command=next_command(with_fixes(run), question),
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


def next_command(settings: Mapping[str, Any], question: Question) -> str:
    """Return the command with both tokens; empty if both were used."""
    given = {key: settings[key] for key in settings if key not in ("features", "layers")}
    spec = spec_of_run(given, TimelineSpec)
    if spec is None or set(spec.token) == set(TOKENS):
        return ""
    both = changed(spec, token=TOKENS)
    return repeat_audit("audit", {question.name: (question, both)}, InferenceSpec)


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
            "the accuracy; the table below lists them.",
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
        text = " ".join(answer.missing) or "No critic was evaluated."
        return Row(QUESTION, "Not measured", "unknown", text, test=test)
    level = level_of_peak(one, course.placebo)
    return Row(
        ask=QUESTION,
        verdict=headline(level),
        level=level,
        text=verdict(course, level),
        metric=f"largest held-out {kind_of(one.details['estimator'])}, nats",
        estimate=one.estimate,
        chance=0.0,
        strength=strength_of(one.estimate),
        test=test,
    )
