"""Games in which the adversary holds candidate batches and asks which one it saw.

In *user inference* a candidate batch holds other records of a user than the observed one; with
the auxiliary knowledge phi(x) in *attribute inference* it is the observed batch itself with one
value of the attribute filled in. Either way the adversary makes the candidates' gradients with the
parameters of the round and compares.
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
        rows: ``[u, B]`` positions in it, of u different batches.
        index: ``[n, m]``: the batch of each trial's candidate, in the order of the secret's codes.
        secret: of each batch ``[u]``, where a defense could make use of it.
    """

    pool: Dataset
    rows: Tensor
    index: Tensor
    secret: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Candidates:
    """Their gradients, for some of the trials.

    They went through the defense that the adversary knows, but not through its Gaussian noise:
    the adversary adds none to what it makes itself, and accounts for the noise in what it sees.

    Attributes:
        grads: leaf ``[u, *p]``.
        index: ``[n, m]`` into the first axis.
    """

    grads: Grads
    index: Tensor


class CandidateAdversary(ABC):
    """Fitted, immutable."""

    @abstractmethod
    def log_posterior(self, seen: Grads, candidates: Candidates) -> NDArray[np.float64]:
        """Natural log of P(a | g) ``[n, m]`` for gradients, leaf ``[n, *p]``."""

    @property
    @abstractmethod
    def details(self) -> str:
        """What was fitted, in a line."""


class CandidateAttack(ABC):
    """Settings, frozen.

    Attributes:
        name: the name at the command line.
    """

    name: ClassVar[str]

    def check(self, shadow: Shadow, values: int) -> None:  # noqa: B027 - most need nothing
        """Refuse, before any work, a shadow that ``fit`` would refuse; ``values`` is m."""

    @abstractmethod
    def fit(
        self, shadow: Shadow, log_prior: NDArray[np.float64], *, rng: np.random.Generator
    ) -> CandidateAdversary:
        """Learn from the adversary's own records alone; ``log_prior`` ``[m]`` is log P(a)."""


AnyAttack = Attack | CandidateAttack
"""An attack of any game."""
