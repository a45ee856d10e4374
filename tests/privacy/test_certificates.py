"""Guarantees of a defense, against simulations, integrals and other accountants."""

import json
import math
import sys
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting import dp_event, pld
from scipy import integrate, stats

from leakgauge import defenses
from leakgauge.core.checks import InputError
from leakgauge.defenses import Chain, ClipNorm, Defense, GaussianNoise, PruneTransform
from leakgauge.privacy.accounting import delta_gaussian, epsilon_passes
from leakgauge.privacy.certificates import LEAST, UNLIMITED, guarantees
from support import defenses as make
from support.defenses import dpsgd
from support.references import accounting as literal

ASKED = {
    "batch_size": 16,
    "records": 1600,
    "rounds": 3,
    "parameters": 4,
    "prior": (0.5, 0.5),
}


def promised(defense: Defense, **changed: Any) -> dict[str, Any]:
    found = guarantees(defense.release, **(ASKED | changed))
    json.dumps(found, allow_nan=False)
    return found


def binary_information(shift: float) -> float:
    """I(A; A shift + N(0, 1)) for A = -1 or 1, by an integral, in nats."""

    def gain(y: float) -> float:
        mixed = (stats.norm.pdf(y, shift) + stats.norm.pdf(y, -shift)) / 2
        return float(stats.norm.pdf(y, shift) * math.log(stats.norm.pdf(y, shift) / mixed))

    return float(integrate.quad(gain, shift - 12, shift + 12)[0])


# --- the channel ----------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [2.0, 4.0, 12.0])
@pytest.mark.parametrize("rounds", [1, 5])
def test_the_channel_holds_for_the_two_batches_furthest_apart(noise: float, rounds: int) -> None:
    """In R rounds of fresh noise, batches at C and -C are sqrt(R) times as far apart."""
    found = promised(dpsgd(1.5, noise, batch_size=16), rounds=rounds)["channel"]
    std = noise / math.sqrt(16)
    learnt = binary_information(math.sqrt(rounds) * 1.5 / std)
    assert learnt <= found["information_nats"]
    assert found["information_nats"] == pytest.approx(rounds * found["information_nats_per_round"])
    assert stats.norm.cdf(math.sqrt(rounds) * 1.5 / std) <= found["success_bound"]


def test_the_channel_is_nearly_reached_by_weak_signals_in_one_dimension() -> None:
    """The bound is C^2 / (2 s^2), and two opposite batches give away the same amount."""
    found = promised(dpsgd(1.0, 40.0, batch_size=16), rounds=1, parameters=1)["channel"]
    assert found["information_nats"] == pytest.approx(binary_information(0.1), rel=0.02)
    assert found["information_nats"] >= binary_information(0.1)


def test_no_adversary_beats_it_on_gradients_as_they_are_sent() -> None:
    """The likelihood ratio tests 4,000 batches of opposite records."""
    trials, size = 4000, 16
    defense = dpsgd(1.0, 8.0, batch_size=size)
    rng = np.random.default_rng(1)
    secret = rng.integers(0, 2, trials)
    assert isinstance(defense.per_example, ClipNorm)
    record = defense.per_example({"w": torch.tensor([[9.0, 0, 0, 0], [-9.0, 0, 0, 0]])}, [])["w"]
    means = {"w": record[torch.from_numpy(secret)]}
    rngs = [torch.Generator().manual_seed(row) for row in range(trials)]
    right = ((defense.update(means, rngs)["w"][:, 0] < 0).numpy() == (secret == 1)).mean()
    best = stats.norm.cdf(math.sqrt(size) / 8.0)  # what this adversary reaches on paper
    assert right == pytest.approx(best, abs=0.02)
    assert right <= promised(defense, rounds=1)["channel"]["success_bound"] < 0.8


def test_a_certificate_that_says_something_and_one_that_does_not() -> None:
    gentle = promised(dpsgd(1.0, 40.0, batch_size=16))["channel"]
    assert not gentle["vacuous"]
    assert 0 < gentle["advantage_bound"] < 0.5
    assert gentle["success_bound"] == pytest.approx(0.5 + gentle["advantage_bound"] / 2)
    assert f"advantage at most {gentle['advantage_bound']:.3f}" in gentle["text"]
    loud = promised(dpsgd(2.0, 0.1, batch_size=16))["channel"]
    assert loud["vacuous"]
    assert loud["advantage_bound"] == 1
    assert "vacuous" in loud["text"]


