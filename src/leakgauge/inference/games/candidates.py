"""Candidate batches that the adversary holds, and attacks that compare them with a gradient.

In *user inference* a candidate batch holds other records of a user than the observed batch. In
*attribute inference* with the auxiliary knowledge phi(x), it is the observed batch with one value
of the attribute filled in. In both, the adversary computes the candidates' gradients at the
parameters of the round and compares them with the observed gradient.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from leakgauge.core.types import Dataset, Grads
from leakgauge.inference.adversaries.adversary import Attack
from leakgauge.inference.adversaries.shadow import Shadow


@dataclass(frozen=True, eq=False)
class CandidateBatches:
    """The m candidate batches of each trial, which the adversary holds.

    Attributes:
        pool: the records of the candidates.
        rows: the records of u different batches ``[u, B]``, as indices into ``pool``.
        index: the batch of each trial's candidates ``[n, m]``, ordered by the secret's codes.
        secret: the secret of each batch ``[u]``, where a defense uses it.
    """

    pool: Dataset
    rows: Tensor
    index: Tensor
    secret: Tensor | None = None


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
    def log_posterior(self, seen: Grads, candidates: Candidates) -> NDArray[np.float64]:
        """Return log P(a | g) ``[n, m]`` (natural) for n gradients, each value ``[n, *p]``."""

    @property
    @abstractmethod
    def details(self) -> str:
        """The fitted values in one line."""


class CandidateAttack(ABC):
    """The settings of an attack that judges candidates; frozen.

    Attributes:
        name: the name on the command line.
    """

    name: ClassVar[str]

    def check(self, shadow: Shadow, values: int) -> None:  # noqa: B027 - most need nothing
        """Refuse early a shadow that ``fit`` would refuse; ``values`` is m."""

    @abstractmethod
    def fit(
        self, shadow: Shadow, log_prior: NDArray[np.float64], *, rng: np.random.Generator
    ) -> CandidateAdversary:
        """Return an adversary, learned from the shadow only; ``log_prior`` ``[m]`` is log P(a)."""


AnyAttack = Attack | CandidateAttack
"""An attack of any game."""
