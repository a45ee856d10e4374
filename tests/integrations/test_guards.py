"""The mod and the filter that refuse an altered model, under code of Flower and NVFlare."""

import logging
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from leakgauge.integrations.received_model import ReceivedModel
from leakgauge.model_checks.guard import ModelRefusedError
from support.flower_app import in_process

WIDTH, CLASSES, RECORDS, ALTERED = 12, 3, 64, 2


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, CLASSES))


def own_records(_: Any = None) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(RECORDS, WIDTH, generator=generator)
    return x, torch.randint(CLASSES, (RECORDS,), generator=generator)


def made_to_extract(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a model whose first layer measures one number, each unit from another value on."""
    weight = state["0.weight"]
    bins = {"0.weight": weight[:1].expand_as(weight).clone(), "0.bias": -torch.linspace(-2, 2, 32)}
    return {**state, **bins}


def test_what_does_not_fit_or_cannot_be_checked_is_refused() -> None:
    check, state = ReceivedModel(net), dict(net().state_dict())
    assert not check.check(state, state, own_records).refused
    assert not check.check(
        {str(i): one for i, one in enumerate(state.values())}, None, None
    ).refused
    for wrong in ({"0.weight": state["0.weight"]}, {**state, "more.weight": torch.zeros(3)}):
        with pytest.raises(ModelRefusedError, match="cannot be checked"):
            check.check(wrong, None, own_records)
    with pytest.raises(ModelRefusedError, match="no data today"):
        check.check(state, None, _fails)


def _fails() -> tuple[Tensor, Tensor]:
    raise OSError("no data today")


@pytest.mark.usefixtures("quiet_flower")
def test_a_client_of_flower_refuses_the_altered_model_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pytest.importorskip("flwr", reason='needs pip install "leakgauge[flower]"')
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import FedAvg

    from leakgauge.integrations.flower_guard import GuardModel

    trained: list[tuple[int, int]] = []
    app = ClientApp(mods=[GuardModel(net, own_records)])

    @app.train()
    def train(msg: Message, ctx: Context) -> Message:
        number = int(msg.content["config"]["server-round"])
        trained.append((number, int(ctx.node_config["partition-id"])))
        state = msg.content["arrays"].to_torch_state_dict()
        moved = {name: leaf + 0.001 * torch.randn_like(leaf) for name, leaf in state.items()}
        metrics = MetricRecord({"num-examples": RECORDS})
        content = RecordDict({"arrays": ArrayRecord(moved), "metrics": metrics})
        return Message(content, reply_to=msg)

    @app.evaluate()
    def evaluate(msg: Message, ctx: Context) -> Message:
        metrics = MetricRecord({"num-examples": RECORDS, "accuracy": 1.0})
        return Message(RecordDict({"metrics": metrics}), reply_to=msg)

    class Active(FedAvg):
        """Send one client an altered model in the second round."""

        def configure_train(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
        ) -> Iterable[Message]:
            sent = list(super().configure_train(server_round, arrays, config, grid))
            if server_round == ALTERED:
                first = min(sent, key=lambda one: one.metadata.dst_node_id)
                bad = ArrayRecord(made_to_extract(arrays.to_torch_state_dict()))
                first.content = RecordDict({**first.content, "arrays": bad})
            return sent

    random.seed(0)
    grid = in_process().InProcess(app, 3, {})
    with caplog.at_level(logging.WARNING, "leakgauge"):
        result = Active().start(
            grid=grid,
            initial_arrays=ArrayRecord(net().state_dict()),
            train_config=ConfigRecord({}),
            num_rounds=3,
        )
    assert sorted(trained) == [(1, 0), (1, 1), (1, 2), (2, 1), (2, 2), (3, 0), (3, 1), (3, 2)]
    lines = [one.getMessage() for one in caplog.records if one.name == "leakgauge"]
    assert len(lines) == 1
    assert lines[0].startswith("client 0: model refused")
    assert "equal rows" in lines[0]
    assert set(result.arrays) == set(net().state_dict())


def test_a_filter_of_nvflare_refuses_the_altered_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nvflare", reason='needs pip install "leakgauge[nvflare]"')
    from nvflare.apis.dxo import DXO, DataKind, from_shareable
    from nvflare.apis.fl_constant import ReservedKey
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.fl_exception import UnsafeJobError

    from leakgauge.integrations.nvflare_guard import GuardModel

    (tmp_path / "guarded_app.py").write_text(
        "import torch\nfrom torch import nn\n\n"
        "def build():\n"
        f"    return nn.Sequential(nn.Linear({WIDTH}, 32), nn.ReLU(), nn.Linear(32, {CLASSES}))\n\n"
        "def records():\n"
        f"    return torch.randn({RECORDS}, {WIDTH}), torch.zeros({RECORDS}, dtype=torch.int64)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    context = FLContext()
    context.set_prop(ReservedKey.IDENTITY_NAME, "site-1", private=False)
    context.set_prop(ReservedKey.RUN_NUM, "guarded", private=False)
    kept = GuardModel("guarded_app:build", "guarded_app:records")

    def passed(state: dict[str, Tensor]) -> dict[str, Any]:
        data = {name: leaf.numpy() for name, leaf in state.items()}
        sent = DXO(DataKind.WEIGHTS, data).to_shareable()
        found: dict[str, Any] = from_shareable(kept.process(sent, context)).data
        return found

    state = dict(net().state_dict())
    for _ in range(2):
        out = passed(state)
        assert all((out[name] == leaf.numpy()).all() for name, leaf in state.items())
    with pytest.raises(UnsafeJobError, match="equal rows"):
        passed(made_to_extract(state))
    with pytest.raises(UnsafeJobError, match="cannot be checked"):
        passed({"0.weight": state["0.weight"]})
