"""The audit game: right mechanisms pass, broken ones are caught, as theory says they must be."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream, torch_stream
from leakgauge.core.types import Dataset, Grads, Task
from leakgauge.data import Roles, encode, make_table, read_table, split_records
from leakgauge.gradients import params_of, per_example_gradients
from leakgauge.guarantee import (
    Craft,
    DPSGDMechanism,
    LayerRatio,
    LikelihoodRatio,
    Norm,
    OpacusMechanism,
    OptimizerStep,
    attribute_of,
    audit_pair,
    choose_pairs,
    choose_threshold,
    craft,
    epsilon_clopper_pearson,
    epsilon_gaussian_dp,
    errors_at,
)
from leakgauge.guarantee.release import hypotheses_of, make_releases
from leakgauge.models import mlp
from leakgauge.privacy.accounting import epsilon_gaussian
from leakgauge.privacy.many_runs import epsilon_objective, fewest_errors
from support.pairs import CODES, INPUTS, SEX, a_pair
from support.references import guarantee as literal

DELTA = 1e-5


def small_task(seed: int = 0) -> Task:
    model = mlp(INPUTS, 2, (8,), generator=torch_stream(seed, "model"))
    return Task(model, cross_entropy)


def a_batch(size: int, seed: int = 0) -> Dataset:
    generator = torch_stream(seed, "others")
    x = torch.randn(size, INPUTS, generator=generator)
    return Dataset(x, torch.randint(2, (size,), generator=generator))


def distance(clip: float, seed: int = 0) -> float:
    """Between the clipped gradients, by plain autograd."""
    task, (x, y) = small_task(seed), a_pair(seed).versions()
    one, other = (
        literal.clipped(literal.gradient(task, params_of(task.model), x[h], y[h]), clip)
        for h in (0, 1)
    )
    return float((one - other).norm())


def noise_for(mu: float, clip: float, *, batch: int = 1, seed: int = 0) -> float:
    """The sigma that leaves a shift of ``mu`` standard deviations in the mean of a batch."""
    return distance(clip, seed) / mu / math.sqrt(batch)


def audit(mechanism, *, seed: int = 0, **asked):
    return audit_pair(small_task(seed), None, a_pair(seed), mechanism, seed=seed, **asked)


def also_slow(*cases: tuple[float, int]) -> list:
    """The other pairs of values, for ``make test-all``."""
    return [pytest.param(*case, marks=pytest.mark.slow) for case in cases]


# --- mechanisms -----------------------------------------------------------------------------------


def releases(mechanism, grads: Grads, n: int = 500) -> Tensor:
    found = [mechanism(grads, torch_stream(0, "release", trial)) for trial in range(n)]
    return torch.stack([torch.cat([leaf.flatten() for leaf in one.values()]) for one in found])


def some_gradients(size: int) -> Grads:
    task, batch = small_task(), a_batch(size)
    return per_example_gradients(task, params_of(task.model), 3 * batch.x, batch.y)


@pytest.mark.parametrize(("clip", "size"), [(0.5, 4), *also_slow((100.0, 1), (0.5, 1), (100.0, 4))])
def test_dpsgd_and_a_real_opacus_step_release_the_same_distribution(size: int, clip: float) -> None:
    """Both against the literal mean of clipped gradients and the paper's sigma / sqrt(B)."""
    grads = some_gradients(size)
    flat = torch.cat([leaf.flatten(1) for leaf in grads.values()], dim=1)
    mean = torch.stack([literal.clipped(one, clip) for one in flat]).mean(dim=0)
    ours = DPSGDMechanism(clip, 0.3)
    opacus = OpacusMechanism(clip, ours.multiplier(size))
    assert opacus.claimed(size).noise == pytest.approx(0.3)
    for mechanism in (ours, opacus):
        found = releases(mechanism, grads)
        std, n = 0.3 / math.sqrt(size), found.numel()
        assert found.sub(mean).mean().abs() < 4 * std / math.sqrt(n)
        assert found.mean(dim=0).sub(mean).abs().max() < 5 * std / math.sqrt(len(found))
        assert float(found.sub(mean).std()) == pytest.approx(std, rel=4 / math.sqrt(2 * n))
        assert stats.kstest(found.sub(mean).flatten()[:10_000] / std, "norm").pvalue > 1e-4


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_our_gradients_are_those_of_opacus() -> None:
    from opacus import GradSampleModule

    task, batch = small_task(), a_batch(5)
    ours = per_example_gradients(task, params_of(task.model), batch.x, batch.y)
    wrapped = GradSampleModule(copy.deepcopy(task.model), loss_reduction="mean")
    task.loss(wrapped(batch.x), batch.y).backward()
    for name, value in wrapped._module.named_parameters():
        torch.testing.assert_close(value.grad_sample, ours[name])


