"""The section of layers in a report, made from measurements alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

from leakgauge.inference.spec import InferenceSpec
from leakgauge.layers.catalog import FAMILY, HIDE
from leakgauge.layers.metrics import INFORMATION, KERNEL, METRICS
from leakgauge.layers.report.as_json import lines
from leakgauge.layers.report.rows import (
    PRINTED,
    Advice,
    LayerRow,
    advice_of,
    correlation_rows,
    layer_rows,
    whole,
)
from leakgauge.layers.report.wording import about_measures, advice_text, where
from leakgauge.layers.spec import LayersSpec
from leakgauge.report.charts import ACCENT, INK, MUTED, chart
from leakgauge.report.facts import other_facts
from leakgauge.report.levels import (
    CLEAR_AUROC,
    HEADLINES,
    STRONG_AUROC,
    auroc_rule,
    gauge,
    level_of,
    strength_of,
)
from leakgauge.report.section import ONE_TRAINING, Chart, Row, Section
from leakgauge.report.templates import render
from leakgauge.report.utility import about_utility, useless_models, utilities
from leakgauge.results.measurements import Measurement
from leakgauge.results.scores import AUROC
from leakgauge.runs.question import Answer, Question
from leakgauge.runs.repeat import repeat_audit, spec_of_run, with_fixes

PARTS = ("records", "columns", "private", "fitting", "held_out", "test", "users")
"""Sizes of the data, in the order of the report."""

DRAWN = ((AUROC, 0.5), (INFORMATION, 0.0), (PRINTED, 0.0), (KERNEL, 0.0))
"""Measures of the strips, with their value without a leak."""


def section(answer: Answer, question: Question, folder: Path) -> Section:
    """Return the section of an answer. The same measurements give the same bytes.

    Args:
        answer: the answer of the question.
        question: the question; its name is the prefix of the anchors.
        folder: not used.
    """
    run, measurements, at = answer.run, answer.measurements, question.name
    rows, advice, one = layer_rows(measurements), advice_of(measurements), whole(measurements)
    learned = utilities(measurements)
    level = None if one is None else level_of(one.estimate, one.chance)
    html = render(
        "leakgauge.layers.report",
        "section.html.j2",
        {
            "at": at,
            "run": run,
            "rows": rows,
            "one": one,
            "level": level,
            "headline": HEADLINES[level] if level else "",
            "says": where(rows, level, one) if one and level else "",
            "gauge": gauge(one.estimate, one.chance) if one else {},
            "advice": advice,
            "advice_says": advice_text(advice, rows) if advice else "",
            "measures_say": about_measures(measurements),
            "charts": _charts(rows, at),
            "correlations": correlation_rows(measurements),
            "titles": {name: metric.label for name, metric in METRICS.items()}
            | {"log_size": "Log of the number of parameters"},
            "missing": answer.missing,
            "learned": [about_utility(each) for each in learned],
            "parts": {name: run.data[name] for name in PARTS if name in run.data},
            "rest": other_facts({k: v for k, v in run.data.items() if k not in PARTS}),
            "rule": auroc_rule(),
            "strong": STRONG_AUROC,
            "clear": CLEAR_AUROC,
        },
    )
    return Section(
        name=at,
        title=question.title,
        html=html,
        rows=[_summary(answer, one, rows, advice)],
        lines=lines(answer),
        missing=answer.missing,
        warnings=[*run.warnings, *useless_models(learned)],
        caveat=ONE_TRAINING,
        next_command=next_command(with_fixes(run), advice, question),
        nav=[(f"{at}-{anchor}", text) for anchor, text in _NAV],
    )


_NAV = (
    ("verdict", "Verdict"),
    ("map", "Map of the layers"),
    ("measures", "Measures"),
    ("data", "Data"),
    ("settings", "Settings"),
)


def _charts(rows: Sequence[LayerRow], at: str) -> list[Chart]:
    made = []
    for number, (metric, chance) in enumerate(DRAWN):
        svg = strip(rows, metric, name=f"{at}-strip-{number}", chance=chance)
        if svg is not None:
            title = METRICS[metric].label
            made.append(Chart(title, f"{title} of each layer; the map's table has it.", svg))
    return made


def _summary(
    answer: Answer, one: Measurement | None, rows: Sequence[LayerRow], advice: Advice | None
) -> Row:
    if one is None:
        text = " ".join(answer.missing) or "No attack was completed."
        return Row("layers", "Not measured", "unknown", text)
    level = level_of(one.estimate, one.chance)
    return Row(
        ask="layers",
        verdict=HEADLINES[level],
        level=level,
        text=" ".join([where(rows, level, one), *([advice_text(advice, rows)] if advice else [])]),
        metric=METRICS[AUROC].label,
        estimate=one.estimate,
        chance=one.chance,
        strength=strength_of(one.estimate, one.chance),
        secret=one.secret,
    )


def strip(rows: Sequence[LayerRow], metric: str, *, name: str, chance: float) -> Markup | None:
    """Return a bar chart with one bar and interval per layer, in the order in which layers run.

    Layers are numbered from 1, as a chart contains no text of the user.

    Args:
        rows: the layers.
        metric: metric of the bars.
        name: unique name of the chart on the page.
        chance: value without a leak, where bars start.
    """
    known = [(number, row.estimate(metric)) for number, row in enumerate(rows, start=1)]
    drawn = [(number, one) for number, one in known if one is not None]
    if not drawn:
        return None
    places = np.array([number for number, _ in drawn])
    values = np.array([one.value for _, one in drawn])
    ends = np.array([[one.value - one.low, one.high - one.value] for _, one in drawn]).T
    colours = [ACCENT if value == values.max() else MUTED for value in values]
    with chart(name) as (axes, svg):
        axes.bar(places, values - chance, bottom=chance, color=colours, width=0.7, alpha=0.75)
        axes.errorbar(places, values, yerr=ends.clip(min=0), fmt="none", ecolor=INK, capsize=3)
        axes.axhline(chance, color=MUTED, linewidth=1)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=12))
        axes.set_xlim(0.4, len(rows) + 0.6)
        axes.set_xlabel("layer, from the input to the output")
    return svg[0]


PRUNE = "prune:rate=0.99"
"""Defense to try after the advice to hide layers; it needs no enclave."""


def next_command(settings: Mapping[str, Any], advice: Advice | None, question: Question) -> str:
    """Return the command that defends the layers which the advice hides; empty without one."""
    spec = spec_of_run(settings, LayersSpec)
    if spec is None or advice is None or advice.protect != HIDE or not advice.layers:
        return ""
    attacks = () if spec.adversary == FAMILY else spec.adversary
    tried = replace(spec, protect=PRUNE, adversary=attacks)
    return repeat_audit("audit", {question.name: (question, tried)}, InferenceSpec)
