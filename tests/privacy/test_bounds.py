"""The bounds against numbers known on paper, other people's formulas, and a search for worse."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import integrate, optimize, stats

from leakgauge.core.checks import InputError
from leakgauge.privacy import bounds

Floats = NDArray[np.float64]


def uniform(classes: int) -> Floats:
    return np.full(classes, 1 / classes)


def symmetric(classes: int, error: float) -> Floats:
    """Right with probability 1 - error, else any of the other values."""
    channel = np.full((classes, classes), error / (classes - 1))
    np.fill_diagonal(channel, 1 - error)
    return channel


def erasure(classes: int, q: float) -> Floats:
    return np.hstack([(1 - q) * np.eye(classes), np.full((classes, 1), q)])


def best_success(channel: Floats, prior: Floats) -> float:
    """Of the adversary who knows everything: guess the most probable secret."""
    return float((prior[:, None] * channel).max(axis=0).sum())


def literal_information(channel: Floats, prior: Floats) -> float:
    total = 0.0
    for a, p_a in enumerate(prior):
        for g in range(channel.shape[1]):
            p_g = sum(prior[b] * channel[b, g] for b in range(len(prior)))
            if p_a * channel[a, g] > 0:
                total += p_a * channel[a, g] * math.log(channel[a, g] / p_g)
    return total


def fano(success: float, classes: int) -> float:
    """Eq. 5 as it is printed."""
    error = 1 - success
    entropy = stats.entropy([error, success])
    rest = error * math.log(classes - 1) if error > 0 else 0.0
    return float(math.log(classes) - entropy - rest)


@pytest.mark.parametrize(
    ("channel", "information", "exact", "paper"),
    [
        (symmetric(6, 0.3), 0.698064, 0.640000, 0.701350),
        (erasure(6, 0.5), 0.895880, 0.729750, 0.848842),
    ],
    ids=["symmetric", "erasure"],
)
def test_known_channels(channel: Floats, information: float, exact: float, paper: float) -> None:
    nats = bounds.mutual_information(channel, uniform(6))
    assert nats == pytest.approx(information, abs=1e-6)
    assert bounds.advantage_bound(nats, 6) == pytest.approx(exact, abs=1e-6)
    assert bounds.advantage_bound_paper(nats, 6) == pytest.approx(paper, abs=1e-6)


def test_two_values() -> None:
    nats = bounds.mutual_information(symmetric(2, 0.1), uniform(2))
    assert nats == pytest.approx(0.368064, abs=1e-6)
    assert bounds.advantage_bound(nats, 2) == pytest.approx(0.8, abs=1e-9)
    with pytest.raises(InputError, match="use advantage_bound"):
        bounds.advantage_bound_paper(nats, 2)


@pytest.mark.parametrize("classes", [2, 3, 6, 1000])
@pytest.mark.parametrize("error", [0.0, 1e-12, 1e-6, 0.1, 0.4])
def test_symmetric_channels_reach_the_bound(classes: int, error: float) -> None:
    nats = bounds.mutual_information(symmetric(classes, error), uniform(classes))
    assert bounds.success_bound(nats, classes) == pytest.approx(1 - error, abs=1e-9)


@pytest.mark.parametrize("classes", [2, 3, 10, 10**6])
def test_ends(classes: int) -> None:
    assert bounds.success_bound(0.0, classes) == 1 / classes
    for nats in (math.log(classes), math.log(classes) + 1, math.inf):
        assert bounds.success_bound(nats, classes) == pytest.approx(1.0, abs=1e-12)
        assert bounds.advantage_bound(nats, classes) == pytest.approx(1.0, abs=1e-12)
    assert bounds.success_bound(math.inf, classes) == 1.0
    assert bounds.information_from_success(1.0, classes) == pytest.approx(math.log(classes))


@pytest.mark.parametrize("nats", [1e-30, 1e-20, 1e-14, 1e-9])
def test_tiny_information_keeps_its_digits(nats: float) -> None:
    # d(q + g || q) = g^2 / (2 q (1 - q)) for small g
    gain = bounds.success_bound(nats, 4) - 0.25
    assert gain == pytest.approx(math.sqrt(2 * 0.25 * 0.75 * nats), rel=1e-3, abs=1e-15)


@given(st.integers(2, 2000), st.floats(0, 1))
def test_agrees_with_eq_5_and_inverts(classes: int, share: float) -> None:
    success = 1 / classes + share * (1 - 1 / classes)
    nats = bounds.information_from_success(success, classes)
    assert nats == pytest.approx(fano(success, classes), abs=1e-9)
    assert bounds.success_bound(nats, classes) == pytest.approx(success, abs=1e-9)


@given(st.integers(3, 50), st.floats(0, 1))
def test_closed_form_is_never_tighter(classes: int, share: float) -> None:
    nats = share * math.log(classes)
    exact = bounds.advantage_bound(nats, classes)
    assert bounds.advantage_bound_paper(nats, classes) >= exact - 1e-12


def test_closed_form_is_vacuous_one_bit_below_everything() -> None:
    nats = math.log(7) - math.log(2)
    assert bounds.advantage_bound_paper(nats, 7) == pytest.approx(1.0)
    assert bounds.advantage_bound(nats, 7) < 0.9


@pytest.mark.parametrize("sharpness", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("classes", [2, 3, 6])
def test_no_random_channel_beats_the_bound(classes: int, sharpness: float) -> None:
    rng = np.random.default_rng(classes)
    for observations in (2, 3, 8):
        for _ in range(100):
            rows = rng.dirichlet(np.full(observations, sharpness), size=classes)
            prior = rng.dirichlet(np.ones(classes))
            nats = bounds.mutual_information(rows, prior)
            assert nats == pytest.approx(literal_information(rows, prior), abs=1e-12)
            majority = float(prior.max())
            limit = bounds.success_bound(nats, classes, majority=majority)
            assert best_success(rows, prior) <= limit + 1e-9
            nats = bounds.mutual_information(rows, uniform(classes))
            reached = best_success(rows, uniform(classes))
            assert reached <= bounds.success_bound(nats, classes) + 1e-9
            assert bounds.information_from_success(reached, classes) <= nats + 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_no_searched_channel_beats_the_bound(seed: int) -> None:
    """The search drives success against the bound; it must get close and never above."""
    start = np.random.default_rng(seed).normal(size=9)

    def slack(logits: Floats) -> float:
        rows = np.exp(logits.reshape(3, 3))
        rows /= rows.sum(axis=1, keepdims=True)
        nats = bounds.mutual_information(rows, uniform(3))
        return bounds.success_bound(nats, 3) - best_success(rows, uniform(3))

    found = optimize.minimize(slack, start, method="Nelder-Mead", options={"maxiter": 1500})
    assert -1e-9 <= found.fun < 0.02


def test_uneven_secret_needs_its_majority() -> None:
    """Nothing gets through, yet always guessing the common value is right 90 % of the time."""
    assert bounds.success_bound(0.0, 2, majority=0.9) == 0.9
    assert bounds.advantage_bound(0.0, 2, majority=0.9) == 0.0
    assert bounds.information_from_success(0.9, 2, majority=0.9) == 0.0
    assert bounds.success_bound(0.3, 5, majority=0.2) == bounds.success_bound(0.3, 5)


def test_information_is_between_nothing_and_everything() -> None:
    prior = np.array([0.5, 0.3, 0.2, 0.0])
    assert bounds.mutual_information(np.full((4, 3), 1 / 3), prior) == pytest.approx(0, abs=1e-15)
    assert bounds.mutual_information(np.eye(4), prior) == pytest.approx(stats.entropy(prior))


@pytest.mark.parametrize("rho", [0.1, 0.6, 0.99])
def test_gaussian_secret_reaches_the_channel_bound(rho: float) -> None:
    """Correlated Gaussians: I = -log(1 - rho^2) / 2, where rho^2 = P / (P + sigma^2)."""
    sigma = 0.7
    power = sigma**2 * rho**2 / (1 - rho**2)
    nats = bounds.gaussian_channel_information(power, sigma, 5)
    assert nats == pytest.approx(-5 / 2 * math.log(1 - rho**2))


@pytest.mark.parametrize("amplitude", [0.1, 1.0, 3.0])
def test_two_points_stay_below_the_channel_bound(amplitude: float) -> None:
    sigma = 1.3

    def density(x: float) -> float:
        return float(stats.norm.pdf(x, [-amplitude, amplitude], sigma).mean())

    def surprise(x: float) -> float:
        return -density(x) * math.log(density(x))

    entropy = integrate.quad(surprise, -25, 25, points=[-amplitude, amplitude])[0]
    nats = entropy - stats.norm.entropy(scale=sigma)
    limit = bounds.gaussian_channel_information(amplitude**2, sigma, 1)
    assert nats <= limit
    assert limit == pytest.approx(nats, rel=0.01) or amplitude > 0.5
    right = stats.norm.cdf(amplitude / sigma)
    assert right <= bounds.success_bound(nats, 2) <= bounds.success_bound(limit, 2)


def test_information_adds_up_over_coordinates_and_grows_with_power() -> None:
    one = bounds.gaussian_channel_information(2.0, 0.5, 1)
    assert bounds.gaussian_channel_information(2.0, 0.5, 1000) == pytest.approx(1000 * one)
    assert bounds.gaussian_channel_information(8.0, 1.0, 1) == pytest.approx(one)
    assert bounds.gaussian_channel_information(0.0, 0.5, 10) == 0.0
    assert bounds.gaussian_channel_information(1e-18, 1.0, 2) == pytest.approx(1e-18)


def test_words() -> None:
    assert "70.0 %" in bounds.describe_bound(0.698064, 6)
    assert "0.640" in bounds.describe_bound(0.698064, 6)
    assert "vacuous" not in bounds.describe_bound(0.698064, 6)
    assert bounds.describe_bound(1.79, 6).startswith("This bound is nearly vacuous")
    assert bounds.describe_bound(1.7918, 6).startswith("This bound is vacuous")
    assert bounds.describe_bound(math.inf, 6).startswith("This bound is vacuous")
    assert "up to 24,800 nats" in bounds.describe_bound(24787.7, 6)
    assert "no certificate" in bounds.describe_bound(0.4, 6, measured=True)
    assert "guessing is right 90.0 %" in bounds.describe_bound(0.01, 2, majority=0.9)


REFUSALS: list[tuple[Callable[[], object], str]] = [
    (lambda: bounds.success_bound(-0.1, 3), "information is -0.1"),
    (lambda: bounds.success_bound(math.nan, 3), "information is nan"),
    (lambda: bounds.success_bound(0.1, 1), "at least 2"),
    (lambda: bounds.advantage_bound(0.1, 0), "number of classes is 0"),
    (lambda: bounds.advantage_bound(0.1, 3, majority=0.2), "majority is 0.2"),
    (lambda: bounds.advantage_bound(0.1, 3, majority=1.0), "majority is 1"),
    (lambda: bounds.advantage_bound_paper(-1.0, 3), "information is -1"),
    (lambda: bounds.describe_bound(-1.0, 3), "information is -1"),
    (lambda: bounds.describe_bound(-1.0, 3, measured=True), "information is -1"),
    (lambda: bounds.information_from_success(1.1, 3), "success is 1.1"),
    (lambda: bounds.information_from_success(math.nan, 3), "success is nan"),
    (lambda: bounds.mutual_information([[0.5, 0.4], [0.5, 0.5]], [0.5, 0.5]), "sum to 0.9"),
    (lambda: bounds.mutual_information([[0.5, 0.5], [0.5, 0.5]], [0.5, 0.6]), "sum to 1.1"),
    (lambda: bounds.mutual_information([[1.5, -0.5], [0.5, 0.5]], [0.5, 0.5]), "holds -0.5"),
    (lambda: bounds.mutual_information([[math.nan, 1], [0.5, 0.5]], [0.5, 0.5]), "holds nan"),
    (lambda: bounds.mutual_information([[1.0]], [0.5, 0.5]), "1 rows and prior 2"),
    (lambda: bounds.mutual_information([0.5, 0.5], [0.5, 0.5]), "shape"),
    (lambda: bounds.mutual_information([], []), "shape"),
    (lambda: bounds.gaussian_channel_information(1.0, 0.0, 1), "sigma is 0"),
    (lambda: bounds.gaussian_channel_information(-1.0, 1.0, 1), "power is -1"),
    (lambda: bounds.gaussian_channel_information(math.inf, 1.0, 1), "power is inf"),
    (lambda: bounds.gaussian_channel_information(1.0, 1.0, 0), "dimensions is 0"),
]


@pytest.mark.parametrize(("call", "words"), REFUSALS, ids=[words for _, words in REFUSALS])
def test_bad_input_is_refused_in_one_line(call: Callable[[], object], words: str) -> None:
    with pytest.raises(InputError, match=words) as refusal:
        call()
    assert "\n" not in str(refusal.value)


@settings(max_examples=30)
@given(st.floats(0, 3), st.floats(0, 3), st.integers(2, 20))
def test_more_information_never_lowers_the_bound(one: float, two: float, classes: int) -> None:
    less, more = sorted([one, two])
    assert bounds.success_bound(less, classes) <= bounds.success_bound(more, classes) + 1e-12
