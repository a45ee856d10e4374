"""The bounds against closed forms, published formulas, and a search for violations."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import integrate, optimize, stats

from leakgauge.core.checks import InputError
from leakgauge.privacy import bounds, information

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
    """Return the success of the adversary that knows everything: guess the likeliest secret."""
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
    ("channel", "known", "exact", "paper"),
    [
        (symmetric(6, 0.3), 0.698064, 0.640000, 0.701350),
        (erasure(6, 0.5), 0.895880, 0.729750, 0.848842),
    ],
    ids=["symmetric", "erasure"],
)
def test_known_channels(channel: Floats, known: float, exact: float, paper: float) -> None:
    nats = information.mutual_information(channel, uniform(6))
    assert nats == pytest.approx(known, abs=1e-6)
    assert bounds.advantage_bound(nats, 6) == pytest.approx(exact, abs=1e-6)
    assert bounds.advantage_bound_paper(nats, uniform(6)) == pytest.approx(paper, abs=1e-6)


def test_two_values() -> None:
    nats = information.mutual_information(symmetric(2, 0.1), uniform(2))
    assert nats == pytest.approx(0.368064, abs=1e-6)
    assert bounds.advantage_bound(nats, 2) == pytest.approx(0.8, abs=1e-9)
    with pytest.raises(InputError, match="use fano_success_bound"):
        bounds.advantage_bound_paper(nats, uniform(2))
    assert bounds.fano_success_bound(nats, uniform(2)) == pytest.approx(0.9, abs=1e-9)


@pytest.mark.parametrize("classes", [2, 3, 6, 1000])
@pytest.mark.parametrize("error", [0.0, 1e-12, 1e-6, 0.1, 0.4])
def test_symmetric_channels_reach_the_bound(classes: int, error: float) -> None:
    nats = information.mutual_information(symmetric(classes, error), uniform(classes))
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
    assert bounds.advantage_bound_paper(nats, uniform(classes)) >= exact - 1e-12


def test_closed_form_is_vacuous_one_bit_below_everything() -> None:
    nats = math.log(7) - math.log(2)
    assert bounds.advantage_bound_paper(nats, uniform(7)) == pytest.approx(1.0)
    assert bounds.advantage_bound(nats, 7) < 0.9


@pytest.mark.parametrize("sharpness", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("classes", [2, 3, 6])
def test_no_random_channel_beats_the_bound(classes: int, sharpness: float) -> None:
    rng = np.random.default_rng(classes)
    for observations in (2, 3, 8):
        for _ in range(100):
            rows = rng.dirichlet(np.full(observations, sharpness), size=classes)
            prior = rng.dirichlet(np.ones(classes))
            nats = information.mutual_information(rows, prior)
            assert nats == pytest.approx(literal_information(rows, prior), abs=1e-12)
            majority = float(prior.max())
            limit = bounds.success_bound(nats, classes, majority=majority)
            assert best_success(rows, prior) <= limit + 1e-9
            nats = information.mutual_information(rows, uniform(classes))
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
        nats = information.mutual_information(rows, uniform(3))
        return bounds.success_bound(nats, 3) - best_success(rows, uniform(3))

    found = optimize.minimize(slack, start, method="Nelder-Mead", options={"maxiter": 1500})
    assert -1e-9 <= found.fun < 0.02


def test_uneven_secret_needs_its_majority() -> None:
    """Without information, guessing the common value is still right 90 % of the time."""
    assert bounds.success_bound(0.0, 2, majority=0.9) == 0.9
    assert bounds.advantage_bound(0.0, 2, majority=0.9) == 0.0
    assert bounds.information_from_success(0.9, 2, majority=0.9) == 0.0
    assert bounds.success_bound(0.3, 5, majority=0.2) == bounds.success_bound(0.3, 5)


# --- uneven secrets, by the paper's equations -----------------------------------------------------

UNEVEN = (0.4, 0.3, 0.2, 0.1)
"""H = .4 log 2.5 + .3 log(10/3) + .2 log 5 + .1 log 10 = 1.279854 nats."""


def test_eq_6_and_7_by_hand() -> None:
    """With I = 0.1: (1.279854 - 0.1 - 0.693147) / log 3 = 0.443020; 1 - 0.443020 / 0.6."""
    assert bounds.error_bound_paper(0.1, UNEVEN) == pytest.approx(0.443020, abs=1e-6)
    assert bounds.advantage_bound_paper(0.1, UNEVEN) == pytest.approx(0.261633, abs=1e-6)
    vacuous = 1.279854 - math.log(2)
    assert bounds.advantage_bound_paper(vacuous, UNEVEN) == pytest.approx(1.0, abs=1e-5)
    # a value that never occurs changes neither m nor H
    assert bounds.advantage_bound_paper(0.1, (*UNEVEN, 0.0)) == bounds.advantage_bound_paper(
        0.1, UNEVEN
    )


def searched(nats: float, prior: Floats) -> float:
    """Eq. 5 as it is printed: 1 minus the smallest error of a grid that satisfies it."""
    errors = np.linspace(0, 1, 200_001)
    entropy = stats.entropy([errors, 1 - errors])
    allowed = stats.entropy(prior) - nats <= entropy + errors * math.log(len(prior) - 1)
    return float(1 - errors[allowed].min())


PRIORS = [(0.5, 0.5), (0.9, 0.1), (0.6, 0.3, 0.1), UNEVEN, (0.96, 0.01, 0.01, 0.01, 0.01)]


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 0.7, 0.95, 1.0, 1.2])
def test_eq_5_is_solved_as_a_grid_search_solves_it(prior: Floats, share: float) -> None:
    nats = share * float(stats.entropy(prior))
    found = bounds.fano_success_bound(nats, prior)
    # at no information the error of a uniform secret is the top of a flat curve
    assert found == pytest.approx(searched(nats, prior), abs=3e-3 if share == 0 else 2e-5)


@pytest.mark.parametrize("prior", PRIORS)
def test_guessing_and_all_secrets_known_are_within_eq_5(prior: Floats) -> None:
    assert bounds.fano_success_bound(0.0, prior) >= max(prior)
    assert bounds.fano_success_bound(float(stats.entropy(prior)), prior) == pytest.approx(1.0)


def test_neither_bound_of_an_uneven_secret_is_always_smaller() -> None:
    """Without information only guessing is left; with nearly all entropy, errors remain."""
    ours = bounds.success_bound(0.0, 4, majority=0.4)
    assert ours == 0.4 < bounds.fano_success_bound(0.0, UNEVEN)
    nearly = 1.2  # above -log 0.4 = 0.92, below H = 1.28
    assert bounds.success_bound(nearly, 4, majority=0.4) == 1.0
    assert bounds.fano_success_bound(nearly, UNEVEN) < 0.999
    for nats in (0.0, 0.3, nearly):
        both = bounds.success_bound(nats, 4, majority=0.4), bounds.fano_success_bound(nats, UNEVEN)
        assert bounds.smallest_success_bound(nats, UNEVEN) == pytest.approx(min(both))


@pytest.mark.parametrize("sharpness", [0.1, 1.0])
def test_no_random_channel_beats_the_paper_s_bounds(sharpness: float) -> None:
    rng = np.random.default_rng(5)
    for _ in range(300):
        prior = rng.dirichlet(np.ones(4))
        rows = rng.dirichlet(np.full(6, sharpness), size=4)
        nats, reached = information.mutual_information(rows, prior), best_success(rows, prior)
        guess = float(prior.max())
        assert reached <= bounds.fano_success_bound(nats, prior) + 1e-9
        assert 1 - reached >= bounds.error_bound_paper(nats, prior) - 1e-9
        gain = (reached - guess) / (1 - guess)
        assert gain <= bounds.advantage_bound_paper(nats, prior) + 1e-9


# --- how far a secret moves a release -------------------------------------------------------------


def mixture_information(points: Floats, prior: Floats, sigma: float) -> float:
    """I(a; g_a + noise) of points ``[m, 2]`` in a plane, by integration over a fine grid."""
    axis = np.linspace(-9 * sigma, 9 * sigma, 401)
    low, high = points.min() + axis[0], points.max() + axis[-1]
    axis = np.linspace(low, high, 801)
    x = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    squares = ((x[None] - points[:, None, None]) ** 2).sum(axis=-1)
    density = np.exp(-squares / (2 * sigma**2)) / (2 * math.pi * sigma**2)
    mixed = np.tensordot(prior, density, axes=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        gains = np.where(density > 0, density * np.log(density / mixed), 0.0)
    return float((prior[:, None, None] * gains).sum() * (axis[1] - axis[0]) ** 2)


TRIANGLE = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, math.sqrt(3) / 2]])
"""Three points, each two at a distance of 1."""


@pytest.mark.parametrize("prior", [(1 / 3, 1 / 3, 1 / 3), (0.8, 0.15, 0.05)])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 4.0])
def test_three_values_tell_no_more_than_their_sensitivity(prior: Floats, sigma: float) -> None:
    p = np.array(prior)
    known = mixture_information(TRIANGLE, p, sigma)
    bound = information.sensitivity_information(1.0, sigma, p)
    mean_divergence = (1 - np.square(p).sum()) / (2 * sigma**2)  # of all pairs of values
    assert known <= bound <= mean_divergence / 2 + 1e-12
    if sigma == 4.0:  # much noise: the bound is what gets through
        assert bound == pytest.approx(known, rel=0.03)


@pytest.mark.parametrize("prior", [(0.5, 0.5), (0.9, 0.1)])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 4.0])
def test_two_values_that_are_mixtures_tell_no_more_either(prior: Floats, sigma: float) -> None:
    """Given a value the release is still random: one of three points, at most 1 apart."""
    p, rng = np.array(prior), np.random.default_rng(3)
    weights = rng.dirichlet(np.ones(3), size=2)
    joint = (p[:, None] * weights).ravel()
    everything = mixture_information(np.tile(TRIANGLE, (2, 1)), joint, sigma)
    given_the_value = sum(
        share * mixture_information(TRIANGLE, row, sigma)
        for share, row in zip(p, weights, strict=True)
    )
    known = everything - given_the_value  # I(a; g) = I(a, point; g) - I(point; g | a)
    assert 0 <= known <= information.sensitivity_information(1.0, sigma, p)


def test_sensitivity_by_hand() -> None:
    """(1 - .5) 2^2 / (2 1^2) = 1: log(2) / 2. With 3 equal values: log(1 + (2/3) / 2 * 4 / 2)."""
    assert information.sensitivity_information(2.0, 1.0, uniform(2)) == pytest.approx(
        math.log(2) / 2
    )
    assert information.sensitivity_information(2.0, 1.0, uniform(3)) == pytest.approx(
        math.log(1 + 2 / 3)
    )
    assert information.sensitivity_information(0.0, 1.0, uniform(3)) == 0.0


def test_information_is_between_nothing_and_everything() -> None:
    prior = np.array([0.5, 0.3, 0.2, 0.0])
    assert information.mutual_information(np.full((4, 3), 1 / 3), prior) == pytest.approx(
        0, abs=1e-15
    )
    assert information.mutual_information(np.eye(4), prior) == pytest.approx(stats.entropy(prior))


@pytest.mark.parametrize("rho", [0.1, 0.6, 0.99])
def test_gaussian_secret_reaches_the_channel_bound(rho: float) -> None:
    """Correlated Gaussians: I = -log(1 - rho^2) / 2, where rho^2 = P / (P + sigma^2)."""
    sigma = 0.7
    power = sigma**2 * rho**2 / (1 - rho**2)
    nats = information.gaussian_channel_information(power, sigma, 5)
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
    limit = information.gaussian_channel_information(amplitude**2, sigma, 1)
    assert nats <= limit
    assert limit == pytest.approx(nats, rel=0.01) or amplitude > 0.5
    right = stats.norm.cdf(amplitude / sigma)
    assert right <= bounds.success_bound(nats, 2) <= bounds.success_bound(limit, 2)


def test_information_adds_up_over_coordinates_and_grows_with_power() -> None:
    one = information.gaussian_channel_information(2.0, 0.5, 1)
    assert information.gaussian_channel_information(2.0, 0.5, 1000) == pytest.approx(1000 * one)
    assert information.gaussian_channel_information(8.0, 1.0, 1) == pytest.approx(one)
    assert information.gaussian_channel_information(0.0, 0.5, 10) == 0.0
    assert information.gaussian_channel_information(1e-18, 1.0, 2) == pytest.approx(1e-18)


def test_words() -> None:
    assert "70.0 %" in bounds.describe_bound(0.698064, uniform(6))
    assert "0.640" in bounds.describe_bound(0.698064, uniform(6))
    assert "vacuous" not in bounds.describe_bound(0.698064, uniform(6))
    assert bounds.describe_bound(1.79, uniform(6)).startswith("This bound is nearly vacuous")
    assert bounds.describe_bound(1.7918, uniform(6)).startswith("This bound is vacuous")
    assert bounds.describe_bound(math.inf, uniform(6)).startswith("This bound is vacuous")
    assert "up to 24,800 nats" in bounds.describe_bound(24787.7, uniform(6))
    assert "guessing is right 90.0 %" in bounds.describe_bound(0.01, [0.9, 0.1])
    assert "0.325 are enough" in bounds.describe_bound(0.33, [0.9, 0.1])


REFUSALS: list[tuple[Callable[[], object], str]] = [
    (lambda: bounds.success_bound(-0.1, 3), "information is -0.1"),
    (lambda: bounds.success_bound(math.nan, 3), "information is nan"),
    (lambda: bounds.success_bound(0.1, 1), "at least 2"),
    (lambda: bounds.advantage_bound(0.1, 0), "number of classes is 0"),
    (lambda: bounds.advantage_bound(0.1, 3, majority=0.2), "majority is 0.2"),
    (lambda: bounds.advantage_bound(0.1, 3, majority=1.0), "majority is 1"),
    (lambda: bounds.advantage_bound_paper(-1.0, uniform(3)), "information is -1"),
    (lambda: bounds.describe_bound(-1.0, uniform(3)), "information is -1"),
    (lambda: bounds.fano_success_bound(-1.0, uniform(3)), "information is -1"),
    (lambda: bounds.fano_success_bound(0.1, [1.0, 0.0]), "leaves only one value of the secret"),
    (lambda: bounds.error_bound_paper(0.1, [0.5, 0.5, 0.0]), "use fano_success_bound"),
    (lambda: information.sensitivity_information(-1.0, 1.0, uniform(2)), "sensitivity is -1"),
    (lambda: information.sensitivity_information(1.0, 0.0, uniform(2)), "sigma is 0"),
    (lambda: information.sensitivity_information(1.0, 1.0, [1.0]), "only one value of the secret"),
    (lambda: bounds.information_from_success(1.1, 3), "success is 1.1"),
    (lambda: bounds.information_from_success(math.nan, 3), "success is nan"),
    (lambda: information.mutual_information([[0.5, 0.4], [0.5, 0.5]], [0.5, 0.5]), "sum to 0.9"),
    (lambda: information.mutual_information([[0.5, 0.5], [0.5, 0.5]], [0.5, 0.6]), "sum to 1.1"),
    (lambda: information.mutual_information([[1.5, -0.5], [0.5, 0.5]], [0.5, 0.5]), "holds -0.5"),
    (lambda: information.mutual_information([[math.nan, 1], [0.5, 0.5]], [0.5, 0.5]), "holds nan"),
    (lambda: information.mutual_information([[1.0]], [0.5, 0.5]), "1 rows and prior 2"),
    (lambda: information.mutual_information([0.5, 0.5], [0.5, 0.5]), "shape"),
    (lambda: information.mutual_information([], []), "shape"),
    (lambda: information.gaussian_channel_information(1.0, 0.0, 1), "sigma is 0"),
    (lambda: information.gaussian_channel_information(-1.0, 1.0, 1), "power is -1"),
    (lambda: information.gaussian_channel_information(math.inf, 1.0, 1), "power is inf"),
    (lambda: information.gaussian_channel_information(1.0, 1.0, 0), "dimensions is 0"),
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
