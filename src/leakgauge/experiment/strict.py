"""Numbers as a file gives them, without repair: the cells of a grid share these types."""

from typing import Annotated

import pydantic

Whole = Annotated[int, pydantic.Strict()]
"""A whole number; 2.0 and "2" are none."""
