"""Correlations against NumPy, SciPy's test and regressions; and the paper's own figures."""

import math

import numpy as np
import pytest
from scipy import stats

from leakgauge.core.checks import InputError
from leakgauge.layers.correlation import partial_correlation, pearson, significance


def columns(seed: int, n: int = 20) -> np.ndarray:
    generator = np.random.default_rng(seed)
    size, one, other = generator.normal(size=(3, n))
    return np.array([one + size, other + 2 * size + 0.5 * one, size])


@pytest.mark.parametrize("seed", range(3))
def test_pearson_is_that_of_numpy_and_its_test_that_of_scipy(seed: int) -> None:
    one, other, _ = columns(seed)
    found, scipys = pearson(one, other), stats.pearsonr(one, other)
    assert found is not None
    assert found.r == pytest.approx(np.corrcoef(one, other)[0, 1])
    assert found.p == pytest.approx(scipys.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(scipys.confidence_interval(0.95)))
    assert (found.n, found.given) == (20, 0)


@pytest.mark.parametrize("seed", range(3))
def test_partial_correlation_is_that_of_residuals_and_of_a_regression(seed: int) -> None:
    """The t of a slope in a regression with the third column is that of the partial r."""
    one, other, size = columns(seed)
    found = partial_correlation(one, other, size)
    design = np.column_stack([np.ones(20), size])
    rests = [
        column - design @ np.linalg.lstsq(design, column, rcond=None)[0] for column in (one, other)
    ]
    assert found is not None
    assert found.r == pytest.approx(np.corrcoef(*rests)[0, 1])
    wide = np.column_stack([design, one])
    slopes, squares, _, _ = np.linalg.lstsq(wide, other, rcond=None)
    error = math.sqrt(squares[0] / 17 * np.linalg.inv(wide.T @ wide)[2, 2])
    assert found.t == pytest.approx(slopes[2] / error)
    assert found.p == pytest.approx(2 * stats.t.sf(abs(slopes[2] / error), 17))
    assert found.low < found.r < found.high


@pytest.mark.parametrize(
    ("r", "n", "t"),
    [(0.959, 15, 12.20), (0.952, 33, 17.35), (-0.144, 27, -0.73), (0.304, 75, 2.73)],
)
def test_the_papers_table_1(r: float, n: int, t: float) -> None:
    """Layers times data sets: 5, 11 and 9 layers on three of them; all r are rounded."""
    assert significance(r, n).t == pytest.approx(t, rel=6e-3)


def test_the_papers_p_values() -> None:
    assert significance(-0.144, 27).p == pytest.approx(0.472, abs=2e-3)
    assert significance(0.304, 75).p == pytest.approx(0.008, abs=5e-4)
    assert significance(0.707, 15).p == pytest.approx(0.003, abs=5e-4)


def test_what_has_no_correlation_is_none() -> None:
    assert pearson([1, 2], [3, 5]) is None
    assert pearson([0.1, 0.3 - 0.2, 0.1], [1, 2, 3]) is None
    assert pearson([0, 0, 0], [1, 2, 3]) is None
    assert partial_correlation([1, 2, 4], [3, 5, 1], [1, 5, 9]) is None
    assert partial_correlation([1, 2, 4, 3], [3, 5, 1, 2], [1, 1, 1, 1]) is None
    sizes = [0.1, 0.7, 0.4, 0.9]
    assert partial_correlation([3 * size - 1 for size in sizes], [3, 5, 1, 2], sizes) is None


def test_the_ends() -> None:
    line = pearson([1, 2, 3], [2, 4, 6])
    assert line is not None
    assert line.r == pytest.approx(1)
    assert line.p < 1e-6
    three = significance(0.5, 3)
    assert (three.low, three.high) == (-1, 1)
    exact = significance(-1, 9)
    assert (exact.t, exact.p, exact.low, exact.high) == (-math.inf, 0, -1, -1)


def test_bad_columns_are_refused() -> None:
    with pytest.raises(InputError, match=r"lengths \[3, 2\]"):
        pearson([1, 2, 3], [1, 2])
    with pytest.raises(InputError, match="not finite"):
        pearson([1, 2, math.nan], [1, 2, 3])
    with pytest.raises(InputError, match="expected a coefficient from -1 to 1"):
        significance(1.2, 9)
    with pytest.raises(InputError, match="n is 3; expected at least 4 pairs"):
        significance(0.2, 3, given=1)
