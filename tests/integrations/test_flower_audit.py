"""Flower's strategies for client-level privacy, audited with planted clients, correct and not."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from leakgauge.core.checks import InputError
from leakgauge.privacy.conformance import MODEL, NOISE, NORM, REPEATED, SHARE, SINGLE

pytest.importorskip("flwr", reason='needs pip install "leakgauge[flower]"')

from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAdam, FedAvg
from flwr.simulation import run_simulation

from leakgauge.integrations.flower import KeepingStrategy
from leakgauge.integrations.flower_audit import CanaryAudit
from leakgauge.integrations.flower_canaries import CanaryClients
from leakgauge.integrations.kept_reading import read_kept
from leakgauge.integrations.released_models import audit_models, models_of
from support.planted_federation import (
    ADAPTIVE,
    CLIENT_ADAPTIVE,
    CLIENT_FIXED,
    CLIENTS,
    FIXED,
    MODS,
    MULTIPLIER,
    SHAPES,
    app,
    audited,
    played,
    quieter,
    repaired,
    strategy,
    zeros,
)

pytestmark = [
    pytest.mark.usefixtures("quiet_flower"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

DELTA = 1e-5
KINDS = [FIXED, CLIENT_FIXED, ADAPTIVE, CLIENT_ADAPTIVE]
MANY = 20


def cases(*kinds: Any) -> list[Any]:
    """Return all kinds with two seeds; the first seed of some is no slow test."""
    return [
        pytest.param(kind, seed, marks=[] if kind in kinds and not seed else pytest.mark.slow)
        for kind in KINDS
        for seed in (0, 1)
    ]


def right(kind: Any) -> Any:
    """Return Flower's strategy, with noise for the clip that was used where the clip adapts."""
    return repaired(kind) if kind in (ADAPTIVE, CLIENT_ADAPTIVE) else kind


def run(kind: Any, base: Any, seed: int, **settings: Any) -> tuple[Any, Any]:
    """Return what the audit says, and what the released models alone show."""
    nodes = 2 * CLIENTS if base in (ADAPTIVE, CLIENT_ADAPTIVE) else CLIENTS
    chosen = strategy(kind, clients=nodes)
    audit, models = audited(chosen, seed, mods=MODS.get(base, ()), nodes=nodes, **settings)
    outside = audit_models(
        models,
        audit.canaries.planted,
        noise_multiplier=audit.noise,
        clip=audit.clips,
        clients=nodes,
        delta=DELTA,
    )
    return audit.result(delta=DELTA), outside


def failed(found: Any) -> set[str]:
    return {one.what for one in found.conformance.failed}


@pytest.mark.parametrize(("kind", "seed"), cases(CLIENT_FIXED, ADAPTIVE))
def test_correct_strategies_are_not_flagged(kind: Any, seed: int) -> None:
    inside, outside = run(right(kind), kind, seed)
    assert not inside.flagged, str(inside)
    assert not outside.flagged, str(outside)


@pytest.mark.parametrize(("kind", "seed"), cases(FIXED, CLIENT_ADAPTIVE))
def test_a_quarter_of_the_noise_is_flagged_and_refutes_the_claim(kind: Any, seed: int) -> None:
    inside, outside = run(quieter(right(kind), 0.25), kind, seed)
    assert failed(inside) == {NOISE, MODEL}
    assert inside.refuted_by
    assert inside.bounds[0].low > inside.claim.epsilon
    assert outside.refuted_by


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_20_correct_and_20_with_a_quarter_of_the_noise(kind: Any) -> None:
    for factor, wanted in ((1.0, 0), (0.25, MANY)):
        both = [run(quieter(right(kind), factor), kind, seed) for seed in range(MANY)]
        assert [sum(one.flagged for one in side) for side in zip(*both, strict=True)] == [
            wanted
        ] * 2


@pytest.mark.parametrize("kind", [pytest.param(ADAPTIVE, marks=pytest.mark.slow), CLIENT_ADAPTIVE])
def test_flower_s_adaptive_noise_is_for_the_next_clip(kind: Any) -> None:
    """Where all updates are clipped, the clip falls by exp(-0.1), and the noise with it."""
    inside, outside = run(kind, kind, 0)
    assert failed(inside) == {NOISE, MODEL}
    seen = next(one.seen for one in inside.conformance.checks if one.what == MODEL)
    assert seen == pytest.approx(np.exp(-0.1), rel=0.02)
    assert outside.flagged


def test_claim_of_an_adaptive_clip_counts_its_noisy_count() -> None:
    """Flower splits the noise multiplier between updates and count; together it is the stated."""
    audit, _ = audited(strategy(repaired(ADAPTIVE), clients=20), 0, nodes=20, rounds=2)
    fixed, _ = audited(strategy(FIXED, clients=20), 0, nodes=20, rounds=2)
    assert audit.noise == pytest.approx(1 / np.sqrt(1 - 1 / 4))
    assert audit.claim(DELTA).epsilon == pytest.approx(fixed.claim(DELTA).epsilon)


@pytest.mark.parametrize(
    ("settings", "share"),
    [
        ({"canaries": {"examples": 90, "members": [True, False, False, False]}}, 10 * 90 / 180),
        ({"examples": lambda who: 10 + who}, 10 * 19 / 145),
    ],
)
def test_weights_by_examples_give_a_client_more_than_its_share(
    settings: dict[str, Any], share: float
) -> None:
    inside, _ = run(FIXED, FIXED, 0, **settings)
    assert failed(inside) == {SHARE}
    assert next(one.seen for one in inside.conformance.failed) == pytest.approx(share)
    assert "times its share of the mean" in inside.verdict


