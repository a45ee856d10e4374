"""What scored releases show: lower bounds of epsilon, from none to more assumptions."""

import math
from dataclasses import dataclass, replace

from leakgauge.guarantee.laplace import LaplaceRatio, epsilon_laplace_test, laplace_p_value
from leakgauge.guarantee.release import ReleaseParts
from leakgauge.guarantee.statistic import LikelihoodRatio, Statistic
from leakgauge.privacy.estimate import (
    epsilon_clopper_pearson,
    epsilon_gaussian_dp,
    epsilon_of_mu,
    largest_showable,
)
from leakgauge.privacy.many_runs import (
    are_reversed,
    choose_threshold,
    epsilon_objective,
    errors_at,
    fewest_errors,
    threshold_in_sample,
)
from leakgauge.privacy.whole_scores import ODD, mu_of_scores, shape_p_value
from leakgauge.results.measurements import Estimate
from leakgauge.results.statistics import Floats

GAUSSIAN, LAPLACE, OTHER = "gaussian", "laplace", ""
"""The law of a mechanism's noise; ``OTHER`` assumes nothing."""


DECIDING = 0.99
"""Two-sided confidence of the tests of a known noise, which decide on claims and end builds."""


@dataclass(frozen=True, eq=False)
class Shown:
    """Estimates of epsilon from scored releases.

    Attributes:
        trials: number of scored releases, half under each hypothesis; others chose the
            thresholds.
        delta: delta of all epsilons but ``laplace``.
        estimate: epsilon from FPR and FNR; its ``low`` holds for any mechanism.
        gaussian: epsilon of the Gaussian mechanism that would err as often.
        in_sample: the paper's estimate, with the threshold that is best on the scored trials:
            biased, and its interval does not account for that choice.
        largest_showable: the estimate if no trial went wrong.
        null: scores of the trials under H0 ``[trials // 2]``, negative ones if turned round.
        alternative: scores of the trials under H1 ``[trials // 2]``.
        threshold: threshold of ``estimate``.
        turned: whether the scores are turned round, because smaller ones suggest H1.
        mu: shift of the scores in standard deviations, by the Gaussian test: the scores of
            deterministic values with Gaussian noise are Gaussian with the same spread, so that
            noncentral t limits it exactly. With several new values it is that of the furthest.
            None where the noise is not known to be Gaussian, or the scores contradict it.
        laplace: epsilon at delta 0, by ``epsilon_laplace_test``; None likewise.
        odd: whether the scores that choose thresholds contradict the known noise.
    """

    trials: int
    delta: float
    estimate: Estimate
    gaussian: Estimate
    in_sample: Estimate
    largest_showable: Estimate
    null: Floats
    alternative: Floats
    threshold: float
    turned: bool = False
    mu: Estimate | None = None
    laplace: Estimate | None = None
    odd: bool = False

    @property
    def saturated(self) -> bool:
        """Whether no trial went wrong, so that more trials would show more."""
        return self.estimate.low >= self.largest_showable.low

    @property
    def whole(self) -> Estimate | None:
        """Epsilon by the Gaussian test, from whole scores; None where there is none."""
        return self.composed(1)

    def composed(self, releases: int) -> Estimate | None:
        """Return epsilon of several releases of the same pair, by the Gaussian test.

        T releases with fresh noise shift the scores by sqrt(T) times mu.
        """
        if self.mu is None:
            return None
        value, low, high = (
            epsilon_of_mu(one * math.sqrt(releases), self.delta)
            for one in (self.mu.value, self.mu.low, self.mu.high)
        )
        return replace(self.mu, value=value, low=low, high=high)


def shown_by(
    parts: ReleaseParts, statistic: Statistic, *, law: str, delta: float, confidence: float = 0.95
) -> Shown:
    """Return what releases show.

    Args:
        parts: parts of the releases of both hypotheses.
        statistic: made the parts.
        law: law of the mechanism's noise, as it claims.
        delta: in (0, 1).
        confidence: two-sided confidence of the intervals of errors; the tests of a known noise
            have ``DECIDING`` or more.
    """
    chosen, judged = parts.scores(statistic)
    turned = are_reversed(*chosen, delta, confidence=confidence)
    if turned:
        chosen, judged = ((-null, -alternative) for null, alternative in (chosen, judged))
    threshold, middle = (
        choose_threshold(*chosen, objective, confidence=confidence)
        for objective in (epsilon_objective(delta), fewest_errors)
    )
    best = threshold_in_sample(*judged, delta)
    trials = len(judged[0]) + len(judged[1])
    shown = Shown(
        trials,
        delta,
        epsilon_clopper_pearson(errors_at(*judged, threshold), delta, confidence=confidence),
        epsilon_gaussian_dp(errors_at(*judged, middle), delta, confidence=confidence),
        epsilon_clopper_pearson(errors_at(*judged, best), delta, confidence=confidence),
        largest_showable(trials, delta, confidence=confidence),
        *judged,
        threshold,
        turned,
    )
    return _by_law(shown, parts, statistic, law, max(confidence, DECIDING))


def _by_law(
    shown: Shown, parts: ReleaseParts, statistic: Statistic, law: str, confidence: float
) -> Shown:
    """Return it with the test of the known noise, unless other releases contradict this noise."""
    if not parts.shifts.any():  # equal versions: there is nothing to test
        return shown
    if law == GAUSSIAN and isinstance(statistic, LikelihoodRatio):
        chosen, judged = parts.furthest()
        if shape_p_value(*chosen) < ODD:
            return replace(shown, odd=True)
        out, inside = (-one if shown.turned else one for one in judged)
        # Each limit alone holds with more confidence than both together.
        mu = mu_of_scores(out, inside, confidence=(1 + confidence) / 2)
        return replace(shown, mu=replace(mu, confidence=confidence))
    if law == LAPLACE and isinstance(statistic, LaplaceRatio):
        if laplace_p_value(parts.chosen[0]) < ODD:
            return replace(shown, odd=True)
        return replace(shown, laplace=epsilon_laplace_test(parts.judged[0], confidence=confidence))
    return shown
