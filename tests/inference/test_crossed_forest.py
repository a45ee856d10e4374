"""Trees that are grown without one fold of the shadow each, and judge that fold."""

import numpy as np
import pytest

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.inference import Energies, Forest
from leakgauge.inference.adversaries.calibration import held_out_folds, smoothed_votes
from leakgauge.inference.adversaries.crossed_forest import CrossedForest
from leakgauge.inference.adversaries.forest import votes
from leakgauge.inference.adversaries.stacking import held_out_scores
from leakgauge.results.roc import auroc
from support.synthetic import bench

UNIFORM = np.log([0.5, 0.5])
ATTACK = CrossedForest(trees=30, batches=300)


def fitted(shift: float, attack: CrossedForest = ATTACK, **more: int):
    return attack.fit(bench(shift, **more), UNIFORM, rng=stream(0, "fit"))


def of_held_out(found) -> float:
    odds = found.held_out.log_odds
    return float(auroc(found.held_out.secret == 1, odds[:, 1] - odds[:, 0]))


def test_what_the_records_give_away_is_seen_on_held_out_batches() -> None:
    assert of_held_out(fitted(4.0)) > 0.97
    assert of_held_out(fitted(0.0)) == pytest.approx(0.5, abs=0.1)


def test_trees_know_their_own_records_by_heart_and_no_others() -> None:
    """Without anything to learn, the trees of another fold seem to know the batches; their own
    fold's trees, which have not seen a record of them, do not."""
    shadow = bench(0.0)
    found = ATTACK.fit(shadow, UNIFORM, rng=stream(0, "fit"))
    folds = [*held_out_folds(shadow, folds=3, batches=300)]
    for number, part in enumerate(folds):
        (grads,) = shadow.held_out_gradients(part.batches)
        features = found.view(grads).numpy()
        own, other = (
            auroc(part.secret == 1, votes(found.models[one], features)[:, 1])
            for one in (number, (number + 1) % 3)
        )
        assert own == pytest.approx(0.5, abs=0.15)
        assert other > own + 0.05


def test_all_trees_score_a_trial_and_those_of_a_fold_its_held_out_batches() -> None:
    shadow = bench(1.0)
    found = ATTACK.fit(shadow, UNIFORM, rng=stream(0, "fit"))
    part = next(iter(held_out_folds(shadow, folds=3, batches=300)))
    (grads,) = shadow.held_out_gradients(part.batches)
    features = found.view(grads).numpy()
    each = np.stack([votes(one, features) for one in found.models])
    np.testing.assert_allclose(found.held_out.log_odds[:100], smoothed_votes(each[0], 10))
    expected = smoothed_votes(each.mean(axis=0), 30)
    expected -= np.logaddexp.reduce(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(found.log_posterior(grads), expected)


def test_it_scores_the_batches_that_other_adversaries_score() -> None:
    shadow = bench(1.0)
    other = Energies(batches=300).fit(shadow, UNIFORM, rng=stream(1, "fit"))
    np.testing.assert_array_equal(fitted(1.0).held_out.secret, other.held_out.secret)


def test_nothing_is_grown_once_more_to_judge_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shadow = bench(1.0)
    found = ATTACK.fit(shadow, UNIFORM, rng=stream(0, "fit"))
    monkeypatch.setattr(CrossedForest, "fit", None)
    known = held_out_scores(ATTACK, found, shadow, batches=300, rng=stream(0, "held out"))
    assert known is found.held_out


def test_users_are_on_one_side() -> None:
    found = fitted(1.0, users=40)
    assert found.held_out.log_odds.shape == (300, 2)


def test_it_finds_about_what_the_forest_of_the_paper_finds() -> None:
    """A shift of the records' mean: the means of 8 records differ by shift * sqrt(8)."""
    shadow, other = bench(0.6), bench(0.6, n=2000)
    rows, secret = other.draw(600, rng=stream(5, "trials"))
    (grads,) = other.gradients(rows)
    found = []
    for attack in (ATTACK, Forest(trees=30, batches=300)):
        log_posterior = attack.fit(shadow, UNIFORM, rng=stream(0, "fit")).log_posterior(grads)
        found.append(auroc(secret == 1, log_posterior[:, 1] - log_posterior[:, 0]))
    assert found[0] == pytest.approx(found[1], abs=0.08)
    assert min(found) > 0.6


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"folds": 1}, "number of folds is 1"),
        ({"trees": 2}, "number of trees is 2"),
        ({"kernel": 0}, "pooling kernel"),
        ({"batches": 0}, "number of shadow batches"),
    ],
)
def test_wrong_settings_are_refused(settings, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        CrossedForest(**settings)
