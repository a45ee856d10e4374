"""Batches drawn from all private records, as in Definition 3.1 of Li et al., CCS 2024."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.core.types import Dataset
from leakgauge.data import Split
from leakgauge.inference import PropertyInference, ProportionInference
from leakgauge.inference.checking import check
from leakgauge.inference.games.blocks import MIN_DISJOINT, BatchSizeError
from leakgauge.inference.games.mixing import Pure, Ratio
from leakgauge.inference.games.trials import most_shared, refuse_few_trials
from leakgauge.inference.run.figures import scored_trials
from leakgauge.inference.run.readings import RunReading
from leakgauge.inference.run.stage import GameStage, make_stage
from leakgauge.inference.spec import InferenceSpec
from support.synthetic import small_task


def pool(n: int = 600, *, users: int | None = None) -> Dataset:
    rng = stream(0, "pool")
    codes = torch.from_numpy((rng.random(n) < 0.4).astype(np.int64))
    people = None if users is None else torch.from_numpy(rng.integers(users, size=n))
    return Dataset(torch.randn(n, 3), codes, {"sex": codes}, people)


def game(data: Dataset, batch_size: int = 8, **settings) -> PropertyInference:
    chosen = {"mix": Pure(2), "draw": "iid", **settings}
    return PropertyInference.deal(
        data, "sex", batch_size=batch_size, rng=stream(0, "deal"), **chosen
    )


def test_each_record_of_a_batch_is_an_independent_draw_from_all_with_the_secret() -> None:
    data = pool(200)
    trials = game(data).draw_trials(8000, rng=stream(0, "play"))
    assert (data.secrets["sex"][trials.rows] == trials.secret[:, None]).all()
    assert (trials.block == 0).all()
    assert torch.equal(trials.units, trials.rows)
    of_value = trials.rows[trials.secret == 1]
    members = torch.where(data.secrets["sex"] == 1)[0]
    counts = torch.bincount(of_value.flatten(), minlength=200)[members]
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3
    # with replacement: two of the eight are equal as often as for independent draws
    twice = np.mean([len(set(row)) < 8 for row in of_value.tolist()])
    expected = 1 - np.prod(1 - np.arange(8) / len(members))
    error = np.sqrt(expected * (1 - expected) / len(of_value))
    assert twice == pytest.approx(expected, abs=4 * error)


def test_proportions_hold_their_counts() -> None:
    data, mix = pool(), Ratio(6, "within")
    drawn = ProportionInference.deal(
        data, "sex", batch_size=20, mix=mix, draw="iid", rng=stream(0, "deal")
    ).draw_trials(500, rng=stream(0, "play"))
    assert np.array_equal(mix.secret_of(data.secrets["sex"][drawn.rows].numpy()), drawn.secret)


def test_the_units_are_the_users_where_the_data_name_them() -> None:
    data = pool(users=40)
    trials = game(data).draw_trials(100, rng=stream(0, "play"))
    assert torch.equal(trials.units, data.users[trials.rows])
    with pytest.raises(InputError, match="only 5 private users"):
        game(pool(users=5))


@pytest.mark.parametrize("draw", ["blocks", "iid"])
def test_batches_may_be_larger_than_blocks_allow(draw: str) -> None:
    """The rarest value needs 8 disjoint batches in blocks, and 4 without."""
    data = pool()
    rarest = int(data.secrets["sex"].sum())
    size = rarest // MIN_DISJOINT
    if draw == "iid":
        assert game(data, size).batch_size == size
        with pytest.raises(BatchSizeError, match=f"to at most {size}"):
            game(data, size + 1)
    else:
        with pytest.raises(BatchSizeError):
            game(data, size, draw=draw)


def staged(**settings) -> GameStage:
    data = pool(1200)
    order = torch.from_numpy(stream(0, "order").permutation(1200))
    split = Split(*(part.sort().values for part in (order[:600], order[600:1000], order[1000:])))
    spec = InferenceSpec(secret="sex", rounds=1, trials=200, batch_size=8, **settings)
    return make_stage("property", small_task(data), data, split, spec=spec)


def test_the_setting_reaches_the_trials_and_the_interval() -> None:
    with_records, in_blocks = staged(draw="iid"), staged()
    said = RunReading(1, np.log(np.full((200, 2), 0.5)))
    trials = scored_trials(with_records, said)
    held = trials.overlap.held.toarray()
    names = np.unique(with_records.trials.rows.numpy())
    for row in range(200):
        rows = set(with_records.trials.rows[row].tolist())
        assert set(names[held[row] > 0].tolist()) == rows
    assert scored_trials(in_blocks, said).overlap is None
    assert len(in_blocks.trials.block.unique()) > 1


def test_draws_in_each_round_are_refused() -> None:
    spec = InferenceSpec(secret="sex", draw="iid", batches="fresh")
    with pytest.raises(InputError, match="draw is 'iid' and batches is 'fresh'"):
        check(spec)
    check(replace(spec, batches="reuse"))


def test_a_record_in_nearly_all_trials_is_refused() -> None:
    trials = game(pool()).draw_trials(40, rng=stream(0, "play"))
    refuse_few_trials(trials, 2)
    units = trials.units.clone()
    units[3:] = 7
    assert most_shared(units) >= 37
    with pytest.raises(InputError, match="trials without some record or user"):
        refuse_few_trials(replace(trials, units=units), 2)
