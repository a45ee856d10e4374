"""Energies, the discriminant, the forest on principal components; slopes; weights over rounds."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream, torch_stream
from leakgauge.core.types import Task
from leakgauge.defenses import ClipNorm, Defense, GaussianNoise
from leakgauge.gradients import params_of, per_example_gradients
from leakgauge.inference import Forest, Shadow, accumulate
from leakgauge.inference.adversaries.calibration import (
    HeldOut,
    fit_slope,
    held_out_folds,
    hold_out,
    log_loss,
)
from leakgauge.inference.adversaries.discriminant import Discriminant
from leakgauge.inference.adversaries.energies import Energies, EnergyView
from leakgauge.inference.adversaries.forest import PcaForest, Projection
from leakgauge.inference.adversaries.stacking import Stack, accumulate_weighted, held_out_scores
from leakgauge.models import cnn
from leakgauge.results.roc import auroc
from support.defenses import dpsgd, prune, sign
from support.defenses import gaussian as gaussian_noise
from support.synthetic import records, small_task

UNIFORM = np.log([0.5, 0.5])
ENERGIES = Energies(batches=200)
DISCRIMINANT = Discriminant(batches=200)
PCA_FOREST = PcaForest(components=8, trees=20, batches=200)
ATTACKS = [ENERGIES, DISCRIMINANT, PCA_FOREST]
each_attack = pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)


def bench(
    shift: float,
    *,
    n: int = 400,
    values: int = 2,
    users: int | None = None,
    seed: int = 0,
    batch_size: int = 8,
) -> Shadow:
    data = records(shift, n=n, values=values, users=users, seed=seed)
    task = small_task(data)
    return Shadow(task, params_of(task.model), data, "s", values, batch_size, 2**28)


def judge(adversary, shadow: Shadow, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """What is said of batches of other records."""
    rows, secret = shadow.draw(n, rng=stream(1, "judge"))
    parts = [adversary.log_posterior(grads) for grads in shadow.gradients(rows)]
    return np.concatenate(parts), secret


def odds(log_posterior: np.ndarray) -> np.ndarray:
    return log_posterior[:, 1] - log_posterior[:, 0]


# --- both ways ------------------------------------------------------------------------------------


@each_attack
@pytest.mark.calibration
def test_a_planted_secret_is_found(attack) -> None:
    fitted = attack.fit(bench(5.0), UNIFORM, rng=stream(0, "fit"))
    log_posterior, secret = judge(fitted, bench(5.0, seed=1))
    assert auroc(secret == 1, odds(log_posterior)) > 0.99


@functools.cache
def nothing_planted(attack, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """What an adversary says of batches where the secret moves nothing; two tests ask."""
    fitted = attack.fit(bench(0.0, seed=10 + seed), UNIFORM, rng=stream(seed, "fit"))
    return judge(fitted, bench(0.0, n=3000, seed=seed))


@each_attack
@pytest.mark.calibration
def test_nothing_planted_is_chance(attack) -> None:
    """Average over shadow sets, since one set differs from the scored records by chance."""
    found = []
    for seed in range(8):
        log_posterior, secret = nothing_planted(attack, seed)
        found.append(float(auroc(secret == 1, odds(log_posterior))))
    assert abs(np.mean(found) - 0.5) < 3 * np.std(found) / np.sqrt(len(found)) + 0.01
    assert np.std(found) < 0.1


@each_attack
@pytest.mark.calibration
def test_nothing_planted_makes_no_one_sure(attack) -> None:
    """Averaged over shadow sets, the log loss is hardly above that of a coin."""
    losses = []
    for seed in range(4):
        log_posterior, secret = nothing_planted(attack, seed)
        losses.append(log_loss(HeldOut(log_posterior, secret)))
    limit = 0.72 if attack is not PCA_FOREST else 1.0  # a forest is not calibrated on other records
    assert np.mean(losses) < limit


@each_attack
def test_three_values_are_distinguished(attack) -> None:
    fitted = attack.fit(bench(6.0, values=3), np.log(np.ones(3) / 3), rng=stream(0, "fit"))
    log_posterior, secret = judge(fitted, bench(6.0, values=3, seed=1))
    assert log_posterior.shape == (400, 3)
    assert (log_posterior.argmax(axis=1) == secret).mean() > 0.85


@each_attack
def test_persons_are_on_one_side_of_the_calibration(attack) -> None:
    fitted = attack.fit(bench(5.0, users=60), UNIFORM, rng=stream(0, "fit"))
    log_posterior, secret = judge(fitted, bench(5.0, seed=1))
    assert auroc(secret == 1, odds(log_posterior)) > 0.99


# --- posteriors -----------------------------------------------------------------------------------


@each_attack
def test_posteriors_are_normalised_and_bring_in_the_prior(attack) -> None:
    shadow = bench(1.0)
    plain, _ = judge(attack.fit(shadow, UNIFORM, rng=stream(0, "fit")), shadow, 50)
    tilted, _ = judge(attack.fit(shadow, np.log([0.9, 0.1]), rng=stream(0, "fit")), shadow, 50)
    for found in (plain, tilted):
        np.testing.assert_allclose(np.exp(found).sum(axis=1), 1.0)
    np.testing.assert_allclose(odds(plain) - odds(tilted), np.log(9), rtol=1e-9)


@each_attack
def test_it_does_not_depend_on_global_randomness(attack) -> None:
    first, _ = judge(attack.fit(bench(1.0), UNIFORM, rng=stream(0, "fit")), bench(1.0), 20)
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002
    before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    again, _ = judge(attack.fit(bench(1.0), UNIFORM, rng=stream(0, "fit")), bench(1.0), 20)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(before[0], np.random.get_state()[1])  # noqa: NPY002
    assert torch.equal(before[1], torch.get_rng_state())


@functools.cache
def fitted_to_a_leak(attack):
    """Return an adversary and its shadow; each scale of a gradient is judged by the same one."""
    shadow = bench(3.0)
    return attack.fit(shadow, UNIFORM, rng=stream(0, "fit")), shadow


@each_attack
@pytest.mark.parametrize("scale", [0.0, 1e-300, 1e-30, 1e30, 1e150])
def test_posteriors_are_finite_for_extreme_gradients(attack, scale: float) -> None:
    fitted, shadow = fitted_to_a_leak(attack)
    rows, _ = shadow.draw(20, rng=stream(1, "judge"))
    for grads in shadow.gradients(rows):
        scaled = {name: scale * leaf for name, leaf in grads.items()}
        assert np.isfinite(fitted.log_posterior(scaled)).all()


@each_attack
@pytest.mark.parametrize("shift", [1e6, 0.0])
def test_posteriors_are_finite_for_extreme_shadows(attack, shift: float) -> None:
    shadow = bench(shift)
    if shift == 0:  # no record has any gradient at all
        task = Task(shadow.task.model, lambda out, y: 0.0 * cross_entropy(out, y))
        shadow = replace(shadow, task=task)
    fitted = attack.fit(shadow, UNIFORM, rng=stream(0, "fit"))
    log_posterior, _ = judge(fitted, shadow, 20)
    assert np.isfinite(log_posterior).all()


def test_nearly_equal_records_are_still_distinguished() -> None:
    """All of one label, features of 1e-4: what sets the gradients apart is far below their size."""

    def faint(seed: int) -> Shadow:
        data = records(3.0, n=400, seed=seed)
        data = replace(data, x=(1e-4 * data.x).float(), y=torch.zeros_like(data.y))
        task = small_task(data)
        return Shadow(task, params_of(task.model), data, "s", 2, 8, 2**28)

    fitted = DISCRIMINANT.fit(faint(0), UNIFORM, rng=stream(0, "fit"))
    log_posterior, secret = judge(fitted, faint(1))
    assert auroc(secret == 1, odds(log_posterior)) > 0.9


@each_attack
def test_images_and_their_networks_fit(attack) -> None:
    rng = stream(0, "images")
    x = torch.from_numpy(rng.normal(size=(120, 3, 16, 16))).float()
    secret = torch.arange(120) % 2
    x[secret == 1, 0] += 1.0
    data = replace(records(0.0, n=120), x=x, y=torch.arange(120) // 2 % 2, secrets={"s": secret})
    model = cnn(3, 2, 16, generator=torch_stream(0, "model"))
    task = Task(model, cross_entropy)
    shadow = Shadow(task, params_of(model), data, "s", 2, 4, 2**28)
    fitted = replace(attack, batches=60).fit(shadow, UNIFORM, rng=stream(0, "fit"))
    log_posterior, truth = judge(fitted, shadow, 60)
    assert auroc(truth == 1, odds(log_posterior)) > 0.9


# --- energies -------------------------------------------------------------------------------------


def test_energies_are_the_definition_written_down_literally() -> None:
    rng = stream(0, "leaves")
    grads = {
        "0.weight": torch.from_numpy(rng.normal(size=(5, 4, 7, 2, 2))),
        "0.bias": torch.from_numpy(rng.normal(size=(5, 4))),
        "1.weight": torch.from_numpy(rng.normal(size=(5, 3, 9))),
    }
    floor = 1e-2
    expected = []
    for i in range(5):
        first = grads["0.weight"][i].reshape(4, 28).numpy()
        bias, last = grads["0.bias"][i].numpy(), grads["1.weight"][i].numpy()
        row = []
        for energies in (
            [sum(first[o, k] ** 2 for o in range(4)) for k in range(28)],
            [sum(first[o, k] ** 2 for k in range(28)) for o in range(4)],
            [b**2 for b in bias],
            [sum(last[o, k] ** 2 for k in range(9)) for o in range(3)],
        ):
            mean = sum(energies) / len(energies)
            row += [np.log(energy + floor * mean) for energy in energies]
        expected.append(row + list(bias))
    found = EnergyView(floor=floor)(grads).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_many_energies_are_summed_with_their_neighbours() -> None:
    leaf = torch.from_numpy(stream(0, "leaf").normal(size=(3, 50, 700)))
    found = EnergyView(floor=1e-12, most=20)({"w": leaf})  # 10 of columns, 10 of rows
    assert found.shape == (3, 20)
    columns = leaf.square().sum(1).unflatten(1, (10, 70)).sum(2)
    rows = leaf.square().sum(2).unflatten(1, (10, 5)).sum(2)
    torch.testing.assert_close(found, torch.cat([columns, rows], 1).log(), rtol=1e-9, atol=1e-9)


def test_energies_see_what_has_no_sign() -> None:
    """A secret that scales the input shows in energies, and not to a linear discriminant."""

    def scaled(seed: int) -> Shadow:
        shadow = bench(0.0, n=1000, seed=seed)
        x = shadow.data.x.clone()
        x[:, 3] *= 1 + 2 * shadow.data.secrets["s"]
        return replace(shadow, data=replace(shadow.data, x=x))

    found = {}
    for attack in (ENERGIES, DISCRIMINANT):
        fitted = attack.fit(scaled(0), UNIFORM, rng=stream(0, "fit"))
        log_posterior, secret = judge(fitted, scaled(1))
        found[attack.name] = auroc(secret == 1, odds(log_posterior))
    assert found["energies"] > 0.9
    assert found["discriminant"] < 0.8


# --- discriminant ---------------------------------------------------------------------------------


def flat_gradients(shadow: Shadow) -> np.ndarray:
    data = shadow.data
    grads = per_example_gradients(shadow.task, shadow.params, data.x, data.y)
    return torch.cat([leaf.flatten(1) for leaf in grads.values()], dim=1).numpy()


@pytest.mark.parametrize(
    ("values", "clip", "noise", "max_bytes"),
    [
        # By default, each pair of settings occurs once.
        (2, None, 0.0, 2**17),
        (2, 0.5, 0.02, 2**28),
        (3, None, 0.0, 2**28),
        (3, 0.5, 0.02, 2**17),
        pytest.param(2, None, 0.0, 2**28, marks=pytest.mark.slow),
        pytest.param(2, 0.5, 0.02, 2**17, marks=pytest.mark.slow),
        pytest.param(3, None, 0.0, 2**17, marks=pytest.mark.slow),
        pytest.param(3, 0.5, 0.02, 2**28, marks=pytest.mark.slow),
    ],
)
def test_discriminant_is_the_solve_in_the_primal(values, clip, noise, max_bytes) -> None:
    shadow = replace(bench(1.0, n=150, values=values), max_bytes=max_bytes)
    sent = Defense("test", ClipNorm(clip) if clip else None, GaussianNoise(noise))
    attack = Discriminant(ridge=0.03, assume=sent, batches=60)
    prior = np.log(np.arange(1, values + 1) / np.arange(1, values + 1).sum())
    fitted = attack.fit(shadow, prior, rng=stream(0, "fit"))
    found, _ = judge(fitted, shadow, 30)

    g = flat_gradients(shadow)
    if clip is not None:
        g = np.stack([row * min(1, clip / np.linalg.norm(row)) for row in g])
    codes = shadow.data.secrets["s"].numpy()
    means = [g[codes == a].mean(axis=0) for a in range(values)]
    centred = np.stack([row - means[a] for row, a in zip(g, codes, strict=True)])
    within = centred.T @ centred / (len(g) - values)
    ridge = 0.03 * np.trace(within) + noise**2 * shadow.batch_size
    middle = np.mean(means, axis=0)
    rows, _ = shadow.draw(30, rng=stream(1, "judge"))
    seen = flat_gradients(shadow)[rows].mean(axis=1)
    score = np.empty((30, values))
    for a in range(values):
        weight = np.linalg.solve(within + ridge * np.eye(len(within)), means[a] - middle)
        score[:, a] = (seen - middle) @ weight - (means[a] - middle) @ weight / 2
    expected = prior + fitted.slope * shadow.batch_size * score
    expected -= np.logaddexp.reduce(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_discriminant_knows_about_noise() -> None:
    """An adaptive or informed adversary is better under noise, and its log loss is lower."""
    noisy = gaussian_noise(0.05)
    shadow, other = bench(2.0, n=300), replace(bench(2.0, n=2000, seed=1), defense=noisy)

    def judged(attack: Discriminant, shadow: Shadow) -> tuple[float, float]:
        fitted = attack.fit(shadow, UNIFORM, rng=stream(0, "fit"))
        log_posterior, secret = judge(fitted, other, 2000)
        return auroc(secret == 1, odds(log_posterior)), log_loss(HeldOut(log_posterior, secret))

    adaptive = judged(DISCRIMINANT, replace(shadow, defense=noisy))
    told = judged(replace(DISCRIMINANT, assume=noisy), shadow)
    static = judged(DISCRIMINANT, shadow)
    assert adaptive == told
    assert adaptive[0] > static[0]
    assert adaptive[1] < static[1]


@each_attack
@pytest.mark.parametrize(
    "defense", [dpsgd(clip=1.0, noise=0.05, batch_size=8), prune(0.5), sign()], ids=str
)
@pytest.mark.calibration
def test_a_planted_secret_is_found_under_a_known_defense(attack, defense: Defense) -> None:
    shadow, other = (replace(bench(6.0, seed=s), defense=defense) for s in (0, 1))
    log_posterior, secret = judge(attack.fit(shadow, UNIFORM, rng=stream(0, "fit")), other)
    assert auroc(secret == 1, odds(log_posterior)) > 0.9


def test_a_gaussian_channel_has_the_known_auroc() -> None:
    """A linear model with squared loss at 0 and y = 1: each gradient is -2 x, which is Gaussian."""

    def line(seed: int, n: int) -> Shadow:
        data = records(1.0, n=n, seed=seed)
        task = Task(nn.Linear(6, 1, bias=False).double(), lambda out, y: (out - 1).square().mean())
        zero = {name: torch.zeros_like(leaf) for name, leaf in params_of(task.model).items()}
        return Shadow(task, zero, data, "s", 2, 4, 2**28)

    fitted = Discriminant(ridge=1e-4).fit(line(0, 1500), UNIFORM, rng=stream(0, "fit"))
    log_posterior, secret = judge(fitted, line(1, 40_000), 20_000)
    # 4 records shifted by 1: distance 2 between the means of unit Gaussians
    expected = stats.norm.cdf(np.sqrt(4) / np.sqrt(2))
    assert auroc(secret == 1, odds(log_posterior)) == pytest.approx(expected, abs=0.01)
    assert fitted.slope == pytest.approx(1.0, abs=0.15)


# --- the forest on principal components -----------------------------------------------------------


def test_projection_keeps_the_leading_axes() -> None:
    rng = stream(0, "pca")
    flat = torch.from_numpy(rng.normal(size=(500, 6)) * [1, 9, 1, 1, 4, 1] + 3)
    view = Projection.learn(flat.clone(), 2, rng=rng)
    assert view.axes[[1, 4]].abs().round(decimals=1).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    torch.testing.assert_close(
        view({"w": flat}).mean(0), torch.zeros(2, dtype=torch.float64), atol=1e-9, rtol=0
    )


def test_axes_are_learnt_without_the_noise() -> None:
    shadow = bench(3.0)
    rng = [stream(0, "fit") for _ in range(2)]
    clean = PCA_FOREST.fit(shadow, UNIFORM, rng=rng[0])
    noisy = PCA_FOREST.fit(replace(shadow, defense=gaussian_noise(0.1)), UNIFORM, rng=rng[1])
    assert torch.equal(clean.view.axes, noisy.view.axes)
    found = [judge(fitted, shadow, 50)[0] for fitted in (clean, noisy)]
    assert not np.array_equal(*found)


def test_more_components_than_gradients_are_no_error() -> None:
    few = PcaForest(components=64, trees=5, batches=20)
    fitted = few.fit(bench(3.0), UNIFORM, rng=stream(0, "fit"))
    assert np.isfinite(judge(fitted, bench(3.0), 20)[0]).all()


# --- calibration ----------------------------------------------------------------------------------


@pytest.mark.parametrize("users", [None, 60])
def test_held_out_folds_part_records_and_persons(users: int | None) -> None:
    shadow = bench(1.0, users=users)
    unit = np.arange(400) if users is None else shadow.data.users.numpy()
    codes = shadow.data.secrets["s"].numpy()
    judged: list[int] = []
    for part in held_out_folds(shadow, folds=3, batches=300):
        assert not set(unit[part.rest]) & set(unit[part.batches.ravel()])
        assert (codes[part.batches] == part.secret[:, None]).all()
        assert part.secret.mean() == 0.5
        assert torch.equal(shadow.only(part.rest).data.x, shadow.data.x[part.rest])
        judged += [len(part.rest)]
    assert sum(judged) == 2 * 400


def test_held_out_folds_are_the_same_in_every_round() -> None:
    shadow = bench(1.0)
    later = replace(shadow, params={k: v + 1 for k, v in shadow.params.items()})
    parts = [list(held_out_folds(each, folds=3, batches=90)) for each in (shadow, later)]
    for one, other in zip(*parts, strict=True):
        np.testing.assert_array_equal(one.batches, other.batches)


def test_held_out_folds_follow_the_seed() -> None:
    rests = [
        np.concatenate([part.rest for part in held_out_folds(each, folds=3, batches=90)])
        for each in (bench(1.0), replace(bench(1.0), held_out_seed=1))
    ]
    assert not np.array_equal(*rests)


@pytest.mark.parametrize(
    "factor", [0.2, *(pytest.param(c, marks=pytest.mark.slow) for c in (3.0, 1e4)), 1e7]
)
def test_slope_of_known_overconfidence(factor: float) -> None:
    """Log-odds that were multiplied by c need the slope 1/c; those of a coin need 0."""
    rng = stream(0, "slope")
    truth = rng.integers(2, size=100_000)
    exact = 2 * (2 * truth - 1 + rng.normal(size=len(truth)))  # N(+-1, 1): log-odds 2 x
    said = np.stack([0 * exact, factor * exact], axis=1)
    assert fit_slope(HeldOut(said, truth)) == pytest.approx(1 / factor, rel=0.03)
    assert fit_slope(HeldOut(said, rng.permutation(truth))) == pytest.approx(0, abs=0.01 / factor)


def test_perfect_separation_is_not_certainty() -> None:
    truth = np.arange(200) % 2
    said = HeldOut(np.stack([0.0 * truth, 20.0 * truth - 10], axis=1), truth)
    odds_of_each = fit_slope(said) * 10
    assert odds_of_each == pytest.approx(np.log(101), rel=0.01)  # 1 in 102 is doubted


@pytest.mark.parametrize(
    "attack",
    [ENERGIES, pytest.param(DISCRIMINANT, marks=pytest.mark.slow)],
    ids=lambda attack: attack.name,
)
@pytest.mark.calibration
def test_log_odds_are_calibrated_on_other_records(attack) -> None:
    fitted = replace(attack, batches=2000).fit(bench(1.0, n=2000), UNIFORM, rng=stream(0, "fit"))
    log_posterior, secret = judge(fitted, bench(1.0, n=20_000, seed=1), 4000)
    assert fit_slope(HeldOut(log_posterior, secret)) == pytest.approx(1.0, abs=0.25)


# --- rounds ---------------------------------------------------------------------------------------


def told(log_odds: np.ndarray, secret: np.ndarray) -> HeldOut:
    return HeldOut(np.stack([0 * log_odds, log_odds], axis=1), secret)


def gaussian(rng, secret: np.ndarray, mu: float) -> np.ndarray:
    """Exact log-odds of a look at a shift mu."""
    return mu * (rng.normal(size=len(secret)) + mu * (secret - 0.5))


def test_independent_rounds_weigh_1() -> None:
    rng = stream(0, "stack")
    secret = rng.integers(2, size=20_000)
    rounds = [told(gaussian(rng, secret, mu), secret) for mu in (0.5, 1.0, 1.5)]
    np.testing.assert_allclose(Stack().fit(rounds), 1.0, atol=0.1)


def test_a_round_said_again_is_counted_once() -> None:
    rng = stream(0, "stack")
    secret = rng.integers(2, size=20_000)
    once = gaussian(rng, secret, 1.0)
    weights = Stack().fit([told(once, secret)] * 5)
    np.testing.assert_allclose(weights, 0.2, atol=0.02)


def test_noise_on_a_round_that_was_seen_weighs_nothing() -> None:
    """The weight would be negative or 0, not positive."""
    rng = stream(0, "stack")
    secret = rng.integers(2, size=20_000)
    once = gaussian(rng, secret, 2.0)
    weights = Stack(penalty=1e-6).fit(
        [told(once, secret), told(once + rng.normal(size=len(once)), secret)]
    )
    assert weights[0] == pytest.approx(1.0, abs=0.1)
    assert 0 <= weights[1] < 0.05


def test_weights_are_never_negative() -> None:
    """The second round shows the first one's error alone; a free weight would subtract it."""
    rng = stream(0, "stack")
    secret = rng.integers(2, size=5000)
    error = rng.normal(size=len(secret))
    once = told(gaussian(rng, secret, 2.0) + error, secret)
    weights = Stack(penalty=1e-6).fit([once, told(error, secret)])
    assert weights[0] > 0.3
    assert weights[1] == 0


