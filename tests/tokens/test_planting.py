"""A planted leak has its size, replaces the pairs' own leak, and shows what could be seen."""

import math

import pytest
import torch
from torch import Tensor

from leakgauge.tokens.linear_gaussian import cheap_information
from leakgauge.tokens.planting import Leak, planted, unseen_below
from leakgauge.tokens.sources import FixedPairs, Pairs, PairSplit, PooledPairs
from support.gaussians import gaussians


def parts(nats: float, count: int = 4000) -> PairSplit:
    x, y = (leaf.float() for leaf in gaussians(count, 8, nats, seed=0))
    pairs = Pairs(x, {"a": 3 * y[:, :5] + 1, "b": y[:, 5:]})
    return PairSplit(*(FixedPairs(pairs) for _ in range(3)))


def canonical(x: Tensor, y: Tensor) -> float:
    """Return the information of Gaussian samples in nats, by their canonical correlations."""
    bases = [torch.linalg.qr((leaf - leaf.mean(0)).double()).Q for leaf in (x, y)]
    shared = torch.linalg.svdvals(bases[0].T @ bases[1])
    return float(-torch.log1p(-shared.square()).sum() / 2)


@pytest.mark.calibration
@pytest.mark.parametrize(
    ("own", "nats"),
    [
        (0.0, 2.0),
        (3.0, 0.5),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in ((0.0, 0.1), (0.0, 0.5), (3.0, 0.1), (3.0, 2.0))
        ),
    ],
)
def test_a_planted_leak_has_its_size_whatever_the_pairs_leak(nats: float, own: float) -> None:
    source = planted(parts(own), nats, seed=1).fitting
    found = source.draw(4000, torch.Generator().manual_seed(2))
    whole = torch.cat([*found.gradients.values()], dim=1)
    assert canonical(found.features, whole) == pytest.approx(nats, abs=0.05)
    rows = source.rows(4000)
    whole = torch.cat([*rows.gradients.values()], dim=1)
    assert canonical(rows.features, whole) == pytest.approx(nats, abs=0.05)
    assert abs(cheap_information(source, seed=0, matched=False).value) < 0.02


def test_only_one_direction_of_the_gradients_changes() -> None:
    pairs = parts(0.0).fitting.rows(500)
    leak = Leak.like(pairs, 1.0)
    told = leak.into(pairs, torch.Generator().manual_seed(0))
    before, after = leak.scaler(pairs).gradients, leak.scaler(told).gradients
    change = torch.cat([after[name] - before[name] for name in before], dim=1)
    sizes = torch.linalg.svdvals(change)
    assert float(sizes[1]) < 0.05 * float(sizes[0])
    assert torch.equal(told.features, pairs.features)


def test_batches_and_records_get_the_leak_alike() -> None:
    x, y = (leaf.float() for leaf in gaussians(4000, 4, 0.0, seed=3))
    x[:, 1:] = x[:, 1:] / 3 + x[:, :1]
    pool = PooledPairs(Pairs(x, {"a": y}), 20)
    source = planted(PairSplit(pool, pool, pool), 1.0, seed=0).fitting
    assert source.rows_are_records
    assert source.block is None
    assert cheap_information(source, seed=0).value == pytest.approx(1.0, abs=0.1)
    ((first, *_), *others) = source.groups(64, 1024, torch.Generator().manual_seed(0))
    assert len(first) == 64
    assert len(others) == 7
    drawn = source.draw(2000, torch.Generator().manual_seed(0))
    assert canonical(drawn.features, drawn.gradients["a"]) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("smallest", [0.0, 0.15, 0.2, 0.7, 9.0])
def test_the_smallest_level_that_is_seen_is_found_by_few_looks(smallest: float) -> None:
    levels, looks = (0.1, 0.2, 0.5, 1.0), []

    def sees(nats: float) -> bool:
        looks.append(nats)
        return nats >= smallest

    assert unseen_below(sees, levels) == next((one for one in levels if one >= smallest), 1.0)
    assert len(looks) <= math.ceil(math.log2(len(levels)))
