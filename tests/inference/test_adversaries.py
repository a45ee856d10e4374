from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn.functional import cross_entropy

from leakgauge.core.rng import stream
from leakgauge.inference import Forest, Logistic, Shadow, accumulate
from leakgauge.inference.adversaries.calibration import HeldOut, fit_slope
from leakgauge.results.roc import auroc
from support.references import inference as literal
from support.synthetic import bench

UNIFORM = np.log([0.5, 0.5])


def judge(adversary, shadow: Shadow, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rows, secret = shadow.draw(n, rng=stream(1, "judge"))
    parts = [adversary.log_posterior(grads) for grads in shadow.gradients(rows)]
    return np.concatenate(parts), secret


def test_forest_is_the_paper_written_down_literally() -> None:
    shadow, prior = bench(1.0), [0.3, 0.7]
    attack = Forest(trees=10, kernel=3, batches=30)
    fitted = attack.fit(shadow, np.log(prior), rng=stream(0, "fit"))
    found, _ = judge(fitted, shadow, 15)

    rows, secret = shadow.draw(30, rng=stream(shadow.draw_seed, "batches", shadow.part, 30))
    seen, _ = shadow.draw(15, rng=stream(1, "judge"))
    x, y = shadow.data.x, shadow.data.y
    expected = literal.forest_posterior(
        shadow.task.model,
        cross_entropy,
        [(x[row], y[row], int(a)) for row, a in zip(rows, secret, strict=True)],
        [(x[row], y[row]) for row in seen],
        prior,
        trees=10,
        kernel=3,
        random_state=int(stream(0, "fit").integers(2**31)),
    )
    np.testing.assert_allclose(np.exp(found), expected, rtol=1e-9)


def test_bayes_over_rounds_is_the_paper_written_down_literally() -> None:
    rng, prior = stream(0, "rounds"), [0.2, 0.5, 0.3]
    posteriors = rng.dirichlet(np.ones(3), size=(4, 6))
    found = accumulate(np.log(posteriors), np.log(prior))
    for trial in range(6):
        expected = literal.bayes_over_rounds(posteriors[:, trial].tolist(), prior)
        np.testing.assert_allclose(np.exp(found[trial]), expected, rtol=1e-12)


@pytest.mark.calibration
def test_bayes_over_independent_gaussian_rounds_has_the_known_auroc() -> None:
    """R looks at a shift mu are one look at a shift sqrt(R) mu."""
    rng, mu, rounds, n = stream(0, "gauss"), 0.4, 9, 40_000
    truth = rng.integers(2, size=n)
    seen = rng.normal(size=(rounds, n)) + mu * truth
    log_likelihood = np.stack([-(seen**2) / 2, -((seen - mu) ** 2) / 2], axis=2)
    posterior = log_likelihood - np.logaddexp.reduce(log_likelihood, axis=2, keepdims=True)
    total = accumulate(posterior, UNIFORM)
    found = auroc(truth == 1, total[:, 1] - total[:, 0])
    assert found == pytest.approx(stats.norm.cdf(np.sqrt(rounds) * mu / np.sqrt(2)), abs=0.006)


def test_one_round_cannot_rule_the_others() -> None:
    """Unanimous trees in one round do not overrule what all other rounds say."""
    fitted = Forest(trees=50, batches=200).fit(bench(4.0), UNIFORM, rng=stream(0, "fit"))
    log_posterior, _ = judge(fitted, bench(4.0), 100)
    assert np.isfinite(log_posterior).all()
    assert log_posterior.min() == pytest.approx(np.log(0.5 / 51))


FOREST, LOGISTIC = Forest(trees=10, batches=100), Logistic(batches=100)
ATTACKS = [FOREST, LOGISTIC]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_posteriors_are_normalised_and_bring_in_the_prior(attack) -> None:
    shadow = bench(1.0)
    plain = attack.fit(shadow, UNIFORM, rng=stream(0, "fit"))
    tilted = attack.fit(shadow, np.log([0.9, 0.1]), rng=stream(0, "fit"))
    with_uniform, _ = judge(plain, shadow, 50)
    with_tilt, _ = judge(tilted, shadow, 50)
    for found in (with_uniform, with_tilt):
        np.testing.assert_allclose(np.exp(found).sum(axis=1), 1.0)
    odds = (with_tilt - with_uniform)[:, 0] - (with_tilt - with_uniform)[:, 1]
    np.testing.assert_allclose(odds, np.log(9), rtol=1e-9)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_a_fitted_adversary_does_not_depend_on_global_randomness(attack) -> None:
    first, _ = judge(attack.fit(bench(1.0), UNIFORM, rng=stream(0, "fit")), bench(1.0), 20)
    np.random.default_rng(5)
    torch.manual_seed(99)
    again, _ = judge(attack.fit(bench(1.0), UNIFORM, rng=stream(0, "fit")), bench(1.0), 20)
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("users", [None, 80])
def test_folds_share_no_record_and_no_person(users: int | None) -> None:
    shadow = bench(1.0, users=users)
    held = []
    for rest, fold in shadow.folds(3, rng=stream(0, "folds")):
        unit = "x" if users is None else "users"
        sides = [
            {tuple(np.atleast_1d(row)) for row in getattr(part.data, unit).numpy()}
            for part in (rest, fold)
        ]
        assert not sides[0] & sides[1]
        held.append(len(fold.data))
    assert sum(held) == len(shadow.data)


def test_shadow_batches_are_balanced_and_of_one_secret() -> None:
    shadow = bench(1.0)
    rows, secret = shadow.draw(301, rng=stream(0, "draw"))
    codes = shadow.data.secrets["s"].numpy()
    assert abs(int(secret.sum()) - 150) <= 1
    assert (codes[rows] == secret[:, None]).all()


def test_slope_of_known_overconfidence() -> None:
    """Log-odds that were multiplied by 3 need the slope 1/3; those of a coin need 0."""
    rng = stream(0, "slope")
    truth = rng.integers(2, size=100_000)
    odds = 3 * (2 * truth - 1 + rng.normal(size=len(truth))) * 2  # N(+-1, 1): log-odds 2 x
    said = np.stack([-odds / 2, odds / 2], axis=1)
    assert fit_slope(HeldOut(said, truth)) == pytest.approx(1 / 3, abs=0.01)
    assert fit_slope(HeldOut(said, rng.permutation(truth))) == pytest.approx(0, abs=0.01)


def test_logistic_never_rules_out_a_secret() -> None:
    """Where the secrets lie far apart, probabilities round to 0; their logs would be infinite."""
    fitted = LOGISTIC.fit(bench(200.0), UNIFORM, rng=stream(0, "fit"))
    log_posterior, _ = judge(fitted, bench(5e5), 50)
    assert np.isfinite(log_posterior).all()


@pytest.mark.calibration
def test_logistic_is_humble_where_nothing_leaks() -> None:
    """On average over eight draws of the folds: a single one scatters from 0 to 0.26."""
    slopes = [
        Logistic(batches=300)
        .fit(replace(bench(0.0), held_out_seed=seed), UNIFORM, rng=stream(0, "fit"))
        .slope
        for seed in range(8)
    ]
    assert np.mean(slopes) < 0.2
