"""Check a user's table and turn it into features, labels, secrets and users."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from leakgauge.core.checks import require, require_known
from leakgauge.data.columns import (
    categories,
    kind_of,
    name_of,
    numbers,
    numeric_label,
    quantile_bins,
    quoted,
    refuse_infinite,
    refuse_repeated,
    shape_of,
)
from leakgauge.data.features import features_of, merge, name_merged
from leakgauge.data.proxies import identifiers, proxies, repeated_rows, users_without_group
from leakgauge.data.tidying import alike
from leakgauge.data.written import is_written
from leakgauge.results.statistics import Bools, Floats, Ints

MOST_SECRET_VALUES = 10
MOST_CLASSES = 100


@dataclass(frozen=True)
class Roles:
    """The roles of a table's columns. Columns without a role are features.

    Attributes:
        label: the column that the model learns to predict.
        secrets: the columns that an adversary wants to know.
        group: the column that names the user of each row.
        drop: columns to leave out.
        bins: number of ranges into which to cut a label or secret of numbers; each range holds
            about equally many rows.
        merge_rare: values of the label or a secret with fewer rows than this are merged into one;
            rows of a label are left out if these are still fewer.
        numeric: whether the label stays a number, for a loss of numbers.

    Raises:
        InputError: one column has two roles, or a number of bins is not 2 to 100.
    """

    label: str
    secrets: tuple[str, ...] = ()
    group: str | None = None
    drop: tuple[str, ...] = ()
    bins: Mapping[str, int] = field(default_factory=dict)
    merge_rare: int = 0
    numeric: bool = False

    def __post_init__(self) -> None:
        for names, what in ((self.secrets, "secrets"), (self.drop, "drop")):
            require(not isinstance(names, str), f"{what} is {names!r}; expected ({names!r},)")
        require(self.label not in self.secrets, f"{self.label!r} is both the label and a secret")
        for name in self.coded:
            require(self.coded.count(name) == 1, f"the secret {name!r} is named twice")
            require(name != self.group, f"{name!r} is both the {self.role(name)} and the group")
            require(name not in self.drop, f"{name!r} is the {self.role(name)}; it is also dropped")
        require(self.group not in self.drop, f"{self.group!r} is the group; it is also dropped")
        for name, count in self.bins.items():
            require(name in self.coded, f"bins for {name!r}, which is neither label nor secret")
            fits = 2 <= count <= MOST_CLASSES
            require(fits, f"{count} bins for {name!r}; expected 2 to {MOST_CLASSES}")
        require(
            not self.numeric or self.label not in self.bins,
            f"the label {self.label!r} is cut into ranges by --bins, and --loss mse learns its "
            "numbers; leave one out",
        )

    @property
    def coded(self) -> tuple[str, ...]:
        """The columns that the model or an adversary predicts: the label, then the secrets."""
        return (self.label, *self.secrets)

    def role(self, name: str) -> str:
        """Return the role of a column: ``"label"``, ``"secret"`` or ``"group"``."""
        return "label" if name == self.label else "secret" if name in self.secrets else "group"


@dataclass(frozen=True, eq=False)
class Table:
    """A checked table before its encoding.

    Attributes:
        features: one column for each feature and each secret, in the original order: float64
            (NaN where missing) or categorical.
        label: the name of the label's column.
        y: labels ``[n]``: int64 codes, or float64 numbers for a numeric label.
        classes: the label's values by code; empty for a numeric label.
        secrets: each secret's codes ``[n]``, int64.
        values: each secret's values by code.
        users: the user of each row ``[n]``, int64 codes, or None.
        user_names: names of the users by code; empty without users.
        notes: changes to the data that users should know.
        warnings: columns that alone determine the answer to an audit's question, with advice.
        rows: position of each row in the user's table ``[n]``, counted from 0.
    """

    features: pd.DataFrame
    label: str
    y: Tensor
    classes: tuple[str, ...]
    secrets: Mapping[str, Tensor]
    values: Mapping[str, tuple[str, ...]]
    users: Tensor | None = None
    user_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    rows: Ints = field(default_factory=lambda: np.arange(0))

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        """Return a summary without rows and names of users."""
        secrets = f", secrets {quoted(self.secrets)}" if self.secrets else ""
        users = f", {len(self.user_names):,} users" if self.user_names else ""
        return f"<Table: {shape_of(self.features)}, label {self.label!r}{secrets}{users}>"


def make_table(frame: pd.DataFrame, roles: Roles, *, drop_missing: bool = False) -> Table:
    """Return a checked table with a role for each column.

    A note names each column that is left out: dates, a single value, row numbers, values that are
    neither numbers nor text, or nearly unique categories (different in more than half of the
    rows). Of over 200 categories the most frequent stay, and the others become one. Missing values
    of features stay; the encoding marks them. A group is compared as text: ``1.1`` and ``1.10`` of
    a file are two users.

    Args:
        frame: the table, one row for each record.
        roles: the roles of its columns.
        drop_missing: leave out rows without a label, a secret or a user instead of refusing them.

    Raises:
        InputError: the table does not fit the roles, or cannot be used.

    >>> frame = pd.DataFrame({"age": [20, 30, 40, 50], "sex": list("fmfm"), "ill": [0, 1, 1, 0]})
    >>> table = make_table(frame, Roles(label="ill", secrets=("sex",)))
    >>> table.values["sex"], table.secrets["sex"].tolist()
    (('f', 'm'), [0, 1, 0, 1])
    """
    frame = _named(frame, roles)
    count = len(frame)
    frame, notes = _complete(frame, roles, drop_missing=drop_missing)
    frame = _without_rare_label(frame, roles, notes)
    rows = frame.index.to_numpy()  # a table of 1,000,000 rows is copied only if some are left out
    frame = frame if len(rows) == count else frame.reset_index(drop=True)
    y, classes = _label(frame[roles.label], roles, notes)
    coded = {name: _coded(frame[name], roles, notes) for name in roles.secrets}
    for name in roles.coded:
        name_merged(frame[name], notes)
    others = [roles.label, *([roles.group] if roles.group is not None else [])]
    features = features_of(frame, secrets=roles.secrets, roles=others, notes=notes)
    for name in [*roles.coded, *features.columns.drop(list(roles.secrets))]:
        if same := alike(frame[name]):
            notes.append(
                f"column {name!r} has values that differ only in case or blanks: "
                f"{quoted(same[:6])}; merge them if they mean the same"
            )
    codes = {name: torch.tensor(one.codes, dtype=torch.int64) for name, one in coded.items()}
    values = {name: tuple(map(str, one.categories)) for name, one in coded.items()}
    secrets = {name: np.asarray(coded[name].codes, dtype=np.int64) for name in roles.secrets}
    warnings = [*proxies(features, (roles.label, y), secrets), *identifiers(features, secrets)]
    if roles.group is None:
        constant = secrets or ({roles.label: y} if classes else {})
        warnings += users_without_group(frame, constant, besides=set(roles.coded))
    users, user_names = (None, ()) if roles.group is None else _users(frame[roles.group])
    warnings += repeated_rows(features, y, None if users is None else users.numpy())
    return Table(
        features=features,
        label=roles.label,
        y=torch.tensor(y),
        classes=classes,
        secrets=codes,
        values=values,
        users=users,
        user_names=user_names,
        notes=tuple(notes),
        warnings=tuple(warnings),
        rows=rows,
    )


def _named(frame: pd.DataFrame, roles: Roles) -> pd.DataFrame:
    """Return the frame with text as column names and without the columns to drop."""
    names = [str(name) for name in frame.columns]
    require(len(names) > 0, "the table has no columns")
    require(len(frame) > 0, "the table is empty: it has columns but no rows")
    refuse_repeated(names, "the table")
    named = [("label", roles.label), *(("secret", name) for name in roles.secrets)]
    named += [("group", roles.group)] if roles.group is not None else []
    for role, name in [*named, *(("drop", name) for name in roles.drop)]:
        require_known(name, names, f"no column {name!r} for the {role}")
    kept = [at for at, name in enumerate(names) if name not in roles.drop]
    frame = frame.set_axis(names, axis=1)
    return (frame if len(kept) == len(names) else frame.iloc[:, kept]).reset_index(drop=True)


def _complete(
    frame: pd.DataFrame, roles: Roles, *, drop_missing: bool
) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows that have a label, all secrets and a user, and notes on the others."""
    notes = []
    whole = np.ones(len(frame), dtype=bool)
    for name in (*roles.coded, *([roles.group] if roles.group is not None else [])):
        missing = _missing(frame[name], is_name=name == roles.group)
        count = int(missing.sum())
        require(
            count == 0 or drop_missing,
            f"{roles.role(name)} {name!r} is missing in {count} of {len(frame)} rows; remove these "
            "rows or pass drop_missing=True (--drop-missing)",
        )
        if count:
            notes.append(f"{count} rows without a value of {name!r} were left out")
        whole &= ~missing
    require(bool(whole.any()), "no row has a label, all secrets and a group")
    return (frame if whole.all() else frame[whole]), notes


