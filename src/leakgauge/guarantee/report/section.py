"""The section of the report about a guarantee."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from leakgauge.guarantee.filter import is_filter
from leakgauge.guarantee.metrics import EPSILON, GAUSSIAN, IN_SAMPLE, METRICS
from leakgauge.guarantee.report.audited import AuditedGuarantee, audited_guarantee
from leakgauge.guarantee.report.charts import draw_scores
from leakgauge.guarantee.report.sentences import (
    ADVISED,
    BIASED,
    headline,
    more_noise,
    noise_for,
    other_filter,
    protects_nothing,
    sentences,
    verdict,
)
from leakgauge.guarantee.report.titles import theory_titles
from leakgauge.guarantee.spec import CRAFTED, QUESTION, RANDOM, GuaranteeSpec
from leakgauge.report.facts import other_facts, parts
from leakgauge.report.section import Line, Row, Section
from leakgauge.report.templates import render
from leakgauge.report.wording import short
from leakgauge.results.measurements import Run
from leakgauge.runs.question import Answer, Question
from leakgauge.runs.repeat import repeat_command
from leakgauge.runs.spec import declared, make_spec

STYLE = """
.key.null::before { height: 10px; background: var(--muted); opacity: .5; }
.key.alternative::before { height: 10px; background: var(--accent); opacity: .6; }
.scroll:has(.promised) { max-width: 860px; }
.promised th[scope="row"] { white-space: normal; min-width: 14rem; }
.promised tr + tr { border-top: 1px solid var(--line); }
[id$="-scores"] figure { max-width: 680px; }
.lead.sentences { display: block; }
.lead.sentences p { max-width: 80ch; margin: 14px 0 0; }
"""


def section(answer: Answer, question: Question, folder: Path) -> Section:
    """Return the section.

    Raises:
        InputError: settings or measurements are missing, as in a damaged folder.
    """
    at, audited = question.name, audited_guarantee(answer.run.settings, answer.measurements)
    return Section(
        name=at,
        title=question.title,
        html=render(
            "leakgauge.guarantee.report", "section.html.j2", _values(audited, answer.run, at)
        ),
        rows=[_row(audited)],
        lines=_lines(audited),
        missing=answer.missing,
        untried=other_filter(audited) or more_noise(audited),
        next_command=next_command(audited),
        nav=_nav(audited, at),
        style=STYLE,
    )


def _row(audited: AuditedGuarantee) -> Row:
    estimate, (level, words) = audited.epsilon.estimate, headline(audited)
    return Row(
        ask=QUESTION,
        verdict=words,
        level=level,
        text=verdict(audited),
        metric=_metric(audited),
        estimate=estimate,
        chance=audited.epsilon.chance,
        secret=audited.epsilon.secret,
        strength=_strength(audited),
        broken=audited.violated,
        open_end=math.isinf(audited.upper_end(EPSILON)),
    )


def _metric(audited: AuditedGuarantee) -> str:
    if audited.why:
        return "Epsilon, no promise, measured"
    return f"Epsilon, promised {short(audited.promised)}, measured"


def _strength(audited: AuditedGuarantee) -> float:
    low = audited.epsilon.estimate.low
    if audited.why:
        return 1.0
    return min(1.0, low / max(audited.pair_promised, low, 1e-9))


def _lines(audited: AuditedGuarantee) -> list[Line]:
    first, *texts = sentences(audited)
    level, _ = headline(audited)
    return [Line(first, level=level if level == "strong" else None), *map(Line, texts)]


def _nav(audited: AuditedGuarantee, at: str) -> list[tuple[str, str]]:
    scores = {} if audited.epsilon.histogram is None else {"scores": "Scores"}
    anchors = {**scores, "figures": "Measured and promised", "data": "Data"}
    return [(f"{at}-{name}", title) for name, title in anchors.items()]


def _values(audited: AuditedGuarantee, run: Run, at: str) -> dict[str, Any]:
    first, *texts = sentences(audited)
    level, words = headline(audited)
    return {
        "at": at,
        "run": run,
        "settings": audited.settings,
        "new_value": audited.new_value,
        "epsilon": audited.epsilon,
        "level": level,
        "badge": words,
        "saturated": audited.saturated,
        "verdict": first,
        "sentences": texts,
        "figures": {METRICS[name].label: one.estimate for name, one in audited.figures.items()},
        "open": {
            METRICS[name].label
            for name in (EPSILON, GAUSSIAN, IN_SAMPLE)
            if name in audited.figures and math.isinf(audited.upper_end(name))
        },
        "theory": {
            title: audited.theory[key]
            for key, title in theory_titles(audited).items()
            if key in audited.theory
        },
        "why": audited.why,
        "scores": draw_scores(audited.epsilon, name=f"{at}-scores"),
        "biased": BIASED,
        "parts": parts(run.data),
        "rest": other_facts(run.data),
    }


MORE = 4
"""Factor between the trials of a saturated audit and of the next one."""


def next_command(audited: AuditedGuarantee) -> str:
    """Return the command to run next; empty if no change of settings would show more.

    A broken promise needs a second seed, one that protects nothing more noise, a saturated audit
    more trials, a random record a crafted one.
    """
    spec = _spec(audited.settings)
    if is_filter(spec.mechanism):
        spec = replace(spec, clip=None, noise=None)
    if audited.why:
        return ""
    if audited.violated:
        spec = replace(spec, seed=spec.seed + 1)
    elif protects_nothing(audited) and is_filter(spec.mechanism):
        return ""
    elif protects_nothing(audited):
        spec = replace(spec, noise=noise_for(audited, ADVISED[0]))
    elif audited.saturated:
        spec = replace(spec, trials=MORE * spec.trials)
    elif spec.canary == RANDOM:
        spec = replace(spec, canary=CRAFTED)
    else:
        return ""
    return repeat_command(QUESTION, spec)


def _spec(settings: Mapping[str, Any]) -> GuaranteeSpec:
    known = {name: value for name, value in settings.items() if name in declared(GuaranteeSpec)}
    spec = make_spec(GuaranteeSpec, {**known, "data": str(settings["table"])})
    return cast(GuaranteeSpec, spec)
