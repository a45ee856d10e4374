"""A grid's cells over their seeds, beside the figures that a paper states."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leakgauge.report.wording import plain
from leakgauge.results.measurements import ACCUMULATED, Estimate, Measurement
from leakgauge.results.metrics import Metric, metric_named, over_seeds
from leakgauge.results.scores import ACCURACY

STATIC = "static"


@dataclass(frozen=True)
class Played:
    """A finished cell of a grid.

    Attributes:
        settings: by name, plain values.
        records: what was found.
    """

    settings: Mapping[str, Any]
    records: Sequence[Measurement]


@dataclass(frozen=True)
class PaperFigure:
    """A figure that the paper states.

    Attributes:
        where: settings by name, which say what the figure is about.
        knowledge: of the adversary.
        metric: of which metric, round: ``"accumulated"`` or a single one.
        value: what the paper says.
        note: anything that a reader should know.
        cells: the keys of the cells that it is about, one a seed.
    """

    where: Mapping[str, Any]
    knowledge: str
    metric: str
    round: int | str
    value: float
    note: str
    cells: Sequence[str]

    @property
    def title(self) -> str:
        """What it is about, in a few words."""
        words = [f"{name.replace('_', ' ')} {plain(value)}" for name, value in self.where.items()]
        if "defense" in self.where and self.where["defense"] != "none":
            words.append(f"{self.knowledge} knowledge")
        if self.round != ACCUMULATED:
            words.append(f"round {self.round}")
        return ", ".join(words)


@dataclass(frozen=True)
class Comparison:
    """What a grid's page shows.

    Attributes:
        name: of the grid; about, in a few sentences; size, the word that chose its settings.
        asked: how many cells there are to be.
        cells: the finished ones by key.
        grids: the keys of the cells of each of the file's grids; unfinished ones among them.
        paper: what the paper states.
    """

    name: str
    about: str
    size: str
    asked: int
    cells: Mapping[str, Played]
    grids: Sequence[Sequence[str]]
    paper: Sequence[PaperFigure]


@dataclass(frozen=True)
class Row:
    """A figure of the paper and ours.

    Attributes:
        stated: the paper's.
        ours: over the seeds (its ``n``); None where no such cell is finished.
    """

    stated: PaperFigure
    ours: Estimate | None

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        return None if self.ours is None else self.ours.value - self.stated.value


@dataclass(frozen=True)
class Group:
    """Cells that differ in nothing but the seed, seen by one adversary's knowledge.

    Attributes:
        settings: what they share, without the seed.
        knowledge: of the adversary.
        keys: of the cells, one a seed.
        figures: by metric: the accumulated ones, and the accuracy; over the seeds.
    """

    settings: Mapping[str, Any]
    knowledge: str
    keys: tuple[str, ...]
    figures: Mapping[str, Estimate]


def beside_paper(comparison: Comparison, metrics: Mapping[str, Metric]) -> list[Row]:
    """Every figure of the paper with ours.

    Args:
        comparison: the finished cells and the paper's figures.
        metrics: of all questions, by name; their bounds limit the intervals over seeds.
    """
    return [Row(stated, _ours(stated, comparison.cells, metrics)) for stated in comparison.paper]


def groups(cells: Mapping[str, Played], metrics: Mapping[str, Metric]) -> list[Group]:
    """The cells grouped over their seeds, in the order of their first cell.

    Args:
        cells: the finished cells by key.
        metrics: as for ``beside_paper``.
    """
    by_settings: dict[str, list[str]] = {}
    for key, played in cells.items():
        by_settings.setdefault(json.dumps(_shared(played), sort_keys=True), []).append(key)
    return [
        Group(_shared(cells[keys[0]]), knowledge, tuple(keys), figures)
        for keys in by_settings.values()
        for knowledge, figures in by_knowledge([cells[key] for key in keys], metrics).items()
    ]


def varying(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of the settings that are not the same in all, but for the seed.

    >>> varying([{"ask": "property", "seed": 0, "lr": 1}, {"ask": "user", "seed": 1, "lr": 1}])
    ['ask']
    """
    first = settings[0] if settings else {}
    names = (name for name in first if name != "seed")
    return [name for name in names if any(one[name] != first[name] for one in settings)]


def follows(name: str, other: str, settings: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the value of ``other`` tells that of ``name`` in all of the settings.

    >>> follows("label", "data", [{"data": "a", "label": 1}, {"data": "b", "label": 1}])
    True
    >>> follows("data", "label", [{"data": "a", "label": 1}, {"data": "b", "label": 1}])
    False
    """
    pairs = {json.dumps([one[other], one[name]], sort_keys=True) for one in settings}
    return len(pairs) == len({json.dumps(one[other], sort_keys=True) for one in settings})


def _ours(
    stated: PaperFigure, cells: Mapping[str, Played], metrics: Mapping[str, Metric]
) -> Estimate | None:
    found = [
        record
        for key in stated.cells
        if key in cells
        for record in cells[key].records
        if (record.metric, record.round) == (stated.metric, stated.round)
        and record.knowledge == stated.knowledge
    ]
    return over_seeds(found, metric_named(stated.metric, metrics)) if found else None


def _shared(played: Played) -> dict[str, Any]:
    return {name: value for name, value in played.settings.items() if name != "seed"}


def by_knowledge(
    cells: Sequence[Played], metrics: Mapping[str, Metric]
) -> dict[str, dict[str, Estimate]]:
    """Figures over the seeds, by knowledge and metric.

    The accuracy of the model is the same for every knowledge.

    Args:
        cells: finished cells that differ in their seed.
        metrics: as for ``beside_paper``.
    """
    records = [record for played in cells for record in played.records]
    whole = [record for record in records if record.round == ACCUMULATED]
    accuracy = [record for record in records if record.metric == ACCURACY]
    found: dict[str, dict[str, Estimate]] = {}
    for knowledge in dict.fromkeys(record.knowledge for record in whole):
        known = [record for record in whole if record.knowledge == knowledge]
        found[knowledge] = {
            name: over_seeds(
                [record for record in known if record.metric == name], metric_named(name, metrics)
            )
            for name in dict.fromkeys(record.metric for record in known)
        }
        if accuracy:
            found[knowledge][ACCURACY] = over_seeds(accuracy, metric_named(ACCURACY, metrics))
    return found
