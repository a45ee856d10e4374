"""Types of settings that refuse values of another type instead of converting them."""

from typing import Annotated

import pydantic
from pydantic_core import PydanticCustomError

Whole = Annotated[int, pydantic.Strict()]
"""A whole number; refuses 2.0 and "2"."""


def _no_truth(value: object) -> object:
    if isinstance(value, bool):
        raise PydanticCustomError("number", "expected a number")
    return value


Real = Annotated[float, pydantic.BeforeValidator(_no_truth)]
"""A number, whole or not; refuses true. YAML reads 1e-4, without a point, as text."""

Finite = Annotated[Real, pydantic.Field(allow_inf_nan=False)]
"""A number that is neither infinite nor NaN."""

Truth = Annotated[bool, pydantic.Strict()]
"""True or false; refuses "yes" and 1."""
