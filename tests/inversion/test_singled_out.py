"""A rebuilt record names its owner only if it fits better than records that nobody attacked."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from scipy import stats

from leakgauge.core.knowledge import STATIC
from leakgauge.core.types import Dataset
from leakgauge.inversion.run.exposing import record_tests, singled_out
from leakgauge.inversion.run.scenario import Scenario
from leakgauge.inversion.words import RANDOM
from leakgauge.results.record_tests import RecordTest

LABELS = torch.zeros(4, dtype=torch.int64)


def public(n: int, seed: int = 1) -> Dataset:
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))
    return Dataset(x, torch.zeros(n, dtype=torch.int64))


def test_guesses_of_an_update_that_tells_nothing_give_uniform_p_values() -> None:
    """Also where the attack guesses well, as the mean, and with four rebuilt records at once."""
    p_values = []
    for seed in range(150):
        rng = torch.Generator().manual_seed(seed)
        truth = torch.randn(1, 4, 6, generator=rng)
        guess = 0.3 * torch.randn(1, 4, 6, generator=rng)
        p_values.append(singled_out(guess, truth, LABELS, public(199, 1000 + seed))[0, 0])
    assert stats.kstest(np.array(p_values), "uniform").pvalue > 1e-3


def of_updates(batches: torch.Tensor, truth: torch.Tensor, others: Dataset) -> RecordTest:
    """Return the test of all records that a run makes of these rebuilt ones."""
    labels = torch.zeros(truth.shape[0] * truth.shape[1], dtype=torch.int64)
    found = singled_out(batches, truth, labels, others)
    scenario = SimpleNamespace(rows=np.arange(len(labels)), drawn=RANDOM)
    attempt = SimpleNamespace(name="made up", defense="none", knowledge=STATIC)
    rebuilt = SimpleNamespace(singled_out=found, scores={}, baselines={})
    (test,) = record_tests(cast(Scenario, scenario), [cast(Any, (attempt, rebuilt))])
    return test


def test_five_updates_that_tell_nothing_name_nobody_in_19_of_20_runs() -> None:
    """All updates' records are compared with the same public ones, in batches of eight."""
    runs, alarms = 150, 0
    for seed in range(runs):
        rng = torch.Generator().manual_seed(seed)
        truth, guess = torch.randn(2, 5, 8, 6, generator=rng)
        found = of_updates(0.3 * guess, truth, public(1999, 1000 + seed))
        alarms += bool((found.adjusted <= 0.05).any())
    assert stats.binomtest(alarms, runs, 0.05, alternative="greater").pvalue > 1e-3
    assert alarms > runs * 0.01, "a bound that never is reached would hide what it should name"


def test_whole_updates_name_all_their_records_among_few_others() -> None:
    """With one correction for all forty records, no p value would be small enough."""
    truth = torch.randn(5, 8, 6, generator=torch.Generator().manual_seed(0))
    found = of_updates(truth.flip(1), truth, public(197))
    assert np.allclose(found.adjusted, 5 / 198), "five updates"
    assert found.p_value.min() * 40 > 0.05


def test_exact_records_have_the_smallest_p_value_in_any_order() -> None:
    truth = torch.randn(1, 4, 6, generator=torch.Generator().manual_seed(0))
    found = singled_out(truth.flip(1), truth, LABELS, public(199))
    assert np.allclose(found[0], 1 / 200)
    assert bool((found[1] > 0).all())
    assert found[2].tolist() == [199] * 4


def test_a_record_with_a_twin_that_was_not_attacked_is_not_singled_out() -> None:
    truth, others = torch.randn(1, 4, 6, generator=torch.Generator().manual_seed(0)), public(199)
    others.x[17] = truth[0, 2]
    assert singled_out(truth, truth, LABELS, others)[0, 2] == 0.01


def test_only_public_records_of_the_same_label_count() -> None:
    """An attacker who knows labels finds class means, which tells nothing more."""
    others = Dataset(public(60).x, torch.arange(60) % 3)
    truth = torch.randn(1, 4, 6, generator=torch.Generator().manual_seed(0))
    found = singled_out(truth, truth, torch.tensor([0, 1, 2, 7]), others)
    assert found[2].tolist() == [20, 20, 20, 0]
    assert found[0, 3] == 1.0, "no other has its label, so nothing can be said"


def test_tokens_are_compared_by_the_number_of_wrong_ones() -> None:
    truth = torch.arange(12).view(1, 2, 6)
    others = Dataset(torch.arange(300, 360).view(10, 6), torch.zeros(10, 6, dtype=torch.int64))
    found = singled_out(truth, truth, torch.zeros(2, 6, dtype=torch.int64), others)
    assert np.allclose(found[0], 1 / 11)


def test_a_search_that_ran_off_names_nobody() -> None:
    truth = torch.randn(1, 4, 6, generator=torch.Generator().manual_seed(0))
    found = singled_out(torch.full_like(truth, torch.nan), truth, LABELS, public(30))
    assert found[0].tolist() == [1.0] * 4
