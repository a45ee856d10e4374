"""Under H1 each release has another value, drawn anew (Li et al., Definition 7.2, step 2)."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from leakgauge.core.rng import stream, torch_stream
from leakgauge.core.types import Column, Grads, Task
from leakgauge.gradients import params_of
from leakgauge.guarantee import (
    Attribute,
    DPSGDMechanism,
    LayerRatio,
    LikelihoodRatio,
    NeighbourPair,
    Norm,
    audit_pair,
)
from leakgauge.guarantee.directions import PILOT
from leakgauge.guarantee.question import QUESTION
from leakgauge.guarantee.release import hypotheses_of, make_releases, redrawn
from leakgauge.guarantee.spec import GuaranteeSpec
from leakgauge.models import mlp
from leakgauge.privacy.accounting import epsilon_gaussian
from leakgauge.runs.audit import describe, prepare_all, run_audit
from leakgauge.runs.question import Silent
from support.references import guarantee as literal

VALUES = ("a", "b", "c", "d")
INPUTS = 2 + len(VALUES)
TOWN = Attribute(Column("town", "category", 2, INPUTS, VALUES), VALUES, torch.eye(4), among=3)
STATISTICS = [Norm(), LikelihoodRatio(), LayerRatio()]


def a_task(seed: int = 0) -> Task:
    model = mlp(INPUTS, 2, (8,), generator=torch_stream(seed, "model"))
    return Task(model, torch.nn.functional.cross_entropy)


def a_pair(seed: int = 0) -> NeighbourPair:
    x = 3 * torch.randn(INPUTS, generator=torch_stream(seed, "x"))
    return NeighbourPair(x, torch.tensor(seed % 2), TOWN)


def literal_gradients(clip: float, seed: int = 0) -> torch.Tensor:
    """The clipped gradient with each value ``[4, D]``, by plain autograd."""
    task, (x, y) = a_task(seed), a_pair(seed).versions()
    each = [literal.gradient(task, params_of(task.model), x[v], y[v]) for v in range(4)]
    return torch.stack([literal.clipped(one, clip) for one in each])


class Recorder:
    """DP-SGD that keeps the gradients that it was given."""

    def __init__(self, claim: DPSGDMechanism) -> None:
        self.claim, self.given = claim, []

    def __call__(self, grads: Grads, generator: torch.Generator) -> Grads:
        self.given.append(torch.cat([leaf[0].flatten() for leaf in grads.values()]))
        return self.claim(grads, generator)


@pytest.mark.parametrize("role", ["choose", "judge"])
def test_new_values_are_uniform_and_never_the_own_one(role: str) -> None:
    drawn = redrawn(6000, 4, seed=0, role=role)
    counts = np.bincount(drawn, minlength=4)
    assert counts[0] == 0
    assert stats.chisquare(counts[1:]).pvalue > 1e-4
    runs = (np.diff(drawn) != 0).mean()  # anew in each trial, and not one after the other
    assert runs == pytest.approx(2 / 3, abs=0.04)


def test_a_mechanism_gets_the_own_value_and_each_new_one_equally_often() -> None:
    """200 releases choose the threshold and 200 are scored, half of each under H1.

    Those of a pilot, which come first, have the own value.
    """
    mechanism = Recorder(DPSGDMechanism(0.5, 1.0))
    audit_pair(a_task(), None, a_pair(), mechanism, claimed=mechanism.claim, trials=200)
    known = literal_gradients(1e9)
    which = torch.cdist(torch.stack(mechanism.given), known).argmin(dim=1)
    assert not which[:PILOT].any()
    counts = torch.bincount(which[PILOT:], minlength=4).tolist()
    assert counts[0] == 200
    assert sum(counts[1:]) == 200
    assert stats.chisquare(counts[1:]).pvalue > 1e-4


def test_the_promise_is_that_of_the_furthest_value() -> None:
    known = literal_gradients(0.5)
    apart = (known[1:] - known[0]).norm(dim=1)
    assert apart.min() < 0.95 * apart.max()  # the values differ
    found = audit_pair(a_task(), None, a_pair(), DPSGDMechanism(0.5, 0.4), trials=200)
    assert found.distance == pytest.approx(float(apart.max()), rel=1e-4)
    exact = epsilon_gaussian(float(apart.max()), 0.4, 1e-5).value
    assert found.theory.pair_exact.value == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize(
    "statistic",
    [*STATISTICS[:2], pytest.param(STATISTICS[2], marks=pytest.mark.slow)],
    ids=lambda one: one.name,
)
def test_correct_mechanisms_pass(statistic) -> None:
    beyond = 0
    for seed in range(12):
        known = literal_gradients(0.5, seed)
        apart = float((known[1:] - known[0]).norm(dim=1).max())
        claim = DPSGDMechanism(0.5, apart / (0.3 if seed % 2 else 2.0))
        found = audit_pair(
            a_task(seed), None, a_pair(seed), claim, statistic=statistic, trials=300, seed=seed
        )
        beyond += found.violated or found.estimate.low > found.theory.pair_exact.value
    assert beyond <= 1


def scores_of(statistic, claim: DPSGDMechanism, each: int, max_bytes: int = 10**7):
    task = a_task()
    hypotheses = hypotheses_of(task, params_of(task.model), a_pair(), None, claim)
    return make_releases(
        hypotheses, claim, statistic, each=each, seed=3, max_bytes=max_bytes
    ).scores(statistic)


@pytest.mark.parametrize("statistic", [LikelihoodRatio(), LayerRatio()], ids=lambda one: one.name)
def test_the_ratio_is_that_of_the_mixture(statistic) -> None:
    """As likely as the literal mean of Gaussian densities, up to how well the noise is known."""
    claim = DPSGDMechanism(0.5, 0.15)
    known = literal_gradients(0.5).double()
    _, (null, alternative) = scores_of(statistic, claim, 2000)
    rng = np.random.default_rng(0)
    values = np.concatenate([np.zeros(2000, dtype=int), rng.integers(1, 4, size=2000)])
    seen = known.numpy()[values] + claim.noise * rng.normal(size=(4000, known.shape[1]))
    squares = ((seen[:, None] - known.numpy()[None]) ** 2).sum(axis=2) / (2 * claim.noise**2)
    ratio = np.logaddexp.reduce(-squares[:, 1:], axis=1) - math.log(3) + squares[:, 0]
    for ours, wanted in ((null, ratio[:2000]), (alternative, ratio[2000:])):
        assert stats.ks_2samp(ours, wanted).pvalue > 1e-4
        assert ours.mean() == pytest.approx(wanted.mean(), abs=0.15 * wanted.std())


def test_the_ratio_is_stronger_than_the_norm() -> None:
    claim = DPSGDMechanism(0.5, 0.15)
    areas = {}
    for statistic in (Norm(), LikelihoodRatio()):
        _, (null, alternative) = scores_of(statistic, claim, 1000)
        areas[statistic.name] = (alternative[:, None] > null).mean()
    assert areas["likelihood-ratio"] > areas["norm"] + 0.05


@pytest.mark.parametrize("statistic", STATISTICS, ids=lambda one: one.name)
def test_memory_changes_nothing(statistic) -> None:
    one, tiny = (scores_of(statistic, DPSGDMechanism(0.5, 0.5), 40, most) for most in (2**28, 2000))
    for role in (0, 1):
        for h in (0, 1):
            np.testing.assert_array_equal(one[role][h], tiny[role][h])


def test_no_noise_at_all_is_no_reason_for_nan() -> None:
    claim = DPSGDMechanism(0.5, 1.0)

    def silent(grads: Grads, generator: torch.Generator) -> Grads:
        return {name: leaf.mean(dim=0) for name, leaf in claim.clipped(grads).items()}

    for statistic in STATISTICS:
        found = audit_pair(
            a_task(), None, a_pair(), silent, claimed=claim, statistic=statistic, trials=200
        )
        assert np.isfinite(found.null).all()
        assert found.violated or statistic.name == "norm"


def test_a_table_s_attribute_of_several_values(tmp_path: Path) -> None:
    """The whole run: the own value, and the others."""
    rng, n = stream(0, "users"), 80
    frame = pd.DataFrame(
        {
            "height": rng.normal(size=n),
            "town": rng.choice(["x", "y", "z"], size=n),
            "income": rng.choice(["high", "low"], size=n),
        }
    )
    frame.to_csv(tmp_path / "users.csv", index=False)
    spec = GuaranteeSpec(
        data=str(tmp_path / "users.csv"), attribute="town", label="income", clip=2.0, noise=0.1,
        trials=60, hidden=(8,), canary="random",
    )  # fmt: skip
    asked = prepare_all({"guarantee": (QUESTION, spec)})
    run = run_audit(tmp_path / "out", describe("audit", asked), asked, progress=Silent())
    answer = run.answers["guarantee"]
    assert sorted(QUESTION.to_json(answer, tmp_path)["values"]) == ["x", "y", "z"]
    html = QUESTION.section(answer, tmp_path).html
    assert "one of its 2 other values, drawn anew for each release" in html
    assert "town = one of 2 others" in html
