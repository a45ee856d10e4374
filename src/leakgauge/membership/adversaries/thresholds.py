"""Attacks that compare one number of a record with a threshold."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from leakgauge.core.checks import require, require_count
from leakgauge.membership.adversaries.adversary import Floats, Labelled, MembershipKnowledge, Needs
from leakgauge.membership.observation import Observed

Score = Callable[[Observed], Floats]
"""Function from observations to a score ``[n]``, higher for members."""


@dataclass(frozen=True, eq=False)
class Threshold:
    """A score and a threshold; records above it count as members.

    Attributes:
        score: score of records.
        cut: the threshold.
        scale: divisor that brings log odds to a common size.
    """

    score: Score
    cut: float
    scale: float

    def log_odds(self, records: Observed) -> Floats:
        """Return the scaled distance of each record above the threshold ``[n]``."""
        return (self.score(records) - self.cut) / self.scale


def fit_threshold(score: Score, *known: Labelled) -> Threshold:
    """Return the threshold with the best balanced success on known records."""
    values = np.concatenate([score(one.records) for one in known])
    member = np.concatenate([one.member for one in known])
    return Threshold(score, best_cut(values, member), float(values.std()) or 1.0)


def best_cut(values: Floats, member: NDArray[np.bool_]) -> float:
    """Return the threshold with the best balanced success, midway between two scores.

    >>> best_cut(np.array([0.0, 1.0, 3.0, 4.0]), np.array([False, False, True, True]))
    2.0
    """
    order = np.argsort(values, kind="stable")
    steps = np.where(member[order], -1 / member.sum(), 1 / (~member).sum())
    gain = np.append(0.0, np.cumsum(steps))
    ends = np.append(True, np.append(np.diff(values[order]) > 0, True))  # not between equal ones
    at = int(np.argmax(np.where(ends, gain, -np.inf)))
    padded = np.concatenate([[values[order[0]] - 1], values[order], [values[order[-1]] + 1]])
    return float((padded[at] + padded[at + 1]) / 2)


class ScoreAttack:
    """An attack with the best threshold of a score on known records; a subclass has the score."""

    name: ClassVar[str]

    @property
    def needs(self) -> Needs:
        """The observations that the attack needs."""
        return Needs()

    def score(self, records: Observed) -> Floats:
        """Return the score ``[n]``, higher for members."""
        raise NotImplementedError

    def fit(self, known: MembershipKnowledge, *, seed: int) -> Threshold:
        """Return the fitted threshold."""
        return fit_threshold(self.score, known.fitting, known.validation)


@dataclass(frozen=True)
class Loss(ScoreAttack):
    """A low loss means member (Yeom et al., CSF 2018)."""

    name: ClassVar[str] = "loss"

    def score(self, records: Observed) -> Floats:
        """Return minus the mean over snapshots of the log loss ``[n]``."""
        return np.asarray(-records.log_loss.mean(1).numpy(), np.float64)


@dataclass(frozen=True)
class Confidence(ScoreAttack):
    """A high largest probability means member (Salem et al., NDSS 2019); it needs no label."""

    name: ClassVar[str] = "confidence"

    def score(self, records: Observed) -> Floats:
        """Return the mean over snapshots of the largest output's logit ``[n]``."""
        require(
            records.classes > 0,
            "the model scores no classes, and only classes have a largest probability; "
            "leave it out",
        )
        top = records.outputs.max(dim=2).values
        rest = (records.outputs.sum(dim=2) - top).clamp(min=1e-300)
        logits = top.clamp(min=1e-300).log() - rest.log()
        return np.asarray(logits.mean(1).numpy(), np.float64)


@dataclass(frozen=True)
class GradientNorm(ScoreAttack):
    """A small gradient means member.

    Attributes:
        layers: number of last layers with gradients; 0 for all.
    """

    layers: int = 1
    name: ClassVar[str] = "gradient-norm"

    @property
    def needs(self) -> Needs:
        """The observations that the attack needs."""
        return Needs(layers=self.layers or -1)

    def score(self, records: Observed) -> Floats:
        """Return minus the mean over snapshots of the log gradient norm ``[n]``."""
        return np.asarray(-records.log_norm.mean(1).numpy(), np.float64)


@dataclass(frozen=True)
class RMIA:
    """Offline RMIA: likelihood ratios of a record against those of other records.

    A record's ratio is its label's probability at the model over its mean at reference models,
    which are trained on other records of the same kind. The score is the share of known non-members
    whose ratio is smaller by the factor ``gamma``; the threshold is best on known records.
    Reference models are not trained on target records (offline), so the mean over models that were
    is estimated as in the paper, with ``a``.

    Attributes:
        references: number of reference models.
        gamma: factor between the ratios.
        a: weight in the estimate; 0 takes the mean of 1 and the reference models' mean.

    References:
        Zarifzadeh, Liu and Shokri, Low-Cost High-Power Membership Inference Attacks, ICML 2024,
        Eq. 9 and Appendix B.2.2.
    """

    references: int = 2
    gamma: float = 1.0
    a: float = 0.3
    name: ClassVar[str] = "rmia"

    def __post_init__(self) -> None:
        require_count(self.references, "number of references of rmia")
        require(self.gamma > 0, f"gamma of rmia is {self.gamma:g}; expected a number above 0")
        require(0 <= self.a <= 1, f"a of rmia is {self.a:g}; expected a number from 0 to 1")

    @property
    def needs(self) -> Needs:
        """The observations that the attack needs."""
        return Needs(references=self.references)

    def fit(self, known: MembershipKnowledge, *, seed: int) -> Threshold:
        """Return a threshold fitted with the known non-members as the population."""
        outside = torch.from_numpy(np.flatnonzero(~known.fitting.member))
        others = known.fitting.records.rows(outside)
        population = np.sort(self._log_ratio(others)) + np.log(self.gamma)

        def score(records: Observed) -> Floats:
            below = np.searchsorted(population, self._log_ratio(records), side="right")
            return np.asarray(below / len(population), np.float64)

        return fit_threshold(score, known.validation)

    def _log_ratio(self, records: Observed) -> Floats:
        """Return the log ratio of the label's probability ``[n]``."""
        mean = records.references.exp().mean(1).numpy()
        both = ((1 + self.a) * mean + (1 - self.a)) / 2
        return np.asarray(-np.exp(records.log_loss[:, -1].numpy()) - np.log(both), np.float64)