def test_any_optimizer_that_reads_per_sample_gradients() -> None:
    """A user's own, with another learning rate; a wrong one would be seen in the release."""

    class Mean(torch.optim.SGD):
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p.grad = p.grad_sample.mean(dim=0)
            return super().step(closure)

    grads = some_gradients(3)
    step = OptimizerStep(lambda params, batch, generator: Mean(params, lr=0.25), lr=0.25)
    found = step(grads, torch.Generator())
    for name, leaf in grads.items():
        torch.testing.assert_close(found[name], leaf.mean(dim=0))


# --- statistics -----------------------------------------------------------------------------------


@pytest.mark.calibration
@pytest.mark.parametrize(
    ("mu", "batch"),
    [(0.5, 1), (1.0, 4), (2.0, 1), *also_slow((0.5, 4), (1.0, 1), (2.0, 4))],
)
def test_the_power_of_the_likelihood_ratio(mu: float, batch: int) -> None:
    """At level alpha it is Phi(d / sigma - z): d and sigma of the mean of the batch."""
    claim = DPSGDMechanism(0.5, noise_for(mu, 0.5, batch=batch))
    others = a_batch(batch - 1) if batch > 1 else None
    task, n = small_task(), 2000
    hypotheses = hypotheses_of(task, params_of(task.model), a_pair(), others, claim)
    assert hypotheses.size == batch
    assert hypotheses.distance == pytest.approx(distance(0.5), rel=1e-4)
    for statistic in (LayerRatio(), LikelihoodRatio()):
        _, (null, alternative) = make_releases(
            hypotheses, claim, statistic, each=n, seed=1, max_bytes=10**7
        ).scores(statistic)
        for alpha in (0.05, 0.3):
            power = stats.norm.cdf(mu - stats.norm.isf(alpha))
            threshold = np.quantile(null, 1 - alpha)
            # Both the threshold and the power are of n trials.
            assert (alternative > threshold).mean() == pytest.approx(power, abs=5 / math.sqrt(n))
    # In units of the gradient, of the likelihood ratio, which came last:
    std = claim.noise / math.sqrt(batch)
    assert null.mean() == pytest.approx(0.0, abs=5 * std / math.sqrt(n))
    assert null.std() == pytest.approx(std, rel=0.05)
    assert alternative.mean() == pytest.approx(distance(0.5) / batch, abs=5 * std / math.sqrt(n))


def test_the_norm_is_the_literal_one() -> None:
    expected = {"w": torch.randn(2, 3, 4, dtype=torch.float64), "b": torch.randn(2, 3)}
    released = {"w": torch.randn(7, 3, 4, dtype=torch.float64), "b": torch.randn(7, 3)}
    found = Norm().parts(released, expected)
    for row in range(7):
        gaps = [(released[name][row] - expected[name][0]).flatten().double() for name in released]
        assert float(found[row, 0]) == pytest.approx(math.dist(torch.cat(gaps), [0.0] * 15))


