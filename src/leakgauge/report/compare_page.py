"""The page of a grid: a comparison with the paper, charts, and all cells."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from leakgauge.report import sweep
from leakgauge.report.compare import (
    Comparison,
    Group,
    compared_with_paper,
    distinguishing_names,
    follows,
    groups,
    main_first,
    varying,
)
from leakgauge.report.section import LEVELS, Badge, Chart
from leakgauge.report.templates import render
from leakgauge.report.warned import together, warnings_of
from leakgauge.report.wording import signed
from leakgauge.results.metrics import CONFIDENCE, Metric, titles

OwnCharts = Callable[[Comparison, Sequence[Group]], Sequence[Chart]]

BadgeOf = Callable[[Group], Badge | None]

_ROLES = ("label", "secret", "group", "drop", "bins")


def render_comparison(
    comparison: Comparison,
    metrics: Mapping[str, Metric],
    *,
    badge: BadgeOf = lambda group: None,
    charts: OwnCharts = lambda comparison, groups: (),
) -> str:
    """Return one self-contained HTML page; the same cells give the same bytes.

    Args:
        comparison: contents of the page.
        metrics: metrics of the question, by name.
        badge: function that returns the verdict on cells that differ in their seed.
        charts: function that returns further charts of the question.
    """
    each = groups(comparison.cells, metrics)
    settings = [group.settings for group in each]
    same = settings[0] if settings else {}
    badges = [badge(group) for group in each]
    apart = distinguishing_names(settings)
    values = {
        "warnings": together(warnings_of(comparison.cells.values())),
        "worst": _worst(each, badges, metrics),
        "verdicts": Counter(one.words for one in badges if one is not None),
        "badges": badges,
        "grid": comparison,
        "done": len(comparison.cells),
        "rows": compared_with_paper(comparison, metrics),
        "confidence": CONFIDENCE,
        "charts": _charts(comparison, each, metrics, apart),
        "own": charts(comparison, each),
        "groups": each,
        "names": _columns(settings),
        "telling": apart,
        "metrics": _measured(each, metrics),
        "metric_names": titles(metrics),
        "signed": signed,
        "knowledge": len({group.knowledge for group in each}) > 1,
        "of_model": any(metrics[name].of_model for name in _measured(each, metrics)),
        "common": {name: same[name] for name in same if name not in varying(settings)},
        "seeds": sorted({cell.settings["seed"] for cell in comparison.cells.values()}),
        "versions": _versions(comparison),
    }
    return str(render("leakgauge.report", "compare.html.j2", values))


def _worst(
    each: Sequence[Group], badges: Sequence[Badge | None], metrics: Mapping[str, Metric]
) -> dict[str, Any] | None:
    """Return the cells with the most urgent verdict and their headline figure; None without one."""
    found = [(one, group) for one, group in zip(badges, each, strict=True) if one is not None]
    if not found:
        return None
    badge, group = max(found, key=lambda pair: (LEVELS[pair[0].level], pair[0].strength))
    name = sweep.headline_of(each, metrics)
    one = group.means.get(name or "")
    return {"badge": badge, "group": group, "one": one, "metric": metrics.get(name or "")}


def _charts(
    comparison: Comparison,
    each: Sequence[Group],
    metrics: Mapping[str, Metric],
    apart: Sequence[str],
) -> list[dict[str, Any]]:
    """Return the charts of each grid in which a setting varies; ``apart`` as in sweep_charts."""
    shown = []
    for number, keys in enumerate(comparison.grids, start=1):
        cells = [group for group in each if set(group.keys) & set(keys)]
        drawn = sweep.sweep_charts(cells, comparison.paper, metrics, apart=apart)
        limits = sweep.limits_of(drawn)
        shown += [
            {
                "sweep": one,
                "metric": one.metric.label,
                "guess": one.metric.chance is not None,
                "svg": sweep.draw(one, limits=limits, name=f"g{number}-{position}"),
                "names": [] if one.numeric else one.values,
                "paper": any(mark.paper is not None for mark in one.marks),
            }
            for position, one in enumerate(drawn)
        ]
    return shown


def _columns(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the settings that vary, the main ones first, without those the data determine."""
    return [
        name
        for name in main_first(varying(settings))
        if not (name in _ROLES and follows(name, "data", settings))
    ]


def _measured(each: Sequence[Group], metrics: Mapping[str, Metric]) -> dict[str, str]:
    """Return the labels of the measured metrics by name, those of the model last."""
    measured = {name for group in each for name in group.figures}
    labels = {name: label for name, label in titles(metrics).items() if name in measured}
    return dict(sorted(labels.items(), key=lambda item: metrics[item[0]].of_model))


def _versions(comparison: Comparison) -> dict[str, str]:
    """Return the versions of the packages that computed the figures, all those of the cells."""
    several: dict[str, list[str]] = {}
    for cell in comparison.cells.values():
        for one in cell.measurements[:1]:
            for package, version in one.versions.items():
                several.setdefault(package, []).append(version)
    return {package: ", ".join(sorted(set(each))) for package, each in several.items()}
