"""The audit of one attribute: release, score, count errors, compare with the promise."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leakgauge.core.checks import InputError, require, require_count
from leakgauge.core.types import Dataset, Params, Task
from leakgauge.gradients import MAX_BYTES, params_of
from leakgauge.guarantee.mechanism import DPSGDMechanism, Mechanism
from leakgauge.guarantee.pair import NeighbourPair
from leakgauge.guarantee.release import hypotheses_of, score_releases
from leakgauge.guarantee.statistic import LikelihoodRatio, Statistic
from leakgauge.privacy.accounting import GAUSSIAN, Epsilon, epsilon_classic
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
from leakgauge.results.measurements import Estimate
from leakgauge.runs.checkpoint import Checkpoint


@dataclass(frozen=True)
class Theory:
    """Epsilons that one release of DP-SGD promises, all at the same delta.

    The audit replaces one version of a record by another, which moves the sum of clipped gradients
    by up to twice the clip. Adding or removing a record moves it by the clip; most
    accountants, and the paper, use that.

    Attributes:
        pair_exact: at this pair's true distance ||clip(g_H0) - clip(g_H1)||; no test can show
            more on it. Several new values use the largest distance: distinguishing a mixture from
            H0 is not easier than distinguishing its furthest component.
        mechanism_exact: at 2 * clip, for the worst pair.
        mechanism_exact_at_clip: at the clip.
        mechanism_classic: the textbook formula at the clip, as in the paper; proven up to 1 only.
        per_attribute_classic: the paper's yardstick for one of N attributes,
            ``mechanism_classic / N``; it bounds nothing.
    """

    pair_exact: Epsilon
    mechanism_exact: Epsilon
    mechanism_exact_at_clip: Epsilon
    mechanism_classic: Epsilon
    per_attribute_classic: float


def theory_of(
    claimed: DPSGDMechanism, *, distance: float, delta: float, attributes: int, batch: int = 1
) -> Theory:
    """Return the promises of DP-SGD for a pair.

    Args:
        claimed: the DP-SGD that the mechanism claims to be.
        distance: ||clip(g_H0) - clip(g_H1)||, at least 0.
        delta: delta of all epsilons, in (0, 1).
        attributes: N, number of original columns of a record.
        batch: number of gradients in the mean.

    >>> theory = theory_of(DPSGDMechanism(2.0, 0.1), distance=2.0, delta=1e-5, attributes=14)
    >>> round(theory.pair_exact.value, 2), round(theory.mechanism_exact_at_clip.value, 2)
    (284.39, 284.39)
    >>> round(theory.mechanism_classic.value, 1), theory.mechanism_classic.valid
    (96.9, False)

    References:
        Li et al., CCS 2024, section 7; Balle and Wang, ICML 2018.
    """
    require_count(attributes, "number of attributes")
    require_count(batch, "batch size")
    require(distance >= 0, f"distance is {distance:g}; expected a number of at least 0")
    std = claimed.std(batch)

    def exact(moves_sum: float) -> Epsilon:
        return Epsilon(epsilon_of_mu(moves_sum / batch / std, delta), delta, GAUSSIAN)

    classic = epsilon_classic(claimed.clip / batch, std, delta)
    return Theory(
        pair_exact=exact(distance),
        mechanism_exact=exact(2 * claimed.clip),
        mechanism_exact_at_clip=exact(claimed.clip),
        mechanism_classic=classic,
        per_attribute_classic=classic.value / attributes,
    )


Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class AuditResult:
    """Estimates of epsilon from the audit of one pair, and the promised values.

    Attributes:
        canary: origin of the record.
        statistic: name of the statistic.
        trials: number of scored releases, half under each hypothesis; others chose the
            thresholds.
        batch: number of gradients in each release.
        delta: delta of all epsilons.
        distance: ||clip(g_H0) - clip(g_H1)||, the largest over several new values.
        clip: clip of the claimed mechanism.
        estimate: epsilon from FPR and FNR; its ``low`` holds for any mechanism.
        gaussian: epsilon of the Gaussian mechanism that would err as often.
        in_sample: the paper's estimate, with the threshold that is best on the scored trials:
            biased, and its interval does not account for that choice.
        largest_showable: the estimate if no trial went wrong.
        theory: the promises.
        null: scores of the trials under H0 ``[trials // 2]``, negative ones if turned round.
        alternative: scores of the trials under H1 ``[trials // 2]``.
        threshold: threshold of ``estimate``.
        turned: whether the scores are turned round, because smaller ones suggest H1.
    """

    canary: str
    statistic: str
    trials: int
    batch: int
    delta: float
    distance: float
    clip: float
    estimate: Estimate
    gaussian: Estimate
    in_sample: Estimate
    largest_showable: Estimate
    theory: Theory
    null: Floats
    alternative: Floats
    threshold: float
    turned: bool = False

    @property
    def distance_over_clip(self) -> float:
        """The distance as a share of the clip, from 0 to 2."""
        return self.distance / self.clip

    @property
    def saturated(self) -> bool:
        """Whether no trial went wrong, so that more trials would show more."""
        return self.estimate.low >= self.largest_showable.low

    @property
    def violated(self) -> bool:
        """Whether the mechanism breaks its claim for this pair (at 95 % confidence).

        ``gaussian`` decides: it bounds mu of any mechanism that claims to be Gaussian.
        """
        return self.gaussian.low > self.theory.pair_exact.value


def audit_pair(
    task: Task,
    params: Params | None,
    pair: NeighbourPair,
    mechanism: Mechanism,
    *,
    claimed: DPSGDMechanism | None = None,
    statistic: Statistic | None = None,
    trials: int = 5000,
    delta: float = 1e-5,
    others: Dataset | None = None,
    seed: int = 0,
    max_bytes: int = MAX_BYTES,
    checkpoint: Checkpoint | None = None,
) -> AuditResult:
    """Estimate how well releases of a record's gradient reveal one of its attributes.

    Under H0 the record has its own value of the attribute. Under H1 each release draws another
    value uniformly. The auditor knows everything except the attribute: the model, the record's
    other features and label, the other records of the batch, and the claimed mechanism.

    Args:
        task: the model and its loss.
        params: all trainable parameters by name; None takes the model's own.
        pair: the record and its attribute.
        mechanism: mechanism to audit: any callable from per-example gradients to a released one.
        claimed: the DP-SGD that the mechanism claims to be; None if it is a ``DPSGDMechanism``.
        statistic: score of a release; None means ``LikelihoodRatio``.
        trials: releases to score, half under each hypothesis; others choose the thresholds.
        delta: delta of all epsilons, in (0, 1).
        others: the other records of the batch, which the auditor knows; None is a batch of
            one, as in the paper.
        seed: seed of the noise.
        max_bytes: largest memory for the releases that are held at once.
        checkpoint: keeps intermediate scores; a killed audit resumes with the same results.

    Raises:
        InputError: the mechanism has no claim, delta is outside (0, 1), the trials are too few,
            or the model has no gradients of single records.

    References:
        Li et al., CCS 2024, Definition 7.2.

    >>> from torch import nn
    >>> import torch
    >>> from leakgauge.guarantee.pair import Attribute
    >>> from leakgauge.core.types import Column
    >>> codes = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> sex = Attribute(Column("sex", "category", 1, 3, ("f", "m")), ("f", "m"), codes, among=2)
    >>> pair = NeighbourPair(torch.tensor([3.0, 0.0, 0.0]), torch.tensor(0), sex)
    >>> task = Task(nn.Linear(3, 2), nn.functional.cross_entropy)
    >>> result = audit_pair(task, None, pair, DPSGDMechanism(clip=2.0, noise=0.01), trials=100)
    >>> result.saturated, result.violated
    (True, False)
    """
    require(0 < delta < 1, f"delta is {delta:g}; expected a probability above 0 and below 1")
    claim = _claim(mechanism, claimed)
    most = largest_showable(trials, delta)
    score = LikelihoodRatio() if statistic is None else statistic
    params = params_of(task.model) if params is None else params
    hypotheses = hypotheses_of(task, params, pair, others, claim)
    chosen, judged = score_releases(
        hypotheses,
        mechanism,
        score,
        each=trials // 2,
        seed=seed,
        max_bytes=max_bytes,
        checkpoint=checkpoint,
    )
    turned = are_reversed(*chosen, delta)
    if turned:
        chosen, judged = ((-null, -alternative) for null, alternative in (chosen, judged))
    threshold = choose_threshold(*chosen, epsilon_objective(delta))
    middle = choose_threshold(*chosen, fewest_errors)
    best = threshold_in_sample(*judged, delta)
    return AuditResult(
        canary=pair.origin,
        statistic=score.name,
        trials=2 * (trials // 2),
        batch=hypotheses.size,
        delta=delta,
        distance=hypotheses.distance,
        clip=claim.clip,
        estimate=epsilon_clopper_pearson(errors_at(*judged, threshold), delta),
        gaussian=epsilon_gaussian_dp(errors_at(*judged, middle), delta),
        in_sample=epsilon_clopper_pearson(errors_at(*judged, best), delta),
        largest_showable=most,
        theory=theory_of(
            claim,
            distance=hypotheses.distance,
            delta=delta,
            attributes=pair.attribute.among,
            batch=hypotheses.size,
        ),
        null=judged[0],
        alternative=judged[1],
        threshold=threshold,
        turned=turned,
    )


def _claim(mechanism: Mechanism, claimed: DPSGDMechanism | None) -> DPSGDMechanism:
    if claimed is None and isinstance(mechanism, DPSGDMechanism):
        return mechanism
    if claimed is None:
        name = type(mechanism).__name__
        raise InputError(f"{name} does not say what it claims; pass claimed=DPSGD(clip, noise)")
    return claimed
