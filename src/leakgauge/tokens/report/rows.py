"""Measurements of a run by defense, critic and checkpoint, and the noise that they advise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from leakgauge.report.grouping import UNDEFENDED
from leakgauge.report.levels import LEAKS
from leakgauge.report.section import Level
from leakgauge.results.measurements import HEADLINE, Estimate, Measurement
from leakgauge.tokens.metrics import (
    ATTACK,
    CHEAP,
    CHEAP_PLACEBO,
    INFORMATION,
    MODEL,
    OF_A_CRITIC,
    PLACEBO,
    RANKS_BOUND,
    RANKS_GAP,
)

Steps = Mapping[int, Measurement]
"""Figures by sub-epoch."""


@dataclass(frozen=True)
class InformationCurve:
    """The figures of one critic over the training.

    Attributes:
        token: encoder of the gradients.
        estimator: estimator of the information.
        figures: figures by metric and sub-epoch.
        ranks: correlation with the attack's PSNR, by metric.
    """

    token: str
    estimator: str
    figures: Mapping[str, Steps]
    ranks: Mapping[str, Measurement]

    @property
    def title(self) -> str:
        """Token and estimator."""
        return f"{self.token}, {self.estimator}"

    @property
    def steps(self) -> list[int]:
        """Measured sub-epochs, ascending."""
        return sorted(self.figures.get(INFORMATION, {}))

    def at(self, metric: str, step: int) -> Estimate | None:
        """Return a figure; None if it was not measured."""
        one = self.figures.get(metric, {}).get(step)
        return None if one is None else one.estimate

    def about(self, step: int) -> Mapping[str, str]:
        """Return the details of the critic at a checkpoint."""
        one = self.figures.get(INFORMATION, {}).get(step)
        return {} if one is None else one.details


@dataclass(frozen=True)
class Course:
    """One training.

    Attributes:
        defense: defense of the training.
        curves: one curve per critic.
        model: utility of the model, by sub-epoch.
        cheap: cheap measure, by sub-epoch.
        cheap_placebo: cheap measure of gradients of other data, by sub-epoch.
        attack: scores of rebuilt images by metric and sub-epoch; empty without an attack.
        peak: largest bound, with an interval widened for the choice; None without a bound.
        placebo: placebo at that checkpoint, with an interval widened in the same way.
    """

    defense: str
    curves: Sequence[InformationCurve]
    model: Steps
    cheap: Steps
    cheap_placebo: Steps
    attack: Mapping[str, Steps]
    peak: Measurement | None
    placebo: Measurement | None

    @property
    def is_defended(self) -> bool:
        """Whether a defense changed the gradients."""
        return self.defense != UNDEFENDED

    @property
    def steps(self) -> list[int]:
        """Measured sub-epochs, ascending."""
        return sorted({step for one in self.curves for step in one.steps} | set(self.model))

    @property
    def leading(self) -> InformationCurve | None:
        """Curve of the largest bound."""
        if self.peak is None:
            return next(iter(self.curves), None)
        return next(one for one in self.curves if one.title == self.peak.adversary)


def courses(measurements: Sequence[Measurement]) -> list[Course]:
    """Return the trainings in the order of their measurements."""
    return [
        _course(defense, [one for one in measurements if one.defense == defense])
        for defense in dict.fromkeys(one.defense for one in measurements)
    ]


def _course(defense: str, measured: Sequence[Measurement]) -> Course:
    figures: dict[str, dict[int, Measurement]] = {}
    for one in measured:
        if isinstance(one.round, int):
            figures.setdefault(one.metric, {})[one.round] = one
    by_family: dict[str, dict[int, Measurement]] = {}
    for name, steps in figures.items():
        by_family.setdefault(name.partition(": ")[0], {}).update(steps)
    headline = {one.metric: one for one in measured if one.round == HEADLINE}
    critics = dict.fromkeys(
        one.adversary for one in measured if one.metric.partition(": ")[0] in OF_A_CRITIC
    )
    return Course(
        defense,
        [_curve(name, figures, measured) for name in critics if name],
        by_family.get(MODEL, {}),
        figures.get(CHEAP, {}),
        figures.get(CHEAP_PLACEBO, {}),
        {name: figures[name] for name in ATTACK if name in figures},
        headline.get(INFORMATION),
        headline.get(PLACEBO),
    )


def _curve(
    critic: str, figures: Mapping[str, Steps], measured: Sequence[Measurement]
) -> InformationCurve:
    token, _, estimator = critic.partition(", ")
    own = {
        name.partition(": ")[0]: steps
        for name, steps in figures.items()
        if name.partition(": ")[2] == critic
    }
    ranks = {
        one.metric.partition(": ")[0]: one
        for one in measured
        if one.metric in {f"{kind}: {critic}" for kind in (RANKS_BOUND, RANKS_GAP)}
    }
    return InformationCurve(token, estimator, own, ranks)


LEAST = 0.1
"""Smallest multiplier, for a phase without a leak, as another attack may find one."""

NO_GUARANTEE = (
    "The schedule is advice from one critic's lower bounds, not a guarantee: differential "
    "privacy is accounted from the noise of every step, and a bound near 0 does not prove that "
    "a phase leaks nothing."
)


@dataclass(frozen=True)
class Phase:
    """A part of the training, and its noise.

    Attributes:
        start: first checkpoint, in sub-epochs.
        end: last checkpoint, in sub-epochs; None for the rest of the training.
        multiplier: multiplier of the noise, 1 for the largest bound.
        bound: bound at its start.
    """

    start: int
    end: int | None
    multiplier: float
    bound: Estimate

    @property
    def title(self) -> str:
        """Sub-epochs of the phase.

        >>> Phase(5, None, 1.0, Estimate(1.0, 0.5, 1.5, 10)).title
        'from 5'
        """
        return f"from {self.start}" if self.end is None else f"{self.start} to {self.end}"


def schedule(curve: InformationCurve | None, level: Level) -> list[Phase]:
    """Return a multiplier of the noise for each phase, proportional to the bound at its start.

    Args:
        curve: curve of the largest bound.
        level: level of that bound; without a leak the schedule is empty.

    References:
        Privacy Tokens, section 4.2.2, which proposes noise by the stage of the training as future
        work, and no numbers.
    """
    if curve is None or level not in LEAKS or len(curve.steps) < 2:
        return []
    bounds = {step: curve.figures[INFORMATION][step].estimate for step in curve.steps}
    largest = max(one.value for one in bounds.values())
    ends: Sequence[int | None] = [end for _, end in pairwise(curve.steps)]
    return [
        Phase(step, end, max(LEAST, bounds[step].value / largest), bounds[step])
        for step, end in zip(curve.steps, [*ends, None], strict=True)
    ]
