"""Standardises features in place, for pipelines of scikit-learn."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.preprocessing import StandardScaler

BLOCK = 4096
"""Columns per block; scikit-learn's scaler makes several copies of its input."""


class StandardiseInPlace(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """scikit-learn's ``StandardScaler`` that overwrites its input.

    >>> x = np.array([[1.0, 5.0], [3.0, 5.0]])
    >>> StandardiseInPlace().fit_transform(x).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """

    def fit(self, x: NDArray[np.floating], y: object = None) -> "StandardiseInPlace":
        """Learn means and deviations of the columns ``[n, D]``."""
        self.scalers_ = [StandardScaler().fit(x[:, columns]) for columns in _blocks(x)]
        return self

    def transform(self, x: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return ``x [n, D]`` itself, standardised."""
        for scaler, columns in zip(self.scalers_, _blocks(x), strict=True):
            x[:, columns] = scaler.transform(x[:, columns])
        return x


def _blocks(x: NDArray[np.floating]) -> Iterator[slice]:
    for first in range(0, x.shape[1], BLOCK):
        yield slice(first, first + BLOCK)