def test_the_papers_closed_form_stands_where_it_is_defined() -> None:
    defense = dpsgd(1.0, 40.0, batch_size=16)
    two = promised(defense)["channel"]
    assert two["paper_advantage_bound"]["value"] == pytest.approx(two["advantage_bound"])
    assert "Eq. 5 is solved" in two["paper_advantage_bound"]["note"]
    six = promised(defense, prior=(1 / 6,) * 6)["channel"]
    nats = six["information_nats"]
    error = (math.log(6) - nats - math.log(2)) / math.log(5)
    assert six["paper_advantage_bound"]["value"] == pytest.approx(1 - error * 6 / 5)
    assert six["advantage_bound"] < six["paper_advantage_bound"]["value"]


def test_an_uneven_prior_has_the_papers_closed_form_too() -> None:
    """Eq. 7 with H(a) of the prior and p* = .4; the certificate is the smallest of all bounds."""
    prior = (0.4, 0.3, 0.2, 0.1)
    found = promised(dpsgd(1.0, 40.0, batch_size=16), prior=prior)["channel"]
    error = (stats.entropy(prior) - found["information_nats"] - math.log(2)) / math.log(3)
    assert found["paper_advantage_bound"] == {"value": pytest.approx(1 - error / 0.6), "note": ""}
    assert found["fano_advantage_bound"] < found["paper_advantage_bound"]["value"]
    assert 0 < found["advantage_bound"] <= found["fano_advantage_bound"]
    assert found["success_bound"] == pytest.approx(0.4 + 0.6 * found["advantage_bound"])


def test_the_smaller_of_capacity_and_sensitivity_counts() -> None:
    """C / s = 1: D/2 log(1 + 1/D) by power, log(1 + (1 - 1/2) 2^2 / 2) / 2 by sensitivity."""
    for parameters, smaller in ((1, math.log(2) / 2), (4, math.log(2) / 2)):
        found = promised(dpsgd(1.0, 4.0, batch_size=16), parameters=parameters, rounds=3)["channel"]
        power = parameters / 2 * math.log1p(1 / parameters)
        assert found["capacity_nats_per_round"] == pytest.approx(power)
        assert found["sensitivity_nats_per_round"] == pytest.approx(math.log(2) / 2)
        assert found["information_nats_per_round"] == pytest.approx(smaller)
        assert found["information_nats"] == pytest.approx(3 * smaller)
    many = promised(dpsgd(1.0, 4.0, batch_size=16), parameters=4, rounds=1, prior=(0.05,) * 20)
    assert many["channel"]["information_nats"] == many["channel"]["capacity_nats_per_round"]


# --- epsilon --------------------------------------------------------------------------------------


def test_epsilon_of_one_step() -> None:
    found = promised(dpsgd(2.0, 0.1, batch_size=16))["epsilon"]
    assert found["noise_multiplier"] == pytest.approx(defenses.noise_multiplier(2.0, 0.1, 16))
    assert found["step_classic"]["value"] == pytest.approx(5 * math.sqrt(2 * math.log(1.25e5)))
    assert found["step_classic"]["valid"] is False
    assert "not valid above 1" in found["step_classic"]["note"]
    assert delta_gaussian(found["step_exact"], 5.0) == pytest.approx(1e-5)
    weak = promised(dpsgd(1.0, 8.0, batch_size=16))["epsilon"]["step_classic"]
    assert weak["valid"] is True
    assert weak["note"] == ""


def test_epsilon_of_the_run_is_that_of_other_accountants() -> None:
    # 2,250 steps at the rate 0.04 and noise multiplier 1.5: Opacus gets 7.32911.
    found = promised(
        dpsgd(1.0, 1.5 / math.sqrt(4), batch_size=4), batch_size=4, records=100, rounds=90
    )["epsilon"]
    assert (found["steps"], found["sampling_rate"]) == (2250, 0.04)
    assert found["run"]["value"] == pytest.approx(7.32911, abs=5e-4)
    assert "Poisson" in found["run"]["note"]
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(dp_event.GaussianDpEvent(1.5), 90)
    other = accountant.get_epsilon(1e-5)
    assert found["run_unamplified"]["value"] == pytest.approx(other, rel=1e-3)
    assert found["run_unamplified"]["value"] > found["run"]["value"]


