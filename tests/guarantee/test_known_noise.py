"""What is known of the noise: bounds from whole scores of Gaussian and of Laplace noise."""

import numpy as np
import pytest
import torch

from leakgauge.core.rng import stream, torch_stream
from leakgauge.defenses import parse_defense
from leakgauge.guarantee.filter import filter_of
from leakgauge.guarantee.laplace import LaplaceRatio, epsilon_laplace_test, laplace_p_value
from leakgauge.guarantee.updates import audit_updates
from leakgauge.privacy.estimate import epsilon_of_mu
from leakgauge.privacy.promises import Neighbours
from leakgauge.privacy.whole_scores import ODD

NEAR = Neighbours()


def parts(scale: float, count: int, *names: str | int) -> np.ndarray:
    """Parts of releases of three values that move by 2, around 0, with Laplace noise."""
    noise = torch.from_numpy(stream(0, "laplace", *names).laplace(scale=scale, size=(count, 3)))
    expected = {"w": torch.tensor([[0.0] * 3, [2.0] * 3], dtype=torch.float64)}
    return LaplaceRatio(scale).parts({"w": noise}, expected).numpy()


def test_the_score_is_the_log_of_the_ratio_of_densities() -> None:
    x = torch.tensor([[0.5, 0.0, -3.0]], dtype=torch.float64)
    expected = {"w": torch.tensor([[1.0, 9.0, 0.0], [2.0, 9.0, -1.0]], dtype=torch.float64)}
    first, second = (
        torch.distributions.Laplace(centre, 4.0).log_prob(x)[0, [0, 2]].sum()
        for centre in expected["w"]
    )
    found = LaplaceRatio(4.0).parts({"w": x}, expected)[0, 0]
    assert float(found[0]) == pytest.approx(float(second - first))
    assert found[3] == 2  # a coordinate of 0 was not sent


def test_the_laplace_test_is_below_the_exact_epsilon_as_often_as_it_says() -> None:
    """400 tests of three values with 2 / 1 each: epsilon 6 at delta 0."""
    found = [epsilon_laplace_test(parts(1.0, 50, n), confidence=0.9) for n in range(400)]
    above, below = sum(one.low > 6 for one in found), sum(one.high < 6 for one in found)
    assert max(above, below) <= 33  # 5 % of 400; 34 or more come with a probability of 0.3 %
    assert min(above, below) >= 8  # the limits are exact, so fewer come with 0.1 %


def test_noise_that_is_not_laplace_is_seen() -> None:
    assert laplace_p_value(parts(1.0, 2000)) > ODD
    rng = stream(0, "normal")
    expected = {"w": torch.tensor([[0.0] * 3, [2.0] * 3])}
    normal = LaplaceRatio(1.0).parts({"w": torch.from_numpy(rng.normal(size=(500, 3)))}, expected)
    assert laplace_p_value(normal.numpy()) < ODD


def test_a_gaussian_test_is_tight_and_composes() -> None:
    """mu = 2 over releases of 4,000 updates; over nine of them mu = 6."""
    own = filter_of("fixed-clipping:norm=1", 1.0)
    found = audit_updates(own, NEAR, trials=4000, releases=9, seed=1)  # one in 100 misses
    assert found.mu is not None
    for releases, mu in ((1, 2.0), (9, 6.0)):
        shown, exact = found.composed(releases), epsilon_of_mu(mu, 1e-5)
        assert shown is not None
        assert 0.85 * exact < shown.low < exact < shown.high
    assert found.theory.training.value == pytest.approx(epsilon_of_mu(6.0, 1e-5))


def test_large_epsilons_are_refuted_where_counted_errors_cannot() -> None:
    """The filter of a platform of hospitals, by 1,000 releases of each update."""
    own = filter_of("local-dp:clip=1,sensitivity=1e-4,epsilon=10,delta=1e-5")
    found = audit_updates(own, NEAR, trials=2000)
    assert found.estimate.low < found.largest_showable.value < 10 < found.deciding.low


@pytest.mark.parametrize("relation", ["add", "replace"])
def test_stock_svt_shows_what_it_spends_on_values(relation) -> None:
    own = filter_of("svt")
    found = audit_updates(own, Neighbours("client", relation), parameters=1000, trials=200)
    values = 100 * 0.1 / (2 if relation == "add" else 1)
    assert found.laplace is not None
    assert 0.8 * values < found.laplace.low < values < found.theory.pair_pure.value
    assert found.theory.neighbours
    assert not found.violated


@pytest.mark.parametrize(
    "text",
    ["local-dp:clip=1,sensitivity=1,epsilon=1,delta=1e-5", "quantise:levels=3", "sign",
     "noise:std=0.1", "percentile-privacy:percentile=50,gamma=9", "prune:rate=0.5",
     "noise:std=0.1,layers=w"],
)  # fmt: skip
def test_the_centre_of_a_defense_is_the_mean_of_what_it_sends(text: str) -> None:
    update = parse_defense(text, batch_size=1).update
    grads = {"w.weight": torch.tensor([[0.7, -0.2, 0.4]], dtype=torch.float64)}
    times = 20_000 if "quantise" in text or "dp" in text else 2_000
    rows = {name: leaf.expand(times, -1).clone() for name, leaf in grads.items()}
    generators = [torch_stream(0, "row")] * times  # one stream, which runs on
    sent = update(rows, generators)["w.weight"]
    error = 5 * sent.std(dim=0) / times**0.5 + 1e-12
    assert bool(((sent.mean(dim=0) - update.centre(grads)["w.weight"]).abs() <= error).all())


def test_svt_sends_values_around_the_clamped_ones() -> None:
    update = parse_defense("svt:fraction=1,gamma=0.5,noise=8", batch_size=1).update
    grads = {"w": torch.tensor([[0.7, -0.2, -3.0]], dtype=torch.float64)}
    assert update.centre(grads)["w"].tolist() == [[0.5, -0.2, -0.5]]
    rows = {"w": grads["w"].expand(1500, -1).clone()}
    sent = update(rows, [torch_stream(0, "row", n) for n in range(1500)])["w"]
    for column, centre in zip(sent.T, (0.5, -0.2, -0.5), strict=True):
        assert float(column[column != 0].mean()) == pytest.approx(centre, abs=0.03)
