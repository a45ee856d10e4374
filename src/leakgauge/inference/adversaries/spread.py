"""The covariance of each secret's records, where it differs between secrets."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.stats import multivariate_normal

from leakgauge.inference.adversaries.scatter import Scatter

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Spread:
    """The covariance of each secret's records along the k directions in which records differ most.

    A linear discriminant takes all secrets' covariances for one. Where they are not, this is what
    the Gaussian log-likelihood has beside it, along those directions.

    Attributes:
        basis: ``[n, k]``; the directions are the orthonormal ``G.T @ basis``.
        means: of each secret along them ``[m, k]``.
        own: covariance of each secret's records ``[m, k, k]``.
        shared: the covariance within all groups ``[k, k]``.
    """

    basis: Floats
    means: Floats
    own: Floats
    shared: Floats

    @classmethod
    def of(cls, scatter: Scatter, directions: int) -> "Spread":
        """Return the spread along ``directions`` directions, or along all if fewer exist."""
        n = len(scatter.codes)
        first = max(0, n - directions)
        sizes, vectors = linalg.eigh(scatter.within, subset_by_index=(first, n - 1))
        real = sizes > 1e-9 * scatter.trace  # the rest is rounding
        sizes, vectors = sizes[real], vectors[:, real]
        basis = scatter.centre(vectors) / np.sqrt(scatter.freedom * sizes)
        along = scatter.gram @ basis
        centred = scatter.centre(along)
        own = [
            centred[rows].T @ centred[rows] / max(1, rows.sum() - 1)
            for rows in (scatter.codes == value for value in range(scatter.values))
        ]
        return cls(basis, scatter.groups.T @ along, np.array(own), np.diag(sizes))

    def beside_linear(self, products: Floats, batch_size: int, added: float) -> Floats:
        """Return what the covariances add to a linear discriminant's log-likelihoods of batches.

        Args:
            products: of the batches with the records' gradients ``[t, n]``.
            batch_size: B; a batch is the mean of so many records.
            added: variance of each coordinate beside that of the records, at their scale.

        Returns:
            ``[t, m]``, in nats.
        """
        if len(self.shared) == 0:
            return np.zeros((len(products), len(self.means)))
        along = products @ self.basis
        level = added * np.eye(len(self.shared))
        shared = (self.shared + level) / batch_size
        parts = [
            multivariate_normal(mean, (own + level) / batch_size).logpdf(along)
            - multivariate_normal(mean, shared).logpdf(along)
            for mean, own in zip(self.means, self.own, strict=True)
        ]
        return np.reshape(parts, (len(parts), -1)).T  # logpdf drops the axis of a single batch
