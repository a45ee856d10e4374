"""Kept updates of clients with BatchNorm: how the search knows the statistics of the batches."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from leakgauge.core.checks import InputError
from leakgauge.core.types import Dataset, Task
from leakgauge.federation.report.wording import UpdateTable, verdict
from leakgauge.federation.run.describing import description_of
from leakgauge.federation.run.preparing import FederationPrepared, prepare
from leakgauge.federation.run.rebuilding import from_arrays, rebuild
from leakgauge.federation.spec import RECONSTRUCTION, FederationSpec
from leakgauge.integrations.kept import Exchange, Keeper
from leakgauge.integrations.training_settings import LocalTraining
from leakgauge.inversion.run import received
from leakgauge.results.measurements import ACCUMULATED, CellContext, Estimate
from leakgauge.runs.sources import task_source
from support.kept import normal

LR, COUNT = 0.1, 4
State = dict[str, Tensor]


def net(momentum: float = 0.1, norm: Callable[..., nn.Module] = nn.BatchNorm2d) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), norm(4, momentum=momentum) if momentum else norm(1, 4)]
    return nn.Sequential(*layers, nn.Tanh(), nn.Flatten(), nn.Linear(64, 4))


def records() -> Dataset:
    x = normal(COUNT + 40, 1, 6, 6, name="x")
    client = (torch.arange(len(x)) < COUNT).long()
    return Dataset(x, torch.arange(len(x)) % 4, secrets={"client": client})


def trained(model: nn.Module, steps: int = 1) -> tuple[State, State]:
    """Return the state before and after steps of SGD on the client's records."""
    data = records()
    before = copy.deepcopy(model.state_dict())
    sgd = torch.optim.SGD(model.parameters(), LR)
    for _ in range(steps):
        sgd.zero_grad()
        nn.functional.cross_entropy(model(data.x[:COUNT]), data.y[:COUNT]).backward()
        sgd.step()
    return before, model.state_dict()


def keep(folder: Path, before: State, after: State, **local: Any) -> None:
    settings = {"lr": LR, "batch_size": COUNT, "steps": 1, "optimizer": "sgd", **local}
    Keeper(folder / "kept", training=LocalTraining(**settings)).keep(
        Exchange(1, "0", before, after, examples=COUNT)
    )


def prepared(folder: Path, model: nn.Module, **settings: Any) -> FederationPrepared:
    spec = FederationSpec(
        ask=(RECONSTRUCTION,), kept=(str(folder / "kept"),), task="m:task", iterations=3, **settings
    )
    return prepare(spec, task_source(Task(model), records()))


def kind(made: FederationPrepared) -> str | None:
    (found,) = made.statistics.values()
    return found


def test_statistics_are_inferred_where_they_were_sent_and_said(tmp_path: Path) -> None:
    keep(tmp_path, *trained(net().train()))
    made = prepared(tmp_path, net())
    assert kind(made) == "inferred"
    assert any("running statistics of 1 updates show" in one for one in description_of(made).notes)
    assert kind(prepared(tmp_path, net(), statistics="none")) is None
    proxy = prepared(tmp_path, net(), statistics="proxy")
    assert "those of public records" in " ".join(
        rebuild(proxy, proxy.kept.updates[0], None).assumed
    )


