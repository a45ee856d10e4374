"""Checks of what a training does against what it says: laws, correction, words."""

import numpy as np
import pytest
from scipy import stats

from leakgauge.privacy.conformance import (
    BATCH,
    CLIP,
    EQUAL,
    NOISE,
    REPEATED,
    Check,
    ReleaseSums,
    batch_checks,
    conformance_of,
)
from leakgauge.privacy.number_of_guesses import accuracy_of_draws, largest_noise_seen
from leakgauge.privacy.one_run import guess, refuted
from leakgauge.privacy.profile import gaussian_least_false_positives

LAYERS = np.repeat([0, 1], [27, 3])


def release(
    rng: np.random.Generator, steps: int = 15, factor: float = 1.0, clip: float = 1.0
) -> tuple[ReleaseSums, np.ndarray, np.ndarray]:
    """Return the sums of a made training, what is left in each step, and the draws."""
    sums, members = ReleaseSums(30), rng.random(30) < 0.5
    drawn = (rng.random((steps, 30)) < 0.2) & members
    left = clip * drawn + factor * 2.0 * rng.standard_normal((steps, 30))
    for one, draws in zip(left, drawn, strict=True):
        sums.add(one, draws.astype(np.int64), 2.0)
    return sums, left, drawn


def test_figures_are_those_of_the_whole_release() -> None:
    sums, left, drawn = release(np.random.default_rng(4), factor=0.7, clip=3.0)
    checks = sums.checks(LAYERS, ["a", "b"])
    assert [(one.what, one.where) for one in checks] == [
        (what, where) for where in "ab" for what in (NOISE, REPEATED, CLIP)
    ]
    here, free = left[:, :27], ~drawn[:, :27]
    noise, repeated, clip = checks[:3]
    values = here[free] / 2.0
    assert noise.seen == pytest.approx(np.sqrt(np.mean(values**2)))
    low, high = (end(np.sum(values**2), len(values)) for end in (stats.chi2.cdf, stats.chi2.sf))
    assert noise.p_value == pytest.approx(2 * min(low, high))
    assert clip.seen == pytest.approx(here[~free].mean())
    # An analysis of variance: do coordinates differ by more than their steps?
    groups = [here[free[:, k], k] / 2.0 for k in range(27)]
    between = sum(len(one) * one.mean() ** 2 for one in groups) / 27
    within = sum(((one - one.mean()) ** 2).sum() for one in groups) / (len(values) - 27)
    law = stats.f(27, len(values) - 27)
    ratio = between / within
    assert repeated.p_value == pytest.approx(2 * min(law.cdf(ratio), law.sf(ratio)))


@pytest.mark.slow
@pytest.mark.calibration
def test_p_values_of_correct_trainings_are_uniform_or_larger() -> None:
    rng, found = np.random.default_rng(0), dict[tuple[str, str], list[float]]()
    for _ in range(800):
        checks = release(rng)[0].checks(LAYERS, ["a", "b"])
        for one in (*checks, *batch_checks(list(rng.binomial(200, 0.1, 15)), 200, 0.1)):
            found.setdefault((one.what, one.where), []).append(one.p_value)
    assert len(found) == 8
    for values in found.values():
        for level in (0.01, 0.05, 0.2):
            allowed = stats.binom.isf(1e-3, len(values), level)
            assert (np.array(values) < level).sum() <= allowed


def test_noise_of_the_wrong_size_is_not_taken_for_clipping() -> None:
    sums = release(np.random.default_rng(1), factor=5.0)[0]
    by = {(one.what, one.where): one for one in sums.checks(LAYERS, ["a", "b"])}
    assert by[NOISE, "a"].p_value < 1e-12
    assert by[REPEATED, "a"].p_value > 0.01
    assert by[CLIP, "a"].p_value > 0.01


def test_steps_without_stated_noise_and_single_steps_show_what_they_can() -> None:
    sums = ReleaseSums(30)
    sums.add(np.ones(30), np.zeros(30, np.int64), 0.0)
    assert sums.checks(LAYERS, ["a", "b"]) == []
    sums.add(np.ones(30), np.zeros(30, np.int64), 1.0)
    assert [one.what for one in sums.checks(LAYERS, ["a", "b"])] == [NOISE, NOISE]