def _missing(column: "pd.Series[Any]", *, is_name: bool) -> Bools:
    if is_name and is_written(column):  # a word among numbers is a user's name
        return column.isna().to_numpy(dtype=bool)
    # A nullable column can hold NaN next to NA; as floats both are NaN.
    if kind_of(column) == "number":
        return np.isnan(numbers(column))
    return column.isna().to_numpy(dtype=bool)


def _label(
    column: "pd.Series[Any]", roles: Roles, notes: list[str]
) -> tuple[npt.NDArray[Any], tuple[str, ...]]:
    """Return the label's codes and their names, or its numbers and no names."""
    if roles.numeric:
        return numeric_label(column, notes), ()
    codes = _coded(column, roles, notes)
    return np.asarray(codes.codes, dtype=np.int64), tuple(map(str, codes.categories))


def _coded(column: "pd.Series[Any]", roles: Roles, notes: list[str]) -> "pd.Categorical[Any]":
    """Return the codes of the label or a secret."""
    name, kind = str(column.name), kind_of(column)
    what = f"{roles.role(name)} {name!r}"
    require(kind != "date", f"{what} holds dates; turn it into a few values first")
    if kind == "number":
        refuse_infinite(column, what)
    require(
        kind == "number" or name not in roles.bins,
        f"{what} is not a column of numbers to cut in bins",
    )
    codes = categories(column)
    if roles.merge_rare and name not in roles.bins:
        codes = _merged(codes, what, roles.merge_rare, notes)
    require(len(codes.categories) > 1, f"{what} has one value only, {quoted(codes.categories)}")
    if name in roles.bins:
        return _binned(numbers(column), what, roles.bins[name], notes)
    most = MOST_SECRET_VALUES if kind == "number" and name != roles.label else MOST_CLASSES
    other = ", or learn the number itself with --loss mse" if name == roles.label else ""
    _refuse_many(column, what, distinct=len(codes.categories), most=most, other=other)
    return codes


