"""What differs between two runs, in words for a user."""

import re
from typing import Any

_DIGEST = re.compile("[0-9a-f]{64}")
_CONTENT = {
    "fingerprint": "the data",
    "files": "a file that the settings name",
    "lpips": "the weights of LPIPS",
}
"""Names for a user, by names of digests."""


def first_difference(there: Any, here: Any, where: str = "") -> str | None:
    """Return the first difference of two plain values in words; digests are of changed content.

    >>> first_difference({"seed": 0}, {"seed": 1})
    'seed is 0 there, 1 here'
    >>> first_difference({"fingerprint": "0" * 64}, {"fingerprint": "1" * 64})
    'the content of the data changed'
    """
    if isinstance(there, dict) and isinstance(here, dict):
        for key in [*there, *(key for key in here if key not in there)]:
            difference = first_difference(there.get(key), here.get(key), str(key))
            if difference:
                return difference
        return None
    if there == here:
        return None
    if all(isinstance(one, str) and _DIGEST.fullmatch(one) for one in (there, here)):
        return f"the content of {_CONTENT.get(where, where)} changed"
    return f"{where} is {there!r} there, {here!r} here"
