"""The advice in words: it never claims what its own figures contradict."""

import pytest

from leakgauge.layers.report.rows import Advice
from leakgauge.layers.report.wording import advice_text
from leakgauge.results.measurements import Estimate

LITTLE, MUCH = Estimate(0.02, 0.0, 0.08, 500), Estimate(0.35, 0.1, 0.6, 500)


@pytest.mark.parametrize(("left", "holds"), [(LITTLE, True), (MUCH, False)])
def test_no_layer_to_protect_is_said_with_what_private_batches_show(left, holds) -> None:
    advice = Advice("hide", (), 0.1, left, left, "logistic")
    assert advice.holds == holds
    text = advice_text(advice, [])
    assert ("No layer needs protection" in text) == holds
    assert ("more than 0.1" in text) == (not holds)
