"""The page of one audited guarantee, and what a grid's page shows of several."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from leakgauge.guarantee.metrics import EPSILON, IN_SAMPLE, METRICS
from leakgauge.guarantee.report.wording import (
    BIASED,
    THEORY,
    Step,
    draw_scores,
    draw_theory,
    finding,
    saturated,
    sentences,
    theory_says,
)
from leakgauge.inference.report.prose import other_facts, parts
from leakgauge.report.compare import Comparison, Group, Played, varying
from leakgauge.report.page import environment
from leakgauge.report.repeat import command_line
from leakgauge.report.wording import count, plain, short
from leakgauge.results.measurements import REPORT_FILE, Measurement, Run, write_text

_AXES = ("noise", "clip")


def write_guarantee(folder: Path, run: Run, records: Sequence[Measurement]) -> Path:
    """Write ``report.html`` of one audit into its folder."""
    path = folder / REPORT_FILE
    write_text(path, render_guarantee(run, records))
    return path


def render_guarantee(run: Run, records: Sequence[Measurement]) -> str:
    """One self-contained HTML page. The same records give the same bytes."""
    found = finding(run.settings, records)
    *told, verdict = sentences(found)
    return (
        environment()
        .get_template("epsilon.html.j2")
        .render(
            run=run,
            versions=run.versions,
            first=found.record,
            violated=found.violated,
            saturated=found.saturated,
            verdict=verdict,
            told=told,
            figures={METRICS[name].label: one.estimate for name, one in found.figures.items()},
            theory={THEORY[name]: found.theory[name] for name in THEORY if name in found.theory},
            scores=draw_scores(found.record, name="scores"),
            biased=BIASED,
            parts=parts(run.data),
            rest=other_facts(run.data),
            settings=run.settings,
            command=command_line(run),
        )
    )


def charts_of(comparison: Comparison, found: Sequence[Group]) -> list[dict[str, Any]]:
    """What the page of a grid shows of its guarantees: epsilon over noise and clip, or scores.

    Where neither noise nor clip varies, the scores of the first seed of each cell.
    """
    groups = [group for group in found if EPSILON in group.figures]
    shown: list[dict[str, Any]] = []
    for axis in _AXES:
        for number, (title, along) in enumerate(_alongs(groups, axis).items()):
            steps = [_step(comparison.cells, group, axis) for group in along]
            most = saturated(steps)
            shown.append(
                {
                    "caption": f"Epsilon along {axis}{f': {title}' if title else ''}",
                    "says": theory_says(steps, axis),
                    "svg": draw_theory(steps, axis, name=f"e{axis}{number}"),
                    "note": _limit(axis, most) if most else "",
                }
            )
    if shown:
        return shown
    names = varying([group.settings for group in groups])
    return [_scores(comparison.cells[group.keys[0]], names, i) for i, group in enumerate(groups)]


def _limit(axis: str, values: Sequence[float]) -> str:
    return f"At {axis} {plain(values)} no trial went wrong: the trials are the limit."


def _alongs(groups: Sequence[Group], axis: str) -> dict[str, list[Group]]:
    """Groups that differ in nothing but the axis, ascending, by what they share."""
    found: dict[str, list[Group]] = {}
    names = [name for name in varying([group.settings for group in groups]) if name != axis]
    for group in groups:
        rest = {name: value for name, value in group.settings.items() if name != axis}
        found.setdefault(json.dumps(rest, sort_keys=True), []).append(group)
    return {
        _title(along[0].settings, names): sorted(along, key=lambda group: group.settings[axis])
        for along in found.values()
        if len(along) > 1
    }


def _step(cells: Mapping[str, Played], group: Group, axis: str) -> Step:
    records = [record for key in group.keys for record in cells[key].records]
    theories = [record.theory for record in records if record.metric == EPSILON]
    return Step(
        float(group.settings[axis]),
        group.figures[EPSILON],
        group.figures[IN_SAMPLE],
        {name: float(np.mean([one[name] for one in theories])) for name in theories[0]},
    )


def _scores(played: Played, names: Sequence[str], number: int) -> dict[str, Any]:
    found = finding(played.settings, played.records)
    shown = found.record.estimate
    title = _title(played.settings, names)
    return {
        "caption": f"Scores under both values{f': {title}' if title else ''}",
        "says": f"{count(played.settings['trials'])} scores; epsilon at least {short(shown.low)}.",
        "svg": draw_scores(found.record, name=f"s{number}"),
        "note": "",
    }


def _title(settings: Mapping[str, Any], names: Sequence[str]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {plain(settings[name])}" for name in names)