def test_a_smaller_last_batch_costs() -> None:
    even = promised(dpsgd(1.0, 4.0, batch_size=16), records=1600)["epsilon"]["run_unamplified"]
    odd = promised(dpsgd(1.0, 4.0, batch_size=16), records=1605)["epsilon"]["run_unamplified"]
    assert odd["value"] > even["value"]
    assert "last batch of a round has 5 records" in odd["note"]
    assert "last batch" not in even["note"]


def test_passes_with_a_smaller_batch_are_a_mixture() -> None:
    delta, share, passes = 1e-3, 0.1, 4
    found = epsilon_passes(4.0, passes, delta, last_multiplier=1.0, last_share=share).value
    mixed = sum(
        math.comb(passes, j)
        * share**j
        * (1 - share) ** (passes - j)
        * literal.delta_gaussian(found, math.sqrt((passes - j) / 16 + j))
        for j in range(passes + 1)
    )
    assert mixed == pytest.approx(delta, rel=1e-6)


def test_passes_of_one_kind_are_one_gaussian_release() -> None:
    always = epsilon_passes(4.0, 9, 1e-5, last_multiplier=3.0, last_share=1.0)
    assert always.value == pytest.approx(epsilon_passes(1.0, 1, 1e-5).value)
    assert epsilon_passes(1e9, 1, 0.1).value == 0
    with pytest.raises(InputError, match="share is 2; expected a number from 0 to 1"):
        epsilon_passes(1.0, 1, 1e-5, last_share=2.0)


def test_epsilon_says_that_it_is_about_records() -> None:
    found = promised(dpsgd(2.0, 0.1, batch_size=16))["epsilon"]
    assert found["unit"] == "record, added or removed"
    assert "nothing about a property" in found["note"]


def test_without_dp_accounting_the_closed_forms_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = promised(dpsgd(1.0, 4.0, batch_size=16))["epsilon"]
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    bare = promised(dpsgd(1.0, 4.0, batch_size=16))["epsilon"]
    assert bare["run"]["value"] is None
    assert "pip install 'leakgauge[dp]'" in bare["run"]["note"]
    for key in ("step_exact", "step_classic", "run_unamplified"):
        assert bare[key] == whole[key]


# --- what promises nothing ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "defense",
    [
        defenses.none(),
        make.sign(),
        make.perturb(),
        make.vib(),
        make.clip(1.0),
        make.gaussian(1.0),
        Defense("late", ClipNorm(1.0), Chain((PruneTransform(0.5), GaussianNoise(1.0)))),
    ],
    ids=lambda defense: defense.name,
)
def test_other_defenses_promise_nothing(defense: Defense) -> None:
    assert promised(defense) == {"epsilon": None, "channel": None, "note": UNLIMITED}


@pytest.mark.parametrize("noise", [0.0, 1e-160, LEAST / 8])
def test_without_noise_epsilon_is_infinite(noise: float) -> None:
    found = promised(dpsgd(1.0, noise, batch_size=16))
    assert found["channel"] is None
    assert "Without noise" in found["note"]
    epsilon = found["epsilon"]
    assert epsilon["step_exact"] is None
    for key in ("step_classic", "run", "run_unamplified"):
        assert epsilon[key]["value"] is None
        assert "infinite" in epsilon[key]["note"]


@pytest.mark.parametrize("noise", [LEAST, 1e8])
def test_extreme_noise_has_finite_figures(noise: float) -> None:
    found = promised(dpsgd(1.0, noise, batch_size=16), rounds=200, records=1601, parameters=10**9)
    assert found["epsilon"]["run_unamplified"]["value"] is not None
    assert found["channel"]["information_nats"] >= 0


def test_what_follows_the_noise_takes_nothing_back() -> None:
    plain = dpsgd(1.0, 4.0, batch_size=16)
    after = Defense("both", plain.per_example, Chain((plain.update, PruneTransform(0.5))))
    assert promised(after) == promised(plain)


def test_odd_counts_are_refused() -> None:
    with pytest.raises(InputError, match="parameters"):
        promised(dpsgd(1.0, 4.0, batch_size=16), parameters=0)
    with pytest.raises(InputError, match="rounds"):
        promised(dpsgd(1.0, 4.0, batch_size=16), rounds=0)