def test_the_norm_loses_power_with_the_number_of_parameters() -> None:
    """Same distance and noise; the norm sees less in a model of more parameters."""

    def shift(hidden: int) -> float:
        model = mlp(INPUTS, 2, (hidden,), generator=torch_stream(0, "model"))
        task = Task(model, cross_entropy)
        clean = hypotheses_of(task, params_of(model), a_pair(), None, DPSGDMechanism(0.1, 1.0))
        claim = DPSGDMechanism(0.1, clean.distance / 3)
        hypotheses = hypotheses_of(task, params_of(model), a_pair(), None, claim)
        _, (null, other) = make_releases(
            hypotheses, claim, Norm(), each=1500, seed=0, max_bytes=10**7
        ).scores(Norm())
        return float((other.mean() - null.mean()) / null.std())

    # d^2 / (sigma^2 sqrt(2 D)) for large D: 83 against 4,502 parameters.
    assert shift(9) > 3 * shift(500) > 0


# --- correct mechanisms ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Laplace:
    """Not Gaussian: Laplace noise on the mean of clipped gradients."""

    clip: float
    scale: float

    def __call__(self, grads: Grads, generator: torch.Generator) -> Grads:
        uniform = {
            name: torch.rand(leaf.shape[1:], generator=generator) - 0.5
            for name, leaf in grads.items()
        }
        return {
            name: leaf.mean(dim=0)
            - self.scale * uniform[name].sign() * torch.log1p(-2 * uniform[name].abs())
            for name, leaf in DPSGDMechanism(self.clip, 1.0).clipped(grads).items()
        }


def beyond(mechanisms: list, *, trials: int, **asked) -> np.ndarray:
    found = [audit(one, seed=seed, trials=trials, **asked) for seed, one in mechanisms]
    lows = np.array([[one.estimate.low, one.gaussian.low] for one in found])
    return lows > np.array([[one.theory.pair_exact.value] for one in found])


def test_correct_mechanisms_pass() -> None:
    """Several clips, noises, models and records, with and without company."""
    mechanisms = [
        (seed, DPSGDMechanism(clip, noise_for(mu, clip, seed=seed)))
        for seed in range(5)
        for clip in (0.1, 1.0)
        for mu in (0.1, 1.0, 3.0)
    ]
    assert beyond(mechanisms, trials=300).sum(axis=0).max() <= 4
    assert beyond(mechanisms[:10], trials=300, others=a_batch(3)).sum(axis=0).max() <= 2


@pytest.mark.slow
@pytest.mark.parametrize("statistic", [LikelihoodRatio(), LayerRatio(), Norm()])
@pytest.mark.calibration
def test_correct_mechanisms_pass_200_times(statistic) -> None:
    mechanisms = [
        (seed, DPSGDMechanism(0.5, noise_for(mu, 0.5, seed=seed)))
        for seed in range(50)
        for mu in (0.05, 0.5, 1.0, 3.0)
    ]
    # 5 % of 200; 16 or more would come with 3 % if each were beyond with exactly 5 %.
    assert beyond(mechanisms, trials=1000, statistic=statistic).sum(axis=0).max() <= 15


@pytest.mark.slow
def test_the_lower_bound_of_epsilon_holds_for_noise_that_is_not_gaussian() -> None:
    """Laplace noise of scale b: the l1 distance over b, for any statistic."""
    lows = []
    for seed in range(10):
        task, (x, y) = small_task(seed), a_pair(seed).versions()
        one, other = (
            literal.clipped(literal.gradient(task, params_of(task.model), x[h], y[h]), 1.0)
            for h in (0, 1)
        )
        apart = float((one - other).abs().sum())
        found = audit(
            Laplace(1.0, apart / 2.0), seed=seed, claimed=DPSGDMechanism(1.0, 1.0), trials=600
        )
        lows.append(found.estimate.low)
    assert max(lows) <= 2.0
    assert max(lows) > 0.2


