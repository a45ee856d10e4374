"""Does Opacus' training do what its accountant counts: correct runs, and planted faults."""

import math
import warnings
from collections import Counter
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from opacus import PrivacyEngine
    from opacus.accountants import create_accountant
    from opacus.utils.batch_memory_manager import BatchMemoryManager

from leakgauge import InputError
from leakgauge.integrations.opacus import Audit
from leakgauge.integrations.opacus_stated import Stated
from leakgauge.privacy.dp_audit import DpAudit
from leakgauge.privacy.estimate import epsilon_of_mu
from leakgauge.privacy.number_of_guesses import guesses_for, largest_noise_seen, smallest_seen
from leakgauge.privacy.profile import Profile, profile_of
from support.opacus_warnings import QUIET

pytestmark = [*QUIET, pytest.mark.filterwarnings("ignore:GDP accounting")]

RECORDS, BATCH, STEPS = 200, 20, 30
FAULTS = (
    "half the noise",
    "a layer without noise",
    "repeated noise",
    "unclipped",
    "shuffled",
    "weighted",
)
SAMPLERS = ("shuffled", "weighted")


def private(
    seed: int = 0, *, kind: str = "rdp", poisson: bool = True, weighted: bool = False
) -> tuple[PrivacyEngine, nn.Module, Any, Any]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 2))
    x = torch.randn(RECORDS, 20)
    sampler = WeightedRandomSampler([5.0] * 20 + [1.0] * (RECORDS - 20), RECORDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = PrivacyEngine(accountant=kind)
    return engine, *engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(
            TensorDataset(x, (x[:, 0] > 0).long()),
            batch_size=BATCH,
            sampler=sampler if weighted else None,
        ),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=poisson,
    )


def train(model: nn.Module, optimizer: Any, loader: Any, steps: int = STEPS) -> None:
    for _ in range(math.ceil(steps * BATCH / RECORDS)):
        for x, y in loader:
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()


def plant(fault: str, optimizer: Any) -> None:
    """Change the optimizer so that its accountant does not notice."""
    clip, noise = optimizer.clip_and_accumulate, optimizer.add_noise

    def half() -> None:
        optimizer.noise_multiplier /= 2
        noise()
        optimizer.noise_multiplier *= 2

    def without() -> None:
        noise()
        optimizer.params[2].grad = optimizer.params[2].summed_grad.clone()

    def repeated() -> None:
        with torch.random.fork_rng():
            torch.manual_seed(7)
            noise()

    def unclipped() -> None:
        one = optimizer.params[2]
        before = 0.0 if one.summed_grad is None else one.summed_grad.clone()
        whole = one.grad_sample.sum(dim=0)
        clip()
        one.summed_grad = before + whole

    if fault == "unclipped":
        optimizer.clip_and_accumulate = unclipped
    elif fault not in SAMPLERS:
        optimizer.add_noise = dict(zip(FAULTS, (half, without, repeated), strict=False))[fault]


@cache
def claim_of(kind: str, noise: float = 1.0) -> Profile:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        accountant = create_accountant(kind)
        accountant.history = [(noise, BATCH / RECORDS, STEPS)]
        return profile_of(accountant.get_epsilon, 1e-5)


@cache
def audited(seed: int, *, kind: str = "rdp", fault: str = "") -> DpAudit:
    engine, model, optimizer, loader = private(
        seed, kind=kind, poisson=fault not in SAMPLERS, weighted=fault == "weighted"
    )
    if fault:
        plant(fault, optimizer)
    with Audit(engine, optimizer, loader, canaries=300, seed=seed, model=model) as audit:
        train(model, optimizer, loader)
    return audit.result(delta=1e-5, claim=claim_of(kind))


def means(fault: str, audit: DpAudit) -> bool:
    """Return whether the sentence names the fault, and the bound alone does not show it."""
    assert audit.conformance is not None
    words = {
        "half the noise": "the noise in all 4 layers has 0.",
        "a layer without noise": "the noise in layer 2.weight has 0 times the stated size",
        "repeated noise": "the noise in all 4 layers is not new in each step",
        "unclipped": "clipping norms in layer 2.weight; expected 1",
        "shuffled": "of the batches has the same size; Poisson sampling gives 0.09",
        "weighted": "of the batches has the same size; Poisson sampling gives 0.09",
    }[fault]
    return words in audit.conformance.sentence


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named(fault: str) -> None:
    found = audited(0, fault=fault)
    assert found.flagged
    assert found.deviates
    assert means(fault, found), found.verdict
    assert found.verdict.startswith("DOES NOT DO WHAT IT SAYS: ")
    plain = found.to_json()
    assert plain["flagged"]
    assert plain["deviates"]
    assert plain["conformance"]["sentence"] in str(found)
    assert {one["what"] for one in plain["conformance"]["failed"]} <= {
        one["what"] for one in plain["conformance"]["checks"]
    }


