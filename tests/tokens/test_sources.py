"""Where pairs come from: no record on two sides, and batches that are means of random records."""

import itertools

import pytest
import torch
from scipy import stats

from leakgauge.core.checks import InputError
from leakgauge.tokens import sources
from leakgauge.tokens.sources import (
    BLOCKS,
    FEWEST_BLOCKS,
    PAST,
    ROOMY,
    FixedPairs,
    Pairs,
    PooledPairs,
    blocks_of,
    split_pairs,
    split_stream,
    without_drift,
)


@pytest.fixture
def no_shift(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the numbers of pairs: only drop those that have too few before them."""
    monkeypatch.setattr(sources, "without_drift", lambda pairs: pairs.rows(slice(PAST, None)))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def one_hot_pool(count: int, batch_size: int) -> PooledPairs:
    """Each record is a unit vector in both, so that a mean tells its records."""
    eye = torch.eye(count, dtype=torch.float64)
    return PooledPairs(Pairs(eye, {"a": 2 * eye, "b": eye.flip(1)}), batch_size)


def numbered(count: int) -> Pairs:
    """Row k has k as its feature and as its gradient."""
    rows = torch.arange(count, dtype=torch.float64)[:, None]
    return Pairs(rows, {"a": rows.clone()})


def held(pairs: Pairs) -> set[int]:
    return set(pairs.features[:, 0].int().tolist())


@pytest.mark.parametrize("split", [split_stream, split_pairs])
@pytest.mark.parametrize("count", [60, 103, 1000])
def test_no_pair_is_in_two_parts(split, count: int, no_shift: None) -> None:
    parts = split(numbered(count))
    each = [held(one.pairs) for one in (parts.fitting, parts.stopping, parts.reporting)]
    assert not any(one & other for one, other in itertools.combinations(each, 2))
    assert set().union(*each) == set(range(PAST if split is split_stream else 0, count))


def test_a_stream_is_dealt_by_stretches_of_ten_in_the_order_of_time(no_shift: None) -> None:
    parts = split_stream(numbered(210))
    for part, digits in ((parts.fitting, 3), (parts.stopping, 1), (parts.reporting, 1)):
        rows = part.pairs.features[:, 0]
        assert len(rows) == 40 * digits
        assert torch.equal(rows, rows.sort().values)
        assert torch.equal(rows, part.pairs.gradients["a"][:, 0])
    assert held(parts.fitting.pairs) == {k + 10 for k in range(200) if k // 10 % 5 < 3}
    assert held(parts.stopping.pairs) == {k + 10 for k in range(200) if k // 10 % 5 == 3}


def test_a_pair_of_a_stream_is_compared_with_the_ten_before_it() -> None:
    rng = torch.Generator().manual_seed(0)
    pairs = Pairs(torch.randn(30, 2, generator=rng), {"a": torch.randn(30, 3, generator=rng)})
    found = without_drift(pairs)
    for given, made in (
        (pairs.features, found.features),
        (pairs.gradients["a"], found.gradients["a"]),
    ):
        for place in range(20):
            past = given[place : place + 10].mean(0)
            torch.testing.assert_close(made[place], given[place + 10] - past)


def test_the_placebo_of_a_stream_shares_no_pair_with_its_features() -> None:
    """A pair and its placebo are made of eleven pairs each."""
    count = 310
    parts = split_stream(Pairs(torch.eye(count), {"a": torch.eye(count)}))
    for source in (parts.fitting, parts.stopping, parts.reporting):
        other = source.rows(count, matched=False)
        assert not bool(((other.features != 0) & (other.gradients["a"] != 0)).any())


def test_too_few_pairs_are_refused_in_one_line() -> None:
    with pytest.raises(InputError, match=r"^59 pairs of the training are too few; expected 60"):
        split_stream(numbered(59))
    with pytest.raises(InputError, match=r"^4 pairs are too few for three parts"):
        split_pairs(numbered(4))


@pytest.mark.parametrize(("count", "size"), [(30, 20), (200, 20), (7, 7), (50, 1)])
def test_batches_are_means_of_different_records_that_features_and_gradients_share(
    count: int, size: int
) -> None:
    drawn = one_hot_pool(count, size).draw(40, seeded())
    used = drawn.features != 0
    assert used.sum(1).tolist() == [size] * 40  # none twice in a batch
    torch.testing.assert_close(drawn.features, used.double() / size)
    torch.testing.assert_close(drawn.gradients["a"], 2 * drawn.features)
    torch.testing.assert_close(drawn.gradients["b"], drawn.features.flip(1))
    if size < count:
        assert len({tuple(row) for row in used.tolist()}) > 1


@pytest.mark.parametrize("count", [5, 9])  # those are the two ways to draw
def test_all_batches_are_as_likely(count: int) -> None:
    size, trials = 3, 40_000
    drawn = one_hot_pool(count, size).draw(trials, seeded(1))
    sets = torch.unique(drawn.features != 0, dim=0, return_counts=True)[1]
    possible = len(list(itertools.combinations(range(count), size)))
    assert len(sets) == possible
    assert stats.chisquare(sets.tolist()).pvalue > 1e-3


def test_the_placebo_of_a_pool_has_other_batches_on_each_side() -> None:
    """The number of shared records is that of independent batches: hypergeometric."""
    count, size, trials = 12, 4, 20_000
    drawn = one_hot_pool(count, size).draw(trials, seeded(2), matched=False)
    features, gradients = drawn.features != 0, drawn.gradients["a"] != 0
    shared = (features & gradients).sum(1)
    chances = stats.hypergeom(count, size, size).pmf(range(size + 1)) * trials
    assert stats.chisquare(torch.bincount(shared, minlength=size + 1), chances).pvalue > 1e-3
    torch.testing.assert_close(drawn.gradients["b"].flip(1) * 2, drawn.gradients["a"])


@pytest.mark.parametrize("matched", [True, False])
@pytest.mark.parametrize(("count", "size"), [(1600, 20), (161, 20), (17, 2), (9, 1)])
def test_blocks_of_groups_share_no_record(count: int, size: int, *, matched: bool) -> None:
    blocks = list(one_hot_pool(count, size).groups(6, 100, seeded(), matched=matched))
    assert len(blocks) == blocks_of(count, size)
    used = []
    for block in blocks:
        assert len(block) == max(1, 100 // (6 * len(blocks)))
        assert [len(group) for group in block] == [6] * len(block)
        sides = [(g.features + g.gradients["a"]).sum(0) != 0 for g in block]
        used.append(torch.stack(sides).any(0))
    assert (torch.stack(used).sum(0) <= 1).all()
    together = torch.stack(used).sum(1)
    assert (together <= -(-count // len(blocks))).all()


@pytest.mark.parametrize("count", [9, 17, 100, 163])
def test_a_block_is_as_large_as_any_other(count: int) -> None:
    """A block's records can be counted where its groups use all of them."""
    pool = one_hot_pool(count, 1)
    used = [int((group.features != 0).any(0).sum()) for (group,) in pool.groups(3000, 1, seeded())]
    assert sum(used) == count
    assert max(used) - min(used) <= 1


def test_the_number_of_blocks_has_room_for_batches() -> None:
    for records in range(1, 3000, 37):
        for size in (1, 8, 20):
            blocks = blocks_of(records, size)
            assert FEWEST_BLOCKS <= blocks <= BLOCKS
            assert blocks == FEWEST_BLOCKS or records // blocks >= ROOMY * size


def test_fixed_pairs_are_drawn_once_each() -> None:
    drawn = FixedPairs(numbered(30)).draw(20, seeded())
    assert len(held(drawn)) == len(drawn) == 20
    assert torch.equal(drawn.features, drawn.gradients["a"])
    assert held(FixedPairs(numbered(30)).draw(99, seeded())) == set(range(30))
    counts = torch.zeros(10)
    for seed in range(2000):
        counts[list(held(FixedPairs(numbered(10)).draw(3, seeded(seed))))] += 1
    assert stats.chisquare(counts.tolist()).pvalue > 1e-3


def test_the_placebo_of_fixed_pairs_is_the_gradient_of_the_next_row() -> None:
    source = FixedPairs(numbered(30))
    drawn = source.draw(30, seeded(), matched=False)
    assert torch.equal(drawn.gradients["a"], (drawn.features + 1) % 30)
    (first, *_), *_ = source.groups(8, 100, seeded(), matched=False)
    assert torch.equal(first.gradients["a"], first.features + 1)


def test_groups_of_fixed_pairs_are_consecutive_and_apart() -> None:
    blocks = list(FixedPairs(numbered(30)).groups(8, 100, seeded()))
    assert [[held(group) for group in block] for block in blocks] == [
        [set(range(start, start + 8))] for start in (0, 8, 16)
    ]
    assert len(list(FixedPairs(numbered(30)).groups(8, 16, seeded()))) == 2
    assert list(FixedPairs(numbered(7)).groups(8, 100, seeded())) == []


def test_groups_of_fixed_pairs_stay_within_a_block_of_records() -> None:
    pairs = FixedPairs(numbered(36), block=12)
    blocks = [[held(group) for group in block] for block in pairs.groups(5, 100, seeded())]
    assert blocks == [
        [set(range(start, start + 5)), set(range(start + 5, start + 10))] for start in (0, 12, 24)
    ]
    (whole,), *_ = pairs.groups(50, 100, seeded())
    assert held(whole) == set(range(12))


def test_pairs_can_be_taken_and_moved() -> None:
    pairs = numbered(5)
    assert held(pairs.rows(slice(1, 3))) == {1, 2}
    assert pairs.to("cpu").features.device.type == "cpu"


@pytest.mark.parametrize("make", [lambda: one_hot_pool(60, 4), lambda: FixedPairs(numbered(60))])
def test_the_generator_alone_decides(make) -> None:
    state = torch.get_rng_state()
    first, again, other = (make().draw(10, seeded(seed)).features for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(state, torch.get_rng_state())