@pytest.mark.parametrize("statistic", [LikelihoodRatio(), LayerRatio(), Norm()])
def test_a_threshold_is_judged_on_trials_that_did_not_choose_it(statistic) -> None:
    claim, task = DPSGDMechanism(0.5, noise_for(1.5, 0.5)), small_task()
    hypotheses = hypotheses_of(task, params_of(task.model), a_pair(), None, claim)
    chosen, judged = make_releases(
        hypotheses, claim, statistic, each=300, seed=0, max_bytes=10**7
    ).scores(statistic)
    everything = np.concatenate([*chosen, *judged])
    assert len(np.unique(everything)) == len(everything) == 1200
    found = audit(claim, trials=600, statistic=statistic)
    np.testing.assert_array_equal(found.null, judged[0])
    np.testing.assert_array_equal(found.alternative, judged[1])
    for objective, estimate, by in (
        (epsilon_objective(DELTA), found.estimate, epsilon_clopper_pearson),
        (fewest_errors, found.gaussian, epsilon_gaussian_dp),
    ):
        threshold = choose_threshold(*chosen, objective)
        assert estimate == by(errors_at(*judged, threshold), DELTA)
        assert estimate != by(errors_at(*chosen, threshold), DELTA)
    assert found.in_sample.value == pytest.approx(
        literal.largest_epsilon(judged[0].tolist(), judged[1].tolist(), DELTA)
    )


def test_tight_with_the_likelihood_ratio() -> None:
    """mu = 1: the Gaussian estimate is within 10 % of the exact epsilon."""
    found = audit(DPSGDMechanism(0.5, noise_for(1.0, 0.5)), trials=20_000)
    exact = epsilon_gaussian(1.0, 1.0, DELTA).value
    assert found.theory.pair_exact.value == pytest.approx(exact, rel=1e-4)
    assert found.gaussian.value == pytest.approx(exact, rel=0.1)
    assert not found.violated
    assert not found.saturated


def test_little_noise_saturates_the_trials_and_says_so() -> None:
    found = audit(DPSGDMechanism(0.5, noise_for(20.0, 0.5)), trials=1000)
    assert found.saturated
    assert not found.violated
    assert (
        found.estimate.value
        == found.largest_showable.value
        == pytest.approx(math.log(500), abs=1e-3)
    )
    assert found.estimate.low == found.largest_showable.low < found.theory.pair_exact.value


# --- broken mechanisms ----------------------------------------------------------------------------


def noise_over_batch(claim: DPSGDMechanism) -> Callable:
    """The noise on the mean divided by the batch size once more than it should be."""

    def release(grads: Grads, generator: torch.Generator) -> Grads:
        batch = len(next(iter(grads.values())))
        return DPSGDMechanism(claim.clip, claim.noise / batch)(grads, generator)

    return release


def no_clipping(claim: DPSGDMechanism) -> Callable:
    def release(grads: Grads, generator: torch.Generator) -> Grads:
        noise = {name: torch.zeros_like(leaf) for name, leaf in grads.items()}
        drawn = claim(noise, generator)
        return {name: leaf.mean(dim=0) + drawn[name] for name, leaf in grads.items()}

    return release


def noise_reused(claim: DPSGDMechanism) -> Callable:
    return lambda grads, generator: claim(grads, torch.Generator().manual_seed(7))


def noise_on_some_layers(claim: DPSGDMechanism, *, noisy: str) -> Callable:
    """Only layers whose name holds ``noisy``."""

    def release(grads: Grads, generator: torch.Generator) -> Grads:
        clean = {name: leaf.mean(dim=0) for name, leaf in claim.clipped(grads).items()}
        drawn = claim(grads, generator)
        return {name: drawn[name] if noisy in name else clean[name] for name in grads}

    return release


BROKEN = {
    "noise over the batch": (noise_over_batch, LikelihoodRatio(), 16),
    "no clipping": (no_clipping, LikelihoodRatio(), 1),
    "no clipping, with company": (no_clipping, LikelihoodRatio(), 4),
    "noise reused": (noise_reused, LikelihoodRatio(), 1),
    "noise on weights only": (
        lambda claim: noise_on_some_layers(claim, noisy="weight"), LayerRatio(), 1,
    ),
    "noise on the last layer only": (
        lambda claim: noise_on_some_layers(claim, noisy="2."), LayerRatio(), 1,
    ),
}  # fmt: skip


