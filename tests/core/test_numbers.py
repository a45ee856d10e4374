"""Numbers in text: the digits 0 to 9, finite, and not too many."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge.core.checks import InputError
from leakgauge.core.numbers import read_number


@settings(max_examples=100, deadline=None)
@given(st.integers(-(10**30), 10**30), st.floats(allow_nan=False, allow_infinity=False))
def test_what_python_writes_is_read(whole: int, real: float) -> None:
    assert read_number(f" {whole} ", int, "n") == whole
    assert read_number(repr(real), float, "x") == real


OTHERS = ("٣", "²", "1_000", "nan", "inf", "-inf", "1e400", "0x10", "", "1,5", "9" * 5000, "1 2")


@pytest.mark.parametrize("text", OTHERS)
@pytest.mark.parametrize("kind", [int, float])
def test_other_forms_are_refused_in_a_short_line(text: str, kind: type) -> None:
    with pytest.raises(InputError, match=r"^n is .*; expected a (whole )?number$") as refused:
        read_number(text, kind, "n")
    assert len(str(refused.value)) < 120


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=6) | st.text("0123456789.eE+-_٣ \n", max_size=8))
def test_any_text_is_a_finite_number_or_refused(text: str) -> None:
    for kind in (int, float):
        try:
            found = read_number(text, kind, "n")
        except InputError:
            continue
        assert type(found) is kind
        assert found == kind(text)
        assert text.isascii()
