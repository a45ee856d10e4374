"""The accountants against closed forms, literal integrals and other libraries' figures."""

import logging
import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

from leakgauge.core.checks import InputError
from leakgauge.privacy import accounting
from support.references import accounting as literal

Floats = NDArray[np.float64]

OPACUS_RDP = 7.32911117143
"""Opacus' RDP accountant: noise multiplier 1.5, rate 0.04, delta 1e-5, 2250 steps."""

OPACUS_PRV = 6.777395712150674
"""Opacus' PRV accountant, 2249 steps: an upper end, 0.01 above its point estimate."""

OPACUS_ORDERS = [1 + x / 10 for x in range(1, 100)] + list(range(12, 64))


def literal_renyi(order: float, rate: float, noise_multiplier: float) -> float:
    """Renyi divergence of one step, by a sum over a fine grid (smooth, so nearly exact)."""
    z, width = np.linspace(-40, 80, 100_001, retstep=True)
    noise = stats.norm.logpdf(z, scale=noise_multiplier)
    mixed = np.logaddexp(
        math.log1p(-rate), math.log(rate) + (2 * z - 1) / (2 * noise_multiplier**2)
    )
    return float(special.logsumexp(noise + order * mixed) + math.log(width)) / (order - 1)


def literal_epsilon(rate: float, noise_multiplier: float, steps: int, delta: float) -> float:
    """Best over Opacus' orders (Canonne, Kamath and Steinke 2020, Proposition 12)."""
    return min(
        steps * literal_renyi(order, rate, noise_multiplier)
        + math.log1p(-1 / order)
        - math.log(delta * order) / (order - 1)
        for order in OPACUS_ORDERS
        if 2 < order < 10
    )


# --- one release ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sensitivity", "sigma", "epsilon", "error"),
    [(2.0, 0.1, 284.39, 0.01), (1.0, 1.0, 4.377178, 1e-6), (3.0, 3.0, 4.377178, 1e-6)],
)
def test_known_epsilons(sensitivity: float, sigma: float, epsilon: float, error: float) -> None:
    found = accounting.epsilon_gaussian(sensitivity, sigma, 1e-5)
    assert found.value == pytest.approx(epsilon, abs=error)
    assert found.valid


@pytest.mark.parametrize("mu", [0.05, 0.5, 1.0, 4.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 5.0])
def test_delta_is_the_integral(mu: float, epsilon: float) -> None:
    expected = literal.delta_gaussian(epsilon, mu)
    assert accounting.delta_gaussian(epsilon, mu) == pytest.approx(expected, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 20.0, 300.0, 1e4])
@pytest.mark.parametrize("delta", [1e-300, 1e-12, 1e-5, 0.1, 0.999])
def test_epsilon_inverts_delta(mu: float, delta: float) -> None:
    epsilon = accounting.epsilon_gaussian(mu, 1.0, delta).value
    assert math.isfinite(epsilon)
    reached = accounting.delta_gaussian(epsilon, mu)
    if epsilon == 0:
        assert reached <= delta
    else:
        assert reached == pytest.approx(delta, rel=1e-4)


def test_huge_epsilon_has_the_normal_limit() -> None:
    """For mu of 1e6 the second term is lost: epsilon = mu^2 / 2 - mu Phi^-1(delta)."""
    mu, delta = 1e6, 1e-5
    expected = mu * mu / 2 - mu * special.ndtri(delta)
    assert accounting.epsilon_gaussian(mu, 1.0, delta).value == pytest.approx(expected, rel=1e-9)


def test_noise_beyond_all_reason_is_told_in_numbers() -> None:
    """Where rounding leaves nothing, epsilon is 0, or the bound that holds for any."""
    assert accounting.epsilon_gaussian(1.0, 1e17, 1e-5).value == 0
    assert accounting.epsilon_gaussian(1e18, 1.0, 1e-5).value == pytest.approx(5e35, rel=1e-9)


