"""A grid's cells over their seeds, beside the figures that a paper states."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from leakgauge.guarantee.report import wording as epsilon
from leakgauge.report.wording import plain
from leakgauge.results.measurements import ACCUMULATED, Estimate, Measurement
from leakgauge.results.scores import ACCURACY

CONFIDENCE = 0.95
STATIC = "static"
_LOWEST = {"advantage": -1.0}  # of a metric; the others begin at 0
_UNBOUNDED = frozenset({*epsilon.METRICS, "psnr", "loss"})  # above; the others end at 1


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


def beside_paper(comparison: Comparison) -> list[Row]:
    """Every figure of the paper with ours."""
    return [Row(stated, _ours(stated, comparison.cells)) for stated in comparison.paper]


def groups(cells: Mapping[str, Played]) -> list[Group]:
    """The cells grouped over their seeds, in the order of their first cell."""
    by_settings: dict[str, list[str]] = {}
    for key, played in cells.items():
        by_settings.setdefault(json.dumps(_shared(played), sort_keys=True), []).append(key)
    return [
        Group(_shared(cells[keys[0]]), knowledge, tuple(keys), figures)
        for keys in by_settings.values()
        for knowledge, figures in by_knowledge([cells[key] for key in keys]).items()
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


def over_seeds(records: Sequence[Measurement]) -> Estimate:
    """The mean of one figure over several seeds, with a Student t interval of that mean.

    A single seed keeps its own interval. Where all seeds agree to the last digit (all are
    perfect, say), a t interval would have no width; then the widest of the seeds' own ends stand.

    Args:
        records: the same figure of cells that differ in their seed; at least one.

    Returns:
        An estimate whose ``n`` is the number of seeds.
    """
    own = [record.estimate for record in records]
    values = np.array([one.value for one in own])
    mean, count = float(values.mean()), len(values)
    if count == 1 or np.ptp(values) == 0:
        low, high = min(one.low for one in own), max(one.high for one in own)
        return Estimate(mean, low, high, count, own[0].confidence, "seeds")
    low, high = stats.t.interval(
        CONFIDENCE, count - 1, loc=mean, scale=values.std(ddof=1) / np.sqrt(count)
    )
    lowest = _LOWEST.get(records[0].metric, 0.0)
    highest = np.inf if records[0].metric in _UNBOUNDED else 1.0
    low, high = max(lowest, float(low)), min(highest, float(high))
    return Estimate(mean, low, high, count, CONFIDENCE, "seeds")


def _ours(stated: PaperFigure, cells: Mapping[str, Played]) -> Estimate | None:
    found = [
        record
        for key in stated.cells
        if key in cells
        for record in cells[key].records
        if (record.metric, record.round) == (stated.metric, stated.round)
        and record.knowledge == stated.knowledge
    ]
    return over_seeds(found) if found else None


def _shared(played: Played) -> dict[str, Any]:
    return {name: value for name, value in played.settings.items() if name != "seed"}


def by_knowledge(cells: Sequence[Played]) -> dict[str, dict[str, Estimate]]:
    """By knowledge and metric; the accuracy of the model is the same whoever attacks it."""
    records = [record for played in cells for record in played.records]
    whole = [record for record in records if record.round == ACCUMULATED]
    accuracy = [record for record in records if record.metric == ACCURACY]
    found: dict[str, dict[str, Estimate]] = {}
    for knowledge in dict.fromkeys(record.knowledge for record in whole):
        known = [record for record in whole if record.knowledge == knowledge]
        metrics = dict.fromkeys(record.metric for record in known)
        found[knowledge] = {
            metric: over_seeds([record for record in known if record.metric == metric])
            for metric in metrics
        }
        if accuracy:
            found[knowledge][ACCURACY] = over_seeds(accuracy)
    return found