@pytest.mark.parametrize(
    ("sizes", "failed"),
    [
        ([20] * 12, [EQUAL]),
        ([*[20] * 10, 10] * 3, [EQUAL]),  # the last batch of an epoch is smaller
        ([20], []),
        (list(np.random.default_rng(0).binomial(200, 0.2, 30)), [BATCH]),
        (list(np.random.default_rng(0).binomial(200, 0.1, 30)), []),
    ],
)
def test_batches_tell_how_they_were_sampled(sizes: list[int], failed: list[str]) -> None:
    found = batch_checks(sizes, 200, 0.1)
    assert [one.what for one in found if one.p_value < 1e-6] == failed
    assert found[0].seen == pytest.approx(np.mean(sizes))
    assert found[1].expected == pytest.approx(stats.binom.pmf(20, 200, 0.1))


def test_a_full_batch_is_no_sign_of_shuffling() -> None:
    assert [one.p_value for one in batch_checks([200] * 9, 200, 1.0)] == [1.0, 1.0]


def test_correction_is_that_of_holm() -> None:
    rng = np.random.default_rng(0)
    values = rng.random(12) ** 4
    found = conformance_of([Check(NOISE, "", 1, 1, p) for p in values], 0.01)
    order = np.argsort(values)
    literal = [max((12 - j) * values[order[j]] for j in range(k + 1)) for k in range(12)]
    assert [found.checks[k].corrected for k in order] == pytest.approx(np.minimum(literal, 1))


def test_the_sentence_names_each_fault_once() -> None:
    checks = [
        Check(REPEATED, "a", 1, 7.6, 0.0),
        Check(NOISE, "a", 1, 0.9, 0.0),
        Check(NOISE, "b", 1, 1e-9, 0.0),
        Check(NOISE, "c", 1, 1.0, 0.7),
        Check(CLIP, "b", 1, 10.04, 0.0),
    ]
    found = conformance_of(checks, 0.01, ["clipping in layer c"])
    assert found.sentence == (
        "DOES NOT DO WHAT IT SAYS: the noise in layer a is not new in each step (sums over steps "
        "spread 7.6 times as far as they should); the noise in layer b has 0 times the stated "
        "size; a clipped record counts 10 clipping norms in layer b; expected 1. Not checked: "
        "clipping in layer c."
    )
    many = [Check(NOISE, str(k), 1, 0.5, 1e-9) for k in range(30)]
    found = conformance_of(many, 0.01)
    assert "the noise in all 30 layers has 0.5 times" in found.sentence
    assert str(found).splitlines()[-1] == "and 10 checks with larger p"
    assert (
        "layers 0, 1, 2 and 2 more"
        in conformance_of([*many[:5], Check(NOISE, "x", 1, 1, 0.5)], 0.01).sentence
    )


@pytest.mark.parametrize("share", [1.0, 0.3, 0.05])
def test_accuracy_is_that_of_many_drawn_canaries(share: float) -> None:
    rng, m = np.random.default_rng(0), 200_000
    included = rng.random(m) < 0.5
    scores = included * rng.binomial(60, 0.05, m) + 1.5 * rng.standard_normal(m)
    found = guess(scores, included, int(share * m))
    draws = stats.binom.pmf(np.arange(30), 60, 0.05)
    expected = accuracy_of_draws(1.5, draws, share)
    assert found.correct / found.made == pytest.approx(expected, abs=0.01)


def test_canaries_that_are_hardly_drawn_refute_nothing() -> None:
    least = gaussian_least_false_positives(1.0)
    seldom, each = np.array([0.99, 0.01]), np.array([0.0, 1.0])
    assert largest_noise_seen(1000, 500, least, seldom) is None
    noise = largest_noise_seen(1000, 500, least, each)
    assert noise is not None
    assert 0.2 < noise < 1.0


@pytest.mark.calibration
def test_half_of_the_runs_refute_a_claim_at_the_largest_noise_that_is_seen() -> None:
    m, made, least = 1000, 354, gaussian_least_false_positives(0.8)
    draws = stats.binom.pmf(np.arange(40), 60, 0.1)
    noise = largest_noise_seen(m, made, least, draws)
    assert noise is not None
    rng, shares = np.random.default_rng(0), []
    for factor in (1.5, 1.0, 0.6):
        hits = 0
        for _ in range(100):
            included = rng.random(m) < 0.5
            scores = included * rng.binomial(60, 0.1, m) + factor * noise * rng.normal(size=m)
            hits += bool(refuted(guess(scores, included, made), least, 0.01))
        shares.append(hits)
    assert shares[0] < 20
    assert 30 <= shares[1] <= 70
    assert shares[2] > 80