def test_delta_ends() -> None:
    assert accounting.delta_gaussian(0.0, 1e-17) == 0.0
    assert accounting.delta_gaussian(0.0, 1.0) == pytest.approx(2 * stats.norm.cdf(0.5) - 1)
    assert accounting.delta_gaussian(1e6, 1.0) == 0.0
    assert accounting.delta_gaussian(0.0, 100.0) == pytest.approx(1.0)
    assert accounting.delta_gaussian(1e-3, 1e-9) == 0.0


@pytest.mark.parametrize("delta", [1e-10, 1e-5, 1e-2, 0.3])
def test_classic_holds_where_it_says_so(delta: float) -> None:
    for epsilon in np.linspace(0.01, 1.0, 25):
        sigma = math.sqrt(2 * math.log(1.25 / delta)) / epsilon * (1 + 1e-12)
        classic = accounting.epsilon_classic(1.0, sigma, delta)
        assert classic.value == pytest.approx(epsilon)
        assert classic.valid
        assert accounting.epsilon_gaussian(1.0, sigma, delta).value <= classic.value


def test_classic_is_marked_and_wrong_where_it_is_not_proven() -> None:
    """The paper's sigma of 0.1 at clip 2: the formula promises less than the truth."""
    classic = accounting.epsilon_classic(2.0, 0.1, 1e-5)
    assert classic.value == pytest.approx(20 * math.sqrt(2 * math.log(125_000)))
    assert not classic.valid
    assert classic.value < accounting.epsilon_gaussian(2.0, 0.1, 1e-5).value


# --- a run ----------------------------------------------------------------------------------------


def test_rdp_figure_of_opacus() -> None:
    """The true minimum over the orders is Opacus' figure; dp-accounting's is a hair above."""
    truth = literal_epsilon(0.04, 1.5, 2250, 1e-5)
    assert truth == pytest.approx(OPACUS_RDP, abs=1e-9)
    ours = accounting.epsilon_composed(1.5, 0.04, 2250, 1e-5, accountant="rdp")
    assert ours.method == "rdp"
    assert truth <= ours.value <= truth + 3e-4
    assert ours.value == pytest.approx(7.329335, abs=1e-6)


def test_prv_figure_of_opacus() -> None:
    ours = accounting.epsilon_composed(1.5, 0.04, 2249, 1e-5).value
    assert OPACUS_PRV - 0.011 <= ours <= OPACUS_PRV


@pytest.mark.parametrize("noise_multiplier", [0.05, 0.2, 1.0, 5.0])
@pytest.mark.parametrize("steps", [1, 10])
def test_whole_batches_have_a_closed_form(noise_multiplier: float, steps: int) -> None:
    """Without sampling, T steps are one release with sqrt(T) times the sensitivity."""
    exact = accounting.epsilon_gaussian(math.sqrt(steps), noise_multiplier, 1e-5).value
    tight = accounting.epsilon_composed(noise_multiplier, 1.0, steps, 1e-5).value
    loose = accounting.epsilon_composed(noise_multiplier, 1.0, steps, 1e-5, accountant="rdp").value
    assert exact * (1 - 1e-6) <= tight <= exact * (1 + 1e-3)
    assert exact <= loose <= exact * 1.12 + 1e-9


@pytest.mark.parametrize("noise", [2.0, pytest.param(0.5, marks=pytest.mark.slow)])
def test_one_sampled_step_has_a_closed_form(noise: float) -> None:
    """Amplification by sampling (Balle, Barthe and Gaboardi 2018): delta = q delta(e')."""
    rate, delta = 0.1, 1e-5
    whole = accounting.epsilon_gaussian(1.0, noise, delta / rate).value
    exact = math.log1p(rate * math.expm1(whole))
    assert accounting.epsilon_composed(noise, rate, 1, delta).value == pytest.approx(
        exact, rel=1e-4
    )


def test_more_noise_fewer_records_fewer_steps_cost_less() -> None:
    base = accounting.epsilon_composed(4.0, 0.1, 10, 1e-5).value
    assert accounting.epsilon_composed(8.0, 0.1, 10, 1e-5).value < base
    assert accounting.epsilon_composed(4.0, 0.05, 10, 1e-5).value < base
    assert accounting.epsilon_composed(4.0, 0.1, 5, 1e-5).value < base