@pytest.mark.parametrize("kind", ["rdp", "gdp"])
@pytest.mark.parametrize("seeds", [(0,), pytest.param((1, 2), marks=pytest.mark.slow)])
def test_correct_training_does_what_it_says(kind: str, seeds: tuple[int, ...]) -> None:
    for seed in seeds:
        found = audited(seed, kind=kind)
        assert not found.deviates, found.verdict
        assert found.verdict.startswith("Training does what it says")
        assert found.conformance is not None
        assert found.conformance.significance == pytest.approx(0.001)
        layers = [one.where for one in found.conformance.checks if one.what == "noise"]
        assert layers == ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_whole_scores_see_half_the_noise_which_guesses_miss() -> None:
    half, correct = audited(0, fault="half the noise"), audited(0)
    assert half.refuted_by == ("whole scores",)
    assert half.bounds[-1].low > 2 * half.claim.epsilon
    assert not correct.refuted_by
    assert 0 < correct.bounds[-1].low < correct.claim.epsilon


def test_a_claim_for_the_loaders_own_sampling_is_compared_with_it() -> None:
    """Three epochs with noise 1, for an auditor who knows the batches."""
    engine, model, optimizer, loader = private(poisson=False)
    with Audit(engine, optimizer, loader, canaries=300) as audit:
        train(model, optimizer, loader)
    claim = profile_of(lambda delta: epsilon_of_mu(math.sqrt(3), delta), 1e-5)
    found = audit.result(delta=1e-5, claim=claim, sampling="loader")
    assert not found.flagged, found.verdict
    assert "sampling, since the claim counts the loader's own" in found.verdict
    assert audit.result(delta=1e-5, claim=claim).deviates
    with pytest.raises(InputError, match="give a claim="):
        audit.result(delta=1e-5, sampling="loader")


@pytest.mark.slow
@pytest.mark.calibration
def test_faults_are_caught_in_19_of_20_runs() -> None:
    caught = {
        fault: sum(means(fault, audited(seed, fault=fault)) for seed in range(20))
        for fault in FAULTS
    }
    print(caught)
    assert min(caught.values()) >= 19, caught


@pytest.mark.slow
@pytest.mark.calibration
def test_200_correct_runs_have_at_most_2_alarms() -> None:
    kinds = ("rdp", "prv", "gdp")
    runs = [audited(seed, kind=kinds[seed % 3]) for seed in range(200)]
    alarms = [one.verdict for one in runs if one.deviates]
    print(len(alarms), sum(bool(one.refuted_by) for one in runs))
    assert len(alarms) <= 2, alarms


