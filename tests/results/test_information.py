"""The lower bound of the information, against channels with known information."""

import numpy as np
import pytest
from scipy import integrate, special, stats

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.results.information import information_lower_bound
from leakgauge.results.scores import ScoredTrials

PRIORS = [(0.5, 0.5), (0.8, 0.2), (0.5, 0.3, 0.2)]


def known(shift: float, prior: tuple[float, ...]) -> float:
    """I(a; a shift + N(0, 1)) by integration, in nats."""
    centres = shift * np.arange(len(prior))

    def gain(x: float) -> float:
        density = stats.norm.pdf(x, centres)
        return float(np.dot(prior, special.rel_entr(density, np.dot(prior, density))))

    return float(integrate.quad(gain, -9, centres[-1] + 9, limit=200)[0])


def played(n: int, shift: float, prior: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Secrets from the prior, and the log posterior of Bayes' rule."""
    rng = stream(0, "channel", *prior)
    secret = rng.choice(len(prior), size=n, p=prior)
    seen = rng.normal(size=n) + shift * secret
    joint = stats.norm.logpdf(seen[:, None], shift * np.arange(len(prior))) + np.log(prior)
    return secret, joint - special.logsumexp(joint, axis=1, keepdims=True)


def told(secret: np.ndarray, log_posterior: np.ndarray, prior: tuple[float, ...]):
    judged = ScoredTrials(secret, log_posterior, np.arange(len(secret)) // 4)
    return information_lower_bound(judged, np.log(prior), rng=stream(0, "bootstrap"))


@pytest.mark.parametrize(
    ("shift", "prior"),
    [
        (0.5, PRIORS[1]),
        (2.0, PRIORS[2]),
        *(
            pytest.param(shift, PRIORS[at], marks=pytest.mark.slow)
            for shift, at in ((0.5, 0), (0.5, 2), (2.0, 0), (2.0, 1))
        ),
    ],
)
def test_the_best_adversary_tells_all_that_a_gaussian_channel_lets_through(
    shift: float, prior: tuple[float, ...]
) -> None:
    found = told(*played(40_000, shift, prior), prior)
    nats = known(shift, prior)
    assert found.low <= nats <= found.high
    assert found.value == pytest.approx(nats, abs=0.02)
    assert (found.unit, found.n) == ("nats", 40_000)


@pytest.mark.parametrize(
    "prior", [*(pytest.param(one, marks=pytest.mark.slow) for one in PRIORS[:2]), PRIORS[2]]
)
def test_others_tell_less(prior: tuple[float, ...]) -> None:
    """Three adversaries: one is three times overconfident, one repeats the prior, one is random."""
    secret, best = played(40_000, 1.0, prior)
    sure = told(secret, special.log_softmax(3 * best, axis=1), prior)
    assert sure.high < known(1.0, prior)
    same = told(secret, np.tile(np.log(prior), (len(secret), 1)), prior)
    assert same.value == pytest.approx(0.0, abs=1e-12)
    made_up = stream(1, "made up").normal(size=best.shape) + np.log(prior)
    assert told(secret, special.log_softmax(made_up, axis=1), prior).high < 0


def test_posteriors_that_do_not_sum_to_1_win_nothing() -> None:
    secret, best = played(1000, 1.0, (0.5, 0.5))
    assert told(secret, best + 5, (0.5, 0.5)).value == pytest.approx(
        told(secret, best, (0.5, 0.5)).value
    )


def test_one_block_has_no_interval() -> None:
    judged = ScoredTrials(
        np.array([0, 1]), np.log(np.full((2, 2), 0.5)), np.zeros(2, dtype=np.int64)
    )
    with pytest.raises(InputError, match="two blocks"):
        information_lower_bound(judged, np.log([0.5, 0.5]), rng=stream(0))


def test_few_users_are_left_out_one_after_the_other() -> None:
    rng = np.random.default_rng(0)
    users = np.stack([rng.permutation(9)[:2] for _ in range(400)])
    log_prior = np.log([0.5, 0.5])
    truth = rng.integers(2, size=400)
    chance = rng.beta(8, 2, size=9)[users[:, 0]]  # how sure the adversary is of each user
    posterior = np.where(truth[:, None] == [0, 1], chance[:, None], 1 - chance[:, None])
    judged = ScoredTrials(truth, np.log(posterior), np.zeros(400, dtype=np.int64), users)
    found = information_lower_bound(judged, log_prior, rng=rng)

    gains = np.log(chance) - np.log(0.5)
    without = [gains[(users != user).all(axis=1)].mean() for user in range(9)]
    reach = 2.306004 * np.sqrt(8 * np.var(without))  # Student t at 8 degrees
    assert found.value == pytest.approx(gains.mean())
    assert found.low == pytest.approx(gains.mean() - reach)
    assert found.high == pytest.approx(min(gains.mean() + reach, np.log(2)))
