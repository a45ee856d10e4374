"""Audit differential privacy with canaries: what they show against what the accountant claims."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from leakgauge.core.checks import require
from leakgauge.privacy.conformance import Conformance
from leakgauge.privacy.estimate import (
    Errors,
    epsilon_clopper_pearson,
    epsilon_gaussian_dp,
    epsilon_of_mu,
)
from leakgauge.privacy.many_runs import ScoredRun, errors_of, scores_of
from leakgauge.privacy.number_of_guesses import (
    guesses_for,
    largest_noise_seen,
    mu_of_accuracy,
    smallest_seen,
)
from leakgauge.privacy.one_run import (
    Guesses,
    epsilon_one_run,
    epsilon_one_run_f_dp,
    guess_either_way,
    p_value_f_dp,
)
from leakgauge.privacy.profile import Profile
from leakgauge.results.statistics import Bools, Floats

ANY = "any mechanism"
TURNED = "scores turned round"
GAUSSIAN = "Gaussian noise"


@dataclass(frozen=True)
class LowerBound:
    """A lower bound of epsilon from canaries.

    Attributes:
        method: name of the method.
        holds_for: ``"any mechanism"``, or ``"Gaussian noise"`` if the bound assumes such noise.
        value: the point estimate.
        low: epsilon is at least this number, with the audit's confidence.
        most: the largest ``low`` that this number of canaries or runs can show.
        n: number of canaries, or of evaluated runs.
    """

    method: str
    holds_for: str
    value: float
    low: float
    most: float
    n: int


@dataclass(frozen=True)
class DpAudit:
    """The claim of an accountant and what canaries show.

    Attributes:
        claim: epsilon of the accountant, at several deltas.
        confidence: one-sided confidence of each single bound and test.
        bounds: lower bounds of epsilon at the claim's delta.
        refuted_by: tests that refute the claim.
        p_value: p-value of the claim in one run; None without such a run.
        guesses: guesses of one run; None without such a run.
        errors: errors of many runs, at the threshold that contradicts the claim most, or None.
        smallest_seen: smallest epsilon of training with less Gaussian noise with which one run
            refutes the claim if canaries score as expected; None if no scores suffice.
        turned: whether smaller scores, not larger ones, suggest "in" for some of the tests.
        sampled: whether ``smallest_seen`` is for the training's own sampling. Otherwise every
            canary takes part in every step, so that with sampling the smallest epsilon is larger.
        conformance: whether training does what it says; None where this is not known.
    """

    claim: Profile
    confidence: float
    bounds: tuple[LowerBound, ...]
    refuted_by: tuple[str, ...] = ()
    p_value: float | None = None
    guesses: Guesses | None = None
    errors: Errors | None = None
    smallest_seen: float | None = None
    turned: bool = False
    sampled: bool = False
    conformance: Conformance | None = None

    @property
    def flagged(self) -> bool:
        """Whether canaries refute the claim at any delta, or training does not do what it says."""
        return bool(self.refuted_by) or self.deviates

    @property
    def deviates(self) -> bool:
        """Whether training does not do what it says, which no claim of the accountant covers."""
        return self.conformance is not None and bool(self.conformance.failed)

    @property
    def verdict(self) -> str:
        """The result of the audit: what training does, then what canaries show."""
        if self.conformance is None:
            return self._shown
        return f"{self.conformance.sentence} {self._shown}"

    @property
    def _shown(self) -> str:
        claimed = f"the claimed epsilon {self.claim.epsilon:.3g} at delta {self.claim.delta:g}"
        claimed += f" ({self.claim.unit})" if self.claim.unit else ""
        if self.refuted_by:
            tests = " and by ".join(self.refuted_by)
            return f"REFUTED by {tests}: training leaks more than {claimed}.{self._direction}"
        seen = ""
        if self.guesses is None and self.smallest_seen is not None:
            seen = f" They would have missed an epsilon below about {self.smallest_seen:.3g}."
        elif self.guesses is not None and self.smallest_seen is None:
            few = "So few draws of canaries" if self.sampled else "So few canaries"
            seen = f" {few} could not have contradicted it: plant more."
        elif self.guesses is not None and self.sampled:
            seen = (
                " With less noise, one run would have missed an epsilon below about "
                f"{self.smallest_seen:.3g}."
            )
        elif self.guesses is not None:
            seen = (
                " Without sampling, one run would have missed an epsilon below about "
                f"{self.smallest_seen:.3g}; with sampling, also larger ones."
            )
        return (
            f"Not refuted: canaries do not contradict {claimed}.{seen}{self._direction} "
            "This proves no guarantee."
        )

    @property
    def _direction(self) -> str:
        if not self.turned:
            return ""
        return (
            " The scores are turned round: they are smaller where the record is in. That reveals "
            "the record as well; check the sign of the score."
        )

    def beside(self, other: "DpAudit") -> "DpAudit":
        """Return an audit with the bounds of both; it is flagged if either is.

        Args:
            other: audit of the same claim: from many runs if this one is from one run, or
                vice versa.

        Raises:
            InputError: the claims differ.
        """
        require(
            self.claim == other.claim,
            f"the audits have different claims, epsilon {self.claim.epsilon:.3g} and "
            f"{other.claim.epsilon:.3g}; expected two audits of the same training",
        )
        seen = [one.smallest_seen for one in (self, other) if one.smallest_seen is not None]
        return replace(
            self,
            bounds=(*self.bounds, *other.bounds),
            refuted_by=(*self.refuted_by, *other.refuted_by),
            p_value=other.p_value if self.p_value is None else self.p_value,
            guesses=self.guesses or other.guesses,
            errors=self.errors or other.errors,
            smallest_seen=min(seen) if seen else None,
            turned=self.turned or other.turned,
            sampled=self.sampled or other.sampled,
            conformance=self.conformance or other.conformance,
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values, with None for infinite ones."""
        plain = {
            **asdict(self),
            "flagged": self.flagged,
            "deviates": self.deviates,
            "verdict": self.verdict,
        }
        plain["claim"]["epsilon"] = self.claim.epsilon
        if self.conformance is not None:
            plain["conformance"]["sentence"] = self.conformance.sentence
            plain["conformance"]["failed"] = [asdict(one) for one in self.conformance.failed]
        return _finite(json.loads(json.dumps(plain)))  # type: ignore[no-any-return]

    def __str__(self) -> str:
        """Return the tables and the verdict."""
        by = f" ({self.claim.unit})" if self.claim.unit else " by the accountant"
        rows = [
            ("epsilon", "holds for", "estimate", f"at least ({self.confidence:.0%})", "could show"),
            (f"claimed{by}", "", f"{self.claim.epsilon:.3g}", "", ""),
        ]
        rows += [
            (one.method, one.holds_for, f"{one.value:.3g}", f"{one.low:.3g}", f"{one.most:.3g}")
            for one in self.bounds
        ]
        widths = [max(len(row[k]) for row in rows) for k in range(5)]
        lines = [
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows
        ]
        lines.insert(1, "  ".join("-" * width for width in widths))
        lines = [line.rstrip() for line in lines]
        if self.conformance is not None:
            lines += ["", str(self.conformance), "", self.conformance.sentence]
        return "\n".join([*lines, "", self._shown])