def test_the_checks_leave_weights_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit by bit, with canaries and without them."""
    weights = []
    for checked in (True, False):
        if not checked:
            monkeypatch.setattr(Stated, "step", lambda *given: None)
        for members in (None, [False] * 300):
            engine, model, optimizer, loader = private()
            with Audit(engine, optimizer, loader, canaries=300, members=members):
                train(model, optimizer, loader)
            weights.append([p.detach().clone() for p in model.parameters()])
    engine, model, optimizer, loader = private()
    train(model, optimizer, loader)
    alone = list(model.parameters())
    assert all(map(torch.equal, weights[0], weights[2]))
    assert all(map(torch.equal, weights[1], alone))
    assert all(map(torch.equal, weights[3], alone))


def test_a_setting_that_the_accountant_counts_is_no_fault_unless_stated() -> None:
    """Opacus counts the noise of each step; what was promised is known to the auditor alone."""
    for stated in (None, 1.0):
        engine, model, optimizer, loader = private()
        optimizer.noise_multiplier = 0.5
        with Audit(engine, optimizer, loader, canaries=300, noise_multiplier=stated) as audit:
            train(model, optimizer, loader)
        found = audit.result(delta=1e-5, claim=claim_of("rdp", 0.5))
        assert found.deviates == (stated is not None)
        assert ("the noise in all 4 layers has 0." in found.verdict) == (stated is not None)
    # The claim of noise 1 for these steps: no accountant counts so little.
    found = audit.result(delta=1e-5, claim=claim_of("rdp"))
    assert "the steps that the accountant counted have an epsilon of" in found.verdict


def test_steps_that_are_not_counted_are_named() -> None:
    engine, model, optimizer, loader = private()
    optimizer.attach_step_hook(lambda _: None)  # takes the accountant's place
    with Audit(engine, optimizer, loader, canaries=300) as audit:
        train(model, optimizer, loader)
    assert "the accountant counted 0 of 30 steps" in audit.result(delta=1e-5).verdict


def test_another_loader_than_the_audited_one_is_seen() -> None:
    """The audit gets Poisson sampling; the loop reads shuffled batches of twice the size."""
    engine, model, optimizer, loader = private()
    other = DataLoader(loader.dataset, batch_size=40, shuffle=True)
    with Audit(engine, optimizer, loader, canaries=300) as audit:
        train(model, optimizer, other, 2 * STEPS)
    verdict = audit.result(delta=1e-5, claim=claim_of("rdp")).verdict
    assert "batches have 40 records on average; the stated sampling gives 20" in verdict


def test_batches_in_parts_are_one_step() -> None:
    engine, model, optimizer, loader = private()
    with (
        BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=8, optimizer=optimizer
        ) as parts,
        Audit(engine, optimizer, parts, canaries=300) as audit,
    ):
        train(model, optimizer, parts)
    found = audit.result(delta=1e-5).conformance
    assert found is not None
    assert not found.failed, found.sentence
    size = next(one for one in found.checks if one.what == "batch size")
    assert size.expected == pytest.approx(20)
    assert size.seen == pytest.approx(20, abs=3)


def test_accumulated_batches_are_one_step() -> None:
    """Opacus accumulates shuffled batches alone, which its accountant takes for Poisson ones."""
    engine, model, optimizer, loader = private(poisson=False)
    with Audit(engine, optimizer, loader, canaries=300) as audit:
        for k, (x, y) in enumerate(batch for _ in range(3) for batch in loader):
            functional.cross_entropy(model(x), y).backward()
            if k % 2:
                optimizer.step()
                optimizer.zero_grad()
    found = audit.result(delta=1e-5).conformance
    assert found is not None
    assert [one.what for one in found.failed] == ["equal batches"]
    size = next(one for one in found.checks if one.what == "batch size")
    assert size.expected == pytest.approx(size.seen) == pytest.approx(40)


def test_what_cannot_be_checked_is_named() -> None:
    engine, model, optimizer, loader = private()
    bare = SimpleNamespace(get_epsilon=lambda delta: 3.0)
    sampler = SimpleNamespace(batch_sampler=loader.batch_sampler)
    with Audit(bare, optimizer, sampler, canaries=4) as audit:
        train(model, optimizer, loader)
    verdict = audit.result(delta=1e-5).verdict
    for words in (
        "sampling, since the loader has no dataset",
        "steps counted, since the engine has no accountant with a history",
        "clipping in layer 3 (2)",
    ):
        assert words in verdict
    with pytest.raises(InputError, match="stated noise multiplier"):
        Audit(engine, optimizer, loader, canaries=4, noise_multiplier=0.0)


def test_what_one_run_would_have_missed_counts_the_sampling() -> None:
    """The page's figures: the run misses far more than with canaries in each step."""
    engine, model, optimizer, loader = private()
    with Audit(engine, optimizer, loader, canaries=300) as audit:
        train(model, optimizer, loader)
    audit._stated.history = Counter({(1.0, 0.05): 60})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        accountant = create_accountant("rdp")
        accountant.history = [(1.0, 0.05, 60)]
        claim = profile_of(accountant.get_epsilon, 1e-5)
        draws = stats.binom.pmf(np.arange(40), 60, 0.05)
        least, made = claim.least_false_positives, guesses_for(1000, claim.least_false_positives)
        noise = largest_noise_seen(1000, made, least, draws)
        assert noise is not None
        assert noise / math.sqrt(60) == pytest.approx(0.18, abs=0.005)
        accountant.history = [(noise / math.sqrt(60), 0.05, 60)]
        assert accountant.get_epsilon(1e-5) == pytest.approx(191, abs=0.5)
    assert audit._stated.epsilon_with(1e-5)(noise) == pytest.approx(accountant.get_epsilon(1e-5))
    mu = smallest_seen(1000, made, least)
    assert mu is not None
    assert epsilon_of_mu(mu, 1e-5) == pytest.approx(6.75, abs=0.01)


def test_the_verdict_has_what_one_run_would_have_missed() -> None:
    found = audited(0, fault="shuffled")
    assert found.sampled
    assert found.smallest_seen is not None
    assert f"would have missed an epsilon below about {found.smallest_seen:.3g}" in found.verdict
    assert "With less noise, one run" in found.verdict
