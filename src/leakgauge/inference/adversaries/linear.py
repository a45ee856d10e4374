"""Linear discriminants, solved through the inner products of the records' gradients."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from leakgauge.core.types import Grads
from leakgauge.inference.adversaries.record_gradients import RecordGradients, record_noise
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.views import FlattenView
from leakgauge.results.statistics import Floats, Ints


@dataclass(frozen=True, eq=False)
class Scatter:
    """Scatter of n records ``G [n, D]`` in m groups, computed from an n x n matrix.

    Attributes:
        gram: ``G @ G.T``.
        codes: group of each record ``[n]``.
        values: m, number of groups.
    """

    gram: Floats
    codes: Ints
    values: int

    @functools.cached_property
    def groups(self) -> Floats:
        """Weights ``[n, m]``; ``G.T @ groups`` are the means of the groups."""
        return np.eye(self.values)[self.codes] / np.bincount(self.codes, minlength=self.values)

    def centre(self, rows: Floats) -> Floats:
        """Return ``rows [n, k]`` less the mean of the rows of their group."""
        return rows - (self.groups.T @ rows)[self.codes]

    @property
    def freedom(self) -> int:
        """Degrees of freedom within the groups, at least 1."""
        return max(1, len(self.codes) - self.values)

    @functools.cached_property
    def within(self) -> Floats:
        """Inner products of the centred records, divided by the degrees of freedom."""
        return self.centre(self.centre(self.gram).T) / self.freedom

    @property
    def trace(self) -> float:
        """Trace of the covariance S within the groups; 1 if all records of a group are equal."""
        return float(np.trace(self.within)) or 1.0


@dataclass(frozen=True, eq=False)
class LinearScores:
    """Scores that are linear in the gradient.

    Attributes:
        weight: ``[D, m]``.
        intercept: ``[m]``.
    """

    weight: Floats
    intercept: Floats

    @classmethod
    def concatenate(cls, several: Sequence["LinearScores"]) -> "LinearScores":
        """Return the concatenation; its scores are ``[n, k m]``."""
        return cls(
            np.concatenate([one.weight for one in several], axis=1),
            np.concatenate([one.intercept for one in several]),
        )

    def __call__(self, seen: Grads) -> Floats:
        """Return scores ``[n, m]`` of gradients with leaves ``[n, *p]``."""
        flat = FlattenView()(seen).double().cpu().numpy()  # no product overflows
        return flat @ self.weight + self.intercept


@dataclass(frozen=True, eq=False)
class Solver:
    """Fits discriminants on parts of the shadow records from their inner products.

    Attributes:
        records: gradients ``G [n, D]`` less their origin.
        gram: ``G @ G.T``.
        codes: the secrets ``[n]``.
    """

    records: RecordGradients
    gram: Floats
    codes: Ints

    @classmethod
    def prepare(cls, shadow: Shadow) -> "Solver":
        """Return a solver for all records of the shadow."""
        records = RecordGradients(shadow)
        codes = shadow.data.secrets[shadow.secret].cpu().numpy()
        return cls(records, records.gram(), codes)

    def solve(self, rows: Ints, ridges: tuple[float, ...]) -> list[LinearScores]:
        """Return log-likelihoods of batches, fitted on ``rows``: one ``LinearScores`` per ridge."""
        shadow = self.records.shadow
        noise = record_noise(shadow)
        inside = self.gram[np.ix_(rows, rows)]
        solved = solve_dual(Scatter(inside, self.codes[rows], shadow.values), ridges, noise)
        alpha = np.zeros((len(self.codes), len(ridges) * shadow.values))
        alpha[rows] = np.concatenate([each for each, _ in solved], axis=1)
        weights = np.split(shadow.batch_size * self.records.combine(alpha), len(ridges), axis=1)
        origin = self.records.origin.double().cpu().numpy()
        return [
            LinearScores(weight, shadow.batch_size * intercept - origin @ weight)
            for weight, (_, intercept) in zip(weights, solved, strict=True)
        ]


def solve_dual(
    scatter: Scatter, ridges: tuple[float, ...], noise: float
) -> list[tuple[Floats, Floats]]:
    """Return linear discriminants of all secrets against their mean, one for each ridge.

    With ``mu`` the mean of the group means ``mu_a``, the score of secret a for a gradient g is
    ``(g - mu) @ w_a - (mu_a - mu) @ w_a / 2``, where ``w_a = (S + l I)^-1 (mu_a - mu)``. The
    Woodbury identity reduces this to the inner products.

    Args:
        scatter: scatter of the records by secret.
        ridges: l less the noise, relative to the trace of S.
        noise: variance of a coordinate, at the scale of a single record.

    Returns:
        Pairs of ``alpha [n, m]``, with the weights ``G.T @ alpha``, and intercepts ``[m]``.

    References:
        Hastie, Tibshirani, Friedman, The Elements of Statistical Learning, sections 4.3.1, 18.3.5.

    >>> g, codes = np.array([[0.0], [2.0], [4.0], [6.0]]), np.array([0, 0, 1, 1])
    >>> scatter = Scatter(g @ g.T, codes, 2)
    >>> ((alpha, _),) = solve_dual(scatter, (0.5,), 0.0)  # S = 2, l = 1, mu = 3 -+ 2
    >>> (g.T @ alpha).round(6).tolist()
    [[-0.666667, 0.666667]]
    """
    middle = scatter.groups.mean(axis=1, keepdims=True)
    apart = scatter.groups - middle
    seen = scatter.centre(scatter.gram @ apart) / scatter.freedom
    solutions = []
    for ridge in ridges:
        total = ridge * scatter.trace + noise
        inner = linalg.solve(scatter.within + total * np.eye(len(seen)), seen, assume_a="pos")
        alpha = (apart - scatter.centre(inner)) / total
        intercept = -((apart / 2 + middle) * (scatter.gram @ alpha)).sum(axis=0)
        solutions.append((alpha, intercept))
    return solutions
