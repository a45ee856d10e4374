"""The script that prints Table 1 of Li et al. (2024)."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from leakgauge.core.checks import InputError

SCRIPT = Path(__file__).parents[2] / "experiments" / "ccs24" / "table1.py"


@pytest.fixture
def table1() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("table1", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["table1"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["table1"]


def test_the_correlation_is_that_of_codes(table1: ModuleType) -> None:
    """Expected by hand: for codes 0 0 1 1 and 0 1 1 1, 0.5 / sqrt(1 * 0.75); and for 0 2 2 2."""
    frame = pd.DataFrame({"y": ["a", "a", "b", "b"], "s": ["f", "m", "m", "m"]})
    row = table1.Row("d", "y", ("a", "b"), "s", ("f", "m"), 0.0)
    assert table1.correlation(row, frame) == pytest.approx(0.5 / 0.75**0.5)
    other = table1.Row("d", "y", ("a", "b"), "s", ("m", "f"), 0.0)
    assert table1.correlation(other, frame) == pytest.approx(-0.5 / 0.75**0.5)


def test_a_missing_value_is_unknown_and_another_one_refused(table1: ModuleType) -> None:
    frame = pd.DataFrame({"y": [0, 0, 1, 1], "s": ["f", "m", None, None]})
    row = table1.Row("d", "y", ("0", "1"), "s", ("m", "f", "unknown"), 0.0)
    assert table1.correlation(row, frame) == pytest.approx(1.5 / (1 * 2.75) ** 0.5)
    with pytest.raises(InputError, match="'s' has values other than m, f: unknown"):
        table1.correlation(table1.Row("d", "y", ("0", "1"), "s", ("m", "f"), 0.0), frame)
