"""Protocols of attacks (settings) and of adversaries (fitted attacks).

Candidate attacks compare the observed gradient with those of candidate batches that the adversary
holds. In *user inference* a candidate batch holds other records of a user than the observed batch.
In *attribute inference* with the auxiliary knowledge phi(x), it is the observed batch with one
value of the attribute filled in. In both, the adversary computes the candidates' gradients at the
parameters of the round.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from scipy import special
from torch import Tensor

from leakgauge.core.types import Grads
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.results.statistics import Floats


class Adversary(Protocol):
    """A fitted attack; immutable."""

    def log_posterior(self, seen: Grads) -> Floats:
        """Return log P(a | g) ``[n, m]`` (natural) for n gradients, each value ``[n, *p]``."""
        ...

    @property
    def details(self) -> str:
        """The settings and the fitted values in one line."""
        ...


class Attack(Protocol):
    """The settings of an attack; frozen."""

    @property
    def name(self) -> str:
        """The name on the command line."""
        ...

    def fit(self, shadow: Shadow, log_prior: Floats, *, rng: np.random.Generator) -> Adversary:
        """Return an adversary, learned from the shadow only; ``log_prior`` ``[m]`` is log P(a)."""
        ...


@dataclass(frozen=True, eq=False)
class Candidates:
    """The gradients of candidate batches for some of the trials.

    They pass the defense that the adversary knows, without its Gaussian noise: the adversary adds
    no noise to its own gradients and accounts for the noise in the observed ones.

    Attributes:
        grads: the gradients of u batches; each value is ``[u, *p]``.
        index: the candidates of each trial ``[n, m]``, as indices into the first axis.
    """

    grads: Grads
    index: Tensor


class CandidateAdversary(ABC):
    """A fitted ``CandidateAttack``; immutable."""

    @abstractmethod
    def log_posterior(self, seen: Grads, candidates: Candidates) -> Floats:
        """Return log P(a | g) ``[n, m]`` (natural) for n gradients, each value ``[n, *p]``."""

    @property
    @abstractmethod
    def details(self) -> str:
        """The fitted values in one line."""


class CandidateAttack(ABC):
    """The settings of an attack that scores candidates; frozen.

    Attributes:
        name: the name on the command line.
    """

    name: ClassVar[str]

    def check(self, shadow: Shadow, values: int) -> None:  # noqa: B027 - optional
        """Refuse a shadow that ``fit`` would refuse; ``values`` is m."""

    @abstractmethod
    def fit(
        self, shadow: Shadow, log_prior: Floats, *, rng: np.random.Generator
    ) -> CandidateAdversary:
        """Return an adversary, learned from the shadow only; ``log_prior`` ``[m]`` is log P(a)."""


AnyAttack = Attack | CandidateAttack
"""An attack of any game."""


def with_prior(log_likelihood: Floats, log_prior: Floats) -> Floats:
    """Return ``log P(a | g)`` by Bayes' rule, from ``log P(g | a)`` up to a constant per row.

    The adversaries are fitted on balanced shadow batches, so their probabilities are proportional
    to the likelihood, and the prior enters only here (Li et al., CCS 2024, section 4.1).

    Args:
        log_likelihood: ``log P(g | a)`` ``[n, m]``.
        log_prior: ``log P(a)`` ``[m]``.
    """
    joint = log_likelihood + log_prior
    return np.asarray(joint - special.logsumexp(joint, axis=1, keepdims=True))