def audit_one_run(
    scores: Floats,
    included: Bools,
    claim: Profile,
    *,
    guesses: int | None = None,
    confidence: float = 0.99,
    draws: Floats | None = None,
    epsilon_with: Callable[[float], float] | None = None,
    share: float = 1.0,
) -> DpAudit:
    """Return what guesses on the canaries of one run show.

    Args:
        scores: scores of the canaries ``[m]``; larger scores suggest that a canary was in. They
            are turned round if canaries that were in have the smaller ones (``turned``).
        included: whether each canary was in ``[m]``, by independent fair coins.
        claim: claim of the accountant.
        guesses: number of canaries to guess, half of them as in. None takes the number that detects
            the smallest violation of the claim. Choose another one before the run.
        confidence: probability that a true claim is not refuted; a tenth of the rest is added by
            the choice of the sign.
        draws: probability that a canary is drawn 0, 1, ... times ``[K + 1]``; None for sampling
            that is not known.
        epsilon_with: epsilon of training as a function of the noise of a score.
        share: share of ``1 - confidence`` with which these guesses may refute a true claim, where
            another test gets the rest.

    References:
        Steinke et al., 2023; Mahloujifar et al., 2025.
    """
    m, delta = len(scores), claim.delta
    made = guesses or guesses_for(m, claim.least_false_positives, confidence=confidence)
    seen, turned = guess_either_way(scores, included, made, confidence=confidence)
    best = Guesses(m, made, made)
    p_value = p_value_f_dp(seen, claim.least_false_positives)
    least = claim.least_false_positives
    if draws is None or epsilon_with is None:
        mu = smallest_seen(m, made, least, confidence=confidence)
        smallest = None if mu is None else epsilon_of_mu(mu, delta)
    else:
        noise = largest_noise_seen(m, made, least, draws, confidence=confidence)
        smallest = None if noise is None else epsilon_with(noise)
    wrong = max(1, made - seen.correct)
    value = max(0.0, float(np.log(max(1, seen.correct) / wrong)))
    low, most = (epsilon_one_run(one, delta, confidence=confidence) for one in (seen, best))
    first = LowerBound("one run (Steinke et al. 2023)", ANY, value, low, most, m)
    value = epsilon_of_mu(mu_of_accuracy((made - wrong) / made, made / m), delta)
    low, most = (epsilon_one_run_f_dp(one, delta, confidence=confidence) for one in (seen, best))
    second = LowerBound("one run (Mahloujifar et al. 2025)", GAUSSIAN, value, low, most, m)
    name = f"one run, {TURNED}" if turned else "one run"
    refuted = (f"{name} (p = {p_value:.2g})",) if p_value < share * (1 - confidence) else ()
    return DpAudit(
        claim,
        confidence,
        (first, second),
        refuted,
        p_value,
        seen,
        smallest_seen=smallest,
        turned=turned,
        sampled=epsilon_with is not None,
    )