def caught(kind: str, seed: int, *, trials: int, mu: float = 0.7) -> bool:
    broken, statistic, batch = BROKEN[kind]
    claim = DPSGDMechanism(0.2, noise_for(mu, 0.2, batch=batch, seed=seed))
    asked = {
        "others": a_batch(batch - 1, seed) if batch > 1 else None,
        "statistic": statistic,
        "trials": trials,
    }
    right = audit(claim, seed=seed, **asked)
    wrong = audit(broken(claim), claimed=claim, seed=seed, **asked)
    assert right.theory == wrong.theory
    assert right.theory.pair_exact.value == pytest.approx(
        epsilon_gaussian(mu, 1.0, DELTA).value, rel=1e-3
    )
    assert not right.violated
    return wrong.violated


SELDOM = ("no clipping, with company", "noise on the last layer only")


@pytest.mark.parametrize(
    "kind",
    [pytest.param(one, marks=pytest.mark.slow) if one in SELDOM else one for one in BROKEN],
)
def test_broken_mechanisms_are_caught(kind: str) -> None:
    assert sum(caught(kind, seed, trials=400) for seed in range(3)) == 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.calibration
def test_broken_mechanisms_are_caught_in_19_of_20_seeds(kind: str) -> None:
    assert sum(caught(kind, 100 + seed, trials=1000) for seed in range(20)) >= 19


def test_a_mechanism_with_the_wrong_sign_and_little_noise_is_caught() -> None:
    claim, weak = DPSGDMechanism(0.2, noise_for(0.7, 0.2)), DPSGDMechanism(0.2, noise_for(7.0, 0.2))

    def released(grads: Grads, generator: torch.Generator) -> Grads:
        return {name: -leaf for name, leaf in weak(grads, generator).items()}

    found = audit(released, claimed=claim, trials=400)
    assert found.turned
    assert found.violated
    assert not audit(weak, claimed=claim, trials=400).turned


# --- what repeats, and what is refused ------------------------------------------------------------


@pytest.mark.parametrize("statistic", [Norm(), LikelihoodRatio(), LayerRatio()])
def test_the_seed_decides_and_memory_does_not(statistic) -> None:
    asked = {"trials": 60, "statistic": statistic}
    one, tiny = (audit(DPSGDMechanism(0.5, 0.5), max_bytes=m, **asked) for m in (2**28, 2000))
    np.testing.assert_array_equal(one.null, tiny.null)
    np.testing.assert_array_equal(one.alternative, tiny.alternative)
    assert one.estimate == tiny.estimate
    other = audit_pair(small_task(), None, a_pair(), DPSGDMechanism(0.5, 0.5), seed=1, **asked)
    assert not np.array_equal(one.null, other.null)


@pytest.mark.calibration
def test_a_record_without_any_difference_shows_nothing() -> None:
    same = replace(a_pair(), attribute=replace(SEX, codes=CODES[[0, 0]]))
    for statistic in (Norm(), LikelihoodRatio(), LayerRatio()):
        found = audit_pair(
            small_task(), None, same, DPSGDMechanism(0.5, 0.5), statistic=statistic, trials=200
        )
        assert found.distance < 1e-6  # what rounding leaves
        assert found.theory.pair_exact.value < 1e-6
        assert found.estimate.low == found.gaussian.low == 0
        assert not found.violated


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"delta": 0.0}, "delta is 0"),
        ({"delta": 1.0}, "delta is 1"),
        ({"trials": 10}, "10 trials cannot show any epsilon"),
        ({"mechanism": lambda grads, generator: grads}, "does not say what it claims"),
        (
            {"mechanism": lambda grads, generator: grads, "claimed": DPSGDMechanism(1.0, 1.0)},
            r"released \[1, 8, 6\] for '0.weight'; expected one gradient of shape \[8, 6\]",
        ),
    ],
)
def test_refusals(asked, says: str) -> None:
    asked = {"mechanism": DPSGDMechanism(1.0, 1.0), **asked}
    with pytest.raises(InputError, match=says):
        audit(asked.pop("mechanism"), **asked)


