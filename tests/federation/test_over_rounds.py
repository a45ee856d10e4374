"""Membership over all rounds: FedMIA against its formula, a planted leak, and none."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from leakgauge.core.rng import stream
from leakgauge.core.types import Dataset, Task
from leakgauge.federation.metrics import AUROC_OVER, TPR_01_OVER, TPR_1_OVER
from leakgauge.federation.run.over_rounds import VARIANCE, OverRounds, against_others, cosines
from leakgauge.training import Protocol
from support.command import Ended, run
from support.kept import keep_federation, normal

NET = "nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 4)"


def literal(rounds: list[np.ndarray]) -> list[float]:
    """The formula record by record: the mean over rounds of P(other client < attacked client)."""
    scores = []
    for record in range(rounds[0].shape[1]):
        total = 0.0
        for measured in rounds:
            own, *others = (float(one) for one in measured[:, record])
            mean = sum(others) / len(others)
            variance = sum((one - mean) ** 2 for one in others) / len(others) + VARIANCE
            total += stats.norm.cdf((own - mean) / variance**0.5)
        scores.append(total / len(rounds))
    return scores


def test_the_score_is_that_of_the_formula() -> None:
    rng = stream(0, "measured")
    rounds = [rng.normal(size=(clients, 50)) for clients in (3, 5, 4)]
    found = 1 - np.exp(-against_others(rounds))
    np.testing.assert_allclose(found, literal(rounds), rtol=1e-9)


def test_the_score_ranks_where_the_probability_rounds_to_one() -> None:
    """Two records that no other client resembles stay in their order."""
    measured = np.array([[60.0, 50.0, 0.0], [0.0, 0.0, 1.0], [2.0, 2.0, -1.0]])
    assert literal([measured])[:2] == [1.0, 1.0]
    first, second, third = against_others([measured])
    assert np.inf > first > second > third


def test_equal_measurements_of_all_others_are_no_division_by_zero() -> None:
    found = against_others([np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])])
    assert np.isfinite(found).all()
    assert found[0] > found[1] == pytest.approx(np.log(2))


def test_the_cosine_is_that_of_autograd() -> None:
    torch.manual_seed(0)
    nets = [nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)) for _ in range(4)]
    x, y = torch.randn(5, 3), torch.tensor([0, 1, 1, 0, 1])
    found = cosines(Task(nets[0]), Dataset(x, y), [Task(one) for one in nets[1:]])
    for client, net in enumerate(nets[1:]):
        before, after = (
            torch.cat([leaf.detach().flatten() for leaf in one.parameters()])
            for one in (nets[0], net)
        )
        for record in range(5):
            loss = nn.functional.cross_entropy(nets[0](x[record : record + 1]), y[record, None])
            gradient = torch.autograd.grad(loss, list(nets[0].parameters()))
            flat = torch.cat([leaf.flatten() for leaf in gradient])
            expected = nn.functional.cosine_similarity(flat, before - after, dim=0)
            assert found[client, record] == pytest.approx(float(expected), abs=1e-6)


def test_a_client_that_sends_back_what_it_received_has_no_direction() -> None:
    net = nn.Linear(3, 2)
    data = Dataset(torch.randn(4, 3), torch.tensor([0, 1, 1, 0]))
    assert (cosines(Task(net), data, [Task(net)]) == 0).all()


def scored(members: int, others: int, *, shift: float) -> OverRounds:
    rng = stream(members + others, "scores")
    member, known = np.arange(members + others) < members, np.arange(60) < 30
    sides = [{"a": rng.normal(size=len(one)) + shift * one} for one in (member, known)]
    return OverRounds(member, sides[0], known, sides[1])


@pytest.mark.parametrize(("others", "shown"), [(99, 0), (100, 1), (999, 1), (1000, 2)])
def test_a_rate_is_shown_by_enough_non_members_alone(others: int, shown: int) -> None:
    rates = [TPR_1_OVER, TPR_01_OVER]
    found = scored(50, others, shift=2.0).figures(seed=0)
    assert [one for one in found if one != AUROC_OVER] == rates[:shown]


@pytest.mark.calibration
@pytest.mark.parametrize(
    ("members", "others"), [(400, 1200), pytest.param(2000, 5000, marks=pytest.mark.slow)]
)
def test_the_rates_are_those_of_a_shift_between_gaussians(members: int, others: int) -> None:
    found = scored(members, others, shift=2.0).figures(seed=0)
    for metric, rate in ((TPR_1_OVER, 0.01), (TPR_01_OVER, 0.001)):
        expected = stats.norm.sf(stats.norm.isf(rate) - 2.0)
        assert found[metric][0].low <= expected <= found[metric][0].high
    estimate, _ = found[AUROC_OVER]
    assert estimate.low <= stats.norm.cdf(2 / 2**0.5) <= estimate.high


def kept(folder: Path, clients: int = 4, *, claimed: bool = True, rounds: int = 2) -> str:
    """Clients that memorise random labels of 60 records; or records that nobody trained on."""
    theirs, others = (
        [(normal(60, 12, name=f"{kind} {at}"), coin(60, f"{kind} y {at}")) for at in range(clients)]
        for kind in ("client", "other")
    )
    return keep_federation(
        folder,
        NET,
        theirs,
        (normal(300, 12, name="public"), coin(300, "public y")),
        Protocol(rounds=rounds, lr=0.5, batch_size=10, epochs=30),
        {},
        config={"lr": 0.5, "local-epochs": 30, "batch-size": 10},
        claimed=None if claimed else others,
    )


def coin(count: int, name: str) -> torch.Tensor:
    return (normal(count, name=name) > 0).long()


def asked(folder: Path, name: str, *words: object) -> Ended:
    task = ("--task", f"{name}:task", "--ask", "membership", "--json", "--out", "run")
    return run("federation", "kept", *task, *words, cwd=folder)


def answer(folder: Path, name: str, *words: object) -> dict[str, Any]:
    ended = asked(folder, name, *words)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)["membership"]
    return found


@pytest.mark.calibration
@pytest.mark.slow
@pytest.mark.parametrize("theirs", [True, False])
def test_members_are_told_over_rounds_and_records_of_nobody_are_not(
    tmp_path: Path, theirs: bool
) -> None:
    found = answer(tmp_path, kept(tmp_path, claimed=theirs))
    assert len(found["over_rounds"]) == 4
    attacks = found["over_rounds_by_attack"]
    assert all(name in attacks for name in ("sum of rounds", "fedmia-loss", "fedmia-cosine"))
    if theirs:
        assert all(one["low"] > 0.5 for one in found["over_rounds"]), found
        assert "tpr_at_1_fpr_over_rounds" in found  # of 120 non-members
        assert "tpr_at_01_fpr_over_rounds" not in found
        page = (tmp_path / "run" / "report.html").read_text("utf-8")
        assert "Over all rounds of a client the AUROC is" in page
        assert "with false alarms for 1 in 100 of the others" in page
    else:
        assert sum(one["low"] > 0.5 for one in found["over_rounds"]) <= 1, found
        assert found["auroc_over_rounds"]["low"] < 0.5 < found["auroc_over_rounds"]["high"]


@pytest.mark.slow
def test_one_attacked_client_is_compared_with_all_that_were_kept(tmp_path: Path) -> None:
    """``--only-client`` selects whom to attack, not whom the attacker has seen."""
    name = kept(tmp_path, clients=3, rounds=1)
    found = answer(tmp_path, name, "--only-client", "1")
    assert [one["client"] for one in found["over_rounds"]] == ["1"]
    assert "fedmia-loss" in found["over_rounds_by_attack"]


def test_two_clients_are_too_few_to_compare(tmp_path: Path) -> None:
    name = kept(tmp_path, clients=2)
    ended = asked(tmp_path, name, "--adversary", "loss-drop")
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)["membership"]
    assert found["over_rounds_by_attack"].startswith("sum of rounds ")
    ended = asked(tmp_path, name, "--adversary", "loss-drop", "--adversary", "fedmia-loss")
    assert ended.returncode == 2
    said = "--adversary fedmia-loss: an attack by comparison needs 3 clients or more in a round"
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1
    ended = asked(tmp_path, name, "--adversary", "fedmia-loss")
    assert "name an attack on single updates too" in ended.stderr
