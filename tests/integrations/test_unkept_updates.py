"""What is not kept is said in one line, and what is kept is the model."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from leakgauge.core.checks import InputError
from leakgauge.integrations.kept_reading import read_kept
from leakgauge.integrations.training_settings import LocalTraining


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 2)


def weights(by: float = 0.0) -> dict[str, np.ndarray]:
    return {name: leaf.numpy() - np.float32(by) for name, leaf in net().state_dict().items()}


def gradient_is_one(folder: Path, *, lr: float) -> None:
    """The weights fell by lr everywhere, so the gradient of one step is 1."""
    (one,) = read_kept(folder).updates
    found = one.update(net(), LocalTraining(lr=lr, steps=1)).as_gradient()
    assert found
    for leaf in found.values():
        torch.testing.assert_close(leaf, torch.ones_like(leaf), rtol=1e-4, atol=1e-5)


class Flare:
    """Both filters of an NVFlare client."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        nvflare = pytest.importorskip("leakgauge.integrations.nvflare")
        from nvflare.apis.fl_constant import ReservedKey
        from nvflare.apis.fl_context import FLContext

        self.kept = nvflare.KeepUpdates(str(folder))
        self.ctx = FLContext()
        self.ctx.set_prop(ReservedKey.IDENTITY_NAME, "site-1", private=False)
        self.ctx.set_prop(ReservedKey.RUN_NUM, folder.parent.name, private=False)
        self.said: list[str] = []
        monkeypatch.setattr(self.kept, "log_warning", lambda ctx, line: self.said.append(line))

    def message(self, data: Any, *, kind: str = "WEIGHTS", **meta: Any) -> Any:
        from nvflare.apis.dxo import DXO

        return DXO(kind, data, {"current_round": 0, **meta})

    def see(self, chain: str, dxo: Any) -> None:
        from nvflare.apis.filter import FilterContextKey

        self.kept.set_prop(FilterContextKey.CHAIN_TYPE, chain)
        self.kept.process(dxo.to_shareable(), self.ctx)

    def receive(self, dxo: Any) -> None:
        self.see("task_data", dxo)

    def send(self, dxo: Any) -> None:
        self.see("task_result", dxo)


@pytest.fixture
def flare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Flare:
    return Flare(tmp_path / "kept", monkeypatch)


@pytest.mark.parametrize("last", [True, False])
def test_of_a_collection_the_model_is_kept(flare: Flare, tmp_path: Path, last: bool) -> None:
    """NVFlare's SCAFFOLD sends its controls beside the model, under equal names and kinds."""

    def collection(model: Any, controls: Any) -> Any:
        parts = {"_model_weights_": model, "scaffold_c_global": controls}
        held = dict(reversed(parts.items())) if last else parts
        return flare.message(held, kind="COLLECTION")

    def controls() -> Any:
        return flare.message(weights(7), kind="WEIGHT_DIFF")

    change = {name: np.full_like(leaf, -0.5) for name, leaf in weights().items()}
    flare.receive(collection(flare.message(weights()), controls()))
    flare.send(collection(flare.message(change, kind="WEIGHT_DIFF", num_examples=4), controls()))
    gradient_is_one(tmp_path / "kept", lr=0.5)
    assert read_kept(tmp_path / "kept").updates[0].examples == 4
    assert flare.said == []


def test_a_collection_without_a_named_model_is_not_kept(flare: Flare, tmp_path: Path) -> None:
    parts = {"a": flare.message(weights()), "b": flare.message(weights(1))}
    flare.receive(flare.message(weights()))
    flare.send(flare.message(parts, kind="COLLECTION"))
    assert not (tmp_path / "kept").exists()
    assert "the parts 'a', 'b' of a collection may each be the model" in flare.said[0]


def test_a_filter_in_one_direction_says_so(flare: Flare, tmp_path: Path) -> None:
    flare.send(flare.message(weights(0.1)))
    assert not (tmp_path / "kept").exists()
    assert flare.said == [
        "round 1, client site-1: not kept, since the model that it received is unknown; add "
        "KeepUpdates in both directions, as an input filter and as an output filter"
    ]


def test_an_older_model_is_not_what_a_client_trains(flare: Flare, tmp_path: Path) -> None:
    flare.receive(flare.message(weights()))
    flare.receive(flare.message({}))  # NVFlare calls no filter for a model without weights
    flare.send(flare.message(weights(0.1)))
    assert not (tmp_path / "kept").exists()
    assert "the model that it received is unknown" in flare.said[0]


