"""Counterfactual records: another value of one attribute, all else unchanged."""

from dataclasses import replace

import torch
from torch import Tensor

from leakgauge.core.checks import InputError, nearest, require
from leakgauge.core.types import Column, Dataset


def with_value(data: Dataset, name: str, value: int) -> Dataset:
    """Return the records with one attribute set to the same value in each of them.

    A number that was cut into ranges gets the typical number of the range.

    Args:
        data: encoded records, with a schema that names the attribute among its columns.
        name: the attribute.
        value: code of the value for a secret, else the position of the category.

    Returns:
        New records; all other features and the labels are unchanged.

    Raises:
        InputError: the schema does not say which positions or which value the attribute has.

    >>> from leakgauge.core.types import Schema
    >>> sex = Column("sex", "category", 1, 3, ("f", "m"))
    >>> schema = Schema((sex,), "ill", ("0", "1"), {"sex": ("f", "m")})
    >>> x, codes = torch.tensor([[9.0, 0.0, 1.0]]), torch.tensor([1])
    >>> with_value(Dataset(x, codes, {"sex": codes}, schema=schema), "sex", 0).x.tolist()
    [[9.0, 1.0, 0.0]]
    """
    column = column_of(data, name)
    assert data.schema is not None
    names = data.schema.secrets.get(name, column.categories)
    require(
        0 <= value < len(names),
        f"value {value} of {name!r} has no name; expected a code below {len(names)}",
    )
    x = data.x.clone()
    x[:, column.start : column.stop] = _encoded(column, value, names[value]).to(x)
    secrets = dict(data.secrets)
    if name in secrets:
        secrets[name] = torch.full_like(secrets[name], value)
    return replace(data, x=x, secrets=secrets)


def with_own_values(data: Dataset, name: str) -> Dataset:
    """Return the records with a number of an attribute replaced by the typical one of its range.

    The records stay unchanged if the attribute was not cut into ranges.

    Raises:
        InputError: as for ``with_value``.
    """
    if not column_of(data, name).typical:
        return data
    x, codes = data.x.clone(), data.secrets[name]
    for value in range(int(codes.max()) + 1):
        rows = codes == value
        x[rows] = with_value(data, name, value).x[rows]
    return replace(data, x=x)


def column_of(data: Dataset, name: str) -> Column:
    """Return the encoded column of an attribute.

    Raises:
        InputError: the records have no schema, or the attribute is not one of their features.
    """
    known = [] if data.schema is None else [column.name for column in data.schema.columns]
    hint = nearest(name, known) if known else ""
    require(
        name in known,
        f"other values are asked for of {name!r}, but the data do not say where it stands among "
        f"the features{hint}; it has to be a column of a table, and a secret has to be kept",
    )
    assert data.schema is not None
    return data.schema.column(name)


def _encoded(column: Column, value: int, name: str) -> Tensor:
    if not column.typical:
        return encode_value(column, name)
    encoded = torch.zeros(column.stop - column.start, dtype=torch.float64)
    encoded[0] = column.typical[value]
    return encoded


def encode_value(column: Column, value: str) -> Tensor:
    """Return one value, encoded ``[stop - start]`` as ``leakgauge.data.encode`` encodes it.

    Raises:
        InputError: the column holds numbers, and the value is not a number.

    >>> encode_value(Column("age", "number", 0, 2, missing=True, mean=40.0, scale=10.0), "25")
    tensor([-1.5000,  0.0000], dtype=torch.float64)
    """
    encoded = torch.zeros(column.stop - column.start, dtype=torch.float64)
    if column.kind == "category":
        if value in column.categories:  # other values occur in no private record and give zeros
            encoded[column.categories.index(value)] = 1.0
        return encoded
    try:
        encoded[0] = (float(value) - column.mean) / column.scale
    except ValueError:
        raise InputError(
            f"{column.name!r} was cut into ranges, and {value!r} does not say which number to fill "
            "in; cut it into no ranges"
        ) from None
    return encoded
