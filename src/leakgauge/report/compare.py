"""Comparison of a grid's cells, as means over seeds, with the figures of a paper."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from leakgauge.report.wording import plain
from leakgauge.results.measurements import (
    ACCUMULATED,
    ADVERSARY,
    HEADLINE,
    Estimate,
    Measurement,
    rounds_of,
)
from leakgauge.results.metrics import Metric, doubtful_details, metric_named, over_seeds

MAIN = ("data", "ask", ADVERSARY, "defense")
"""Settings that a page names before others."""


@dataclass(frozen=True)
class FinishedCell:
    """A finished cell of a grid.

    Attributes:
        settings: plain values by name.
        measurements: the figures of its answer.
        warnings: what changes the meaning of its figures.
    """

    settings: Mapping[str, Any]
    measurements: Sequence[Measurement]
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class PaperFigure:
    """A figure that the paper states.

    Attributes:
        where: settings of the figure, by name.
        knowledge: knowledge of the adversary.
        metric: name of the metric.
        round: ``"accumulated"``, a single round or the first ones.
        value: the paper's value.
        note: a remark for readers.
        cells: keys of the cells with these settings, one per seed.
        std: standard deviation over the paper's seeds; None if the paper does not state it.
    """

    where: Mapping[str, Any]
    knowledge: str
    metric: str
    round: int | str
    value: float
    note: str
    cells: Sequence[str]
    std: float | None = None

    @property
    def text(self) -> str:
        """The paper's value, with its standard deviation if it states one."""
        return plain(self.value) if self.std is None else f"{plain(self.value)} ± {plain(self.std)}"

    @property
    def title(self) -> str:
        """The settings of the figure in a few words."""
        words = [f"{name.replace('_', ' ')} {plain(value)}" for name, value in self.where.items()]
        if "defense" in self.where and self.where["defense"] != "none":
            words.append(f"{self.knowledge} knowledge")
        first = rounds_of(self.round)
        if first is not None:
            words.append(f"the first {first} rounds")
        elif self.round != ACCUMULATED:
            words.append(f"round {self.round}")
        return ", ".join(words)


@dataclass(frozen=True)
class Comparison:
    """The contents of a grid's page.

    Attributes:
        name: name of the grid.
        about: a description in a few sentences.
        size: the word that selects its settings.
        asked: number of cells of the grid, finished or not.
        cells: the finished cells by key.
        grids: for each grid of the file, the keys of its cells, finished or not.
        paper: the figures of the paper.
    """

    name: str
    about: str
    size: str
    asked: int
    cells: Mapping[str, FinishedCell]
    grids: Sequence[Sequence[str]]
    paper: Sequence[PaperFigure]


@dataclass(frozen=True)
class ComparisonRow:
    """A figure of the paper and ours.

    Attributes:
        stated: the paper's figure.
        ours: our mean over ``n`` seeds; None if no such cell is finished.
    """

    stated: PaperFigure
    ours: Estimate | None

    @property
    def difference(self) -> float | None:
        """Our figure minus the paper's; None without ours."""
        return None if self.ours is None else self.ours.value - self.stated.value


@dataclass(frozen=True)
class Group:
    """Cells that differ only in the seed, with the figures of one adversary's knowledge.

    Attributes:
        settings: the settings that they share, without the seed.
        knowledge: knowledge of the adversary.
        keys: keys of the cells, one per seed.
        means: means over the seeds by metric, of the figures over all rounds and of the model.
    """

    settings: Mapping[str, Any]
    knowledge: str
    keys: tuple[str, ...]
    means: Mapping[str, Measurement]

    @property
    def figures(self) -> dict[str, Estimate]:
        """The estimates by metric."""
        return {name: one.estimate for name, one in self.means.items()}


def compared_with_paper(
    comparison: Comparison, metrics: Mapping[str, Metric]
) -> list[ComparisonRow]:
    """Return every figure of the paper with ours.

    Args:
        comparison: the finished cells and the paper's figures.
        metrics: metrics of all questions, by name; their bounds limit the intervals over seeds.
    """
    rows = []
    for stated in comparison.paper:
        cells = [comparison.cells[key] for key in stated.cells if key in comparison.cells]
        same = [one for cell in cells for one in _stated(cell, stated)]
        ours = over_seeds(same, metric_named(stated.metric, metrics)) if same else None
        rows.append(ComparisonRow(stated, ours))
    return rows


def _stated(cell: FinishedCell, stated: PaperFigure) -> list[Measurement]:
    """Return a cell's measurements of the paper's figure; of several adversaries, the named one."""
    wanted = (stated.metric, stated.round, stated.knowledge)
    same = [one for one in cell.measurements if (one.metric, one.round, one.knowledge) == wanted]
    named = stated.where.get(ADVERSARY)
    if named is None or not isinstance(cell.settings.get(ADVERSARY), list):
        return same
    return [one for one in same if one.adversary in (named, "")]


def groups(cells: Mapping[str, FinishedCell], metrics: Mapping[str, Metric]) -> list[Group]:
    """Return the finished cells grouped over their seeds, in the order of their first cell."""
    by_settings: dict[str, list[str]] = {}
    for key, cell in cells.items():
        by_settings.setdefault(json.dumps(_shared(cell), sort_keys=True), []).append(key)
    return [
        Group(_shared(cells[keys[0]]), knowledge, tuple(keys), means)
        for keys in by_settings.values()
        for knowledge, means in by_knowledge([cells[key] for key in keys], metrics).items()
    ]