def test_the_search_gets_the_statistics_of_the_client_s_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one step exactly: those of the first layer's outputs on the true records."""
    seen: list[received.PreparedUpdate] = []
    plain = received.PreparedUpdate.rebuild
    monkeypatch.setattr(
        received.PreparedUpdate, "rebuild", lambda one, *a: (seen.append(one), plain(one, *a))[1]
    )
    keep(tmp_path, *trained(net().train()))
    made = prepared(tmp_path, net())
    rebuild(made, made.kept.updates[0], None)
    assert seen[0].known.statistics is not None
    mean, variance = seen[0].known.statistics.known["1"]
    inputs = net()[0](records().x[:COUNT])
    torch.testing.assert_close(mean[0], inputs.mean((0, 2, 3)), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(variance[0], inputs.var((0, 2, 3)), atol=1e-5, rtol=1e-4)


def test_without_batchnorm_or_its_statistics_there_are_none(tmp_path: Path) -> None:
    before, after = trained(net().train())
    own = {name: leaf for name, leaf in after.items() if "running" not in name}
    keep(tmp_path / "a", before, own)
    made = prepared(tmp_path / "a", net())
    assert kind(made) is None
    assert any("1 updates were not sent" in one for one in description_of(made).notes)
    with pytest.raises(InputError, match=r"running_mean.* cannot be inferred; send buffers, or"):
        prepared(tmp_path / "a", net(), statistics="inferred")
    plain = net(0, nn.GroupNorm)
    keep(tmp_path / "b", *trained(plain))
    made = prepared(tmp_path / "b", net(0, nn.GroupNorm))
    assert kind(made) is None
    assert not any("BatchNorm" in one for one in description_of(made).notes)
    with pytest.raises(InputError, match=r"no BatchNorm in training mode.*leave out --statistics"):
        prepared(tmp_path / "b", net(0, nn.GroupNorm), statistics="inferred")


@pytest.mark.parametrize(
    ("client", "task", "local", "said"),
    [
        (net().train(), net().eval(), {}, "'1' moved, so the client .* training mode"),
        (net().eval(), net().train(), {}, "no running statistics moved"),
        (net().train(), net().train(), {"steps": 3}, "counted 1 batches.* make 3 .*-steps 1"),
        (net(0.5).train(), net(0.01).train(), {}, "variance of '1' does not follow from 1"),
    ],
    ids=["evaluation mode", "training mode", "steps", "momentum"],
)
def test_statistics_that_contradict_the_task_are_refused(
    tmp_path: Path, client: nn.Module, task: nn.Module, local: dict[str, int], said: str
) -> None:
    client = copy.deepcopy(client)
    if "variance" in said:  # as after many rounds: far from this batch's
        client[1].running_var.fill_(1000.0)
        task[1].running_var.fill_(1000.0)
    keep(tmp_path, *trained(client), **local)
    with pytest.raises(InputError, match=said):
        prepared(tmp_path, task)
    assert kind(prepared(tmp_path, task, statistics="none")) is None


def test_batches_that_batchnorm_counted_are_the_local_steps(tmp_path: Path) -> None:
    keep(tmp_path, *trained(net().train(), steps=3), steps=None)
    made = prepared(tmp_path, net())
    (one,) = made.kept.updates
    assert one.update(made.task.model).steps == 3
    found = rebuild(made, one, None)
    assert "3 local steps, as BatchNorm counted" in found.assumed
    assert "BatchNorm's statistics of all 3 batches are like their weighted mean" in found.assumed
    keep(tmp_path / "b", *trained(net().eval()), steps=None)
    made = prepared(tmp_path / "b", net().eval())
    assert "one local step" in rebuild(made, made.kept.updates[0], None).assumed


def test_several_starts_are_scored_and_the_least_loss_chooses(tmp_path: Path) -> None:
    keep(tmp_path, *trained(net().train()))
    made = prepared(tmp_path, net())
    assert made.spec.restarts == 3
    (one,) = made.kept.updates
    found = rebuild(made, one, None)
    assert found.starts.shape == (3,)
    assert found.psnr.mean() in found.starts
    again = from_arrays(found.to_arrays(redact=True))
    assert again.starts.tolist() == found.starts.tolist()
    single = rebuild(replace(made, spec=replace(made.spec, restarts=1)), one, None)
    assert single.starts.tolist() == [pytest.approx(single.psnr.mean())]


def test_a_large_search_has_one_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path, *trained(net().train()))
    monkeypatch.setattr("leakgauge.federation.run.searching.AFFORDABLE", 1e3)
    assert prepared(tmp_path, net()).spec.restarts == 1
    assert prepared(tmp_path, net(), restarts=2).spec.restarts == 2


@pytest.mark.parametrize(
    ("starts", "low", "high", "words"),
    [
        ("3", 2.0, 15.0, "Records not rebuilt"),
        ("3", -5.0, 25.0, "Inconclusive"),
        ("1", 11.0, 15.0, "Parts of records rebuilt"),
    ],
)
def test_a_verdict_says_what_its_interval_covers(
    starts: str, low: float, high: float, words: str
) -> None:
    estimate = Estimate((low + high) / 2, low, high, 8, unit="dB")
    context = CellContext(
        question="federation", game=RECONSTRUCTION, dataset="d", adversary="leakgauge",
        round=ACCUMULATED, seed=0,
    )  # fmt: skip
    mean = context.measurement("psnr", estimate, chance=10.5, details={"starts": starts})
    found = verdict(UpdateTable(RECONSTRUCTION, "psnr", mean, {(1, "0"): mean}, {}))
    assert found.words == words
    over = "records alone: the search had one" if starts == "1" else "records and the 3 starts"
    assert f", over {over} start" in found.text or f", over {over} of each search" in found.text