def test_encoded_values_are_not_taken_for_weights(flare: Flare, tmp_path: Path) -> None:
    flare.receive(flare.message(weights()))
    flare.send(flare.message(weights(0.1), PROCESSED_ALGORITHM="blockwise8"))
    assert not (tmp_path / "kept").exists()
    assert "a filter before this one encoded its values (blockwise8)" in flare.said[0]


@pytest.fixture
def numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the process the ids that a message takes from a running federation."""
    identity = pytest.importorskip("flwr.supercore.task_identity").TaskIdentity
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(identity, name, 1)


def instruction(config: dict[str, Any], *, group: str = "", node: int = 7, **more: Any) -> Any:
    from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

    arrays = {name: torch.from_numpy(leaf) for name, leaf in weights().items()}
    records = {"arrays": ArrayRecord(arrays), "config": ConfigRecord(config), **more}
    return Message(RecordDict(records), node, "train", group_id=group)


def reply(to: Any, by: float = 0.5, **metrics: float) -> Any:
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

    arrays = {name: torch.from_numpy(leaf) for name, leaf in weights(by).items()}
    records = {"arrays": ArrayRecord(arrays), "metrics": MetricRecord(metrics)}
    return Message(RecordDict(records), reply_to=to)


def passed(folder: Path, sent: Any, back: Any) -> None:
    from flwr.app import Context, RecordDict

    from leakgauge.integrations.flower import KeepUpdates

    ctx = Context(1, 7, {"partition-id": 0}, RecordDict(), {})
    assert KeepUpdates(folder)(sent, ctx, lambda msg, ctx: back) is back


@pytest.mark.usefixtures("numbered")
@pytest.mark.parametrize("number", [None, 0, -1, "1", 1.0, True])
def test_a_round_is_the_server_s_or_the_message_s_group(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: Any
) -> None:
    """Without a round, nothing is kept, and the log says so."""
    config = {} if number is None else {"server-round": number}
    unknown = isinstance(number, int) and not isinstance(number, bool)
    for group in ("", "3"):
        caplog.clear()
        sent = instruction(config, group=group)
        passed(tmp_path / "kept", sent, reply(sent))
        if group and not unknown:
            assert [one.number for one in read_kept(tmp_path / "kept").updates] == [3]
        else:
            assert not (tmp_path / "kept").exists()
            assert "not kept: a message for training names no round" in caplog.text


@pytest.mark.usefixtures("numbered")
def test_a_client_that_fails_is_named_and_others_are_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One client gets two records that cannot be told apart, and one answers with an error."""
    flower = pytest.importorskip("leakgauge.integrations.flower")
    from flwr.app import ArrayRecord, ConfigRecord, Error, Message
    from flwr.serverapp.strategy import FedAvg

    same = ArrayRecord({name: torch.from_numpy(leaf) for name, leaf in weights().items()})
    odd = instruction({"lr": 0.5}, node=8, model=same, controls=same)
    del odd.content["arrays"]
    sent = [odd, instruction({"lr": 0.5}, node=9), instruction({"lr": 0.5}, node=10)]

    class Given(FedAvg):
        def configure_train(self, *given: Any) -> Any:
            return iter(sent)

        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            return None, None

    strategy = flower.KeepingStrategy(Given(), tmp_path / "kept")
    strategy.configure_train(1, ArrayRecord(), ConfigRecord(), None)
    failed = Message(Error(code=0, reason="no"), reply_to=sent[2])
    strategy.aggregate_train(1, [reply(sent[0]), reply(sent[1]), failed])
    assert [one.client for one in read_kept(tmp_path / "kept").updates] == ["9"]
    gradient_is_one(tmp_path / "kept", lr=0.5)
    assert "share names" in caplog.text
    assert "not kept, since the client answered with an error" in caplog.text


def test_a_strategy_of_the_old_interface_is_refused(tmp_path: Path) -> None:
    flower = pytest.importorskip("leakgauge.integrations.flower")
    old = pytest.importorskip("flwr.server.strategy").FedAvg()
    with pytest.raises(InputError, match=r"FedAvg is not a strategy of flwr\.serverapp\.strategy"):
        flower.KeepingStrategy(old, tmp_path)


@pytest.mark.usefixtures("numbered")
def test_numbers_that_no_file_holds_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A metric of a hundred digits made the whole folder unreadable."""
    caplog.set_level(logging.WARNING)
    sent = instruction({"server-round": 1, "lr": 0.5, "batch-size": 10**100, "seed": 2**62})
    passed(tmp_path / "kept", sent, reply(sent, huge=10**100, loss=0.25))
    (one,) = read_kept(tmp_path / "kept").updates
    assert (one.metrics, one.training.batch_size) == ({"loss": 0.25}, None)
    assert "seed" not in one.config
