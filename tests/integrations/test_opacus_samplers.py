"""Canaries are drawn as the loader draws records; loaders of another kind are refused."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from opacus.utils.uniform_sampler import UniformWithReplacementSampler

from leakgauge import InputError
from leakgauge.integrations.opacus_canaries import Draws
from support.opacus_warnings import QUIET

pytestmark = QUIET

N, BATCH = 50, 8
DATA = TensorDataset(torch.arange(N))
WEIGHTS = [9.0] + [1.0] * (N - 1)


def batches_of(sampler: Sampler[int], drop_last: bool = False) -> DataLoader[Any]:
    return DataLoader(DATA, batch_size=BATCH, sampler=sampler, drop_last=drop_last)


LOADERS: dict[str, Callable[[], DataLoader[Any]]] = {
    "poisson": lambda: DataLoader(
        DATA, batch_sampler=UniformWithReplacementSampler(num_samples=N, sample_rate=0.2)
    ),
    "shuffled": lambda: batches_of(RandomSampler(DATA)),
    "last batch dropped": lambda: batches_of(RandomSampler(DATA), drop_last=True),
    "in order": lambda: batches_of(SequentialSampler(DATA)),
    "with replacement": lambda: batches_of(RandomSampler(DATA, replacement=True)),
    "weighted": lambda: batches_of(WeightedRandomSampler(WEIGHTS, 40)),
}


@pytest.mark.parametrize("kind", LOADERS)
def test_a_canary_is_drawn_like_a_record_of_the_loader(kind: str) -> None:
    """Counts of draws in 400 pairs of epochs: record 0, the heaviest, against a canary."""
    torch.manual_seed(0)
    loader, epochs = LOADERS[kind](), 2
    draws = Draws(loader, np.ones(30, bool), seed=1)
    steps = epochs * draws.batches
    of_record = [
        sum(list(batch).count(0) for _ in range(epochs) for batch in loader.batch_sampler)
        for _ in range(400)
    ]
    of_canaries = np.concatenate([
        np.bincount(np.concatenate([draws.next(1) for _ in range(steps)]), minlength=30)
        for _ in range(100)
    ])  # fmt: skip
    law = draws.share_of(steps)
    assert law.sum() == pytest.approx(1)
    if kind == "in order":
        assert set(of_record) == set(of_canaries) == {2}
        assert law[2] == 1
        return
    for seen, n in ((of_record, 400), (of_canaries, 3000)):
        found = np.bincount(seen, minlength=len(law))[: len(law)] / n
        errors = np.sqrt(law * (1 - law) / n)
        assert (np.abs(found - law) <= 4.5 * errors + 1.5 / n).all(), (found, law)


def test_an_epoch_in_order_has_the_same_places() -> None:
    draws = Draws(LOADERS["in order"](), np.ones(30, bool), seed=1)
    first, second = ([draws.next(1).tolist() for _ in range(draws.batches)] for _ in range(2))
    assert first == second
    shuffled = Draws(LOADERS["shuffled"](), np.ones(30, bool), seed=1)
    first, second = ([shuffled.next(1).tolist() for _ in range(draws.batches)] for _ in range(2))
    assert first != second


def test_part_of_an_epoch_has_its_law() -> None:
    draws = Draws(LOADERS["shuffled"](), np.ones(30, bool), seed=1)  # 7 batches
    law = draws.share_of(10)
    assert law == pytest.approx([0, 1 - 24 / 50, 24 / 50])
    dropped = Draws(LOADERS["last batch dropped"](), np.ones(30, bool), seed=1)
    assert dropped.share_of(6) == pytest.approx([2 / 50, 48 / 50, 0])


class Grouped(BatchSampler):
    """Batches of records of one group."""

    def __iter__(self) -> Iterator[list[int]]:
        yield from ([k, k + 1] for k in range(0, N, 2))


class Own(Sampler[int]):
    def __len__(self) -> int:
        return N

    def __iter__(self) -> Iterator[int]:
        yield from range(N)


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (
            DataLoader(DATA, batch_sampler=Grouped(SequentialSampler(DATA), 2, False)),
            "draws batches by Grouped",
        ),
        (batches_of(Own()), "draws records by Own, and how often it draws one is not known"),
        (
            batches_of(WeightedRandomSampler(WEIGHTS, 40, replacement=False)),
            "WeightedRandomSampler without replacement",
        ),
        (batches_of(RandomSampler(DATA, num_samples=20)), "RandomSampler"),
        ([torch.zeros(3)], "the loader is list without a number of batches"),
    ],
)
def test_other_loaders_are_refused(loader: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Draws(loader, np.ones(30, bool), seed=0)


def test_a_subset_is_shuffled() -> None:
    draws = Draws(batches_of(SubsetRandomSampler(range(20))), np.ones(30, bool), seed=0)
    assert sum(len(draws.next(1)) for _ in range(3)) == 30
