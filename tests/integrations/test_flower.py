"""The mod and the strategy wrapper in a federation that Flower's own code runs."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from leakgauge.core.checks import InputError
from leakgauge.integrations.kept_base import base_of
from leakgauge.integrations.kept_reading import read_kept
from leakgauge.integrations.training_settings import LocalTraining
from support.flower_app import in_process

pytest.importorskip("flwr", reason='needs pip install "leakgauge[flower]"')

from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp.strategy import FedAvg

from leakgauge.integrations.flower import KeepingStrategy, KeepUpdates

pytestmark = pytest.mark.usefixtures("quiet_flower")

CONFIG = {"local-epochs": 2, "batch-size": 4, "token": "secret", "where": "/home/me"}
EXAMPLES = 6

Mod = Callable[[Message, Context, Any], Message]


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


class Clients:
    """Client apps that note what they received and sent, outside of any mod."""

    def __init__(self, *mods: Mod, fails: bool = False) -> None:
        self.seen: dict[tuple[int, str], tuple[dict[str, torch.Tensor], ...]] = {}
        self.app = ClientApp(mods=list(mods))

        @self.app.train()
        def train(msg: Message, ctx: Context) -> Message:
            if fails and ctx.node_config["partition-id"] == 1:
                return Message(Error(code=0, reason="no"), reply_to=msg)
            return self._train(msg, ctx)

        @self.app.evaluate()
        def evaluate(msg: Message, ctx: Context) -> Message:
            metrics = MetricRecord({"num-examples": EXAMPLES, "accuracy": 1.0})
            return Message(RecordDict({"metrics": metrics}), reply_to=msg)

    def _train(self, msg: Message, ctx: Context) -> Message:
        model = net()
        before = msg.content["arrays"].to_torch_state_dict()
        model.load_state_dict(before)
        partition, number = ctx.node_config["partition-id"], msg.content["config"]["server-round"]
        x = torch.randn(EXAMPLES, 3, generator=torch.Generator().manual_seed(partition))
        optimizer = torch.optim.SGD(model.parameters(), lr=msg.content["config"]["lr"])
        for batch in (x[:4], x[4:], x[:4], x[4:]):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batch), (batch[:, 0] > 0).long()).backward()
            optimizer.step()
        self.seen[number, str(partition)] = (before, model.state_dict())
        metrics = MetricRecord({"num-examples": EXAMPLES, "train_loss": 0.5})
        content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
        return Message(content, reply_to=msg)


def play(clients: Clients, strategy: Any = None, *, rounds: int = 2) -> Any:
    random.seed(0)  # FedAvg draws the order of nodes, which decides how sums are rounded
    grid = in_process().InProcess(clients.app, 3, dict(CONFIG))
    chosen = FedAvg() if strategy is None else strategy
    start = ArrayRecord(net().state_dict())
    config = ConfigRecord({"lr": 0.1})
    return chosen.start(grid=grid, initial_arrays=start, train_config=config, num_rounds=rounds)


def test_the_mod_keeps_what_each_client_received_and_sent(tmp_path: Path) -> None:
    clients = Clients(KeepUpdates(tmp_path))
    play(clients)
    kept = read_kept(tmp_path)
    assert [(one.number, one.client) for one in kept.updates] == [
        (number, client) for number in (1, 2) for client in ("0", "1", "2")
    ]
    for one in kept.updates:
        for found, wanted in zip(one.tensors(), clients.seen[one.number, one.client], strict=True):
            assert found.keys() == wanted.keys()
            assert all(torch.equal(found[name], leaf) for name, leaf in wanted.items())
        assert (one.examples, one.source, one.seen) == (EXAMPLES, "flower", "client")
        assert one.training == LocalTraining(lr=0.1, batch_size=4, epochs=2)
        assert one.metrics["train_loss"] == 0.5
        update = one.update(net())
        assert (update.lr, update.steps, update.batch_size, update.records) == (0.1, 4, 4, 6)
        assert not torch.equal(update.buffers["1.running_mean"], update.held["1.running_mean"])


def test_nothing_secret_of_the_run_s_configuration_is_kept(tmp_path: Path) -> None:
    play(Clients(KeepUpdates(tmp_path)), rounds=1)
    text = "".join(path.read_text() for path in tmp_path.rglob("*.yaml"))
    assert "local-epochs" in text
    assert "secret" not in text
    assert "/home/me" not in text


def test_the_training_is_the_same_with_the_mod(tmp_path: Path) -> None:
    alone, beside = play(Clients()), play(Clients(KeepUpdates(tmp_path)))
    pairs = zip(alone.arrays.values(), beside.arrays.values(), strict=True)
    assert all((one.numpy() == other.numpy()).all() for one, other in pairs)


@pytest.mark.parametrize("raw", [True, False])
def test_the_place_in_mods_says_what_is_kept(tmp_path: Path, raw: bool) -> None:
    """Last, the mod sees what the client made; first, what a defense sends."""
    keeping, noise = KeepUpdates(tmp_path), LocalDpMod(1.0, 1.0, 1.0, 1e-5)
    clients = Clients(*([noise, keeping] if raw else [keeping, noise]))
    play(clients, rounds=1)
    one = read_kept(tmp_path).updates[0]
    made = clients.seen[1, "0"][1]["0.weight"]
    assert torch.equal(one.tensors()[1]["0.weight"], made) is raw


def test_the_wrapped_strategy_keeps_the_same_and_returns_the_same(tmp_path: Path) -> None:
    told = LocalTraining(epochs=2, batch_size=4)
    clients = Clients(KeepUpdates(tmp_path / "clients"))
    wrapped = play(clients, KeepingStrategy(FedAvg(), tmp_path / "server", training=told))
    plain = play(Clients())
    pairs = zip(wrapped.arrays.values(), plain.arrays.values(), strict=True)
    assert all((one.numpy() == other.numpy()).all() for one, other in pairs)
    at_clients, at_server = read_kept(tmp_path / "clients"), read_kept(tmp_path / "server")
    assert at_server.clients == ["1000", "1001", "1002"]  # a server knows nodes
    for one, other in zip(at_clients.updates, at_server.updates, strict=True):
        assert (other.seen, other.examples, other.number) == ("server", EXAMPLES, one.number)
        assert other.training == one.training
        for found, wanted in zip(other.tensors(), one.tensors(), strict=True):
            assert all(torch.equal(found[name], leaf) for name, leaf in wanted.items())


def test_only_chosen_rounds_and_answers_without_error_are_kept(tmp_path: Path) -> None:
    strategy = KeepingStrategy(FedAvg(), tmp_path / "server", rounds=[2])
    play(Clients(KeepUpdates(tmp_path / "mod", rounds=[2]), fails=True), strategy)
    for folder in ("mod", "server"):
        kept = read_kept(tmp_path / folder)
        assert kept.rounds == [2]
        assert len(kept.updates) == 2


def test_a_full_folder_stops_no_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    result = play(Clients(KeepUpdates(tmp_path, max_size="1KB")), rounds=1)
    assert result.arrays is not None
    assert "its limit is" in caplog.text


def test_a_strategy_with_rounds_of_its_own_is_refused(tmp_path: Path) -> None:
    class Own(FedAvg):
        def start(self, *args: Any, **kwargs: Any) -> Any: ...

    with pytest.raises(InputError, match="Own has its own method start"):
        KeepingStrategy(Own(), tmp_path)


def message(content: dict[str, Any], **config: Any) -> Message:
    config = {"lr": 0.1, "server-round": 1, **config}
    records = RecordDict({**content, "config": ConfigRecord(config)})
    return Message(records, dst_node_id=1, message_type="train", group_id="1")


def passed(folder: Path, received: Message, sent: dict[str, Any]) -> None:
    """Let the mod see an exchange; the reply must be the app's own."""
    replies = []

    def app(msg: Message, ctx: Context) -> Message:
        replies.append(Message(RecordDict(sent), reply_to=msg))
        return replies[0]

    ctx = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})
    assert KeepUpdates(folder)(received, ctx, app) is replies[0]


