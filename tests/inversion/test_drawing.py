"""Which records are attacked, and how a client deals them to its updates."""

from collections import Counter

import numpy as np
import pytest

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.inversion.run.drawing import deal_distinct, draw_rows

SORTED = np.repeat(np.arange(10), 5)
"""Fifty records in the order of their labels, as the file of CIFAR-100 has them."""


def drawn(labels: np.ndarray, count: int, size: int, how: str | None = None, seed: int = 0):
    return draw_rows(labels, count, size, how=how, first=0, rng=stream(seed, "drawn"))


@pytest.mark.parametrize(("count", "size"), [(8, 1), (8, 4), (40, 8), (50, 10)])
def test_no_label_comes_twice_in_an_update(count: int, size: int) -> None:
    for seed in range(20):
        rows, how = drawn(SORTED, count, size, seed=seed)
        assert (how, len(set(rows.tolist()))) == ("distinct", count)
        for update in rows.reshape(-1, size):
            assert len(set(SORTED[update].tolist())) == size


def test_records_come_from_all_of_the_data() -> None:
    """Each of 50 is as likely as any other: 400 draws of 8, within 5 standard deviations of 64."""
    counts = Counter(row for seed in range(400) for row in drawn(SORTED, 8, 4, seed=seed)[0])
    expected, spread = 400 * 8 / 50, np.sqrt(400 * 8 / 50)
    assert all(abs(counts[row] - expected) < 5 * spread for row in range(50))


def test_labels_that_cannot_be_distinct() -> None:
    """Two classes do not fill updates of three records."""
    two = np.arange(12) % 2
    rows, how = drawn(two, 6, 3)
    assert (how, len(set(rows.tolist()))) == ("random", 6)
    with pytest.raises(InputError, match=r"update of 3 records.*allows 4 of.*not 6.*random"):
        drawn(two, 6, 3, "distinct")
    rare = np.array([0] * 30 + [1, 2])
    assert drawn(rare, 4, 2)[1] == "distinct"  # 0 and another one, twice
    assert drawn(rare, 6, 2)[1] == "random"


def test_the_first_records_and_numbers_in_place_of_labels() -> None:
    rows, how = draw_rows(SORTED, 4, 2, how="first", first=7, rng=stream(0, "drawn"))
    assert (rows.tolist(), how) == ([7, 8, 9, 10], "first")
    assert drawn(np.linspace(0, 1, 9), 4, 2)[1] == "random"
    with pytest.raises(InputError, match="records 47 to 50, but there are 50"):
        draw_rows(SORTED, 4, 2, how="first", first=47, rng=stream(0, "drawn"))
    with pytest.raises(InputError, match="51 records, but there are 50"):
        drawn(SORTED, 51, 1)


def test_records_are_dealt_anew_without_a_repeated_label() -> None:
    """Also where one class has a record in every update."""
    labels = np.array([0, 0, 0, 0, 1, 1, 2, 3])
    orders = {tuple(deal_distinct(labels, 2, stream(seed, "deal")).tolist()) for seed in range(30)}
    assert len(orders) > 20
    for order in orders:
        assert sorted(order) == list(range(8))
        for update in labels[list(order)].reshape(4, 2):
            assert update[0] != update[1]
    with pytest.raises(InputError, match="3 records have one label; 2 updates"):
        deal_distinct(np.array([0, 0, 0, 1]), 2, stream(0, "deal"))