def test_fewer_replies_than_stated_are_flagged() -> None:
    audit, _ = audited(strategy(FIXED, clients=12, inner=FedAvg(fraction_evaluate=0.0)), 0)
    assert failed(audit.result(delta=DELTA)) == {SHARE}


def test_a_single_number_is_not_clipped() -> None:
    audit, _ = audited(strategy(FIXED), 0, start=zeros({**SHAPES, "scale": ()}))
    found = audit.result(delta=DELTA)
    assert failed(found) == {NORM, SINGLE}
    assert "layer scale is a single number, which is not clipped" in found.verdict


def test_a_mod_in_the_wrong_place_sends_what_is_not_clipped() -> None:
    audit, _ = audited(strategy(CLIENT_FIXED), 0)  # no mod clips
    found = audit.result(delta=DELTA)
    assert failed(found) == {NORM}
    assert found.refuted_by


def test_the_same_noise_in_each_round_is_flagged() -> None:
    class Seeded(FIXED):  # type: ignore[misc]
        def _add_noise_to_aggregated_arrays(self, arrays: Any) -> Any:
            np.random.seed(0)  # noqa: NPY002
            return super()._add_noise_to_aggregated_arrays(arrays)

    assert REPEATED in failed(run(Seeded, FIXED, 0)[0])


def test_a_server_that_does_not_average_is_named() -> None:
    audit, _ = audited(strategy(FIXED, inner=FedAdam(fraction_evaluate=0.0)), 0)
    assert "FedAdam releases no weighted mean" in audit.result(delta=DELTA).verdict


def test_clients_that_are_sampled_are_found_by_their_direction() -> None:
    inner = FedAvg(fraction_evaluate=0.0, fraction_train=0.5, min_train_nodes=5)
    members = {"members": [True, True, True, False]}
    audit, _ = audited(strategy(FIXED, clients=5, inner=inner), 0, canaries=members, rounds=12)
    found = audit.result(delta=DELTA)
    assert 6 < len(audit.scores.inside) < 30
    assert not found.flagged
    assert audit.scores.rounds == 12


def test_training_is_the_same_with_the_audit() -> None:
    def models(wrap: Callable[[Any], Any]) -> list[dict[str, Any]]:
        np.random.seed(0)  # noqa: NPY002
        random.seed(0)
        chosen = strategy(FIXED)
        found = played(wrap(chosen), app(), rounds=3)
        assert "aggregate_train" not in vars(chosen.strategy)
        return found

    canaries = CanaryClients([0], clip=1.0, members=[True])
    plain, beside = models(lambda one: one), models(lambda one: CanaryAudit(one, canaries))
    for one, other in zip(plain, beside, strict=True):
        for name, value in one.items():
            np.testing.assert_array_equal(value, other[name])


def test_kept_models_are_audited(tmp_path: Any) -> None:
    np.random.seed(0)  # noqa: NPY002
    canaries = CanaryClients(range(4), clip=1.0, seed=7, members=[True] * 4)
    chosen = KeepingStrategy(strategy(quieter(FIXED, 0.25)), tmp_path)
    models = played(chosen, app(canaries), rounds=4)
    kept = models_of(read_kept(tmp_path), models[-1])
    settings = {"noise_multiplier": MULTIPLIER, "clip": 1.0, "clients": CLIENTS, "delta": DELTA}
    found, direct = (audit_models(one, canaries.planted, **settings) for one in (kept, models))
    assert found == direct
    assert found.refuted_by
    assert "which is assumed" in found.verdict


def test_what_cannot_be_audited_is_refused() -> None:
    canaries = CanaryClients([0], clip=1.0, members=[True])
    for chosen, said in (
        (FedAvg(), "FedAvg has no noise_multiplier"),
        (FIXED(FedAvg(), 0.0, 1.0, 10), "noise multiplier of .* is 0"),
    ):
        with pytest.raises(InputError, match=said):
            CanaryAudit(chosen, canaries)
    with pytest.raises(InputError, match="no round was audited"):
        CanaryAudit(strategy(FIXED), canaries).result(delta=DELTA)
    audit = CanaryAudit(strategy(FIXED), canaries)
    played(audit, app(), rounds=1)
    with pytest.raises(InputError, match="no planted client took part"):
        audit.result(delta=DELTA)
    with pytest.raises(InputError, match="2 clips for 1 rounds"):
        audit_models(
            [{"a": np.zeros(9)}] * 2,
            canaries.planted,
            noise_multiplier=1.0,
            clip=[1.0, 1.0],
            clients=2,
            delta=DELTA,
        )


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_flower_s_simulation_with_ray(kind: Any, factor: float) -> None:
    pytest.importorskip("ray", reason="needs pip install 'flwr[simulation]'")
    nodes = 2 * CLIENTS if kind in (ADAPTIVE, CLIENT_ADAPTIVE) else CLIENTS
    canaries = CanaryClients(range(4), clip=1.0, seed=3, members=[True, True, False, True])
    audit = CanaryAudit(strategy(quieter(right(kind), factor), clients=nodes), canaries)
    server = ServerApp()

    @server.main()
    def main(grid: Any, context: Any) -> None:
        np.random.seed(5)  # noqa: NPY002
        audit.start(grid=grid, initial_arrays=zeros(), num_rounds=6)

    resources = {"client_resources": {"num_cpus": 1}}
    run_simulation(server, app(*MODS.get(kind, ()), canaries), nodes, backend_config=resources)
    found = audit.result(delta=DELTA)
    assert (len(audit.scores.inside), found.flagged) == (18, factor < 1)
