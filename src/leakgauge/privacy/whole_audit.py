"""Audit differential privacy with whole scores of canaries, where their shape is known."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy import optimize

from leakgauge.core.checks import require
from leakgauge.privacy.dp_audit import GAUSSIAN, DpAudit, LowerBound
from leakgauge.privacy.estimate import epsilon_of_mu
from leakgauge.privacy.one_run import LARGEST_MU, significance_of
from leakgauge.privacy.profile import Profile
from leakgauge.privacy.whole_scores import ODD, Shift, shape_p_value, shift_of
from leakgauge.results.statistics import Bools, Floats

WHOLE = "whole scores"

SHARE = 0.9
"""Share of the significance of whole scores, next to guesses, which need far larger violations."""

SMALL = 1e-6
"""Epsilon that counts as none."""

EpsilonOfShift = Callable[[float, float], float]
"""(shift, delta) -> a lower bound of the epsilon of a mechanism whose record moves a score so."""


@dataclass(frozen=True)
class KnownShape:
    """What whole scores show if the mechanism is of a known kind.

    Attributes:
        shift: how far a record moves a score.
        epsilon_of: lower bound of the epsilon of a mechanism with a shift, at a delta.
        n: number of canaries, or of runs.
        holds_for: kind of the mechanism.
        at_most: upper bound of ``epsilon_of`` that is cheaper to compute, or None.
    """

    shift: Shift
    epsilon_of: EpsilonOfShift
    n: int
    holds_for: str = GAUSSIAN
    at_most: EpsilonOfShift | None = None

    def exceeds(self, claim: Profile, shift: float) -> bool:
        """Return whether the epsilon of a shift is above a claim at any of its deltas."""
        bounds = [one for one in (self.at_most, self.epsilon_of) if one is not None]
        return shift > 0 and any(
            all(bound(shift, delta) > epsilon for bound in bounds)
            for epsilon, delta in claim.points
        )


def audit_known_shape(
    shape: KnownShape, claim: Profile, *, confidence: float = 0.99, share: float = 1.0
) -> DpAudit:
    """Return what whole scores of canaries show.

    A claim is refuted if the lower confidence limit of the shift has a larger epsilon at any of its
    deltas. It is one limit, so that a true claim is refuted with its significance at most.

    Args:
        shape: the shift of the scores, and what it means.
        claim: claim of the accountant.
        confidence: probability that a true claim is not refuted; confidence of the bound.
        share: share of ``1 - confidence`` with which this test may refute a true claim, where
            another test gets the rest.

    >>> claim = Profile(1e-5, ((1.0, 1e-5),))
    >>> found = audit_known_shape(KnownShape(Shift(0.6, 0.06, 998), epsilon_of_mu, 1000), claim)
    >>> found.flagged, round(found.bounds[0].low, 2), round(found.smallest_seen, 2)
    (True, 1.8, 1.6)
    """
    tested = 1 - share * significance_of(confidence)
    shift, delta, of = shape.shift, claim.delta, shape.epsilon_of
    low, refuted = shift.low(confidence), shape.exceeds(claim, shift.low(tested))
    bound = LowerBound(
        f"one run ({WHOLE})",
        shape.holds_for,
        of(min(max(0.0, shift.value), LARGEST_MU), delta),
        of(low, delta),
        of(LARGEST_MU, delta),
        shape.n,
    )
    return DpAudit(
        claim,
        confidence,
        (bound,),
        (WHOLE,) if refuted else (),
        smallest_seen=_smallest_seen(shape, claim, tested),
    )


def audit_gaussian_scores(
    scores: Floats, included: Bools, claim: Profile, *, confidence: float = 0.99, share: float = 1.0
) -> DpAudit:
    """Return what whole scores show of canaries of which each takes part in each step.

    It assumes that a score is Gaussian, with the same spread for canaries that are in or out. The
    assumption is tested; scores that contradict it are refused.

    Args:
        scores: scores of the canaries ``[m]``; larger scores suggest that a canary was in.
        included: whether each canary was in ``[m]``.
        claim: claim of the accountant.
        confidence: as for ``audit_known_shape``.
        share: as for ``audit_known_shape``.

    Raises:
        InputError: the scores do not look Gaussian with equal spread.

    References:
        Andrew et al., 2023, without the limit; see ``leakgauge.privacy.whole_scores``.
    """
    out, inside = scores[~included], scores[included]
    p_value = shape_p_value(out, inside)
    require(
        p_value >= ODD,
        f"the scores are not Gaussian with equal spread (p = {p_value:.2g}), which this bound "
        "assumes; use audit_one_run alone",
    )
    shape = KnownShape(shift_of(out, inside), epsilon_of_mu, len(scores))
    return audit_known_shape(shape, claim, confidence=confidence, share=share)


def _smallest_seen(shape: KnownShape, claim: Profile, confidence: float) -> float | None:
    """Return the epsilon whose expected scores refute the claim; None if none does."""
    least = _shift_for(shape, claim)
    seen = LARGEST_MU if least is None else shape.shift.refuting(least, confidence)
    return shape.epsilon_of(seen, claim.delta) if seen < LARGEST_MU else None


def _shift_for(shape: KnownShape, claim: Profile) -> float | None:
    """Return the shift with the claimed epsilon, to 1 %; None if none has it."""

    def excess(log_shift: float) -> float:  # nearly a line, which needs few values
        epsilon = shape.epsilon_of(math.exp(log_shift), claim.delta)
        return math.log(max(epsilon, SMALL)) - math.log(max(claim.epsilon, SMALL))

    least, most = math.log(1 / LARGEST_MU), math.log(LARGEST_MU)
    if excess(most) <= 0:
        return None
    if excess(least) >= 0:
        return 1 / LARGEST_MU
    return math.exp(float(optimize.brentq(excess, least, most, xtol=0.01)))
