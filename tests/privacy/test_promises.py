"""What follows from a filter's noise, against sampled privacy losses of its own releases."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from leakgauge.core.checks import InputError
from leakgauge.core.rng import torch_stream
from leakgauge.defenses import parse_defense
from leakgauge.defenses.catalog import DEFENSES
from leakgauge.defenses.claims import SERVED, statement_of
from leakgauge.privacy.promises import (
    GaussianRelease,
    Neighbours,
    SparseRelease,
    epsilon_laplace,
)

SAMPLES = 400_000


@pytest.fixture(scope="module")
def table() -> ModuleType:
    """The benchmark of exact and sampled epsilons as a module."""
    path = Path(__file__).parents[2] / "benchmarks" / "promises.py"
    spec = importlib.util.spec_from_file_location("promises_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules["promises_benchmark"] = made
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("at", range(12))
def test_the_exact_epsilon_is_that_of_sampled_losses(table: ModuleType, at: int) -> None:
    """Within 2 %, for each defense with noise of a known law; the losses are of its own code."""
    case = table.CASES[at]
    samples = SAMPLES if case.releases == 1 else SAMPLES // 4
    assert case.exact == pytest.approx(case.sampled(samples), rel=0.02)


def test_every_defense_with_noise_is_in_the_table(table: ModuleType) -> None:
    words = {case.defense.partition(":")[0] for case in table.CASES}
    assert words == {"dpsgd", "svt", "local-dp", *SERVED}
    for word in set(DEFENSES) - words - {"none", "perturb", "vib"}:
        settings = {"clip": ":l2=1", "noise": ":std=1", "quantise": ":levels=2"}.get(word, "")
        assert statement_of(f"{word}{settings}", batch_size=1).why
    assert len(table.CASES) == 12


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


@pytest.mark.parametrize(
    ("each", "count"), [(1.0, 1), (0.5, 10), pytest.param(0.1, 2_000, marks=pytest.mark.slow)]
)
def test_composed_laplace_noise_has_the_epsilon_of_its_sampled_losses(
    table: ModuleType, each: float, count: int
) -> None:
    rng = np.random.default_rng(0)
    losses = np.zeros(SAMPLES // 4)
    for _ in range(count):
        x = rng.laplace(scale=1 / each, size=len(losses))
        losses += each * (np.abs(x + 1) - np.abs(x))
    # The sampled release is at 0 and its neighbour at -1, one sensitivity away.
    sampled = table.epsilon_of_losses(losses, 0.05)
    assert epsilon_laplace(each, count, 0.05) == pytest.approx(sampled, rel=0.02)


def test_the_share_of_sent_coordinates_keeps_the_promise() -> None:
    """What is sent of two neighbours differs less often than the upper bound allows."""
    release = SparseRelease(3, fraction=0.3, epsilon=1.0, noise=0.5)
    text, times = "svt:fraction=0.3,epsilon=1,noise=0.5,gamma=1,tau=0.5", 2_000
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