def audit_many_runs(
    out: Floats, inside: Floats, claim: Profile, *, confidence: float = 0.99
) -> DpAudit:
    """Return what scores of many runs show, as ``audit_runs``.

    Args:
        out: scores of independent runs without a record ``[n]``.
        inside: scores of runs with it ``[k]``; larger scores suggest that it was in. The runs that
            choose thresholds turn them round if smaller scores show more (``turned``).
        claim: claim of the accountant.
        confidence: probability that a true claim is not refuted.
    """
    found, delta = errors_of(out, inside, claim, confidence=confidence), claim.delta
    best = Errors(0, 0, found.claim.negatives, found.claim.positives)
    bounds = tuple(
        LowerBound(
            f"{len(out) + len(inside)} runs ({name})",
            holds_for,
            (shown := measure(errors, delta, confidence=confidence)).value,
            shown.low,
            measure(best, delta, confidence=confidence).low,
            shown.n,
        )
        for name, holds_for, errors, measure in (
            ("Clopper-Pearson", ANY, found.epsilon, epsilon_clopper_pearson),
            ("Nasr et al. 2023", GAUSSIAN, found.gaussian, epsilon_gaussian_dp),
        )
    )
    refuted = claim.refuted_by(found.claim, confidence=confidence)
    name = f"{len(out) + len(inside)} runs" + (f", {TURNED}" if found.turned else "")
    tests = (name,) if refuted else ()
    return DpAudit(claim, confidence, bounds, tests, errors=found.claim, turned=found.turned)


def audit_runs(
    run: ScoredRun, claim: Profile, *, runs: int, seed: int = 0, confidence: float = 0.99
) -> DpAudit:
    """Return what many runs show, half of them with one additional record.

    Args:
        run: (whether the record is in, seed) -> score of a run; larger scores suggest "in".
        claim: claim of the accountant.
        runs: even number of runs; half of them choose thresholds, the others are evaluated.
        seed: seed from which each run derives its seed.
        confidence: probability that a true claim is not refuted.

    >>> import random
    >>> flip = lambda member, seed: random.Random(seed).gauss(float(member), 10.0)
    >>> audit_runs(flip, Profile(1e-5, ((1.0, 1e-5),)), runs=40).flagged
    False

    References:
        Jagielski et al., 2020; Nasr et al., 2023.
    """
    return audit_many_runs(*scores_of(run, runs, seed=seed), claim, confidence=confidence)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
