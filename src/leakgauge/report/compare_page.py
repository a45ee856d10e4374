"""The page of a grid: ours beside the paper's, charts, and every cell."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from leakgauge.report import sweep
from leakgauge.report.compare import (
    Comparison,
    Group,
    beside_paper,
    follows,
    groups,
    varying,
)
from leakgauge.report.section import Chart
from leakgauge.report.templates import environment
from leakgauge.results.metrics import CONFIDENCE, Metric, titles

OwnCharts = Callable[[Comparison, Sequence[Group]], Sequence[Chart]]

_FIRST = ("data", "ask", "adversary", "defense")
_ROLES = ("label", "secret", "group", "drop", "bins")


def render_comparison(
    comparison: Comparison,
    metrics: Mapping[str, Metric],
    *,
    charts: OwnCharts = lambda comparison, groups: (),
) -> str:
    """Return one self-contained HTML page; the same cells give the same bytes.

    Args:
        comparison: what the page shows.
        metrics: of the question, by name.
        charts: of the question, beside those that every grid has.
    """
    each = groups(comparison.cells, metrics)
    settings = [group.settings for group in each]
    same = settings[0] if settings else {}
    html = (
        environment()
        .get_template("compare.html.j2")
        .render(
            grid=comparison,
            done=len(comparison.cells),
            rows=beside_paper(comparison, metrics),
            confidence=CONFIDENCE,
            charts=_charts(comparison, each, metrics),
            own=charts(comparison, each),
            groups=each,
            names=_columns(settings),
            metrics=_measured(each, metrics),
            metric_names=titles(metrics),
            signed=signed,
            knowledge=len({group.knowledge for group in each}) > 1,
            of_model=any(metrics[name].of_model for name in _measured(each, metrics)),
            shared={name: same[name] for name in same if name not in varying(settings)},
            seeds=sorted({played.settings["seed"] for played in comparison.cells.values()}),
            versions=_versions(comparison),
        )
    )
    return re.sub(r"\n\s+<", "\n<", html)


def signed(difference: float) -> str:
    """Return a difference with its sign and three decimals.

    >>> signed(0.0042), signed(-0.31)
    ('+0.004', '\u22120.310')
    """
    return f"{difference:+.3f}".replace("-", "\u2212")


def _charts(
    comparison: Comparison, each: Sequence[Group], metrics: Mapping[str, Metric]
) -> list[dict[str, Any]]:
    """The charts of each grid in which a setting varies."""
    shown = []
    for number, keys in enumerate(comparison.grids, start=1):
        panels = sweep.panels(
            [group for group in each if set(group.keys) & set(keys)], comparison.paper, metrics
        )
        ends = sweep.ends_of(panels)
        shown += [
            {
                "panel": panel,
                "metric": panel.metric.label,
                "guess": panel.metric.chance is not None,
                "svg": sweep.draw(panel, ends=ends, name=f"g{number}-{at}"),
                "names": [] if panel.numeric else panel.values,
                "paper": any(mark.paper is not None for mark in panel.marks),
            }
            for at, panel in enumerate(panels)
        ]
    return shown


def _columns(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The settings that vary, the telling ones first, without those that come with the data."""
    names = varying(settings)
    first = [name for name in _FIRST if name in names]
    rest = [name for name in names if name not in first]
    return first + [
        name for name in rest if not (name in _ROLES and follows(name, "data", settings))
    ]


def _measured(each: Sequence[Group], metrics: Mapping[str, Metric]) -> dict[str, str]:
    """Labels of the measured metrics by name, those of the model last."""
    measured = {name for group in each for name in group.figures}
    labels = {name: label for name, label in titles(metrics).items() if name in measured}
    return dict(sorted(labels.items(), key=lambda item: metrics[item[0]].of_model))


def _versions(comparison: Comparison) -> dict[str, str]:
    """Versions of the packages that computed the figures; cells of one grid may differ in them."""
    several: dict[str, list[str]] = {}
    for played in comparison.cells.values():
        for one in played.measurements[:1]:
            for package, version in one.versions.items():
                several.setdefault(package, []).append(version)
    return {package: ", ".join(sorted(set(all_))) for package, all_ in several.items()}
