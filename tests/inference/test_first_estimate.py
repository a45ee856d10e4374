"""The preliminary figure that a terminal shows before a run is over."""

from dataclasses import replace

import pytest
import torch
from sklearn.metrics import roc_auc_score

from leakgauge.gradients import params_of
from leakgauge.inference import Energies
from leakgauge.inference.run.first_estimate import first_estimate, in_words, worth_it
from leakgauge.inference.run.observing import shadow_of_round
from leakgauge.runs.question import Silent
from support.synthetic import records, small_stage

ATTACK = Energies(batches=300)


@pytest.mark.calibration
def test_a_planted_secret_is_seen_and_none_is_chance() -> None:
    assert first_estimate(small_stage(records(4.0), ATTACK)).value > 0.95
    found = first_estimate(small_stage(records(0.0), ATTACK))
    assert found.low <= 0.5 <= found.high


def test_it_is_the_auroc_of_some_trials_by_a_regression_on_the_first_round() -> None:
    stage = small_stage(records(0.7), ATTACK, trials=2100)
    params = params_of(stage.task.model)
    score = Energies(batches=600).regress(shadow_of_round(stage, 1, params))
    trials = stage.trials
    some = shadow_of_round(stage, 1, params)
    private = replace(some, data=trials.pool)
    (grads,) = private.gradients(trials.rows[::3].numpy())
    odds = score(grads)
    expected = roc_auc_score(trials.secret[::3], odds[:, 1] - odds[:, 0])
    found = first_estimate(stage)
    assert found.value == pytest.approx(expected, abs=1e-9)
    assert (found.n, found.low < found.value < found.high) == (700, True)


def test_the_line_says_what_it_rests_on() -> None:
    stage = small_stage(records(0.7), ATTACK)
    text = in_words(stage, first_estimate(stage))
    assert text.startswith("preliminary: property inference, AUROC 0.")
    assert "energies alone, in round 1 of 2" in text


def test_only_long_runs_have_one() -> None:
    stage = small_stage(records(0.7), ATTACK)
    assert not worth_it(stage)
    assert worth_it(replace(stage, spec=replace(stage.spec, rounds=50)))


def test_nothing_is_computed_where_nobody_reads() -> None:
    Silent().early(lambda: pytest.fail("computed for nobody"))


def test_trials_that_share_records_are_not_counted_as_independent() -> None:
    """With batches from all records, its interval leaves out records, as that of the run."""
    stage = small_stage(records(0.7), ATTACK, draw="iid", trials=600)
    found = first_estimate(stage)
    apart = replace(stage.trials, units=None, block=torch.arange(len(stage.trials)))
    narrow = first_estimate(replace(stage, trials=apart))
    assert found.value == pytest.approx(narrow.value)
    assert found.high - found.low > narrow.high - narrow.low
