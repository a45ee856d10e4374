"""The smallest epsilons that one run flags, by guesses and by whole scores, and false alarms.

    python benchmarks/one_run.py [--part simulated,trained,correct] [--correct 400]

``simulated``: canaries that take part in each step of a Gaussian mechanism. The epsilon of a
mechanism with less noise that is flagged in about half of the runs, and the share of 200 simulated
runs flagged at it. ``trained``: trainings with Opacus at a sampling rate of 10 % with 1,000
canaries, whose optimizer adds less noise than its accountant counts; how many of 20 each test
flags. ``correct``: trainings that do what their claim says, by sampler; how many are flagged.
"""

import argparse
import math
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, RandomSampler, TensorDataset, WeightedRandomSampler

from leakgauge.integrations.opacus import Audit
from leakgauge.integrations.opacus_samplers import law_of
from leakgauge.privacy.dp_audit import DpAudit, audit_one_run
from leakgauge.privacy.estimate import epsilon_of_mu, noise_for_epsilon
from leakgauge.privacy.profile import Profile, profile_of
from leakgauge.privacy.whole_audit import KnownShape, audit_gaussian_scores, audit_known_shape
from leakgauge.privacy.whole_scores import Shift

warnings.simplefilter("ignore")

DELTA, CLAIMS, CANARIES = 1e-5, (0.5, 1.0, 2.0, 4.0), (100, 500, 1000, 5000, 20000)
RECORDS, BATCH, STEPS, RUNS = 200, 20, 30, 20


@cache
def gaussian_claim(epsilon: float) -> Profile:
    mu = 1 / noise_for_epsilon(epsilon, 1.0, DELTA)
    return profile_of(lambda delta: epsilon_of_mu(mu, delta), DELTA)


def simulated() -> Iterator[str]:
    yield "| claim | canaries | guesses | whole scores | flagged of 200 by whole scores |"
    yield "|---|---|---|---|---|"
    rng = np.random.default_rng(0)
    for epsilon in CLAIMS:
        claim = gaussian_claim(epsilon)
        for m in CANARIES:
            shape = KnownShape(Shift(0.0, 2 / math.sqrt(m), m - 2), epsilon_of_mu, m)
            new = audit_known_shape(shape, claim).smallest_seen
            old = audit_one_run(np.zeros(m), np.arange(m) % 2 == 0, claim).smallest_seen
            mu = 1 / noise_for_epsilon(new or 1.0, 1.0, DELTA)
            flagged = 0
            for _ in range(200):
                included = rng.random(m) < 0.5
                scores = rng.normal(0, 1, m) + mu * included
                flagged += audit_gaussian_scores(scores, included, claim).flagged
            yield f"| {epsilon:g} | {m:,} | {old or math.nan:.1f} | {new:.1f} | {flagged} |"


def loader_of(kind: str, data: TensorDataset) -> DataLoader[Any]:
    if kind == "weighted":
        weights = [5.0 if k < 20 else 1.0 for k in range(RECORDS)]
        sampler: Any = WeightedRandomSampler(weights, RECORDS)
    else:
        sampler = RandomSampler(data)
    return DataLoader(data, batch_size=BATCH, sampler=sampler)


def audited(seed: int, kind: str, claim: Profile, *, less: float = 1.0) -> DpAudit:
    """Train with noise 1, of which ``less`` is really added."""
    from opacus import PrivacyEngine

    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(30, 40), nn.ReLU(), nn.Linear(40, 2))
    x = torch.randn(RECORDS, 30)
    engine = PrivacyEngine(accountant="rdp")
    private, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=loader_of(kind, TensorDataset(x, (x[:, 0] > 0).long())),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=kind == "poisson",
    )
    add = optimizer.add_noise

    def add_less() -> None:
        optimizer.noise_multiplier *= less
        add()
        optimizer.noise_multiplier /= less

    optimizer.add_noise = add_less
    with Audit(engine, optimizer, loader, canaries=1000, seed=seed, model=model) as audit:
        for _ in range(STEPS * BATCH // RECORDS):
            for one, other in loader:
                optimizer.zero_grad()
                functional.cross_entropy(private(one), other).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    sampling: Any = "poisson" if kind == "poisson" else "loader"
    return audit.result(delta=DELTA, claim=claim, sampling=sampling)


def poisson_claim(noise: float = 1.0) -> Profile:
    from opacus.accountants import create_accountant

    accountant = create_accountant("prv")
    accountant.history = [(noise, BATCH / RECORDS, STEPS)]
    return profile_of(lambda delta: float(accountant.get_epsilon(delta)), DELTA)


@cache
def claim_of(kind: str) -> Profile:
    """What a correct accountant claims of 30 steps with noise 1."""
    if kind == "poisson":
        return poisson_claim()
    if kind == "shuffled":  # an auditor who knows the batches sees a record once in each epoch
        mu = math.sqrt(STEPS * BATCH / RECORDS)
        return profile_of(lambda delta: epsilon_of_mu(mu, delta), DELTA)
    from dp_accounting.pld import privacy_loss_distribution as pld

    law = law_of(loader_of(kind, TensorDataset(torch.zeros(RECORDS))).batch_sampler, 10)
    shares = law.share_of(1)
    step = pld.from_mixture_gaussian_mechanism(
        1.0, list(range(len(shares))), list(shares / shares.sum()),
        value_discretization_interval=0.005,
    )  # fmt: skip
    return profile_of(step.self_compose(STEPS).get_epsilon_for_delta, DELTA)


def trained() -> Iterator[str]:
    claim = poisson_claim()
    yield f"claim: epsilon {claim.epsilon:.2f} (Poisson sampling of 10 %, 30 steps, noise 1, prv)"
    yield "| noise that is added | its epsilon | refuted by guesses | by whole scores | named |"
    yield "|---|---|---|---|---|"
    for less in (1.0, 0.95, 0.9, 0.85, 0.8, 0.5):
        runs = [audited(seed, "poisson", claim, less=less) for seed in range(RUNS)]
        guesses = sum(any(one.startswith("one run") for one in run.refuted_by) for run in runs)
        whole = sum("whole scores" in run.refuted_by for run in runs)
        named = sum(run.deviates for run in runs)
        epsilon = poisson_claim(less).epsilon
        yield f"| {less:g} | {epsilon:.2f} | {guesses} of {RUNS} | {whole} | {named} |"


def correct(number: int) -> Iterator[str]:
    yield "| sampler | trainings | claim | refuted by guesses | by whole scores | a check fails |"
    yield "|---|---|---|---|---|---|"
    kinds = ("poisson", "shuffled", "weighted")
    for k, kind in enumerate(kinds):
        claim = claim_of(kind)
        runs = [audited(seed, kind, claim) for seed in range(k, number, len(kinds))]
        guesses = sum(any(one.startswith("one run") for one in run.refuted_by) for run in runs)
        whole = sum("whole scores" in run.refuted_by for run in runs)
        named = sum(run.deviates for run in runs)
        yield f"| {kind} | {len(runs)} | {claim.epsilon:.2f} | {guesses} | {whole} | {named} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--part", default="simulated,trained,correct")
    parser.add_argument("--correct", type=int, default=400)
    given = parser.parse_args()
    torch.set_num_threads(1)
    parts: dict[str, Callable[[], Iterator[str]]] = {
        "simulated": simulated,
        "trained": trained,
        "correct": lambda: correct(given.correct),
    }
    for name in given.part.split(","):
        for line in parts[name]():
            print(line, flush=True)


if __name__ == "__main__":
    main()
