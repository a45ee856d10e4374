"""A Gaussian model of whether two gradients come from one user, learned from shadow users."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from scipy import linalg

from leakgauge.core.checks import require, require_count, require_positive
from leakgauge.inference.adversaries.adversary import CandidateAttack
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.shadow_users import (
    FittedLikeness,
    UserExamples,
    calibrated,
    check_users,
    observe,
)
from leakgauge.results.statistics import Floats


@dataclass(frozen=True)
class Plda(CandidateAttack):
    """Probabilistic linear discriminant analysis of users, on principal components.

    The model takes a user's gradients as Gaussian around the user's own mean, and the means as
    Gaussian too. Shadow users give both covariances; the likelihood of the observed gradient, given
    that a candidate batch belongs to the same user, then has a closed form. An encoder has to learn
    this by training; two covariances need few users.

    The Gaussian noise of the shadow's defense is added to the covariance of the observed gradient
    and does not enter the estimates. A slope, fitted on held-out shadow users, corrects errors of
    the covariances, so that log-odds of rounds can be added.

    Attributes:
        components: maximum number of principal components.
        ridge: shrinkage of the covariance within users to a multiple of the identity, at most 1.
        batches: number of bootstrapped shadow batches, at least four per user.
        folds: number of folds of the shadow users to fit the slope.

    References:
        Ioffe, Probabilistic linear discriminant analysis, ECCV 2006.
    """

    components: int = 128
    ridge: float = 0.3
    batches: int = 1200
    folds: int = 3
    name: ClassVar[str] = "plda"

    def __post_init__(self) -> None:
        require_count(self.components, "number of components")
        require_count(self.batches, "number of shadow batches")
        require(self.folds >= 2, f"number of folds is {self.folds}; expected 2 or more")
        require_positive(self.ridge, "ridge")
        require(self.ridge <= 1, f"ridge is {self.ridge:g}; expected at most 1")

    def check(self, shadow: Shadow, values: int) -> None:
        """Refuse users with too few records for cross-validation."""
        check_users(shadow, candidates=values, folds=self.folds)

    def fit(self, shadow: Shadow, log_prior: Floats, *, rng: np.random.Generator) -> FittedLikeness:
        """Calibrate on held-out shadow users, then learn from all."""
        self.check(shadow, len(log_prior))
        view, examples = observe(shadow, batches=self.batches, components=self.components, rng=rng)
        learn = partial(SameUser.learn, ridge=self.ridge, noise=shadow.defense.noise_std)
        return calibrated(self, shadow, view, examples, learn, log_prior, folds=self.folds)


@dataclass(frozen=True, eq=False)
class SameUser:
    """``log P(seen | held, one user)``, up to a constant of ``seen``.

    With M the covariance of users' means, W that within a user and N that of the noise, ``seen``
    is Gaussian around ``mean + R (held - mean)``, ``R = M (M + W)^-1``, with covariance
    ``M + W + N - R M``.

    Attributes:
        mean: ``[k]``.
        pull: R ``[k, k]``.
        root: lower Cholesky factor of the covariance ``[k, k]``.
    """

    mean: Floats
    pull: Floats
    root: Floats

    @classmethod
    def learn(cls, examples: UserExamples, *, ridge: float, noise: float) -> "SameUser":
        """Estimate the covariances from batches of shadow users.

        Args:
            examples: reduced gradients of at least two users.
            ridge: weight of the multiple of the identity in W.
            noise: standard deviation of the defense's noise in each observed coordinate.
        """
        users, place = np.unique(examples.user, return_inverse=True)
        size = examples.clean.shape[1]
        counts = np.bincount(place)
        means = np.stack([examples.clean[place == one].mean(axis=0) for one in range(len(users))])
        apart = examples.clean - means[place]
        within = apart.T @ apart / max(1, len(apart) - len(users))
        # A user's mean also varies with the choice of the user's records.
        between = np.atleast_2d(np.cov(means.T))
        between = between - (examples.resampling + 1 / counts.mean()) * within
        spread = float(np.trace(within)) / size or 1.0
        within = (1 - ridge) * within + ridge * spread * np.eye(size)
        between = _positive_part(between, within)
        return cls.given(means.mean(axis=0), between, within, noise)

    @classmethod
    def given(cls, mean: Floats, between: Floats, within: Floats, noise: float) -> "SameUser":
        """Return the model of a mean, M and W; ``noise`` is a coordinate's standard deviation."""
        pull = linalg.solve(between + within, between, assume_a="pos").T
        left = between + within + noise**2 * np.eye(len(mean)) - pull @ between
        return cls(mean, pull, linalg.cholesky((left + left.T) / 2, lower=True))

    def __call__(self, seen: Floats, held: Floats) -> Floats:
        """Return log-likelihoods ``[n, m]`` of seen ``[n, k]`` and held ``[n, m, k]``."""
        gap = (seen - self.mean)[:, None] - (held - self.mean) @ self.pull.T
        flat = gap.reshape(-1, gap.shape[2])
        scaled = linalg.solve_triangular(self.root, flat.T, lower=True)
        return np.asarray(-np.square(scaled).sum(axis=0).reshape(gap.shape[:2]) / 2)


def _positive_part(matrix: Floats, metric: Floats) -> Floats:
    """Return a symmetric matrix without its directions of negative variance in ``metric``."""
    values, vectors = linalg.eigh(matrix, metric)  # vectors.T @ metric @ vectors is the identity
    back = metric @ vectors
    return np.asarray((back * np.maximum(values, 0)) @ back.T)
