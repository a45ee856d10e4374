"""Warnings, before any training, about single columns that determine a label or a secret."""

import shlex
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from leakgauge.data.columns import kind_of, numbers
from leakgauge.data.features import unlike_any
from leakgauge.data.written import read_values
from leakgauge.results.roc import auroc
from leakgauge.results.statistics import Bools, Floats, Ints

DETERMINES = 0.99
"""AUROC (rank correlation for numbers) above which a column determines a label or a secret."""

ROWS = 10_000
"""Number of rows examined, evenly spaced: enough for an AUROC of this size."""

FEW_VALUES = 200
"""Number of different values up to which numbers count as categories too."""

SAME_IN_USER = 0.98
"""Share of a column's repeated values with a single secret, from which the column seems to name
users."""


def proxies(
    features: pd.DataFrame, label: tuple[str, npt.NDArray[Any]], secrets: Mapping[str, Ints]
) -> list[str]:
    """Return a warning for each feature or label that determines a secret or the label.

    Args:
        features: table of features, float64 or categorical.
        label: name of the label, and its codes or numbers ``[n]``.
        secrets: codes ``[n]`` of each secret; its own column does not count as a proxy.
    """
    name, y = label
    warnings = []
    for secret, values in secrets.items():
        for column in features.columns.drop(secret, errors="ignore"):
            if (area := column_auroc(features[column], values)) > DETERMINES:
                warnings.append(
                    f"the feature {column!r} alone tells the secret {secret!r} (AUROC "
                    f"{area:.3f}), so gradients give away what that column says; use "
                    f"{option('--drop', column)} to see what the others give away"
                )
        if (area := column_auroc(pd.Series(y), values)) > DETERMINES:
            warnings.append(
                f"the label {name!r} alone tells the secret {secret!r} (AUROC {area:.3f}): "
                "whoever sees gradients sees labels, so no defense of the features hides it; "
                "choose another --label or --secret"
            )
    measure: Callable[..., float]
    measure, called = column_auroc, "AUROC"
    if np.issubdtype(y.dtype, np.floating):
        measure, called = rank_correlation, "rank correlation"
    for column in features.columns.drop(list(secrets), errors="ignore"):
        how_well = measure(features[column], y)
        if how_well > DETERMINES:
            warnings.append(
                f"the feature {column!r} alone tells the label {name!r} ({called} "
                f"{how_well:.3f}), so the model learns little else; use "
                f"{option('--drop', column)}"
            )
    return warnings


def identifiers(features: pd.DataFrame, secrets: Mapping[str, Ints]) -> list[str]:
    """Return a warning for each feature whose whole numbers differ in every row."""
    return [
        f"the feature {column!r} is a different whole number in every row, as an identifier is; "
        f"use {option('--drop', column)} unless it says something about the row"
        for column in features.columns.drop(list(secrets), errors="ignore")
        if _is_identifier(features[column])
    ]


def users_without_group(
    frame: pd.DataFrame, secrets: Mapping[str, Ints], *, besides: set[str]
) -> list[str]:
    """Return a warning for each column that seems to name users with several rows.

    Args:
        frame: all columns of the table.
        secrets: codes ``[n]`` of each secret.
        besides: columns that have a role.
    """
    return [
        f"the column {str(name)!r} repeats, and {secret!r} is the same in all rows of nearly each "
        f"of its values, as if it named users; use {option('--group', name)}, so that no user is "
        "on two sides"
        for secret, values in secrets.items()
        for name in frame.columns
        if str(name) not in besides and _names_users(frame[name], values)
    ]


def option(flag: str, column: object) -> str:
    """Return an option with a column's name as a shell takes it.

    >>> option("--drop", "age"), option("--drop", "Unnamed: 0")
    ('--drop age', "--drop 'Unnamed: 0'")
    """
    name = str(column)
    word = shlex.quote(name)
    # A comma needs no quotes in a shell, but in a sentence it seems to end the name.
    return f"{flag} '{name}'" if word == name and "," in name else f"{flag} {word}"


def column_auroc(column: "pd.Series[Any]", codes: Ints) -> float:
    """Return how well a column alone predicts codes: the least AUROC over their values.

    The score of a category is the share of each code in its other rows; that of numbers with many
    different values is their order.

    >>> column_auroc(pd.Series([0.0, 1.0] * 50), np.array([1, 0] * 50))
    1.0
    >>> column_auroc(pd.Series([0.0, 1.0] * 50), np.array([1, 0, 0, 1] * 25)) < 0.6
    True
    """
    rows = np.linspace(0, len(codes) - 1, min(len(codes), ROWS)).astype(np.int64)
    column, codes = column.iloc[rows], codes[rows]
    groups, distinct = pd.factorize(column, use_na_sentinel=False)
    values = np.unique(codes)
    if len(values) < 2:
        return 0.5
    if len(distinct) <= FEW_VALUES:
        return min(float(auroc(codes == value, _share(groups, codes == value))) for value in values)
    if len(values) > 2 or isinstance(column.dtype, pd.CategoricalDtype):
        return 0.5
    seen = numbers(column)
    known = np.isfinite(seen)
    if len(np.unique(codes[known])) < 2:
        return 0.5
    area = float(auroc(codes[known] == values[1], seen[known]))
    return max(area, 1 - area)


def rank_correlation(column: "pd.Series[Any]", y: Floats) -> float:
    """Return the absolute Spearman correlation of a column of numbers with ``y [n]``, 0 to 1.

    It is 0 for categories, and for a column with constant known values.

    >>> rank_correlation(pd.Series([3.0, 2.0, 1.0]), np.array([1.0, 4.0, 9.0]))
    1.0
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        return 0.0
    seen = numbers(column)
    known = np.isfinite(seen)
    if len(np.unique(seen[known])) < 2 or len(np.unique(y[known])) < 2:
        return 0.0
    return float(abs(stats.spearmanr(seen[known], y[known]).statistic))


def _share(groups: Ints, positive: Bools) -> Floats:
    """Return the share of positive rows among the other rows of the same group."""
    inside = np.bincount(groups, weights=positive)[groups] - positive
    sizes = np.bincount(groups)[groups] - 1
    share: Floats = (inside + positive.mean()) / (sizes + 1)
    return share


def _is_identifier(column: "pd.Series[Any]") -> bool:
    if isinstance(column.dtype, pd.CategoricalDtype):
        return False
    values = numbers(column)
    whole = bool(np.isfinite(values).all() and (values == np.floor(values)).all())
    return whole and len(np.unique(values)) == len(values) > FEW_VALUES


def _names_users(column: "pd.Series[Any]", codes: Ints) -> bool:
    read = read_values(column)
    if unlike_any(read):
        return False
    kind = kind_of(read)
    if kind == "date" or (kind == "number" and (numbers(read) % 1 > 0).any()):
        return False
    groups, distinct = pd.factorize(column, use_na_sentinel=False)
    sizes = np.bincount(groups)
    repeated = sizes > 1
    if len(distinct) < 30 or sizes[repeated].sum() < len(column) / 2:
        return False
    shuffled = np.random.default_rng(0).permutation(codes)
    each = (pd.Series(values).groupby(groups) for values in (codes, shuffled))
    same, by_chance = ((one.min() == one.max()).to_numpy()[repeated].mean() for one in each)
    return bool(same >= SAME_IN_USER and by_chance < SAME_IN_USER - 0.1)
