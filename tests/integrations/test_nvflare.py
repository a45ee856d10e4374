"""NVFlare's filter with real messages, and the example in its simulator."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from leakgauge.core.checks import InputError
from leakgauge.integrations.kept_base import digest
from leakgauge.integrations.kept_reading import read_kept

pytest.importorskip("nvflare", reason='needs pip install "leakgauge[nvflare]"')

from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.filter import FilterChainType, FilterContextKey
from nvflare.apis.fl_constant import ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from leakgauge.integrations.nvflare import KeepUpdates

EXAMPLE = Path(__file__).parents[2] / "examples" / "nvflare"


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 2)


def context(name: str, peer: str = "") -> FLContext:
    ctx = FLContext()
    ctx.set_prop(ReservedKey.IDENTITY_NAME, name, private=False)
    ctx.set_prop(ReservedKey.RUN_NUM, "job", private=False)
    if peer:
        ctx.set_peer_context(context(peer))
    return ctx


def message(
    data: dict[str, Any], number: int, *, kind: str = DataKind.WEIGHTS, **meta: Any
) -> Shareable:
    dxo = DXO(kind, data, {MetaKey.CURRENT_ROUND: number, **meta})
    return dxo.to_shareable()


def pass_through(kept: KeepUpdates, chain: str, sent: Shareable, ctx: FLContext) -> Shareable:
    kept.set_prop(FilterContextKey.CHAIN_TYPE, chain)
    return kept.process(sent, ctx)


@pytest.mark.parametrize("kind", [DataKind.WEIGHTS, DataKind.WEIGHT_DIFF])
def test_two_filters_keep_what_a_client_received_and_sent(tmp_path: Path, kind: str) -> None:
    before = {name: leaf.numpy() for name, leaf in net().state_dict().items()}
    after = {name: leaf + 0.5 for name, leaf in before.items()}
    sent = (
        after if kind == DataKind.WEIGHTS else {k: np.full_like(v, 0.5) for k, v in before.items()}
    )
    settings = {"lr": 0.1, "batch_size": 4}
    into, out = (KeepUpdates(str(tmp_path), **settings) for _ in range(2))
    for number in (0, 1):
        ctx = context("site-1")
        pass_through(into, FilterChainType.TASK_DATA_CHAIN, message(before, number), ctx)
        meta = {MetaKey.NUM_STEPS_CURRENT_ROUND: 2, "num_examples": 7}
        back = pass_through(
            out, FilterChainType.TASK_RESULT_CHAIN, message(sent, number, kind=kind, **meta), ctx
        )
        assert all((from_shareable(back).data[k] == v).all() for k, v in sent.items())
    kept = read_kept(tmp_path)
    assert ([one.name for one in kept.updates]) == [
        "round 1, client site-1",
        "round 2, client site-1",
    ]
    one = kept.updates[0]
    assert (one.examples, one.source, one.kind) == (
        7,
        "nvflare",
        "weights" if sent is after else "change",
    )
    update = one.update(net())
    assert (update.lr, update.steps, update.batch_size) == (0.1, 2, 4)
    for name, leaf in update.after().items():
        np.testing.assert_allclose(leaf.numpy(), after[name], rtol=1e-6)


def test_the_checksum_of_what_clients_never_send_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_adapters.py").write_text(
        "from torch import nn, ones\n\n"
        "def build():\n"
        "    model = nn.Linear(3, 2)\n"
        "    model.bias.data = ones(2)\n"
        "    model.bias.requires_grad_(False)\n"
        "    return model\n"
    )
    monkeypatch.chdir(tmp_path)
    sent = {"weight": net().weight.detach().numpy()}
    kept = KeepUpdates(str(tmp_path / "kept"), lr=0.1, model="own_adapters:build")
    for chain in (FilterChainType.TASK_DATA_CHAIN, FilterChainType.TASK_RESULT_CHAIN):
        pass_through(kept, chain, message(sent, 0), context("site-1"))
    (one,) = read_kept(tmp_path / "kept").updates
    assert one.base is not None
    assert (one.base.tensors, one.base.sha256) == (1, digest([torch.ones(2)]))


def test_the_server_names_clients_by_the_other_side(tmp_path: Path) -> None:
    tensors = {name: leaf.numpy() for name, leaf in net().state_dict().items()}
    kept = KeepUpdates(str(tmp_path), seen="server", rounds=[1])
    for client in ("site-1", "site-2"):
        ctx = context("server", client)
        pass_through(kept, FilterChainType.TASK_DATA_CHAIN, message(tensors, 0), ctx)
        pass_through(kept, FilterChainType.TASK_RESULT_CHAIN, message(tensors, 0), ctx)
    found = read_kept(tmp_path)
    assert (found.clients, found.updates[0].seen) == (["site-1", "site-2"], "server")


def test_wrong_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="seen is 'middle'"):
        KeepUpdates(str(tmp_path), seen="middle")
    with pytest.raises(InputError, match="learning rate"):
        KeepUpdates(str(tmp_path), lr=-1.0)


@pytest.mark.slow
@pytest.mark.process
def test_the_example_runs_and_its_updates_are_audited(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "app")
    words: list[list[str]] = [
        ["job.py"],
        ["-m", "leakgauge", "federation", "kept", "--task", "digits:task", "--iterations", "5"],
    ]
    for each in words:
        done = subprocess.run(
            [sys.executable, *each],
            cwd=tmp_path / "app",
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
    assert len(read_kept(tmp_path / "app" / "kept").updates) == 4
    assert "kept-membership" in done.stdout


class Odd:
    """A value that no file holds and no array takes."""


@pytest.mark.parametrize(
    ("before", "after", "keeps"),
    [
        ({"none": None}, {"none": None}, True),
        ({"kernel": "rbf", "c": b"x"}, {"kernel": "rbf"}, True),
        ({"odd": Odd(), "text": np.array(["a"])}, {"odd": Odd(), "long": np.longdouble(1)}, True),
        ({"c": np.ones(2, complex)}, {"o": np.array([None, {}])}, True),
        ({"deep": {"a": {"b": "c"}}}, {"deep": {"a": {"b": [1, "x"]}}}, True),
        ({}, {"huge": 10**400}, True),
        (None, {}, False),
        ({}, None, False),
    ],
)
def test_the_training_continues_whatever_a_message_holds(
    tmp_path: Path, before: dict[str, Any] | None, after: dict[str, Any] | None, keeps: bool
) -> None:
    """Odd values among real weights are left out; without weights nothing is kept."""
    real = {name: leaf.numpy() for name, leaf in net().state_dict().items()}
    kept = KeepUpdates(str(tmp_path), lr=0.1)
    chains = FilterChainType.TASK_DATA_CHAIN, FilterChainType.TASK_RESULT_CHAIN
    for chain, odd in zip(chains, (before, after), strict=True):
        data = {"model_data": b"abc"} if odd is None else {**real, **odd}
        meta = {"num_examples": 3, "loss": float("nan"), "steps": 10**400}
        back = pass_through(kept, chain, message(data, 0, **meta), context("site-1"))
        assert from_shareable(back).data is data
    if not keeps:
        assert not list(tmp_path.rglob("*.yaml"))
        return
    update = read_kept(tmp_path).updates[0].update(net())
    assert update.is_zero
    assert update.before.keys() == real.keys()


@pytest.mark.parametrize("number", ["three", 1.5, [], -7])
def test_a_round_without_a_number_stops_no_training(tmp_path: Path, number: Any) -> None:
    real = {name: leaf.numpy() for name, leaf in net().state_dict().items()}
    kept = KeepUpdates(str(tmp_path), lr=0.1)
    for chain in (FilterChainType.TASK_DATA_CHAIN, FilterChainType.TASK_RESULT_CHAIN):
        sent = message(real, number, num_examples="many")
        assert from_shareable(pass_through(kept, chain, sent, context("s"))).data is real


def test_weights_by_layer_are_the_model_s(tmp_path: Path) -> None:
    real = {name: leaf.numpy() for name, leaf in net().state_dict().items()}
    kept = KeepUpdates(str(tmp_path), lr=0.1)
    for chain, by in (
        (FilterChainType.TASK_DATA_CHAIN, 0.0),
        (FilterChainType.TASK_RESULT_CHAIN, 0.1),
    ):
        layers = {"layer": {name: leaf - by for name, leaf in real.items()}}
        pass_through(kept, chain, message(layers, 0, num_examples=4), context("s"))
    for leaf in read_kept(tmp_path).updates[0].update(net()).as_gradient().values():
        torch.testing.assert_close(leaf, torch.ones_like(leaf), rtol=1e-4, atol=1e-5)
