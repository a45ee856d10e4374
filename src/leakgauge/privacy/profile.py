"""The claim of an accountant: an epsilon for every delta, which limits the errors of any test."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from leakgauge.core.checks import require
from leakgauge.privacy.estimate import Errors, require_share
from leakgauge.results.statistics import Floats, clopper_pearson

LeastFalsePositives = Callable[[Floats], Floats]
"""Power ``[...]`` -> smallest FPR ``[...]`` of a test with at least this power."""

DELTAS = (1e-4, 1e-3, 1e-2, 0.05, 0.1, 0.2, 0.3)
"""Further deltas for the check of a claim. Large deltas refute best with few trials."""


@dataclass(frozen=True)
class Profile:
    """A claim of differential privacy: ``(epsilon, delta)`` holds for each of these points.

    Attributes:
        delta: delta of the reported epsilons.
        points: pairs (epsilon, delta), one of them at ``delta``.
        unit: who is protected and how neighbours differ, such as ``"client, added or removed"``;
            empty if the accountant does not say.

    Raises:
        InputError: a delta is not a probability below 1, an epsilon is negative, or ``delta`` has
            no point.
    """

    delta: float
    points: tuple[tuple[float, float], ...]
    unit: str = ""

    def __post_init__(self) -> None:
        for epsilon, delta in self.points:
            require_share(delta)
            require(epsilon >= 0, f"epsilon is {epsilon:g}; expected a number of at least 0")
        require(
            any(delta == self.delta for _, delta in self.points),
            f"the claim has no epsilon at delta {self.delta:g}; add it to the points",
        )

    @property
    def epsilon(self) -> float:
        """The claimed epsilon at ``delta``."""
        return min(epsilon for epsilon, delta in self.points if delta == self.delta)

    def least_false_positives(self, power: Floats) -> Floats:
        """Return the smallest FPR ``[...]`` that the claim allows for a power ``[...]``.

        An (epsilon, delta) claim allows neither ``power > exp(epsilon) FPR + delta`` nor
        ``1 - FPR > exp(epsilon) (1 - power) + delta``.

        >>> claim = Profile(1e-5, ((0.0, 1e-5),))
        >>> float(claim.least_false_positives(np.array(0.5)).round(5))
        0.49999
        """
        epsilon, delta = (np.array(part) for part in zip(*self.points, strict=True))
        power = np.asarray(power, dtype=float)[..., None]
        low = (power - delta) * np.exp(-epsilon)
        with np.errstate(over="ignore", invalid="ignore"):
            high = 1 - delta - np.nan_to_num((1 - power) * np.exp(epsilon), nan=0.0, posinf=np.inf)
        least: Floats = np.maximum(np.maximum(low, high).max(axis=-1), 0.0)
        return least

    def refuted_by(self, errors: Errors, *, confidence: float) -> bool:
        """Return whether a test errs less often than the claim allows, at any of its points.

        Args:
            errors: errors of a test that was chosen on other trials.
            confidence: confidence with which both error rates are below their limits, so that a
                true claim is refuted with probability ``1 - confidence`` at most.

        >>> claim = Profile(1e-5, ((1.0, 1e-5),))
        >>> claim.refuted_by(Errors(0, 0, 100, 100), confidence=0.99)
        True
        >>> claim.refuted_by(Errors(50, 50, 100, 100), confidence=0.99)
        False
        """
        fpr, fnr = (clopper_pearson(*pair, confidence)[1] for pair in errors.pairs)
        rates = ((fpr, fnr), (fnr, fpr))
        return any(
            bool(self.least_false_positives(np.array(1 - other)) > one) for one, other in rates
        )


def profile_of(
    epsilon_at: Callable[[float], float],
    delta: float,
    deltas: Sequence[float] = DELTAS,
    *,
    unit: str = "",
) -> Profile:
    """Return the claim of an accountant, read at several deltas.

    Args:
        epsilon_at: delta -> epsilon. Some accountants return an epsilon below 0 at a large delta;
            it counts as 0, which claims less.
        delta: delta of the reported epsilons, in (0, 1).
        deltas: further deltas. The claim omits those where the accountant has no finite epsilon or
            fails numerically.
        unit: who is protected and how neighbours differ.

    Raises:
        InputError: the accountant has no epsilon at ``delta``.

    >>> profile_of(lambda delta: 2.0, 1e-5, deltas=(0.1,)).points
    ((2.0, 1e-05), (2.0, 0.1))
    """
    require(0 < delta < 1, f"delta is {delta:g}; expected a probability above 0 and below 1")
    found = [(float(epsilon_at(delta)), delta)]
    require(
        bool(np.isfinite(found[0][0])),
        f"the accountant's epsilon at delta {delta:g} is {found[0][0]:g}; expected a number, "
        "so train at least one step with noise, or use another accountant",
    )
    for other in deltas:
        if other == delta:
            continue
        try:
            epsilon = float(epsilon_at(other))
        except (ArithmeticError, ValueError, RuntimeError):
            continue
        if np.isfinite(epsilon):
            found.append((epsilon, other))
    return Profile(delta, tuple((max(0.0, epsilon), at) for epsilon, at in found), unit)


def gaussian_least_false_positives(mu: Floats | float) -> LeastFalsePositives:
    """Return the smallest FPR as a function of power, for tests of N(0, 1) against N(mu, 1).

    Args:
        mu: shift ``[...]``, at least 0; broadcasts with the power.

    >>> least = gaussian_least_false_positives(1.0)
    >>> round(float(least(np.array(0.5))), 4)
    0.1587

    References:
        Dong, Roth and Su, Gaussian Differential Privacy, 2022.
    """

    def least(power: Floats) -> Floats:
        values: Floats = special.ndtr(special.ndtri(power) - mu)
        return values

    return least
