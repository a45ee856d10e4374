import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score, roc_curve

from leakgauge.core.rng import stream
from leakgauge.results import intervals, roc, scores


def two_classes(n: int, shift: float, rng: np.random.Generator, *, ties: bool = False):
    truth = rng.integers(2, size=n)
    score = rng.normal(size=n) + shift * truth
    if ties:
        score = np.round(score)
    odds = np.stack([-score / 2, score / 2], axis=1)
    log_posterior = odds - np.logaddexp(odds[:, :1], odds[:, 1:])
    return truth, score, log_posterior


def judged(truth, log_posterior, block=None) -> scores.ScoredTrials:
    block = np.arange(len(truth)) if block is None else block
    return scores.ScoredTrials(truth, log_posterior, block)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_auroc_is_scikit_learns(ties: bool, weighted: bool) -> None:
    rng = stream(0, "auroc")
    truth, score, _ = two_classes(300, 0.7, rng, ties=ties)
    weights = rng.integers(0, 4, size=300).astype(float) if weighted else None
    expected = roc_auc_score(truth, score, sample_weight=weights)
    assert roc.auroc(truth == 1, score, weights) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("fpr", [0.0, 0.01, 0.1, 1.0])
@pytest.mark.parametrize("ties", [False, True])
def test_tpr_at_fpr_is_the_best_point_of_scikit_learns_roc(fpr: float, ties: bool) -> None:
    truth, score, _ = two_classes(500, 1.0, stream(1, "tpr"), ties=ties)
    x, y, _ = roc_curve(truth, score, drop_intermediate=False)
    assert roc.tpr_at_fpr(truth == 1, score, fpr) == pytest.approx(y[x <= fpr + 1e-12].max())


def test_counted_by_hand() -> None:
    """Positive i + 9.5 beats the negatives 0 .. i + 9: 5,905 of 10,000 pairs."""
    score = np.concatenate([np.arange(100), np.arange(100) + 9.5])
    positive = np.repeat([False, True], 100)
    assert roc.auroc(positive, score) == pytest.approx(0.5905, abs=1e-12)
    assert roc.tpr_at_fpr(positive, score, 0.01) == pytest.approx(0.11, abs=1e-12)


@pytest.mark.parametrize("mu", [0.0, 0.5, 2.0])
def test_gaussian_shift_has_the_known_auroc(mu: float) -> None:
    truth, score, _ = two_classes(200_000, mu, stream(2, "shift"))
    expected = stats.norm.cdf(mu / np.sqrt(2))
    assert roc.auroc(truth == 1, score) == pytest.approx(expected, abs=0.004)


def test_macro_auroc_is_scikit_learns() -> None:
    rng = stream(3, "macro")
    truth = rng.integers(4, size=400)
    logits = rng.normal(size=(400, 4)) + 1.5 * np.eye(4)[truth]
    log_posterior = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    expected = roc_auc_score(truth, np.exp(log_posterior), multi_class="ovr", average="macro")
    assert scores.figures(judged(truth, log_posterior))["auroc"] == pytest.approx(expected)


def test_saturated_posteriors_make_no_ties() -> None:
    """Probabilities of 1 - 1e-20 and 1 - 1e-30 are both 1.0 in floats; their log-odds differ."""
    odds = np.array([40.0, 60.0, 45.0, 70.0])
    log_posterior = np.stack([-odds, -np.log1p(np.exp(-odds))], axis=1)
    found = scores.figures(judged(np.array([0, 1, 0, 1]), log_posterior))["auroc"]
    assert found == 1.0


