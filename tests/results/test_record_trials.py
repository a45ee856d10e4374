"""A record is exposed if its batches are named more surely than others with the same secret."""

import itertools

import numpy as np
from scipy import stats

from leakgauge.core.rng import stream
from leakgauge.results.record_trials import records_of_trials, worst_record


def trials(seed: int, *, n: int = 240, blocks: int = 4, of_block: int = 16, batch: int = 4):
    """Return records ``[n, B]`` and kinds ``[n]`` as games deal them: two secrets in a block."""
    rng = stream(seed, "trials")
    kind = np.arange(n) % (2 * blocks)
    rows = np.stack([rng.choice(of_block, batch, replace=False) + of_block * one for one in kind])
    return rows, kind, rng


def found(seed: int, planted: int | None = None):
    rows, kind, rng = trials(seed)
    score = rng.normal(size=len(kind)) + 3.0 * kind  # kinds differ, which is no one's fault
    if planted is not None:
        score += 4.0 * (rows == planted).any(axis=1)
    right = (score - 3.0 * kind > 0).astype(float)
    one = records_of_trials(score, right, rows, kind, rng=rng, permutations=99)
    return one, worst_record(score, right, rows, kind)


def test_without_a_leak_any_record_is_named_in_at_most_1_of_20_runs() -> None:
    alarms = sum(bool((found(seed)[0].p_value <= 0.05).any()) for seed in range(50))
    assert stats.binomtest(alarms, 50, 0.05, alternative="greater").pvalue > 1e-3


def test_a_planted_record_stands_first_and_is_named() -> None:
    first = confirmed = 0
    for seed in range(10):
        one, worst = found(seed, planted=37)
        first += one.records[np.argmax(one.excess)] == 37
        assert one.p_value[one.records == 37] <= 0.05
        assert worst is not None
        confirmed += worst.record == 37 and worst.figure > worst.guess
    assert first == 10
    assert confirmed >= 8, "half of the trials chooses it less surely"


def test_the_worst_record_of_chance_is_chance_in_the_other_half() -> None:
    """The half that chooses shows a record that is named often; the other half does not."""
    gaps = [worst.figure - worst.guess for _, worst in map(found, range(50)) if worst is not None]
    assert abs(np.mean(gaps)) < 3 * np.std(gaps) / np.sqrt(len(gaps))


def test_p_values_are_those_of_all_deals() -> None:
    """Every deal of five scores to five batches, beside the random ones."""
    rows, score = np.array([[0, 1], [1, 2], [2, 3], [3, 0], [0, 2]]), np.array([5.0, 1, 2, 4, 3])
    kind, holds = np.zeros(5, dtype=int), np.array([(rows == one).any(axis=1) for one in range(4)])

    def standardised(dealt: np.ndarray) -> np.ndarray:
        counts = holds.sum(axis=1)
        spread = np.sqrt(counts * (5 - counts) / (5 * 4) * ((score - 3) ** 2).sum())
        return (holds @ (dealt - 3)) / spread

    largest = [standardised(np.array(one)).max() for one in itertools.permutations(score)]
    exact = [np.mean(np.array(largest) >= one - 1e-9) for one in standardised(score)]
    drawn = records_of_trials(
        score, score > 3, rows, kind, rng=stream(0, "deals"), permutations=999
    )
    assert np.allclose(drawn.excess, standardised(score))
    assert np.abs(drawn.p_value - exact).max() < 0.05
    assert drawn.figure.tolist() == [2 / 3, 0.5, 0.0, 0.5]
    assert drawn.guess.tolist() == [0.0, 1 / 3, 1.0, 1 / 3]


def test_a_record_of_all_trials_has_none_to_compare_with() -> None:
    rows, kind = np.array([[0, 1], [0, 2], [0, 3]]), np.zeros(3, dtype=int)
    one = records_of_trials(np.arange(3.0), np.ones(3), rows, kind, rng=stream(0, "few"))
    assert one.records.tolist() == [1, 2, 3]