@pytest.mark.parametrize("noise_multiplier", [1e-3, 1e-2, 0.4])
def test_no_noise_to_speak_of_gives_a_number_not_an_error(noise_multiplier: float) -> None:
    tight = accounting.epsilon_composed(noise_multiplier, 0.01, 1000, 1e-5).value
    loose = accounting.epsilon_composed(noise_multiplier, 0.01, 1000, 1e-5, accountant="rdp").value
    assert 0 < tight <= loose


def test_left_out_orders_are_not_shouted(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    level = logging.getLogger("absl").level
    accounting.epsilon_composed(1.0, 0.5, 10, 1e-5, accountant="rdp")
    assert caplog.records == []
    assert capfd.readouterr().err == ""
    assert logging.getLogger("absl").level == level


# --- the paper's noise ----------------------------------------------------------------------------


def test_noise_multiplier_by_simulation() -> None:
    """Noise sigma / sqrt(k) on the mean of k, counted on the sum and in clipping norms."""
    sigma, clip, k = 0.1, 2.0, 16
    rng = np.random.default_rng(0)
    on_mean = rng.normal(scale=sigma / math.sqrt(k), size=200_000)
    on_sum = k * on_mean
    found = accounting.noise_multiplier_of(sigma, clip, k)
    assert on_sum.std() / clip == pytest.approx(found, rel=0.01)
    assert found == pytest.approx(0.2)


def test_one_step_is_the_same_seen_on_the_mean() -> None:
    sigma, clip, k = 0.1, 2.0, 16
    seen = accounting.epsilon_gaussian(clip / k, sigma / math.sqrt(k), 1e-5).value
    mapped = 1 / accounting.noise_multiplier_of(sigma, clip, k)
    assert accounting.epsilon_gaussian(mapped, 1.0, 1e-5).value == pytest.approx(seen)


REFUSALS: list[tuple[Callable[[], object], str]] = [
    (lambda: accounting.epsilon_classic(0.0, 1.0, 1e-5), "sensitivity is 0"),
    (lambda: accounting.epsilon_gaussian(1.0, -1.0, 1e-5), "sigma is -1"),
    (lambda: accounting.epsilon_gaussian(1.0, math.inf, 1e-5), "sigma is inf"),
    (lambda: accounting.epsilon_gaussian(1.0, 1.0, 0.0), "delta is 0"),
    (lambda: accounting.epsilon_classic(1.0, 1.0, 1.0), "delta is 1"),
    (lambda: accounting.delta_gaussian(-1.0, 1.0), "epsilon is -1"),
    (lambda: accounting.delta_gaussian(1.0, 0.0), "mu is 0"),
    (lambda: accounting.noise_multiplier_of(0.0, 1.0, 4), "sigma is 0"),
    (lambda: accounting.noise_multiplier_of(1.0, 0.0, 4), "clip is 0"),
    (lambda: accounting.noise_multiplier_of(1.0, 1.0, 0), "batch size is 0"),
    (lambda: accounting.epsilon_composed(0.0, 0.1, 1, 1e-5), "noise multiplier is 0"),
    (lambda: accounting.epsilon_composed(1.0, 1.1, 1, 1e-5), "sampling rate is 1.1"),
    (lambda: accounting.epsilon_composed(1.0, 0.1, 0, 1e-5), "steps is 0"),
    (lambda: accounting.epsilon_composed(1.0, 0.1, 1, math.nan), "delta is nan"),
    (
        lambda: accounting.epsilon_composed(1.0, 0.1, 1, 1e-5, accountant="pdl"),  # type: ignore[arg-type]
        "did you mean 'pld'",
    ),
]


@pytest.mark.parametrize(("call", "words"), REFUSALS, ids=[words for _, words in REFUSALS])
def test_bad_input_is_refused_in_one_line(call: Callable[[], object], words: str) -> None:
    with pytest.raises(InputError, match=words) as refusal:
        call()
    assert "\n" not in str(refusal.value)
