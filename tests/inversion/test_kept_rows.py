"""Rows of a table, true and rebuilt, as the report shows them: numbers without rounding errors."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from leakgauge.core.types import Column, Schema
from leakgauge.inversion.run.kept import _texts

CENTS = st.integers(-99_999, 99_999).map(lambda cents: cents / 100)


def shown(value: float, *, mean: float, scale: float, noise: float = 0.0, rebuilt: bool) -> float:
    schema = Schema((Column("a", "number", 0, 1, mean=mean, scale=scale),), "y", (), {})
    x = torch.tensor([[(value - mean) / scale + noise]], dtype=torch.float32)
    return float(_texts(x, schema, rebuilt=rebuilt)[0]["a"])


@given(value=CENTS, mean=st.floats(-1000, 1000), scale=st.floats(0.01, 300))
def test_a_number_of_the_table_is_shown_as_it_was(value: float, mean: float, scale: float) -> None:
    assert shown(value, mean=mean, scale=scale, rebuilt=False) == value


@pytest.mark.parametrize("noise", [0.0, 7.23e-8, -2e-7])
@pytest.mark.parametrize(("mean", "scale"), [(1.0, 1.0), (38.6, 13.7), (1e-3, 0.5), (1.9e5, 1e5)])
def test_a_rebuilt_0_is_0(noise: float, mean: float, scale: float) -> None:
    text = _texts(
        torch.tensor([[np.float32(-mean / scale + noise)]]),
        Schema((Column("a", "number", 0, 1, mean=mean, scale=scale),), "y", (), {}),
        rebuilt=True,
    )
    assert text == [{"a": "0"}]
