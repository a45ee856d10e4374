"""What follows from a filter's noise, against sampled privacy losses of its own releases."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import optimize

from leakgauge.core.checks import InputError
from leakgauge.core.rng import torch_stream
from leakgauge.defenses import parse_defense
from leakgauge.defenses.claims import statement_of
from leakgauge.privacy.promises import (
    GaussianRelease,
    Neighbours,
    SparseRelease,
    epsilon_laplace,
)

SAMPLES = 400_000
DELTA = 0.05
"""Large, so that the samples determine the epsilon within 2 %."""


def sampled_epsilon(losses: np.ndarray, delta: float = DELTA) -> float:
    """Return the epsilon at which E[(1 - exp(epsilon - loss))+] is delta, over sampled losses."""

    def excess(epsilon: float) -> float:
        return float(np.maximum(0.0, -np.expm1(epsilon - losses)).mean()) - delta

    return float(optimize.brentq(excess, 0.0, float(losses.max())))


def sent(text: str, rows: torch.Tensor, seed: int) -> np.ndarray:
    """Return what a client sends of updates ``[n]``, one number each, with the defense's code."""
    # One generator for all rows draws as independently, and is faster than one for each.
    update = parse_defense(text, batch_size=1).update
    parts = [update({"w": block[None]}, [torch_stream(seed, "row", n)])["w"][0]
             for n, block in enumerate(rows.reshape(-1, 1))]  # fmt: skip
    return torch.stack(parts).flatten().numpy()


def gaussian_losses(std: float, shift: float, rounds: int) -> np.ndarray:
    """Return sampled losses of releases at ``shift`` against releases at 0."""
    noise = torch.randn(SAMPLES, rounds, generator=torch_stream(1, "noise")).numpy() * std
    return ((noise + shift) * shift / std**2 - shift**2 / (2 * std**2)).sum(axis=1)


