"""Pearson correlation of a measure with an attack over layers, plain and partial."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from leakgauge.core.checks import require

Values = Sequence[float] | npt.NDArray[np.floating]
"""One figure per layer (of each network, data set and repetition)."""

FLAT = 1e-12
"""A column with a range below this share of its size is constant, up to rounding."""


@dataclass(frozen=True)
class Correlation:
    """A correlation with its test against 0.

    Attributes:
        r: Pearson's coefficient, from -1 to 1.
        n: number of pairs.
        t: Student's statistic of r = 0; infinite at r = 1 and -1.
        p: two-sided p-value.
        low: lower end of the 95 % interval of r (Fisher's z).
        high: upper end.
        given: number of columns that are held fixed: 0, or 1 for a partial correlation.
    """

    r: float
    n: int
    t: float
    p: float
    low: float
    high: float
    given: int = 0


def pearson(one: Values, other: Values) -> Correlation | None:
    """Return the correlation of two columns.

    The test and the interval take pairs as independent and normal. Layers of one network are not
    independent, so that p-values are smaller than they should be.

    Args:
        one: ``[n]``.
        other: ``[n]``.

    Returns:
        The correlation; None with n below 3, or if a column is constant.

    Raises:
        InputError: the columns differ in length, or have values that are not finite.

    >>> found = pearson([1, 2, 3, 4], [1, 3, 2, 5])
    >>> round(found.r, 3), round(found.t, 2), round(found.p, 3), found.n
    (0.832, 2.12, 0.168, 4)
    >>> pearson([1, 2, 3], [5, 5, 5]) is None
    True
    """
    columns = _checked(one, other)
    if columns.shape[1] < 3 or any(_is_flat(column) for column in columns):
        return None
    return significance(_coefficient(*columns), columns.shape[1])


def partial_correlation(one: Values, other: Values, given: Values) -> Correlation | None:
    """Return the correlation of two columns after regressing both on a third.

    Each is regressed on the third, with an intercept, and the residuals are correlated. Given the
    log size of layers, it shows whether a measure predicts an attack better than size does.

    Args:
        one: ``[n]``.
        other: ``[n]``.
        given: column that is held fixed ``[n]``.

    Returns:
        The correlation; None with n below 4, if a column is constant, or if the third explains one
        of both completely.

    Raises:
        InputError: as for ``pearson``.

    >>> size = [1, 2, 3, 4, 5]
    >>> found = partial_correlation([1, 3, 2, 5, 4], [2, 3, 3, 6, 4], size)
    >>> round(found.r, 3), found.n, found.given
    (0.864, 5, 1)
    """
    columns = _checked(one, other, given)
    if columns.shape[1] < 4 or any(_is_flat(column) for column in columns):
        return None
    first, second = (_rest(column, columns[2]) for column in columns[:2])
    if first is None or second is None:
        return None
    return significance(_coefficient(first, second), columns.shape[1], given=1)


def significance(r: float, n: int, *, given: int = 0) -> Correlation:
    """Return a coefficient with its t = r sqrt(df / (1 - r^2)), p-value and 95 % interval.

    There are df = n - 2 - given degrees of freedom. The interval is tanh(atanh r +- 1.96 / sqrt(df
    - 1)); with df = 1 it is all of [-1, 1].

    Args:
        r: the coefficient.
        n: number of pairs.
        given: number of columns that are held fixed.

    Raises:
        InputError: r is outside of [-1, 1], or n leaves no degree of freedom.

    >>> round(significance(0.952, 33).t, 1)
    17.3
    """
    df = n - 2 - given
    require(-1 <= r <= 1, f"r is {r}; expected a coefficient from -1 to 1")
    require(df >= 1, f"n is {n}; expected at least {3 + given} pairs")
    if abs(r) == 1:
        return Correlation(r, n, math.copysign(math.inf, r), 0.0, r, r, given)
    t = r * math.sqrt(df / (1 - r * r))
    half = scipy.stats.norm.ppf(0.975) / math.sqrt(df - 1) if df > 1 else math.inf
    low, high = (math.tanh(math.atanh(r) + sign * half) for sign in (-1, 1))
    return Correlation(r, n, t, float(2 * scipy.stats.t.sf(abs(t), df)), low, high, given)


def _checked(*columns: Values) -> npt.NDArray[np.float64]:
    lengths = [len(column) for column in columns]
    require(len(set(lengths)) == 1, f"columns have lengths {lengths}; expected equal ones")
    found = np.array([np.asarray(column, dtype=np.float64) for column in columns])
    require(found.ndim == 2, f"columns are {list(found.shape[1:])}; expected [n]")
    require(bool(np.isfinite(found).all()), "columns have values that are not finite")
    return found


def _is_flat(column: npt.NDArray[np.float64]) -> bool:
    return bool(np.ptp(column) <= FLAT * np.abs(column).max(initial=0))


def _rest(
    column: npt.NDArray[np.float64], given: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64] | None:
    """Return the residuals of a linear regression; None if only rounding is left."""
    line = scipy.stats.linregress(given, column)
    rest: npt.NDArray[np.float64] = column - line.intercept - line.slope * given
    largest = max(np.abs(column).max(), abs(line.slope) * np.abs(given).max())
    return None if np.ptp(rest) <= FLAT * largest else rest


def _coefficient(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
    return float(scipy.stats.pearsonr(one, other).statistic)
