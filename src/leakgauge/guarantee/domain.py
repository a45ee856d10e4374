"""The places where a crafted record may lie."""

from typing import Literal

Domain = Literal["free", "box", "valid"]
"""``"free"``: anywhere, as the paper seems to allow. ``"box"``: each position within the range
that the data show. ``"valid"``: every original column has a value that occurs in the data."""

FREE: Domain = "free"
