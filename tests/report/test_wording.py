"""Numbers in reports have no more digits than an interval supports."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakgauge.report.wording import number, percent

SHARES = st.floats(0, 1) | st.floats(0, 1e-3) | st.floats(0, 1e-3).map(lambda x: 1 - x)


@given(SHARES)
@pytest.mark.parametrize(("shown", "decimals", "scale"), [(number, 3, 1), (percent, 1, 100)])
def test_a_share_has_few_decimals_and_is_certain_only_where_it_is(shown, decimals, scale, share):
    text = shown(share)
    word, figure = re.fullmatch(r"(over |below )?([0-9.]+)( %)?", text).groups()[:2]
    assert len(figure.partition(".")[2]) <= decimals
    stated, exact = float(figure), scale * share
    if word is None:
        assert abs(stated - exact) <= 0.5 * 10**-decimals + 1e-9
        assert (stated in (0, scale)) <= (exact == stated)
    else:
        assert stated < exact if word == "over " else exact < stated
