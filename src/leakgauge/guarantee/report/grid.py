"""Charts of audited guarantees for the page of a grid."""

from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup

from leakgauge.guarantee.metrics import EPSILON, GAUSSIAN, IN_SAMPLE
from leakgauge.guarantee.report.audited import audited_guarantee
from leakgauge.guarantee.report.charts import (
    AxisPoint,
    draw_scores,
    draw_theory,
    saturated_at,
    theory_in_words,
)
from leakgauge.guarantee.report.sentences import BIASED, KEPT, VIOLATED
from leakgauge.guarantee.spec import QUESTION
from leakgauge.report.compare import (
    Comparison,
    FinishedCell,
    Group,
    along_axis,
    distinguishing_names,
    title_of,
)
from leakgauge.report.section import Badge, Chart
from leakgauge.report.wording import count, plain, short

_AXES = ("noise", "clip")

_KEYS_OF_EPSILON = {
    "ours": "the paper's estimate, on our releases",
    "whole-bar": "lower bound to best guess",
    "paper": "the paper's yardstick (textbook epsilon over N)",
    "line": "exact promise for the record",
    "chance": "textbook formula",
    "majority": "largest that the trials can show",
}
_KEYS_OF_SCORES = {"null": "first value", "alternative": "second value"}


def badge(group: Group) -> Badge | None:
    """Return whether the means of a grid's cells break the promise; None without an epsilon."""
    gaussian, epsilon = group.means.get(GAUSSIAN), group.means.get(EPSILON)
    if gaussian is None or epsilon is None:
        return None
    if gaussian.estimate.low > epsilon.theory["pair_exact"]:
        return Badge("strong", VIOLATED, 1.0, broken=True)
    return Badge("none", KEPT)


def charts(comparison: Comparison, groups: Sequence[Group]) -> list[Chart]:
    """Return epsilon over noise and over clip; where neither varies, the scores of each cell.

    The scores are those of a cell's first seed. The first chart has the legend of all.

    Args:
        comparison: the finished cells.
        groups: the cells by their settings, over seeds.
    """
    audited = [group for group in groups if EPSILON in group.figures]
    return _along_axes(comparison, audited) or _of_scores(comparison, audited)


def _along_axes(comparison: Comparison, groups: Sequence[Group]) -> list[Chart]:
    made: list[Chart] = []
    for axis in _AXES:
        for title, along in along_axis(groups, axis).items():
            points = [_point(comparison.cells, group, axis) for group in along]
            legend = Markup("") if made else _legend(_KEYS_OF_EPSILON)
            made.append(_epsilon_chart(points, axis, title, legend, number=len(made)))
    return made


def _epsilon_chart(
    points: Sequence[AxisPoint], axis: str, title: str, legend: Markup, *, number: int
) -> Chart:
    limited = saturated_at(points)
    limit = f"At {axis} {plain(limited)} no trial went wrong: the trials are the limit."
    return Chart(
        caption=f"Epsilon along {axis}{f': {title}' if title else ''}",
        says=theory_in_words(points, axis),
        svg=draw_theory(points, axis, name=f"{QUESTION}-{axis}-{number}"),
        legend=legend,
        note=" ".join([*([limit] if limited else []), *([] if number else [BIASED])]),
    )


def _of_scores(comparison: Comparison, groups: Sequence[Group]) -> list[Chart]:
    names = distinguishing_names([group.settings for group in groups])
    return [
        _scores_chart(comparison.cells[group.keys[0]], names, number)
        for number, group in enumerate(groups)
    ]


def _scores_chart(played: FinishedCell, names: Sequence[str], number: int) -> Chart:
    audited = audited_guarantee(played.settings, played.measurements)
    title = title_of(played.settings, names)
    trials, low = count(played.settings["trials"]), short(audited.epsilon.estimate.low)
    return Chart(
        caption=f"Scores under both values{f': {title}' if title else ''}",
        says=f"{trials} scores; epsilon is at least {low}.",
        svg=draw_scores(audited.epsilon, name=f"{QUESTION}-scores-{number}"),
        legend=Markup("") if number else _legend(_KEYS_OF_SCORES),
    )


def _legend(keys: Mapping[str, str]) -> Markup:
    entry = Markup('<span class="key {}">{}</span>')
    return Markup("").join(entry.format(*one) for one in keys.items())


def _point(cells: Mapping[str, FinishedCell], group: Group, axis: str) -> AxisPoint:
    measurements = [one for key in group.keys for one in cells[key].measurements]
    theories = [one.theory for one in measurements if one.metric == EPSILON]
    return AxisPoint(
        float(group.settings[axis]),
        group.figures[EPSILON],
        group.figures[IN_SAMPLE],
        {name: float(np.mean([one[name] for one in theories])) for name in theories[0]},
    )