def test_weights_find_the_minimum_by_brute_force() -> None:
    rng = stream(0, "stack")
    secret = rng.integers(3, size=300)
    rounds = [
        HeldOut(rng.normal(size=(300, 3)) + np.eye(3)[secret] * c, secret) for c in (0.5, 1.0)
    ]
    found = Stack(penalty=0.5).fit(rounds)
    grid = np.linspace(0, 2, 101)
    doubt = 1 / 102
    truth = np.where(np.eye(3)[secret] == 1, 1 - doubt, doubt / 2)

    def loss(a: float, b: float) -> float:
        joint = a * rounds[0].log_odds + b * rounds[1].log_odds
        log_probability = joint - np.logaddexp.reduce(joint, axis=1, keepdims=True)
        return -(truth * log_probability).sum() / 300 + 0.25 * (a - b) ** 2 / 2

    losses = [[loss(a, b) for b in grid] for a in grid]
    at = np.unravel_index(np.argmin(losses), (101, 101))
    np.testing.assert_allclose(found, grid[list(at)], atol=0.011)


def test_weights_of_1_are_bayes_over_rounds() -> None:
    rng = stream(0, "rounds")
    log_posteriors = np.log(rng.dirichlet(np.ones(3), size=(4, 6)))
    prior = np.log([0.2, 0.5, 0.3])
    np.testing.assert_allclose(
        accumulate_weighted(log_posteriors, prior, np.ones(4)), accumulate(log_posteriors, prior)
    )
    once = accumulate_weighted(log_posteriors, prior, np.eye(4)[2])
    np.testing.assert_allclose(once, log_posteriors[2])