def test_a_release_that_is_not_finite_is_no_evidence() -> None:
    """Compared with any threshold NaN is on neither side, so it would count as right."""

    def broken(grads: Grads, generator: torch.Generator) -> Grads:
        released = DPSGDMechanism(0.5, 0.5)(grads, generator)
        lost = bool(torch.rand((), generator=generator) < 0.1)
        return {name: leaf / 0 if lost else leaf for name, leaf in released.items()}

    with pytest.raises(InputError, match=r"release number .* not finite"):
        audit(broken, claimed=DPSGDMechanism(0.5, 0.5), trials=60)


def test_opacus_is_not_needed_until_it_is_audited(monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match="opacus is not installed"):
        OpacusMechanism(1.0, 1.0)


def test_no_noise_is_an_infinite_epsilon() -> None:
    with pytest.raises(InputError, match="noise is 0, so epsilon is infinite"):
        DPSGDMechanism(1.0, 0.0)
    with pytest.raises(InputError, match="epsilon is infinite"):
        OpacusMechanism(1.0, 0.0)
    for clip, noise in ((0.0, 1.0), (1.0, -1.0), (math.inf, 1.0)):
        with pytest.raises(InputError):
            DPSGDMechanism(clip, noise)


# --- Adult ----------------------------------------------------------------------------------------


def adult(folder: Path, seed: int = 0) -> tuple[Task, Dataset]:
    frame = read_table(folder / "adult" / "adult.parquet").drop(columns="split")
    table = make_table(frame, Roles("income", ("sex",)))
    split = split_records(table.secrets["sex"], rng=stream(seed, "split"))
    data = encode(table, fit_on=split.private, keep=("sex",)).rows(split.private)
    model = mlp(data.x.shape[1], 2, (100,), generator=torch_stream(seed, "model"))
    return Task(model, cross_entropy), data


@pytest.mark.slow
def test_adult_through_a_real_opacus_step(data_folder: Path) -> None:
    """The attribute's whole path: table, crafted canary, Opacus, estimate."""
    task, data = adult(data_folder)
    attribute = attribute_of(data, "sex", rng=stream(0, "values"))
    settings = Craft("free", "cosine", sweeps=0, steps=300)
    canary = craft(task, None, data, attribute, settings, clip=2.0, rng=stream(0, "craft"))
    assert canary.distance_over_clip >= 0.9
    opacus = OpacusMechanism(2.0, 0.05)  # sigma 0.1 on a batch of one
    found = audit_pair(task, None, canary.pair, opacus, claimed=opacus.claimed(1), trials=400)
    assert found.distance == pytest.approx(canary.distance, rel=1e-4)
    assert found.theory.mechanism_classic.value == pytest.approx(96.9, abs=0.01)
    assert found.theory.per_attribute_classic == pytest.approx(96.9 / 14, abs=0.01)
    assert found.saturated
    assert not found.violated


@pytest.mark.slow
def test_the_paper_s_statistic_on_adult(data_folder: Path) -> None:
    """Clip 2, sigma 0.1, 5,000 trials: a crafted canary well above a random one."""
    task, data = adult(data_folder)
    attribute = attribute_of(data, "sex", rng=stream(0, "values"))
    settings = Craft("free", "cosine", sweeps=0)
    canary = craft(task, None, data, attribute, settings, clip=2.0, rng=stream(0, "craft"))
    (random,) = choose_pairs(data, "sex", 1, rng=stream(0, "pairs"))
    of_norm, of_random, of_ratio = (
        audit_pair(task, None, pair, DPSGDMechanism(2.0, 0.1), statistic=statistic)
        for pair, statistic in (
            (canary.pair, Norm()), (random, Norm()), (canary.pair, LikelihoodRatio()),
        )
    )  # fmt: skip
    assert of_norm.estimate.low > of_random.estimate.high
    assert of_ratio.estimate.low >= 6.4
    assert of_ratio.saturated
