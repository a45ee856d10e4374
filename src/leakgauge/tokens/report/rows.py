"""The measurements of a run by defense, critic and checkpoint."""

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
"""Sub-epoch -> figure."""


@dataclass(frozen=True)
class Curve:
    """What one critic finds over the training.

    Attributes:
        token: what turned gradients into vectors.
        estimator: of the information.
        figures: by metric and sub-epoch.
        ranks: correlation with the attack's PSNR, by metric.
    """

    token: str
    estimator: str
    figures: Mapping[str, Steps]
    ranks: Mapping[str, Measurement]

    @property
    def title(self) -> str:
        """Token and estimator in a few words."""
        return f"{self.token}, {self.estimator}"

    @property
    def steps(self) -> list[int]:
        """The measured sub-epochs, ascending."""
        return sorted(self.figures.get(INFORMATION, {}))

    def at(self, metric: str, step: int) -> Estimate | None:
        """Return a figure; None where it was not measured."""
        one = self.figures.get(metric, {}).get(step)
        return None if one is None else one.estimate

    def about(self, step: int) -> Mapping[str, str]:
        """Return what is known of the critic at a checkpoint."""
        one = self.figures.get(INFORMATION, {}).get(step)
        return {} if one is None else one.details


@dataclass(frozen=True)
class Course:
    """One training.

    Attributes:
        defense: of the training.
        curves: of each critic.
        model: what the model is good for, by sub-epoch.
        cheap: the cheap measure, by sub-epoch.
        cheap_placebo: of gradients of other data.
        attack: of rebuilt images by metric and sub-epoch; empty without an attack.
        peak: the largest bound, its interval widened for the choice; None without a bound.
        placebo: of that checkpoint, widened likewise.
    """

    defense: str
    curves: Sequence[Curve]
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
        """The measured sub-epochs, ascending."""
        return sorted({step for one in self.curves for step in one.steps} | set(self.model))

    @property
    def leading(self) -> Curve | None:
        """The curve of the largest bound."""
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


def _curve(critic: str, figures: Mapping[str, Steps], measured: Sequence[Measurement]) -> Curve:
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
    return Curve(token, estimator, own, ranks)


LEAST = 0.1
"""Of the largest multiplier, for a phase in which nothing was found: another attack may."""

NO_GUARANTEE = (
    "The schedule is advice from one critic's lower bounds. It is no guarantee: differential "
    "privacy is accounted from the noise of every step, and a bound near 0 is no proof that a "
    "phase leaks nothing."
)


@dataclass(frozen=True)
class Phase:
    """A part of the training, and how much noise it would get.

    Attributes:
        start: the checkpoint at which it begins, in sub-epochs.
        end: the checkpoint at which it ends; None for the rest of the training.
        multiplier: of the noise, 1 where the bound is largest.
        bound: at its start.
    """

    start: int
    end: int | None
    multiplier: float
    bound: Estimate

    @property
    def title(self) -> str:
        """Its sub-epochs.

        >>> Phase(5, None, 1.0, Estimate(1.0, 0.5, 1.5, 10)).title
        'from 5'
        """
        return f"from {self.start}" if self.end is None else f"{self.start} to {self.end}"


def schedule(curve: Curve | None, level: Level) -> list[Phase]:
    """Return a multiplier of the noise for each phase, proportional to the bound at its start.

    Args:
        curve: of the largest bound.
        level: of that bound; without a leak nothing is proposed.

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
