"""Apps of the shapes of Flower's quickstarts train, and the command audits what they sent."""

import importlib
import json
import random
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from leakgauge.integrations.kept_reading import KeptUpdate, read_kept
from support import command
from support.flower_app import in_process
from support.flower_processes import PROCESSES, flower_home

pytest.importorskip("flwr", reason='needs pip install "leakgauge[flower]"')

from flwr.app import Context, RecordDict

STOCK = Path(__file__).parents[1] / "support" / "flower_stock"
RATE, ROUNDS = 0.1, 2
BOTH = [(1, "0"), (1, "1"), (2, "0"), (2, "1")]
CHEAP = ("--ask", "membership", "--adversary", "loss-drop")
"""A question that reads every kept update, and takes no gradients of single records."""

pytestmark = [
    pytest.mark.usefixtures("quiet_flower"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a copy of the app, from which Python imports, as the working folder."""
    made = tmp_path / "app"
    shutil.copytree(STOCK, made, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(made)
    monkeypatch.syspath_prepend(str(made))
    yield made
    for name in [one for one in sys.modules if one.partition(".")[0] in ("stockapp", "audit")]:
        del sys.modules[name]


def module(name: str) -> ModuleType:
    return importlib.import_module(f"stockapp.{name}")


def play(folder: Path, client: Any, server: Any, **config: Any) -> None:
    """Run the app with Flower's own code in this process."""
    random.seed(0)
    text = (folder / "pyproject.toml").read_text("utf-8")
    settings = tomllib.loads(text)["tool"]["flwr"]["app"]["config"] | config

    class Numbered(in_process().InProcess):  # type: ignore[misc]
        run = SimpleNamespace(run_id=1)  # servers of the old interface ask for it

    grid = Numbered(client, 2, settings)
    server(grid, Context(1, 1, {}, RecordDict(), settings))


def audit(folder: Path, kept: str, task: str, *words: object) -> dict[str, Any]:
    more = ("--local-steps", 1, "--json", "--out", f"run-{kept}", *words)
    ended = command.run("federation", kept, "--task", f"audit:{task}", *more, cwd=folder)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def by_autograd(kind: str, one: KeptUpdate) -> tuple[nn.Module, dict[str, Tensor]]:
    """Return the client's network as it received it, and PyTorch's gradient of its records."""
    app = module("task")
    net = app.build(kind)
    before, _ = one.tensors()
    if all(name.isdecimal() for name in before):
        before = dict(zip(net.state_dict(), (before[str(at)] for at in range(len(before)))))  # noqa: B905
    app.load(kind, net, before)
    net.train()
    app.loss_of(kind, net, *app.records(kind, int(one.client))).backward()
    return net, {n: leaf.grad for n, leaf in net.named_parameters() if leaf.requires_grad}


def check(kept: Path, kind: str, *, seen: str) -> None:
    """Compare each kept update with the gradient of the client's records."""
    found = read_kept(kept)
    assert [(one.number, one.client) for one in found.updates] == BOTH
    for one in found.updates:
        assert (one.examples, one.training.lr, one.seen) == (24, RATE, seen)
        net, wanted = by_autograd(kind, one)
        gradient = one.update(net).as_gradient()
        assert gradient.keys() == wanted.keys()
        for name, leaf in wanted.items():
            torch.testing.assert_close(gradient[name][0], leaf, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("strategy", ["FedAvg", "FedProx", "FedAdam", "FedAvgM", "Scaffold"])
def test_any_strategy_s_updates_are_the_clients_gradients(folder: Path, strategy: str) -> None:
    """One step of SGD moves the weights by the rate times the gradient, whatever the server does.

    FedProx's penalty has no gradient at the first step.
    """
    play(folder, module("client_app").app, module("server_app").app, strategy=strategy)
    check(folder / "kept", "torch", seen="client")
    check(folder / "kept-server", "torch", seen="server")
    sides = read_kept(folder / "kept"), read_kept(folder / "kept-server")
    for one, other in zip(*(side.updates for side in sides), strict=True):
        for mine, theirs in zip(one.tensors(), other.tensors(), strict=True):
            assert all(torch.equal(leaf, theirs[name]) for name, leaf in mine.items())
    models = [one.tensors()[0] for one in read_kept(folder / "kept").only(clients=["0"]).updates]
    first, second = (model["0.weight"] for model in models)
    assert (first - second).abs().max() > 1e-4, "the server's model moves between rounds"


def test_the_command_s_membership_is_that_of_plain_losses(folder: Path) -> None:
    """The interval holds the AUROC of how far PyTorch's losses fall, over all records."""
    config = {"num-server-rounds": 1, "learning-rate": 1.0}
    play(folder, module("client_app").app, module("server_app").app, **config)
    words = ("--ask", "membership", "--adversary", "loss-drop", "--batch-size", 24)
    found = audit(folder, "kept", "torch_task", *words)["membership"]["updates"]
    assert [(one["round"], one["client"]) for one in found] == BOTH[:2]
    app = module("task")
    for row, one in zip(found, read_kept(folder / "kept").updates, strict=True):
        losses = []
        for tensors in one.tensors():
            net = app.network()
            net.load_state_dict(tensors)
            net.eval()
            with torch.no_grad():
                losses.append([
                    nn.functional.cross_entropy(net(x), y, reduction="none").numpy()
                    for x, y in (app.records("torch", who) for who in (int(one.client), -1))
                ])  # fmt: skip
        drop = np.concatenate(losses[0]) - np.concatenate(losses[1])
        member = np.repeat([1, 0], [app.PER_CLIENT, app.PUBLIC])
        low, high = row["low"], row["high"]
        assert low <= roc_auc_score(member, drop) <= high, row


@pytest.mark.parametrize("kind", [pytest.param("lightning", marks=pytest.mark.slow), "lora"])
def test_apps_of_other_trainers_are_audited(folder: Path, kind: str) -> None:
    pytest.importorskip("lightning" if kind == "lightning" else "peft")
    play(folder, module("client_app").app, module("server_app").app, kind=kind)
    for place, seen in (("kept", "client"), ("kept-server", "server")):
        check(folder / place, kind, seen=seen)
    task = "lora_task" if kind == "lora" else "torch_task"
    found = audit(folder, "kept", task, *CHEAP)["membership"]
    assert [(one["round"], one["client"]) for one in found["updates"]] == BOTH


def test_an_app_of_the_old_interface_is_audited(folder: Path) -> None:
    """A ``NumPyClient`` sends arrays without names, and its server has no messages to wrap."""
    app = module("numpy_app")
    play(folder, app.app, app.server)
    check(folder / "kept", "torch", seen="client")
    found = audit(folder, "kept", "torch_task", *CHEAP)["membership"]
    assert [(one["round"], one["client"]) for one in found["updates"]] == BOTH


@pytest.mark.usefixtures("few_scales")
def test_a_server_that_knows_only_nodes_needs_the_owners(folder: Path) -> None:
    """As the page says: refused with the node's number, unless its owner is named."""
    play(folder, module("client_app").app, module("server_app").app, named=False)
    nodes = read_kept(folder / "kept-server").clients
    assert nodes == ["1000", "1001"]
    words = ("federation", "kept-server", "--task", "audit:torch_task", "--ask", "membership")
    ended = command.run(*words, cwd=folder)
    assert ended.returncode == 2
    (line,) = [one for one in ended.stderr.splitlines() if one.startswith("error: ")]
    assert "client '1000' has is unknown" in line
    assert "--owner 1000=1" in line
    owners = ("--owner", "1000=1", "--owner", "1001=2")
    found = audit(folder, "kept-server", "torch_task", *CHEAP, *owners)
    each = [(one["round"], one["client"]) for one in found["membership"]["updates"]]
    assert each == [(number, node) for number in (1, 2) for node in nodes]
    blind = audit(folder, "kept", "public_task", "--iterations", 3, "--only-client", "0")
    assert "membership" not in blind
    assert "reconstruction" in blind
    assert any("membership is not asked" in one for one in blind["notes"])


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(not (PROCESSES / "self" / "environ").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    ("kind", "strategy"), [("lightning", "Scaffold"), ("lora", "FedAdam"), ("numpy", "FedAvg")]
)
def test_apps_run_by_flwr_run(folder: Path, kind: str, strategy: str) -> None:
    pytest.importorskip("ray", reason="needs pip install 'flwr[simulation]'")
    if kind == "numpy":
        text = (folder / "pyproject.toml").read_text("utf-8")
        text = text.replace("server_app:app", "numpy_app:server")
        (folder / "pyproject.toml").write_text(text.replace("client_app:app", "numpy_app:app"))
    config = f"kind='{kind}' strategy='{strategy}'" if kind != "numpy" else "learning-rate=0.1"
    line = f'flwr run . --stream --federation-config num-supernodes=2 --run-config "{config}"'
    with flower_home(folder.parent) as home:
        said = home.ran(line, folder)
    assert f"kept in {folder / 'kept'}" in said
    check(folder / "kept", "torch" if kind == "numpy" else kind, seen="client")
    if kind != "numpy":
        check(folder / "kept-server", kind, seen="server")
    task = "lora_task" if kind == "lora" else "torch_task"
    found = audit(folder, "kept", task, "--ask", "membership")["membership"]
    assert [(one["round"], one["client"]) for one in found["updates"]] == BOTH