@pytest.mark.parametrize("seed", range(8))
def test_resampled_blocks_are_trials_with_weights(seed: int) -> None:
    """To the last digit, with ties, lopsided blocks and classes that a resample may lose."""
    rng = stream(seed, "resampled")
    n, count = int(rng.integers(20, 400)), int(rng.integers(2, 40))
    positive = rng.random(n) < 0.3
    score = np.round(rng.normal(size=n) + rng.choice([0.0, 0.7, 5.0]) * positive, seed % 4)
    block = rng.integers(count, size=n)
    drawn = intervals.draw_blocks(count, 50, rng)
    np.testing.assert_array_equal(
        roc.resampled_auroc(positive, score, block, drawn),
        roc.auroc(positive, score, drawn[:, block]),
    )


def test_weights_are_repetitions() -> None:
    rng = stream(4, "weights")
    truth, _, log_posterior = two_classes(60, 1.0, rng)
    weights = rng.integers(0, 3, size=(5, 60))
    each = judged(truth, log_posterior, np.arange(60))
    vectorised = scores.resampled_figures(each, weights.astype(float))
    for row in range(5):
        again = np.repeat(np.arange(60), weights[row])
        alone = scores.figures(judged(truth[again], log_posterior[again]))
        for metric, values in vectorised.items():
            assert values[row] == pytest.approx(float(alone[metric])), metric


def test_roc_ends_at_one_and_rises() -> None:
    truth, _, log_posterior = two_classes(500, 1.0, stream(5, "roc"))
    fpr, tpr = np.array(scores.roc(judged(truth, log_posterior))).T
    assert fpr[0] == 0
    assert (fpr[-1], tpr[-1]) == (1.0, 1.0)
    assert (np.diff(fpr) > 0).all()
    assert (np.diff(tpr) >= 0).all()


def test_advantage_follows_success() -> None:
    truth, _, log_posterior = two_classes(400, 1.0, stream(6, "advantage"))
    found = scores.score(judged(truth, log_posterior), majority=0.6, rng=stream(0, "b"))
    for end in ("value", "low", "high"):
        success = getattr(found["success"], end)
        assert getattr(found["advantage"], end) == pytest.approx((success - 0.6) / 0.4)


@pytest.mark.parametrize(
    ("success", "majority", "by_hand"),
    [(0.9437, 0.68, 0.2637 / 0.32), (0.5732, 0.68, 0.0), (0.68, 0.68, 0.0), (1.0, 0.2, 1.0)],
)
def test_an_advantage_below_guessing_is_none(
    success: float, majority: float, by_hand: float
) -> None:
    assert scores.advantage(success, majority) == pytest.approx(by_hand, abs=1e-12)


def test_an_adversary_that_is_always_wrong_has_no_advantage() -> None:
    truth = np.arange(40) % 2
    wrong = np.log(np.where(np.eye(2)[1 - truth] > 0, 0.9, 0.1))
    found = scores.score(judged(truth, wrong), majority=0.5, rng=stream(0, "b"))["advantage"]
    assert (found.value, found.low) == (0.0, 0.0)


def test_chunks_of_resamples_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    truth, _, log_posterior = two_classes(200, 1.0, stream(7, "chunks"))
    case = judged(truth, log_posterior, np.arange(200) % 20)
    whole = scores.score(case, majority=0.5, rng=stream(0, "b"), replicates=50)
    monkeypatch.setattr(roc, "CELLS", 200 * 7)
    assert scores.score(case, majority=0.5, rng=stream(0, "b"), replicates=50) == whole