def _merged(
    codes: "pd.Categorical[Any]", what: str, fewest: int, notes: list[str]
) -> "pd.Categorical[Any]":
    """Return the codes with rare values merged into one, the last."""
    counts = np.bincount(codes.codes, minlength=len(codes.categories))
    rare = counts < fewest
    if not rare.any():
        return codes
    merged, gone = merge(codes, ~rare)
    notes.append(
        f"{what}: {len(gone)} values with fewer than {fewest} rows were merged into "
        f"{merged.categories[-1]!r}: {quoted(gone[:6])}"
    )
    return merged


def _without_rare_label(frame: pd.DataFrame, roles: Roles, notes: list[str]) -> pd.DataFrame:
    """Return the rows without labels that stay rare even when they are merged."""
    if not roles.merge_rare or roles.numeric or roles.label in roles.bins:
        return frame
    label = categories(frame[roles.label])
    counts = np.bincount(label.codes, minlength=len(label.categories))
    rare = counts < roles.merge_rare
    if not 0 < counts[rare].sum() < roles.merge_rare or rare.all():
        return frame
    gone = label.categories[rare]
    notes.append(
        f"{int(counts[rare].sum())} rows with rare values of label {roles.label!r} were left out, "
        f"as together they are fewer than {roles.merge_rare}: {quoted(gone[:6])}"
    )
    kept = np.flatnonzero(~rare[label.codes])
    return frame.iloc[kept]


def _refuse_many(
    column: "pd.Series[Any]", what: str, *, distinct: int, most: int, other: str
) -> None:
    if kind_of(column) != "number":
        require(
            distinct <= most,
            f"{what} has {distinct} different values; at most {most} can be used; merge some first",
        )
        return
    values = numbers(column)
    fraction = bool((values != np.floor(values)).any())
    require(
        not fraction and distinct <= most,
        f"{what} has {distinct} different numbers{', with fractions' if fraction else ''}; "
        f"cut it into N ranges with --bins {column.name}=N{other}",
    )


def _binned(values: Floats, what: str, bins: int, notes: list[str]) -> "pd.Categorical[Any]":
    ranges = quantile_bins(values, bins)
    count = len(ranges.categories)
    require(
        count > 1,
        f"{what} cannot be cut into {bins} ranges: {np.mean(values == values.max()):.0%} of its "
        "values are equal; ask for more bins",
    )
    fewer = "" if count == bins else f" ({bins} were asked for; equal values stay together)"
    notes.append(f"{what} was cut into {count} ranges{fewer}: {', '.join(ranges.categories)}")
    return ranges


def _users(column: "pd.Series[Any]") -> tuple[Tensor, tuple[str, ...]]:
    codes, uniques = pd.factorize(column)
    require(len(uniques) > 1, f"group {str(column.name)!r} has one value only, {quoted(uniques)}")
    return torch.tensor(codes, dtype=torch.int64), tuple(map(name_of, uniques))
