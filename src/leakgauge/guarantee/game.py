"""The audit of one attribute: release, score, count errors, compare with the promise."""

from dataclasses import dataclass, field

from leakgauge.core.checks import InputError, require
from leakgauge.core.types import Dataset, Params, Task
from leakgauge.gradients import MAX_BYTES, params_of
from leakgauge.guarantee.directions import clearest, piloted
from leakgauge.guarantee.filter import FilterMechanism
from leakgauge.guarantee.mechanism import DPSGDMechanism, Mechanism
from leakgauge.guarantee.pair import NeighbourPair
from leakgauge.guarantee.release import Hypotheses, hypotheses_of, make_releases
from leakgauge.guarantee.shown import Shown, shown_by
from leakgauge.guarantee.statistic import LikelihoodRatio, Statistic
from leakgauge.guarantee.theory import NEAR, PairTheory, theory_of
from leakgauge.privacy.estimate import largest_showable
from leakgauge.privacy.promises import Neighbours
from leakgauge.results.measurements import Estimate
from leakgauge.runs.checkpoint import Checkpoint


@dataclass(frozen=True, eq=False)
class AuditResult(Shown):
    """Estimates of epsilon from the audit of one pair, and the promised values.

    Attributes:
        canary: origin of the record.
        statistic: name of the statistic.
        batch: number of gradients in each release.
        distance: ||clip(g_H0) - clip(g_H1)||, the largest over several new values.
        clip: clip of the claimed mechanism; for a filter that has none, that of the search.
        theory: the promises.
        law: law of the noise that the mechanism claims.
        direction: the direction that releases are read along, one of ``DIRECTIONS``; empty where
            no pilot chose it.
    """

    canary: str = field(kw_only=True)
    statistic: str = field(kw_only=True)
    batch: int = field(kw_only=True)
    distance: float = field(kw_only=True)
    clip: float = field(kw_only=True)
    theory: PairTheory = field(kw_only=True)
    law: str = field(kw_only=True)
    direction: str = field(kw_only=True, default="")

    @property
    def distance_over_clip(self) -> float:
        """The distance as a share of the clip, from 0 to 2 for a mechanism that clips."""
        return self.distance / self.clip

    @property
    def deciding(self) -> Estimate:
        """The estimate that decides, chosen without the trials that it counts.

        It is the test of the known noise where there is one. Else the errors decide: as those of
        Gaussian noise for a mechanism that claims it, which bounds mu of any such mechanism, and
        without assumptions for others.
        """
        known = self.whole or self.laplace
        if known is not None:
            return known
        return self.gaussian if self.law == DPSGDMechanism.law else self.estimate

    @property
    def decided_by(self) -> str:
        """The name of the test behind ``deciding``."""
        if self.laplace is not None:
            return "Laplace test"
        if self.whole is not None:
            return "Gaussian test"
        return "errors of Gaussian noise" if self.law == DPSGDMechanism.law else "errors"

    @property
    def violated(self) -> bool:
        """Whether the mechanism breaks its claim for this pair, by ``deciding``."""
        theory = self.theory
        bound = theory.pair_exact if self.laplace is None else theory.pair_pure
        return self.deciding.low > bound.value