def coverage(share_records: bool, by_block: bool, repetitions: int = 200) -> float:
    """How often the interval holds the true AUROC where the trials of a block share a record."""
    mu, blocks, each = 1.0, 30, 10
    spread = 1.0 if share_records else 0.0
    # difference of two scores: variance 2 (own) + 2 (blocks), so AUROC = Phi(mu / sqrt(2 + 2 s^2))
    true = stats.norm.cdf(mu / np.sqrt(2 + 2 * spread**2))
    held = 0
    for repetition in range(repetitions):
        rng = stream(repetition, "coverage")
        truth = np.tile([0, 1], blocks * each // 2)
        block = np.repeat(np.arange(blocks), each)
        shared = rng.normal(size=(blocks, 2))[block, truth] * spread
        score = rng.normal(size=len(truth)) + mu * truth + shared
        log_posterior = np.stack([-np.logaddexp(0, score), -np.logaddexp(0, -score)], axis=1)
        case = judged(truth, log_posterior, block if by_block else None)
        found = scores.score(case, majority=0.5, rng=rng, replicates=200)["auroc"]
        held += found.low <= true <= found.high
    return held / repetitions


def test_interval_covers_where_trials_share_records() -> None:
    assert coverage(share_records=True, by_block=True) >= 0.90


@pytest.mark.calibration
def test_interval_covers_independent_trials() -> None:
    assert coverage(share_records=False, by_block=True) >= 0.90


def test_ignoring_shared_records_would_be_dishonest() -> None:
    """The reason for blocks: resampling single trials gives intervals that miss far too often."""
    assert coverage(share_records=True, by_block=False) < 0.85


def test_perfect_separation_is_not_certainty() -> None:
    truth = np.tile([0, 1], 100)
    log_posterior = np.log(np.where(np.eye(2)[truth] > 0, 0.9, 0.1))
    found = scores.score(
        judged(truth, log_posterior, np.arange(200) % 50), majority=0.5, rng=stream(0, "b")
    )
    expected = stats.beta.ppf(0.025, 50, 1)  # Clopper-Pearson for 50 of 50
    assert found["auroc"].value == found["auroc"].high == 1.0
    assert found["auroc"].low == pytest.approx(expected)
    assert found["success"].low == pytest.approx(expected)


@pytest.mark.parametrize("values", [2, 3, 7])
def test_perfect_separation_is_exactly_one_in_any_order(values: int) -> None:
    """Rounding must not hide that no error was seen (nor show an area above 1)."""
    for seed in range(20):
        rng = stream(seed, "perfect")
        truth = rng.integers(values, size=700)
        logits = 30 * np.eye(values)[truth] + rng.normal(size=(700, values))
        log_posterior = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        case = judged(truth, log_posterior, np.arange(700) % 50)
        found = scores.score(case, majority=1 / values, rng=rng, replicates=50)["auroc"]
        assert (found.value, found.high) == (1.0, 1.0)
        assert found.low == pytest.approx(stats.beta.ppf(0.025, 50, 1))


def test_an_adversary_that_always_says_the_same_proves_nothing() -> None:
    truth = np.arange(200) % 2
    case = judged(truth, np.log(np.full((200, 2), 0.5)), np.arange(200) % 50)
    found = scores.score(case, majority=0.5, rng=stream(0, "b"))["auroc"]
    assert found.value == 0.5
    assert found.low < 0.45
    assert found.high > 0.55


def test_chance_of_tpr_is_what_noise_reaches() -> None:
    rng = stream(0, "noise")
    truth = np.arange(120) % 2
    found = [roc.tpr_at_fpr(truth == 1, rng.normal(size=120), 0.01) for _ in range(4000)]
    assert scores.chance(truth, 0.5)["tpr_at_1_fpr"] == pytest.approx(np.mean(found), abs=0.003)


def test_a_class_without_weight_has_no_figure() -> None:
    positive, weights = np.array([True, True, False]), np.array([1.0, 1.0, 0.0])
    for one in (positive, ~positive):
        assert np.isnan(roc.auroc(one, np.arange(3.0), weights))
        assert np.isnan(roc.tpr_at_fpr(one, np.arange(3.0), 0.01, weights))


def test_accuracy_interval_covers_with_persons() -> None:
    held = 0
    for repetition in range(200):
        rng = stream(repetition, "persons")
        person = np.repeat(np.arange(60), rng.integers(1, 6, size=60))
        chance = rng.uniform(0.5, 1.0, size=60)[person]
        correct = rng.random(len(person)) < chance
        found = intervals.share(correct, person, rng=rng, replicates=300)
        held += found.low <= 0.75 <= found.high
    assert held >= 180
