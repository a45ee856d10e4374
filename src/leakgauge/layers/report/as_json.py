"""The figures as plain values, for ``--json``, and as paragraphs for the terminal."""

from pathlib import Path
from typing import Any

from leakgauge.layers.metrics import (
    INFORMATION,
    INFORMATION_NATS,
    INFORMATION_SHARE,
    KERNEL,
    KERNEL_SHARE,
    SENSITIVITIES,
)
from leakgauge.layers.report.rows import (
    Advice,
    LayerRow,
    advice_of,
    correlation_rows,
    layer_rows,
    whole,
)
from leakgauge.layers.report.wording import about_measures, advice_text, where
from leakgauge.report.facts import plain_interval
from leakgauge.report.levels import HEADLINES, level_of
from leakgauge.report.section import Line
from leakgauge.report.utility import useless_models, utilities, utility_line
from leakgauge.report.wording import quoted
from leakgauge.results.measurements import Measurement
from leakgauge.results.metrics import UTILITY
from leakgauge.results.scores import ADVANTAGE, AUROC
from leakgauge.runs.question import Answer

Plain = dict[str, Any]


def as_json(answer: Answer, folder: Path) -> Plain:
    """Return the layers in forward order, the advice, and the correlations."""
    run, measurements = answer.run, answer.measurements
    rows, advice, one = layer_rows(measurements), advice_of(measurements), whole(measurements)
    return {
        "label": run.settings.get("label", ""),
        "secret": run.settings.get("secret", ""),
        "seed": run.settings["seed"],
        "auroc": None if one is None else plain_interval(one.estimate),
        "verdict": None if one is None else HEADLINES[level_of(one.estimate, one.chance)],
        "layers": [_layer(row) for row in rows],
        "advice": None if advice is None else _advice(advice),
        "correlations": {
            name: {"r": _tested(plain), "given_log_size": _tested(partial)}
            for name, plain, partial in correlation_rows(measurements)
        },
        "utility": {
            each.metric: plain_interval(each.estimate)
            for each in measurements
            if each.metric in UTILITY
        },
        "warnings": [*run.warnings, *useless_models(utilities(measurements))],
        "missing": list(answer.missing),
    }


def lines(answer: Answer) -> list[Line]:
    """Return the paragraphs that the terminal prints."""
    measurements = answer.measurements
    rows, advice, one = layer_rows(measurements), advice_of(measurements), whole(measurements)
    found = []
    if one is not None:
        level = level_of(one.estimate, one.chance)
        text = quoted(where(rows, level, one))
        found.append(Line(text, level, HEADLINES[level], f"layers, property {one.secret!r}"))
    if advice is not None:
        found.append(Line(quoted(f"Advice: {advice_text(advice, rows)}")))
    texts = [about_measures(measurements), *map(utility_line, utilities(measurements))]
    return [*found, *(Line(quoted(text)) for text in texts if text)]


def _advice(advice: Advice) -> Plain:
    return {
        "protect": advice.protect,
        "hide": list(advice.layers),
        "under": advice.under,
        "advantage_before": plain_interval(advice.before),
        "advantage_after": plain_interval(advice.after),
        "holds": advice.holds,
        "adversary": advice.adversary,
    }


def _layer(row: LayerRow) -> Plain:
    return {
        "name": row.name,
        "kind": row.kind,
        "parameters": row.size,
        "adversary": row.adversary,
        "auroc": _of(row, AUROC),
        "advantage": _of(row, ADVANTAGE),
        "v_information": _of(row, INFORMATION),
        "v_information_nats": _of(row, INFORMATION_NATS),
        "v_information_share": _of(row, INFORMATION_SHARE),
        "sensitivity": {
            metric.removeprefix("sensitivity_"): _of(row, metric)
            for metric in SENSITIVITIES
            if metric in row.figures
        },
        "kernel_information": {"bits": _of(row, KERNEL), "share": _of(row, KERNEL_SHARE)},
        "adversaries": {
            name: {
                metric: plain_interval(figures[metric].estimate) for metric in (AUROC, INFORMATION)
            }
            for name, figures in row.each.items()
        },
    }


def _of(row: LayerRow, metric: str) -> dict[str, float] | None:
    estimate = row.estimate(metric)
    return None if estimate is None else plain_interval(estimate)


def _tested(one: Measurement | None) -> Plain | None:
    if one is None:
        return None
    return {**plain_interval(one.estimate), "n": one.estimate.n, **one.details}
