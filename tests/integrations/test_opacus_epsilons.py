"""Are the fast epsilons of counted steps those of Opacus' own accountants?"""

import warnings

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from opacus.accountants import create_accountant

from leakgauge.integrations.opacus_epsilons import Steps, prv_epsilon, renyi_epsilon
from support.opacus_warnings import QUIET

pytestmark = QUIET

CASES: tuple[Steps, ...] = (
    ((1.0, 0.1, 30),),
    ((0.5, 0.1, 30),),
    ((3.0, 0.01, 1000),),
    ((1.0, 0.1, 20), (2.0, 0.05, 10)),
)


def by_opacus(kind: str, steps: Steps, delta: float, **more: float) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        accountant = create_accountant(kind)
        accountant.history = list(steps)
        return float(accountant.get_epsilon(delta, **more))


@pytest.mark.parametrize("steps", CASES)
@pytest.mark.parametrize("delta", [1e-5, 0.1])
def test_the_epsilon_of_privacy_losses_is_that_of_opacus(steps: Steps, delta: float) -> None:
    theirs = by_opacus("prv", steps, delta, eps_error=0.02)
    assert prv_epsilon(steps, delta, 0.02) == pytest.approx(theirs, abs=0.005)


@pytest.mark.parametrize("steps", CASES)
@pytest.mark.parametrize("delta", [1e-5, 0.1])
def test_fewer_orders_are_a_bound_that_is_little_larger(steps: Steps, delta: float) -> None:
    theirs = by_opacus("rdp", steps, delta)
    assert theirs - 1e-9 <= renyi_epsilon(steps, delta) <= theirs + 0.1 * abs(theirs)
