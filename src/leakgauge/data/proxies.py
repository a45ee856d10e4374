"""Warnings, before any training, about single columns that determine a label or a secret."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy

from leakgauge.data.columns import kind_of, numbers
from leakgauge.data.features import unlike_any
from leakgauge.data.written import read_values
from leakgauge.results.statistics import Bools, Floats, Ints

DETERMINES = 0.99
"""AUROC (rank correlation for numbers) above which a column determines a label or a secret."""

ROWS = 10_000
"""Number of rows examined, evenly spaced: enough for an AUROC of this size."""

FEW_VALUES = 200
"""Number of different values up to which numbers count as categories too."""

IN_RANGE = 20
"""Different numbers in a range, at least, where numbers with more values are read by ranges."""

LARGEST_USER = 0.25
"""Largest share of the rows that one user has; an amount that is mostly 0 names no users."""

REPEATED = 0.05
"""Share of rows that repeat another one, from which a warning says so."""

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
    is_number = np.issubdtype(y.dtype, np.floating)
    targets = [*secrets.values(), *([] if is_number else [y])]
    areas = {str(one): column_aurocs(features[one], targets) for one in features.columns}
    warnings = []
    for at, (secret, values) in enumerate(secrets.items()):
        for column in features.columns.drop(secret, errors="ignore"):
            if (area := areas[column][at]) > DETERMINES:
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
    called = "rank correlation" if is_number else "AUROC"
    for column in features.columns.drop(list(secrets), errors="ignore"):
        how_well = rank_correlation(features[column], y) if is_number else areas[column][-1]
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
    frame: pd.DataFrame, constant: Mapping[str, Ints], *, besides: set[str]
) -> list[str]:
    """Return a warning for each column that seems to name users with several rows.

    Args:
        frame: all columns of the table.
        constant: codes ``[n]`` of what is the same in all rows of a user: the secrets, or the label
            where there are none.
        besides: columns that have a role.
    """
    each = {str(name): _same_in_users(frame[name], constant)
            for name in frame.columns if str(name) not in besides}  # fmt: skip
    return [
        f"the column {name!r} repeats, and {what!r} is the same in all rows of nearly each of its "
        f"values, as if it named users; use {option('--group', name)}, so that no user is on two "
        "sides"
        for name, what in each.items()
        if what is not None
    ]


def repeated_rows(features: pd.DataFrame, y: npt.NDArray[Any], users: Ints | None) -> list[str]:
    """Return a warning if many rows repeat another row, of another user where users are known."""
    each = pd.DataFrame({"row": pd.util.hash_pandas_object(features, index=False), "y": y})
    if users is not None:
        each = each.assign(user=users).drop_duplicates()
    count = int(each.duplicated(["row", "y"]).sum())
    if count < REPEATED * len(features):
        return []
    return [
        f"{count:,} of {len(features):,} rows repeat another row in all columns that are used, so "
        "copies of a record are on both sides of the split: who is a member is not defined for "
        "them, and membership is understated; use --group if a column names whose rows they are, "
        "or leave the copies out"
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

    The score of a category is the share of each code in its other rows. Numbers with many different
    values are scored by their order and by ranges, with missing as a group of its own; the higher
    AUROC counts.

    >>> column_auroc(pd.Series([0.0, 1.0] * 50), np.array([1, 0] * 50))
    1.0
    >>> column_auroc(pd.Series([0.0, 1.0] * 50), np.array([1, 0, 0, 1] * 25)) < 0.6
    True
    """
    return column_aurocs(column, [codes])[0]


def column_aurocs(column: "pd.Series[Any]", targets: Sequence[Ints]) -> list[float]:
    """Return ``column_auroc`` for several codes ``[n]`` of the same rows."""
    rows = np.linspace(0, len(column) - 1, min(len(column), ROWS)).astype(np.int64)
    column = column.iloc[rows]
    groups, distinct = pd.factorize(column, use_na_sentinel=False)
    if len(distinct) <= FEW_VALUES:
        return [_of_groups(groups, codes[rows]) for codes in targets]
    if isinstance(column.dtype, pd.CategoricalDtype):
        return [0.5 for _ in targets]
    seen = numbers(column)
    known = np.isfinite(seen)
    _, order = np.unique(seen[known], return_inverse=True)
    ranges = _ranges(order, known)
    return [
        max(_of_order(order, codes[rows], known), _of_groups(ranges, codes[rows]))
        for codes in targets
    ]


