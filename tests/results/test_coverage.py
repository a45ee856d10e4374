"""At least 93 % of 95 % intervals hold the truth; fewer data sets by default."""

import pytest

from support.coverage import CASES, coverage

QUICK = {
    "40 members, 40 others, strong leak": 60,
    "200 and 200, nearly perfect": 40,
    "8 records": 300,
    "8 records, 3 starts that differ by 3 dB": 300,
    "8 records, 3 starts alike": 300,
    "16 records, 90 % rebuilt": 300,
    "200 and 200 trials, mu 1": 300,
}
"""Numbers of data sets, by case."""


@pytest.mark.calibration
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(one, marks=pytest.mark.slow) if one == "200 and 200, nearly perfect" else one
        for one in QUICK
    ],
)
def test_intervals_hold_the_truth(case: str) -> None:
    """An interval of 95 % holds it in 88 % of 40 or more sets with a probability of 98 %."""
    for name, share in coverage(case, QUICK[case]).items():
        assert share >= 0.88, name


@pytest.mark.slow
@pytest.mark.calibration
@pytest.mark.parametrize("case", CASES)
def test_300_data_sets_of_each_kind(case: str) -> None:
    for name, share in coverage(case, 300).items():
        assert share >= 0.93, name