GAUSSIAN = {
    "local-dp, client replaced": ("local-dp:clip=1,sensitivity=1,epsilon=2,delta=0.01", 1,
                                  Neighbours("client", "replace"), 2.0, 1),
    "local-dp, client added": ("local-dp:clip=1,sensitivity=1,epsilon=2,delta=0.01", 1,
                               Neighbours("client", "add"), 1.0, 1),
    "local-dp, record added, 4 rounds": ("local-dp:clip=2,sensitivity=8,epsilon=2,delta=0.01", 1,
                                         Neighbours("record", "add"), 4.0, 4),
    "dpsgd, record added": ("dpsgd:clip=2,noise=1", 4, Neighbours("record", "add"), 0.5, 1),
    "dpsgd, record replaced, 3 steps": ("dpsgd:clip=2,noise=2", 4,
                                        Neighbours("record", "replace"), 1.0, 3),
    "dpsgd, client replaced": ("dpsgd:clip=1,noise=4", 4, Neighbours("client", "replace"), 2.0, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", GAUSSIAN)
def test_the_exact_epsilon_is_that_of_sampled_losses(name: str) -> None:
    text, batch, near, shift, rounds = GAUSSIAN[name]
    release = statement_of(text, batch_size=batch).mechanism
    assert release is not None
    found = release.follows(near, DELTA, rounds=rounds)
    std = parse_defense(text, batch_size=batch).noise_std or release.noise_std
    assert found.epsilon == pytest.approx(
        sampled_epsilon(gaussian_losses(std, shift, rounds)), rel=0.02
    )
    assert found.least == found.epsilon


@pytest.mark.parametrize("text", ["local-dp:clip=1,sensitivity=1,epsilon=2,delta=0.01",
                                  "dpsgd:clip=2,noise=3"])  # fmt: skip
def test_the_noise_is_that_of_the_defense_s_own_code(text: str) -> None:
    release = statement_of(text, batch_size=4).mechanism
    assert release is not None
    defense = parse_defense(text, batch_size=4)
    zeros = {"w": torch.zeros(1, 200_000, dtype=torch.float64)}
    noise = defense.update(zeros, [torch_stream(0, "noise")])["w"]
    assert release.noise_std == pytest.approx(float(noise.std()), rel=0.01)


CORNERS = [Neighbours(u, r) for u in ("client", "record") for r in ("add", "replace")]  # type: ignore[arg-type]


@pytest.mark.parametrize("near", CORNERS, ids=str)
def test_the_sensitivity_is_reached_and_never_exceeded(near: Neighbours) -> None:
    """Clients with random and with extreme records, through the defenses' own clipping."""
    rng = torch_stream(0, "records")
    update = parse_defense("fixed-clipping:norm=1.5", batch_size=1).update
    clip = parse_defense("clip:l2=1.5", batch_size=4).per_example
    assert clip is not None
    largest = {"whole": 0.0, "each": 0.0}
    for trial in range(300):
        size = 100.0 if trial % 2 else 1.0
        first, other = size * torch.randn(2, 4, 3, generator=rng).double()
        if trial % 3 == 0:
            if near.unit == "client":  # records that agree
                first[:] = first[0].clone()
            other = -first
        near_by = first.clone()
        if near.unit == "record":
            near_by[0] = 0.0 if near.relation == "add" else other[0]
            if trial % 3 == 0 and trial % 2:  # one record that outweighs all others
                first[0] *= 1e4
                near_by[0] = -first[0] if near.relation == "replace" else 0.0
                near_by[1:] = first[1:] = -first[0] / 1e3
        else:
            near_by = torch.zeros_like(first) if near.relation == "add" else other
        sums = [update({"w": one.sum(dim=0)[None]}, [])["w"] for one in (first, near_by)]
        means = [clip({"w": one}, [])["w"].mean(dim=0) for one in (first, near_by)]
        for name, (a, b) in (("whole", sums), ("each", means)):
            largest[name] = max(largest[name], float(torch.linalg.vector_norm(a - b)))
    for name, batch in (("whole", None), ("each", 4)):
        promised = GaussianRelease(1.5, 1.0, batch).sensitivity(near)
        assert 0.95 * promised <= largest[name] <= promised * (1 + 1e-9)


def test_sparse_values_have_the_epsilon_of_their_sampled_losses() -> None:
    """A single coordinate, which is sent in each round; composition is tested below."""
    text = "svt:fraction=1,epsilon=0.2,noise=1,gamma=1,tau=0"
    x = sent(text, torch.full((20_000,), 9.0, dtype=torch.float64), seed=0)
    losses = (np.abs(x + 1) - np.abs(x - 1)) / 2
    found = statement_of(text, batch_size=1).sparse(1).follows(Neighbours(), DELTA)
    assert found.epsilon - 0.2 == pytest.approx(sampled_epsilon(losses), rel=0.02)
    assert found.pure == pytest.approx(1.2)
    assert losses.max() == pytest.approx(1.0)  # noise 1 is the epsilon of each value


@pytest.mark.parametrize(("each", "count"), [(1.0, 1), (0.5, 10), (0.1, 2_000)])
def test_composed_laplace_noise_has_the_epsilon_of_its_sampled_losses(
    each: float, count: int
) -> None:
    rng = np.random.default_rng(0)
    losses = np.zeros(SAMPLES // 4)
    for _ in range(count):
        x = rng.laplace(scale=1 / each, size=len(losses))
        losses += each * (np.abs(x + 1) - np.abs(x))
    # The sampled release is at 0 and its neighbour at -1, one sensitivity away.
    assert epsilon_laplace(each, count, DELTA) == pytest.approx(sampled_epsilon(losses), rel=0.02)


def test_the_share_of_sent_coordinates_keeps_the_promise() -> None:
    """What is sent of two neighbours differs less often than the upper bound allows."""
    release = SparseRelease(3, fraction=0.3, epsilon=1.0, noise=0.5)
    text, times = "svt:fraction=0.3,epsilon=1,noise=0.5,gamma=1,tau=0.5", 6_000
    counts = []
    for values in ([1.0, 0.0, 0.0], [0.0, 1.0, 1.0]):
        update = parse_defense(text, batch_size=1).update
        rows = torch.tensor(values, dtype=torch.float64).expand(times, 3)
        rngs = [torch_stream(0, "row", str(values), n) for n in range(times)]
        counts.append((update({"w": rows.clone()}, rngs)["w"] != 0).double().mean(dim=0))
    ratios = (counts[0] / counts[1]).log().abs()
    assert 0.1 < float(ratios.max()) <= release.follows(Neighbours(), 0.0).epsilon


def test_rounds_compose_as_in_dp_accounting() -> None:
    dp_accounting = pytest.importorskip("dp_accounting")
    from dp_accounting import pld

    accountant = pld.PLDAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(2.0), 10)
    found = GaussianRelease(1.0, 2.0).follows(Neighbours("client", "add"), 1e-5, rounds=10)
    assert found.epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)


def test_a_ratio_without_end_has_the_epsilon_of_its_square() -> None:
    release = GaussianRelease(1.0, 1e-9)
    found = release.follows(Neighbours("client", "add"), 1e-5)
    assert found.epsilon == pytest.approx(0.5e18, rel=1e-6)
    assert GaussianRelease(1.0, 1e-200).follows(Neighbours(), 1e-5).epsilon == float("inf")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Neighbours("person"),  # type: ignore[arg-type]
        lambda: Neighbours("client", "remove"),  # type: ignore[arg-type]
        lambda: GaussianRelease(0.0, 1.0),
        lambda: GaussianRelease(1.0, 0.0),
        lambda: SparseRelease(0, 0.1, 0.1, 0.1),
        lambda: SparseRelease(10, 0.0, 0.1, 0.1),
        lambda: SparseRelease(10, 0.1, 0.1, 0.1, threshold=0.2),
        lambda: SparseRelease(10, 0.1, 0.1, 0.1).follows(Neighbours(), 1.0),
        lambda: GaussianRelease(1.0, 1.0).follows(Neighbours(), 1e-5, rounds=0),
    ],
)
def test_what_means_nothing_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InputError):
        make()
