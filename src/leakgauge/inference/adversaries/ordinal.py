"""Infer an ordered secret by one binary decision for each step of its order."""

from dataclasses import dataclass

import numpy as np

from leakgauge.core.checks import require
from leakgauge.core.types import Grads
from leakgauge.inference.adversaries.adversary import Adversary, Attack
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.results.statistics import Floats


@dataclass(frozen=True)
class Ordinal:
    """m - 1 adversaries that each decide whether the secret is above one of its values.

    P(a = j | g) = P(a > j-1 | g) - P(a > j | g). The m - 1 answers are independent, so a
    difference can be negative: it is clipped at ``floor``, and the row renormalised. The floor also
    prevents one round from excluding a value for all others.

    Attributes:
        base: the attack that decides each step.
        floor: minimum probability of a value in one round, before the row is renormalised.

    References:
        Frank and Hall, A simple approach to ordinal classification, ECML 2001; Li et al., CCS 2024,
        section 4.1 (distributional inference).
    """

    base: Attack
    floor: float = 0.01

    def __post_init__(self) -> None:
        require(0 < self.floor < 0.5, f"ordinal floor is {self.floor:g}; expected above 0, < 0.5")

    @property
    def name(self) -> str:
        """The name of the base attack."""
        return self.base.name

    def fit(
        self, shadow: Shadow, log_prior: Floats, *, rng: np.random.Generator
    ) -> "FittedOrdinal":
        """Fit the base once for each step."""
        prior = np.exp(log_prior)
        steps = []
        for value in range(shadow.values - 1):
            above = prior[value + 1 :].sum()
            log_odds = np.log(np.array([1 - above, above]))
            steps.append(self.base.fit(shadow.split_above(value), log_odds, rng=rng))
        return FittedOrdinal(self, tuple(steps))


@dataclass(frozen=True, eq=False)
class FittedOrdinal:
    """A fitted ``Ordinal``.

    Attributes:
        settings: the attack.
        steps: adversaries; number j decides whether the secret is above value j.
    """

    settings: Ordinal
    steps: tuple[Adversary, ...]

    @property
    def details(self) -> str:
        """The settings in one line."""
        return repr(self.settings)

    def log_posterior(self, seen: Grads) -> Floats:
        """Return log posteriors ``[n, m]`` for gradients with leaves ``[n, *p]``."""
        above = np.stack([np.exp(step.log_posterior(seen)[:, 1]) for step in self.steps], axis=1)
        return log_differences(above, floor=self.settings.floor)


def log_differences(above: Floats, *, floor: float) -> Floats:
    """Return log P(a = j) ``[n, m]`` from P(a > j) ``[n, m - 1]``.

    >>> np.exp(log_differences(np.array([[0.9, 0.4]]), floor=0.01)).round(3).tolist()
    [[0.1, 0.5, 0.4]]
    >>> np.exp(log_differences(np.array([[0.4, 0.9]]), floor=0.01)).round(3).tolist()
    [[0.397, 0.007, 0.596]]
    """
    ends = np.pad(above, ((0, 0), (1, 1)), constant_values=((0, 0), (1, 0)))
    probability = np.maximum(ends[:, :-1] - ends[:, 1:], floor)
    return np.asarray(np.log(probability / probability.sum(axis=1, keepdims=True)))