def test_rounds_that_scored_other_batches_are_refused() -> None:
    log_odds, secret = np.zeros(10), np.arange(10) % 2
    with pytest.raises(InputError, match="different held-out batches"):
        Stack().fit([told(log_odds, secret), told(log_odds, 1 - secret)])


@pytest.mark.parametrize("attack", [ENERGIES, DISCRIMINANT, Forest(trees=10, batches=100)])
def test_every_attack_can_score_held_out_batches(attack) -> None:
    shadow = bench(2.0)
    fitted = attack.fit(shadow, UNIFORM, rng=stream(0, "fit"))
    held_out = held_out_scores(attack, fitted, shadow, batches=300, rng=stream(0, "held out"))
    secret = np.concatenate([part.secret for part in held_out_folds(shadow, folds=3, batches=300)])
    np.testing.assert_array_equal(held_out.secret, secret)
    assert held_out.log_odds.shape == (300, 2)
    assert auroc(secret == 1, odds(held_out.log_odds)) > 0.8


def test_what_is_held_out_was_not_fitted_on() -> None:
    """An adversary that knows its records by heart is at chance on the others."""
    shadow = bench(0.0, n=600)

    def by_heart(rest: Shadow):
        known = {tuple(row) for row in rest.data.x.tolist()}
        assert len(known) == 400
        seen = rest.data.x[:, 0]

        def say(grads):
            n = len(next(iter(grads.values())))
            return np.full((n, 2), float(seen.mean()))

        return say

    held_out = hold_out(shadow, by_heart, folds=3, batches=300)
    assert log_loss(held_out) == pytest.approx(np.log(2))