def _ranges(order: Ints, known: Bools) -> Ints:
    """Return the group of each row: missing, or a range of numbers."""
    distinct = int(order.max(initial=0)) + 1
    count = min(FEW_VALUES, 1 + distinct // IN_RANGE)
    groups = np.zeros(len(known), dtype=np.int64)  # 0: missing
    groups[known] = 1 + order * count // distinct
    held = np.bincount(groups) > 0
    return (np.cumsum(held) - 1)[groups]


def _values(codes: Ints) -> Ints:
    """Return the different codes, ascending; codes are counted, since sorting takes long."""
    return np.flatnonzero(np.bincount(codes))


def _of_groups(groups: Ints, codes: Ints) -> float:
    """Return the least AUROC of the share of each code among the other rows of a group."""
    values = _values(codes)
    if len(values) < 2:
        return 0.5
    shape = int(groups.max()) + 1, int(values[-1]) + 1
    counts = np.bincount(groups * shape[1] + codes, minlength=shape[0] * shape[1]).reshape(shape)
    return float(_of_shares(counts[:, values]).min())


def _of_shares(positive: Ints) -> Floats:
    """Return the AUROC of each code's share of the other rows of a group, from counts ``[k, v]``.

    All positive rows of a group have one share, and so have all its negative ones.
    """
    sizes = positive.sum(axis=1, keepdims=True)
    mean = positive.sum(axis=0) / sizes.sum()
    with_itself, without = (positive - 1 + mean) / sizes, (positive + mean) / sizes
    none = np.zeros_like(positive)
    return _areas(
        np.concatenate([with_itself, without]),
        np.concatenate([positive, none]),
        np.concatenate([none, sizes - positive]),
    )


def _of_order(order: Ints, codes: Ints, known: Bools) -> float:
    """Return the AUROC of numbers by their order; 0.5 for other than two codes."""
    values, seen = _values(codes), codes[known]
    if len(values) != 2 or len(_values(seen)) < 2:
        return 0.5
    high = seen == values[1]
    counts = [np.bincount(order[side], minlength=int(order.max()) + 1) for side in (high, ~high)]
    area = float(_areas(np.arange(len(counts[0]))[:, None], *(one[:, None] for one in counts))[0])
    return max(area, 1 - area)


def _areas(scores: Floats | Ints, positive: Ints, negative: Ints) -> Floats:
    """Return the AUROC ``[v]`` of scores that so many positive and negative rows have ``[k, v]``.

    It is computed from whole numbers, so that rounding does not depend on the order of scores.
    """
    order = np.argsort(scores, axis=0)
    ordered = np.take_along_axis(scores, order, 0)
    high, low = (np.take_along_axis(counts, order, 0) for counts in (positive, negative))
    place, differs = np.arange(len(scores))[:, None], ordered[1:] != ordered[:-1]
    edge = np.ones((1, scores.shape[1]), dtype=bool)
    first = np.where(np.concatenate([edge, differs]), place, 0)
    last = np.where(np.concatenate([differs, edge]), place, len(scores) - 1)
    first = np.maximum.accumulate(first, axis=0)  # of the equal scores
    last = np.minimum.accumulate(last[::-1], axis=0)[::-1]
    until = np.cumsum(low, axis=0)
    below, equal = (np.take_along_axis(x, y, 0) for x, y in ((until - low, first), (until, last)))
    wins = (high * (below + equal)).sum(axis=0) / 2
    return np.asarray(wins / (high.sum(axis=0) * low.sum(axis=0)))


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
    return float(abs(scipy.stats.spearmanr(seen[known], y[known]).statistic))


def _is_identifier(column: "pd.Series[Any]") -> bool:
    if isinstance(column.dtype, pd.CategoricalDtype):
        return False
    values = numbers(column)
    some = values[:ROWS]
    if len(np.unique(some)) < len(some):  # most columns repeat among the first rows
        return False
    whole = bool(np.isfinite(values).all() and (values == np.floor(values)).all())
    return whole and len(np.unique(values)) == len(values) > FEW_VALUES


def _same_in_users(column: "pd.Series[Any]", constant: Mapping[str, Ints]) -> str | None:
    """Return what is the same in all rows of a user if the column seems to name users."""
    read = read_values(column)
    if unlike_any(read):
        return None
    kind = kind_of(read)
    if kind == "date" or (kind == "number" and (numbers(read) % 1 > 0).any()):
        return None
    groups, distinct = pd.factorize(column, use_na_sentinel=False)
    sizes = np.bincount(groups)
    repeated = sizes > 1
    if len(distinct) < 30 or sizes[repeated].sum() < len(column) / 2:
        return None
    if sizes.max() > LARGEST_USER * len(column):
        return None
    for what, codes in constant.items():
        if _in_one_code(groups, codes)[repeated].mean() >= SAME_IN_USER:
            shuffled = np.random.default_rng(0).permutation(codes)
            if _in_one_code(groups, shuffled)[repeated].mean() < SAME_IN_USER - 0.1:
                return what
    return None


def _in_one_code(groups: Ints, codes: Ints) -> Bools:
    """Return whether all rows of each group ``[k]`` have the same code."""
    count, values = int(groups.max()) + 1, int(codes.max()) + 1
    held = np.zeros((count, values), dtype=bool)
    held[groups, codes] = True
    return np.asarray(held.sum(axis=1) == 1)
