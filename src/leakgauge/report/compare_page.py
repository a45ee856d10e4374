"""The page of a grid: ours beside the paper's, charts, and every cell."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from leakgauge.guarantee.report import wording as epsilon
from leakgauge.guarantee.report.page import charts_of
from leakgauge.report import sweep
from leakgauge.report.compare import (
    Comparison,
    Group,
    beside_paper,
    follows,
    groups,
    varying,
)
from leakgauge.report.page import environment
from leakgauge.results.measurements import REPORT_FILE, write_text
from leakgauge.results.metrics import CONFIDENCE, Metric, titles
from leakgauge.results.scores import ACCURACY

_FIRST = ("data", "ask", "adversary", "defense")
_ROLES = ("label", "secret", "group", "drop", "bins")


def write_comparison(folder: Path, comparison: Comparison, metrics: Mapping[str, Metric]) -> Path:
    """Write ``report.html`` of a grid into its folder.

    Args:
        folder: of the grid.
        comparison: what the page shows.
        metrics: of all questions, by name.
    """
    path = folder / REPORT_FILE
    write_text(path, render_comparison(comparison, metrics))
    return path


def render_comparison(comparison: Comparison, metrics: Mapping[str, Metric]) -> str:
    """One self-contained HTML page; the same cells give the same bytes.

    Args:
        comparison: what the page shows.
        metrics: of all questions, by name.
    """
    found = groups(comparison.cells, metrics)
    settings = [group.settings for group in found]
    names = _columns(settings)
    same = settings[0] if settings else {}
    return (
        environment()
        .get_template("compare.html.j2")
        .render(
            grid=comparison,
            done=len(comparison.cells),
            rows=beside_paper(comparison, metrics),
            confidence=CONFIDENCE,
            charts=_charts(comparison, found, metrics),
            guarantees=charts_of(comparison, found),
            biased=epsilon.BIASED,
            groups=found,
            names=names,
            metrics=_columns_of(found, metrics),
            metric_names=titles(metrics),
            signed=signed,
            knowledge=len({group.knowledge for group in found}) > 1,
            shared={name: same[name] for name in same if name not in varying(settings)},
            seeds=sorted({played.settings["seed"] for played in comparison.cells.values()}),
            versions=_versions(comparison),
        )
    )


def signed(difference: float) -> str:
    """A difference with its sign, three decimals.

    >>> signed(0.0042), signed(-0.31)
    ('+0.004', '\u22120.310')
    """
    return f"{difference:+.3f}".replace("-", "\u2212")


def _charts(
    comparison: Comparison, found: Sequence[Group], metrics: Mapping[str, Metric]
) -> list[dict[str, Any]]:
    """What the template shows of each grid in which a setting varies."""
    shown = []
    for number, keys in enumerate(comparison.grids, start=1):
        panels = sweep.panels(
            [group for group in found if set(group.keys) & set(keys)], comparison.paper, metrics
        )
        ends = sweep.ends_of(panels)
        shown += [
            {
                "panel": panel,
                "metric": panel.metric.label,
                "guess": panel.metric.chance is not None,
                "svg": sweep.draw(panel, ends=ends, name=f"g{number}-{i}"),
                "names": [] if panel.numeric else panel.values,
                "paper": any(mark.paper is not None for mark in panel.marks),
            }
            for i, panel in enumerate(panels)
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


def _columns_of(found: Sequence[Group], metrics: Mapping[str, Metric]) -> dict[str, str]:
    """Labels of the measured metrics by name, the accuracy last."""
    measured = {name for group in found for name in group.figures}
    labels = {name: label for name, label in titles(metrics).items() if name in measured}
    return dict(sorted(labels.items(), key=lambda item: item[0] == ACCURACY))


def _versions(comparison: Comparison) -> dict[str, str]:
    """Of the packages that computed the figures; cells of one grid may differ in them."""
    found: dict[str, list[str]] = {}
    for played in comparison.cells.values():
        for record in played.records[:1]:
            for package, version in record.versions.items():
                found.setdefault(package, []).append(version)
    return {package: ", ".join(sorted(set(all_))) for package, all_ in found.items()}