def audit_pair(
    task: Task,
    params: Params | None,
    pair: NeighbourPair,
    mechanism: Mechanism,
    *,
    claimed: DPSGDMechanism | FilterMechanism | None = None,
    statistic: Statistic | None = None,
    trials: int = 5000,
    delta: float = 1e-5,
    near: Neighbours = NEAR,
    releases: int = 1,
    confidence: float = 0.95,
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
        claimed: the DP-SGD that the mechanism claims to be; None if it is a ``DPSGDMechanism`` or a
            filter.
        statistic: score of a release; None means ``LikelihoodRatio``, or that of a filter's noise.
        trials: releases to score, half under each hypothesis; others choose the thresholds.
        delta: delta of all epsilons, in (0, 1).
        near: unit of privacy and relation of neighbours of the promises. The releases are of a
            record that is replaced by another version of itself.
        releases: number of releases of a training, over which promises are composed.
        confidence: two-sided confidence of the intervals of errors; see ``shown_by``.
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
    largest_showable(trials, delta, confidence=confidence)  # refuses too few trials
    params = params_of(task.model) if params is None else params
    return audit_hypotheses(
        hypotheses_of(task, params, pair, others, claim),
        mechanism,
        claim,
        _statistic(claim) if statistic is None else statistic,
        canary=pair.origin,
        attributes=pair.attribute.among,
        trials=trials,
        delta=delta,
        near=near,
        releases=releases,
        confidence=confidence,
        seed=seed,
        max_bytes=max_bytes,
        checkpoint=checkpoint,
    )


def audit_hypotheses(
    hypotheses: Hypotheses,
    mechanism: Mechanism,
    claim: DPSGDMechanism | FilterMechanism,
    statistic: Statistic,
    *,
    canary: str,
    attributes: int,
    trials: int,
    delta: float,
    near: Neighbours,
    releases: int,
    confidence: float,
    seed: int,
    max_bytes: int,
    checkpoint: Checkpoint | None = None,
) -> AuditResult:
    """Return what releases of hypotheses show; the other arguments are those of ``audit_pair``.

    Args:
        hypotheses: gradients under both hypotheses.
        mechanism: makes the releases.
        claim: what it claims to be.
        statistic: score of a release.
        canary: origin of the gradients.
        attributes: N, number of original columns of a record.
    """
    pilot = None
    if type(statistic) is LikelihoodRatio and not isinstance(mechanism, _OURS):
        pilot = piloted(hypotheses, mechanism, seed=seed, checkpoint=checkpoint)
    parts = make_releases(
        hypotheses,
        mechanism,
        pilot or statistic,
        each=trials // 2,
        seed=seed,
        max_bytes=max_bytes,
        checkpoint=checkpoint,
    )
    parts, direction = (parts, "") if pilot is None else clearest(parts)
    shown = shown_by(parts, statistic, law=claim.law, delta=delta, confidence=confidence)
    theory = theory_for(
        claim, hypotheses, delta=delta, attributes=attributes, near=near, releases=releases
    )
    return AuditResult(
        **vars(shown),
        canary=canary,
        statistic=statistic.name,
        batch=hypotheses.size,
        distance=hypotheses.distance,
        clip=claim.clip,
        theory=theory,
        law=claim.law,
        direction=direction,
    )


_OURS = (DPSGDMechanism, FilterMechanism)
"""Mechanisms of this package, whose noise is that of their claims."""


def theory_for(
    claim: DPSGDMechanism | FilterMechanism,
    hypotheses: Hypotheses,
    *,
    delta: float,
    attributes: int,
    near: Neighbours = NEAR,
    releases: int = 1,
) -> PairTheory:
    """Return what follows from a claim for the releases of hypotheses; see ``theory_of``."""
    if isinstance(claim, FilterMechanism):
        return claim.theory(
            hypotheses.expected, delta=delta, attributes=attributes, near=near, releases=releases
        )
    return theory_of(
        claim,
        distance=hypotheses.distance,
        delta=delta,
        attributes=attributes,
        batch=hypotheses.size,
        near=near,
        releases=releases,
    )


def _statistic(claim: DPSGDMechanism | FilterMechanism) -> Statistic:
    return claim.likelihood_ratio() if isinstance(claim, FilterMechanism) else LikelihoodRatio()


def _claim(
    mechanism: Mechanism, claimed: DPSGDMechanism | FilterMechanism | None
) -> DPSGDMechanism | FilterMechanism:
    if claimed is None and isinstance(mechanism, DPSGDMechanism | FilterMechanism):
        return mechanism
    if claimed is None:
        name = type(mechanism).__name__
        raise InputError(f"{name} does not say what it claims; pass claimed=DPSGD(clip, noise)")
    return claimed
