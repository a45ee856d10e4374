"""Numbers as a file gives them, without repair: the cells of a grid share these types."""

from typing import Annotated

import pydantic
from pydantic_core import PydanticCustomError

Whole = Annotated[int, pydantic.Strict()]
"""A whole number; 2.0 and "2" are none."""


def _no_truth(value: object) -> object:
    if isinstance(value, bool):
        raise PydanticCustomError("number", "expected a number")
    return value


Real = Annotated[float, pydantic.BeforeValidator(_no_truth)]
"""A number, whole or not; true is none. YAML takes 1e-4, without a point, for text."""

Finite = Annotated[Real, pydantic.Field(allow_inf_nan=False)]
"""A number that is neither infinite nor NaN."""

Truth = Annotated[bool, pydantic.Strict()]
"""True or false; "yes" and 1 are neither."""
