"""Versions of a record that differ in one attribute."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.checks import InputError, require, require_count, require_known
from leakgauge.core.types import Column, Dataset
from leakgauge.data.counterfactual import column_of, encode_value
from leakgauge.data.decode import number_text


@dataclass(frozen=True, eq=False)
class Attribute:
    """An original column, a record's own value of it, and the values that replace it.

    Attributes:
        column: the column's place in ``x``.
        values: the m values as written in the table: the record's own (H0), then the new ones; a
            release under H1 has one of them.
        codes: encoding of each value ``[m, stop - start]``.
        among: N, the number of original columns of a record, including this one.
    """

    column: Column
    values: tuple[str, ...]
    codes: Tensor
    among: int

    def versions(self, x: Tensor) -> Tensor:
        """Return records ``x [..., F]`` with each value filled in ``[..., m, F]``.

        A category replaces its whole one-hot group.
        """
        each = torch.stack([x] * len(self.values), dim=-2)
        place = slice(self.column.start, self.column.stop)
        before, after = each[..., : place.start], each[..., place.stop :]
        codes = self.codes.to(x).expand(*each.shape[:-1], -1)
        return torch.cat([before, codes, after], dim=-1)


@dataclass(frozen=True, eq=False)
class NeighbourPair:
    """A record and the attribute that an auditor infers (Li et al., Definition 7.2).

    Attributes:
        x: features ``[F]``; the values at the attribute's positions do not matter.
        y: the label, a scalar int64.
        attribute: the attribute, the record's own value and the new ones.
        origin: ``"random"``, or how the record was crafted.
    """

    x: Tensor
    y: Tensor
    attribute: Attribute
    origin: str = "random"

    def versions(self) -> tuple[Tensor, Tensor]:
        """Return the record with its own value, then with each new one: ``x [m, F]``, ``y [m]``."""
        return self.attribute.versions(self.x), self.y.expand(len(self.attribute.values))


def attribute_of(
    data: Dataset,
    name: str,
    *,
    values: tuple[str, ...] | None = None,
    rng: np.random.Generator | None = None,
) -> Attribute:
    """Return an attribute with the record's own value and new ones.

    Args:
        data: encoded records, with the attribute among the features.
        name: the column.
        values: the record's own value, then the new ones; None draws the own value, and all other
            values in the data are new. The paper's attributes are discrete: a numeric column gets
            two drawn values.
        rng: draws the values.

    Raises:
        InputError: the attribute is not a feature, has a single value, or lacks a given value.
    """
    column = column_of(data, name)
    known = _seen(data, column)
    require(
        len(known) > 1,
        f"{name!r} has one value only in these records, {known[0] if known else 'missing'!r}; "
        "an audit needs two values",
    )
    if values is None:
        if rng is None:
            raise InputError(f"no values of {name!r} are given; pass two of them, or an rng")
        order = rng.permutation(len(known)).tolist()
        values = tuple(known[one] for one in (order[:2] if column.kind == "number" else order))
    for value in values:
        require_known(value, known, f"no record has {value!r} as its {name!r}")
    require(
        len(values) > 1 and len(set(values)) == len(values),
        f"the versions have {', '.join(map(repr, values))} as their {name!r}; expected two or "
        "more different values",
    )
    codes = torch.stack([encode_value(column, value) for value in values])
    assert data.schema is not None
    return Attribute(column, values, codes, len(data.schema.columns))


def choose_pairs(
    data: Dataset, name: str, count: int, *, rng: np.random.Generator
) -> list[NeighbourPair]:
    """Return random records of the data, each with its own value (H0) and others (H1).

    The new values are all others in the data; a numeric column has one, drawn at random.

    Args:
        data: the private records, encoded, with the attribute among the features.
        name: the attribute, an original column of categories or of numbers.
        count: number of different records.
        rng: draws the records, and the other value of a number.

    Raises:
        InputError: as for ``attribute_of``, or too few records have a value.
    """
    require_count(count, "number of pairs")
    column = column_of(data, name)
    usable = torch.nonzero(_present(data, column)).flatten().cpu().numpy()
    require(
        count <= len(usable),
        f"{count} records are requested; {len(usable)} have a known value of {name!r}",
    )
    known = _seen(data, column)
    pairs = []
    for row in rng.permutation(usable)[:count].tolist():
        own = _value(column, data.x[row])
        others = [value for value in known if value != own]
        if column.kind == "number" and others:
            others = [others[int(rng.integers(len(others)))]]
        attribute = attribute_of(data, name, values=(own, *others))
        pairs.append(NeighbourPair(data.x[row], data.y[row], attribute))
    return pairs


def _present(data: Dataset, column: Column) -> Tensor:
    """Return whether each record has a known value in the column ``[n]``."""
    block = data.x[:, column.start : column.stop]
    if column.kind == "category":
        return block[:, : len(column.categories)].sum(dim=1) == 1
    return block[:, -1] == 0 if column.missing else torch.ones_like(data.y, dtype=torch.bool)


def _seen(data: Dataset, column: Column) -> list[str]:
    """Return the values that occur in the data, in order."""
    block = data.x[_present(data, column), column.start : column.stop]
    if column.kind == "category":
        return [name for at, name in enumerate(column.categories) if bool(block[:, at].any())]
    return list(dict.fromkeys(_number(column, float(one)) for one in torch.unique(block[:, 0])))


def _value(column: Column, x: Tensor) -> str:
    block = x[column.start : column.stop]
    if column.kind == "category":
        return column.categories[int(block[: len(column.categories)].argmax())]
    return _number(column, float(block[0]))


def _number(column: Column, standardised: float) -> str:
    return number_text(standardised * column.scale + column.mean, column)
