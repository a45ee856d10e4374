"""Figures over time: runs that measured the same, in the order of their dates, as small charts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from leakgauge.report.bundle.entry import Entry, RunFigure
from leakgauge.report.wording import short

WIDTH, HEIGHT, LEFT, RIGHT = 340, 180, 46, 328
"""Size of a chart, and both ends of its horizontal axis, in units of its SVG, about pixels."""
_TOP, _BOTTOM, _INSET = 12, 154, 6
_TICKS = 4
_SPAN = 3.0
"""Ends farther than this many times the values' range from the values are cut off."""


@dataclass(frozen=True)
class Spot:
    """A figure of one run in a chart.

    Attributes:
        run: number of the run in the list.
        entry: the run.
        point: its figure.
    """

    run: int
    entry: Entry
    point: RunFigure


@dataclass(frozen=True)
class Tick:
    """A line of the vertical axis: its place, and its value as text."""

    y: float
    text: str


@dataclass(frozen=True)
class ChartMark:
    """A figure in a chart, by its places in the units of the SVG.

    Attributes:
        spot: the figure.
        x: place on the axis of time.
        y: place of the value.
        low: place of the lower end of the interval.
        high: place of the upper end; that of the chart for an interval without one.
        chance: place of the value without a leak.
    """

    spot: Spot
    x: float
    y: float
    low: float
    high: float
    chance: float


@dataclass(frozen=True)
class Series:
    """The same figure of several runs, the earliest first.

    Attributes:
        spots: the figures, at least one.
    """

    spots: Sequence[Spot] = field(repr=False)

    @property
    def first(self) -> RunFigure:
        """The earliest figure, whose topic, data and defense all share."""
        return self.spots[0].point

    @property
    def says(self) -> str:
        """The chart in words, for screen readers."""
        one, other = self.spots[0], self.spots[-1]
        ends = [
            f"{each.entry.when:%Y-%m-%d} {short(each.point.estimate.value)}, {each.point.interval}"
            for each in (one, other)
        ]
        name = f"{self.first.metric} of {self.first.title}"
        return f"{name}, {len(self.spots)} runs; first {ends[0]}; last {ends[1]}."

    @property
    def dates(self) -> tuple[str, str]:
        """The dates of the first and the last figure; of one day, their times too."""
        first, last = self.spots[0].entry.when, self.spots[-1].entry.when
        shown = "%Y-%m-%d" if first.date() != last.date() else "%Y-%m-%d %H:%M"
        return first.strftime(shown), last.strftime(shown)

    @property
    def changed_data(self) -> int:
        """The number of different contents of the data behind the figures."""
        return len({one.point.fingerprint for one in self.spots if one.point.fingerprint})

    @cached_property
    def limits(self) -> tuple[float, float]:
        """Smallest and largest value on the vertical axis."""
        points = [one.point for one in self.spots]
        values = [v for one in points for v in (one.estimate.value, one.chance)]
        ends = [one.estimate.low for one in points]
        ends += [one.estimate.high for one in points if not one.open_end]
        reach = _SPAN * ((max(values) - min(values)) or max(map(abs, values)) or 1.0)
        low = max(min(*ends, *values), min(values) - reach)
        high = min(max(*ends, *values), max(values) + reach)
        pad = 0.06 * (high - low) or 0.05
        return low - pad, high + pad

    @cached_property
    def ticks(self) -> list[Tick]:
        """The lines of the vertical axis."""
        from matplotlib.ticker import MaxNLocator

        low, high = self.limits
        values = MaxNLocator(_TICKS).tick_values(low, high)
        return [Tick(self._y(v), f"{v:g}") for v in map(float, values) if low <= v <= high]

    @cached_property
    def marks(self) -> list[ChartMark]:
        """The figures as places in the chart."""
        start = self.spots[0].entry.when
        span = (self.spots[-1].entry.when - start).total_seconds()
        return [self._mark(one, (one.entry.when - start).total_seconds(), span)
                for one in self.spots]  # fmt: skip

    def _mark(self, spot: Spot, after: float, span: float) -> ChartMark:
        found = spot.point.estimate
        share = after / span if span else 0.5
        x = LEFT + _INSET + share * (RIGHT - LEFT - 2 * _INSET)
        high = math.inf if spot.point.open_end else found.high
        ends = (self._y(one) for one in (found.value, found.low, high, spot.point.chance))
        return ChartMark(spot, round(x, 1), *ends)

    def _y(self, value: float) -> float:
        low, high = self.limits
        share = (min(max(value, low), high) - low) / (high - low)
        return round(_BOTTOM - share * (_BOTTOM - _TOP), 1)


def series_of(entries: Sequence[Entry]) -> list[Series]:
    """Return the figures of the runs, the most measured first.

    Figures belong together where data, question, secret, defense, metric and, in grids, the
    settings of the cell are equal.
    """
    found: dict[tuple[str, ...], list[Spot]] = {}
    for run, entry in enumerate(entries):
        for one in entry.points:
            key = (one.data, one.ask, one.secret, one.defense, one.metric, one.where)
            found.setdefault(key, []).append(Spot(run, entry, one))
    dated = [sorted(spots, key=lambda spot: spot.entry.when) for spots in found.values()]
    return [Series(spots) for spots in sorted(dated, key=len, reverse=True)]