@pytest.fixture
def numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the process the ids that a message takes from a running federation."""
    identity = pytest.importorskip("flwr.supercore.task_identity").TaskIdentity
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(identity, name, 1)


def stepped(by: float) -> ArrayRecord:
    return ArrayRecord(
        {
            name: leaf - by if leaf.is_floating_point() else leaf
            for name, leaf in net().state_dict().items()
        }
    )


@pytest.mark.usefixtures("numbered")
@pytest.mark.parametrize("key", ["arrays", "model"])
@pytest.mark.parametrize("both_ways", [True, False])
def test_of_records_with_equal_names_the_model_is_kept(
    tmp_path: Path, key: str, both_ways: bool
) -> None:
    """SCAFFOLD's control variates have the model's names."""
    sent = {key: stepped(0.1), "controls": stepped(7.0)}
    received = {key: stepped(0.0)} | ({"controls": stepped(3.0)} if both_ways else {})
    passed(tmp_path, message(received), sent)
    if key == "model" and both_ways:  # nothing tells them apart
        assert not list(tmp_path.rglob("*.yaml"))
        return
    (one,) = read_kept(tmp_path).updates
    assert one.beside == ("controls",)
    for leaf in one.update(net()).as_gradient().values():
        torch.testing.assert_close(leaf, torch.ones_like(leaf), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("numbered")
def test_parts_of_a_model_in_several_records_are_kept_together(tmp_path: Path) -> None:
    before, after = ({**stepped(by)} for by in (0.0, 0.1))

    def parts(state: dict[str, Any]) -> dict[str, Any]:
        return {
            word: ArrayRecord({k: v for k, v in state.items() if k.startswith("2.") is last})
            for word, last in (("body", False), ("head", True))
        }

    passed(tmp_path, message(parts(before)), parts(after))
    assert read_kept(tmp_path).updates[0].beside == ()
    assert read_kept(tmp_path).updates[0].update(net()).before.keys() == {
        name for name, _ in net().named_parameters()
    }


ODD = {
    "text": np.array(["a", "b"]),
    "complex": np.ones(2, complex),
    "long": np.ones(2, np.longdouble),
    "dates": np.array(["2024-01-01"], dtype="datetime64[D]"),
}


@pytest.mark.usefixtures("numbered")
@pytest.mark.parametrize("name", sorted(ODD))
def test_the_training_continues_whatever_a_message_holds(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    odd = ArrayRecord([ODD[name]])
    for received, sent in ((odd, stepped(0)), (stepped(0), odd), (odd, odd)):
        passed(tmp_path, message({"arrays": received}), {"arrays": sent})
        assert "'0' left out" in caplog.text
        assert "no array of numbers" in caplog.text
        caplog.clear()
    assert not list(tmp_path.rglob("*.yaml"))
    mixed = ArrayRecord({**stepped(0.1), "odd": odd["0"]})
    passed(tmp_path, message({"arrays": stepped(0)}), {"arrays": mixed})
    assert "'odd' left out" in caplog.text
    assert read_kept(tmp_path).updates[0].update(net()).before.keys() == {
        one for one, _ in net().named_parameters()
    }


@pytest.mark.usefixtures("numbered")
@pytest.mark.parametrize(
    "metrics", [{"num-examples": float("nan")}, {"num-examples": 1e308}, {"num-examples": -3}]
)
def test_a_count_that_is_no_number_stops_no_training(
    tmp_path: Path, metrics: dict[str, float]
) -> None:
    sent = {"arrays": stepped(0), "metrics": MetricRecord(metrics)}
    passed(tmp_path, message({"arrays": stepped(0)}), sent)
    assert not list(tmp_path.rglob("*.yaml"))


def test_the_checksum_of_what_clients_never_send_is_kept(tmp_path: Path) -> None:
    """The received arrays are the model without its last layer."""

    def whole() -> nn.Sequential:
        torch.manual_seed(1)
        return nn.Sequential(*net(), nn.Linear(2, 2).requires_grad_(False))

    keeping = KeepUpdates(tmp_path / "clients", model=whole)
    play(Clients(keeping), KeepingStrategy(FedAvg(), tmp_path / "server", model=whole()), rounds=1)
    wanted = base_of(whole(), list(net().state_dict()))
    assert wanted is not None
    for folder in ("clients", "server"):
        kept = read_kept(tmp_path / folder)
        assert [one.base for one in kept.updates] == [wanted] * 3
        kept.updates[0].update(whole())
        model = whole()
        model[3].bias.data += 1
        with pytest.raises(InputError, match="load the base weights"):
            kept.updates[0].update(model)
