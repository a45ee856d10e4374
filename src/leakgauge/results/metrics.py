"""Metrics with their title, unit and bounds; and the mean of a figure over several seeds."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from leakgauge.core.checks import require
from leakgauge.results.measurements import MOST, Estimate, Measurement
from leakgauge.results.scores import ACCURACY, BALANCED_ACCURACY, MACRO_F1, R2, TASK_AUROC
from leakgauge.results.statistics import SHARE, student_t

CONFIDENCE = 0.95


NONE_SEEN = "none"
"""In place of the smallest planted leak that a test sees: it sees none of those that were tried."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric of a question.

    Attributes:
        title: the metric's name in tables.
        unit: unit of the figure, if the title does not name it.
        low: smallest possible value; may be ``-inf``.
        high: largest possible value; may be ``inf``.
        chance: value without a leak; None if it depends on the data.
        higher_is_worse: a higher value means more leakage.
        headline: whether a grid's charts show the metric; they show the first one measured.
        tabled: whether tables of figures have a column for the metric.
        of_model: whether it measures the model, such as an accuracy, and not an attack.
        blind: details with their values in figures of attacks that saw too little: such a figure
            does not say what the test could have seen.
        blind_why: why no limit follows from such a figure, and what to do.
        planted: a detail with the smallest planted leak that the test sees, or ``NONE_SEEN``.

    Raises:
        InputError: the title is empty, ``low`` is not below ``high``, or ``chance`` is outside.

    >>> Metric(title="PSNR", unit="dB", low=-math.inf, high=math.inf).label
    'PSNR, dB'
    """

    title: str
    unit: str = ""
    low: float = SHARE[0]
    high: float = SHARE[1]
    chance: float | None = None
    higher_is_worse: bool = True
    headline: bool = False
    tabled: bool = True
    of_model: bool = False
    blind: Collection[tuple[str, str]] = ()
    blind_why: str = "the attack learned nothing, so it shows no limit; use more records"
    planted: str = ""

    def __post_init__(self) -> None:
        require(bool(self.title), "a metric has no title; give it one")
        require(
            self.low < self.high,
            f"metric {self.title!r} has bounds {self.low:g} and {self.high:g}; expected the "
            "smaller one first",
        )
        require(
            self.chance is None or self.low <= self.chance <= self.high,
            f"metric {self.title!r} has chance {self.chance}; expected a value from {self.low:g} "
            f"to {self.high:g}",
        )

    @property
    def bounds(self) -> tuple[float, float]:
        """Smallest and largest possible value."""
        return self.low, self.high

    @property
    def is_share(self) -> bool:
        """Whether values go from 0 to 1."""
        return self.bounds == SHARE

    @property
    def label(self) -> str:
        """The title, followed by the unit if the metric has one."""
        return f"{self.title}, {self.unit}" if self.unit else self.title


def metric_named(name: str, metrics: Mapping[str, Metric]) -> Metric:
    """Return the metric of a name; ``"columns: age"`` has the bounds of ``"columns"``.

    An unknown name gives a metric without bounds and without a column in tables.

    >>> metric_named("columns: age", {"columns": Metric(title="Columns right")}).bounds
    (0.0, 1.0)
    >>> metric_named("other", {}).bounds
    (-inf, inf)
    """
    if name in metrics:
        return metrics[name]
    family = metrics.get(name.partition(": ")[0], Metric(title=name, low=-math.inf, high=math.inf))
    return replace(family, title=name, unit="", headline=False, tabled=False)


def titles(metrics: Mapping[str, Metric]) -> dict[str, str]:
    """Return the labels of the metrics that have a column in tables, by name."""
    return {name: metric.label for name, metric in metrics.items() if metric.tabled}


def over_seeds(measurements: Sequence[Measurement], metric: Metric) -> Estimate:
    """Return the mean of one figure over several seeds; its interval covers trainings and trials.

    It is the Student t interval over the seeds, widened to what the trials alone give: the
    half-widths of the seeds' intervals, added in quadrature, over the number of seeds. So a few
    seeds that agree by luck do not make it narrower than that of one long run. A single seed keeps
    its interval. If all seeds agree to the last digit (all are perfect, for example), the interval
    covers those of all seeds.

    Args:
        measurements: the same figure of runs that differ in their seed; at least one.
        metric: its bounds limit the interval, and so does the largest value that a figure's theory
            allows, unless a seed's value lies beyond them (an earlier version wrote advantages
            below 0).

    Returns:
        An estimate; ``n`` is the number of seeds.
    """
    own = [one.estimate for one in measurements]
    values = np.array([one.value for one in own])
    mean, count = float(values.mean()), len(values)
    if count == 1 or np.ptp(values) == 0:
        low, high = min(one.low for one in own), max(one.high for one in own)
        return Estimate(mean, low, high, count, own[0].confidence, "seeds")
    reach = student_t(count - 1, CONFIDENCE) * float(values.std(ddof=1) / np.sqrt(count))
    trials = over_trials(own)
    low = max(min(mean - reach, trials.low), min(metric.low, float(values.min())))
    largest = min(metric.high, *(one.theory.get(MOST, math.inf) for one in measurements))
    high = min(max(mean + reach, trials.high), max(largest, float(values.max())))
    return Estimate(mean, low, high, count, CONFIDENCE, "seeds")


def doubtful_details(measurements: Sequence[Measurement], metric: Metric) -> dict[str, str]:
    """Return the details of a figure's mean over seeds, with all that limits a verdict of no leak.

    They are those of the first figure with a detail of ``metric.blind``, else of the first one,
    with the largest of the smallest planted leaks that were seen.

    Args:
        measurements: the same figure of runs that differ in their seed; at least one.
        metric: its traits.
    """
    doubtful = (
        one for one in measurements if any(each in one.details.items() for each in metric.blind)
    )
    found = dict(next(doubtful, measurements[0]).details)
    seen = [one.details[metric.planted] for one in measurements if metric.planted in one.details]
    if seen:
        found[metric.planted] = NONE_SEEN if NONE_SEEN in seen else max(seen, key=float)
    return found


def over_trials(own: Sequence[Estimate]) -> Estimate:
    """Return the mean over seeds with the interval of the trials alone: for these trainings only.

    Its half-widths are those of the seeds, added in quadrature, over the number of seeds.

    >>> over_trials([Estimate(0.9, 0.8, 1.0, 50), Estimate(0.7, 0.6, 0.8, 50)]).low.__round__(3)
    0.729
    """
    count, mean = len(own), float(np.mean([one.value for one in own]))
    below = math.hypot(*(one.value - one.low for one in own)) / count
    above = math.hypot(*(one.high - one.value for one in own)) / count
    return Estimate(mean, mean - below, mean + above, sum(one.n for one in own), CONFIDENCE)


UTILITY = {
    ACCURACY: Metric(title="Accuracy", higher_is_worse=False, of_model=True),
    BALANCED_ACCURACY: Metric(title="Balanced accuracy", higher_is_worse=False, of_model=True),
    R2: Metric(title="R²", low=-math.inf, chance=0.0, higher_is_worse=False, of_model=True),
    MACRO_F1: Metric(title="Macro F1", higher_is_worse=False, of_model=True),
}
"""Metrics of a trained model by name; one of them matches the labels of a run."""

OF_CLASSES = {
    TASK_AUROC: Metric(title="AUROC of the task", chance=0.5, higher_is_worse=False, of_model=True)
}
"""Metrics of a classifier in addition to one of ``UTILITY``, by name."""