def varying(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the settings that vary, without the seed.

    >>> varying([{"ask": "property", "seed": 0, "lr": 1}, {"ask": "user", "seed": 1, "lr": 1}])
    ['ask']
    """
    first = settings[0] if settings else {}
    names = (name for name in first if name != "seed")
    return [name for name in names if any(one[name] != first[name] for one in settings)]


def follows(name: str, other: str, settings: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the value of ``other`` determines that of ``name`` in all of the settings.

    >>> follows("label", "data", [{"data": "a", "label": 1}, {"data": "b", "label": 1}])
    True
    >>> follows("data", "label", [{"data": "a", "label": 1}, {"data": "b", "label": 1}])
    False
    """
    return _kinds(settings, [other, name]) == _kinds(settings, [other])


def main_first(names: Sequence[str]) -> list[str]:
    """Return names of settings, the main ones first.

    >>> main_first(["batch_size", "ask", "data"])
    ['data', 'ask', 'batch_size']
    """
    first = [name for name in MAIN if name in names]
    return first + [name for name in names if name not in first]


def distinguishing_names(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return names of settings that distinguish cells, the main ones first.

    A setting that distinguishes no more cells than those before it is left out.

    >>> distinguishing_names([{"ask": "user", "lr": 1}, {"ask": "property", "lr": 2}])
    ['ask']
    """
    return distinguishing(settings, [], main_first(varying(settings)))


def distinguishing(
    settings: Sequence[Mapping[str, Any]], names: Sequence[str], more: Sequence[str]
) -> list[str]:
    """Return ``names``, and each of ``more`` that distinguishes further cells.

    >>> cells = [{"ask": "user", "lr": 1, "k": 1}, {"ask": "user", "lr": 2, "k": 1}]
    >>> distinguishing(cells, ["ask"], ["k", "lr"])
    ['ask', 'lr']
    """
    found = list(names)
    for name in more:
        if _kinds(settings, [*found, name]) > _kinds(settings, found):
            found.append(name)
    return found


def _kinds(settings: Sequence[Mapping[str, Any]], names: Sequence[str]) -> int:
    return len({json.dumps([one[name] for name in names], sort_keys=True) for one in settings})


def title_of(settings: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return the values of these settings in words.

    >>> title_of({"ask": "user", "batch_size": 8, "lr": 1}, ["ask", "batch_size"])
    'ask user, batch size 8'
    """
    return ", ".join(f"{name.replace('_', ' ')} {plain(settings[name])}" for name in names)


def along_axis(groups: Sequence[Group], axis: str) -> dict[str, list[Group]]:
    """Return groups that differ in the axis alone, ascending, by their shared settings in words."""
    names = [name for name in varying([group.settings for group in groups]) if name != axis]
    sharing: dict[str, list[Group]] = {}
    for group in groups:
        rest = {name: value for name, value in group.settings.items() if name != axis}
        sharing.setdefault(json.dumps(rest, sort_keys=True), []).append(group)
    return {
        title_of(along[0].settings, names): sorted(along, key=lambda group: group.settings[axis])
        for along in sharing.values()
        if len({group.settings[axis] for group in along}) > 1
    }


def by_knowledge(
    cells: Sequence[FinishedCell], metrics: Mapping[str, Metric]
) -> dict[str, dict[str, Measurement]]:
    """Return the means of cells that differ in their seed, by the adversary's knowledge and metric.

    A metric of the model is the same for every knowledge.
    """
    measured = [one for cell in cells for one in cell.measurements]
    of_model = {name for name, metric in metrics.items() if metric.of_model}
    whole = [one for cell in cells for one in _whole(cell)]
    shared = _means([one for one in measured if one.metric in of_model], metrics)
    return {
        knowledge: _means([one for one in whole if one.knowledge == knowledge], metrics) | shared
        for knowledge in dict.fromkeys(one.knowledge for one in whole)
    }


def _whole(cell: FinishedCell) -> list[Measurement]:
    """Return the figures over all rounds: the headline of several adversaries, or plain sums."""
    rounds = {one.round for one in cell.measurements}
    when = HEADLINE if HEADLINE in rounds else ACCUMULATED
    return [one for one in cell.measurements if one.round == when]


def _means(
    measurements: Sequence[Measurement], metrics: Mapping[str, Metric]
) -> dict[str, Measurement]:
    """Return each metric's first measurement with the mean of all seeds in its place.

    Its details are those of ``doubtful_details``: one seed that saw too little makes a verdict of
    no leak doubtful.
    """
    by_metric: dict[str, list[Measurement]] = {}
    for one in measurements:
        by_metric.setdefault(one.metric, []).append(one)
    return {
        name: replace(
            several[0],
            estimate=over_seeds(several, metric_named(name, metrics)),
            chance=sum(one.chance for one in several) / len(several),
            details=doubtful_details(several, metric_named(name, metrics)),
            theory={
                key: sum(one.theory[key] for one in several) / len(several)
                for key in several[0].theory
            },
        )
        for name, several in by_metric.items()
    }


def _shared(cell: FinishedCell) -> dict[str, Any]:
    return {name: value for name, value in cell.settings.items() if name != "seed"}
