"""Warnings of Opacus and its accountants in correct trainings."""

import pytest

QUIET = [
    pytest.mark.filterwarnings("ignore:Secure RNG turned off"),
    pytest.mark.filterwarnings("ignore:Using a non-full backward hook"),
    pytest.mark.filterwarnings("ignore:Full backward hook"),
    pytest.mark.filterwarnings("ignore:Optimal order"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
