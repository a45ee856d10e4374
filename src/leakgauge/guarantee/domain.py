"""The places where a crafted record may lie."""

from typing import Literal

Domain = Literal["box", "free", "valid"]
"""``"box"``: each position within the range that the data show. ``"free"``: anywhere. ``"valid"``:
every original column has a value that occurs in the data."""

BOX: Domain = "box"
"""The default. The paper states no domain; its Figure 8 fits this one, as the distances of records
in ``"free"`` are larger than its epsilons allow."""
