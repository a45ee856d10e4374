"""Kept updates of each kind of client and server, next to the attack that knows everything.

    python benchmarks/federation_matrix.py OUT [CELL ...]

A cell is a federation of Flower of two clients and two rounds, such as
``nesterov/FedAvg/float32/4``: the clients' optimizer, the server's strategy, the type of arrays,
and the steps of a client. ``KeepUpdates`` keeps the updates, and ``leakgauge federation`` audits
them. The configuration names the rate, the batch size and the epochs, and no optimizer. The attack
that knows everything gets the optimizer, the labels and what the server adds, from the tensors in
memory. Prints one row of a table for each cell.
"""

import contextlib
import io
import json
import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "flower"))

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedProx
from in_process import InProcess  # type: ignore[import-not-found]

from leakgauge.core.rng import derive
from leakgauge.core.types import Dataset, Task
from leakgauge.data.named import cifar10
from leakgauge.federation.spec import NAME, RECONSTRUCTION
from leakgauge.integrations.flower import KeepUpdates
from leakgauge.integrations.kept import Exchange, Keeper
from leakgauge.integrations.training_settings import LocalTraining
from leakgauge.inversion.methods import STRONGEST, method_of
from leakgauge.inversion.metrics.table import PSNR
from leakgauge.inversion.run.received import prepare_received
from leakgauge.inversion.scoring import Scorer, nearest_pairs, to_unit
from leakgauge.training.catalog import parse_optimizer
from leakgauge.training.update import Update

MU = 0.1
OPTIMIZERS = {
    "sgd": ("sgd", 0.05),
    "momentum": ("sgd:momentum=0.9", 0.05),
    "nesterov": ("sgd:momentum=0.9,nesterov=1", 0.05),
    "decay": ("sgd:weight_decay=0.01", 0.05),
    "adam": ("adam", 1e-3),
    "adamw": ("adamw", 1e-3),
    "rmsprop": ("rmsprop", 1e-4),
}
STRATEGIES: dict[str, Callable[[], FedAvg]] = {
    "FedAvg": lambda: FedAvg(fraction_evaluate=0),
    "FedProx": lambda: FedProx(fraction_evaluate=0, proximal_mu=MU),
    "FedAdam": lambda: FedAdam(fraction_evaluate=0, eta=0.01, beta_1=0.9, beta_2=0.99),
    "FedAvgM": lambda: FedAvgM(fraction_evaluate=0, server_momentum=0.9),
    "Scaffold": lambda: Scaffold(fraction_evaluate=0),
}
CELLS = [
    *(f"{one}/FedAvg/{kind}/{steps}" for kind in ("float32", "float16") for steps in (1, 4)
      for one in OPTIMIZERS),
    *(f"{one}/{server}/float32/1" for server in ("FedProx", "FedAdam", "FedAvgM")
      for one in ("sgd", "momentum", "adam")),
    *(f"{one}/FedProx/float32/4" for one in ("sgd", "momentum", "adam")),
    "sgd/Scaffold/float32/1",
]  # fmt: skip
RECORDS, MEMBERS, PUBLIC = 4, 30, 200
"""Records of a client to be rebuilt, of one for membership, and records that no client has."""
ITERATIONS, ROUND, SEEDS = 200, 2, 2
NEAR_DB, NEAR_AUROC = 1.0, 0.03

TASK = """import torch
import leakgauge
from torch import nn

def net():
    torch.manual_seed({seed})
    return nn.Sequential(
        nn.Conv2d(3, 12, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1),
        nn.ReLU(), nn.Flatten(), nn.Linear(12 * 64, 10),
    ).eval()

def task():
    kept = torch.load("records.pt")
    data = leakgauge.from_arrays(kept["x"], kept["y"], {{"client": kept["client"]}})
    return leakgauge.Task(net()), data
"""


class Scaffold(FedAvg):
    """Control variates of SCAFFOLD next to the model (Karimireddy et al., ICML 2020)."""

    control: dict[str, Tensor] | None = None

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
        """Send the server's control variate in a record of its own."""
        if self.control is None:
            self.control = {n: 0 * leaf for n, leaf in arrays.to_torch_state_dict().items()}
        messages = list(super().configure_train(server_round, arrays, config, grid))
        for message in messages:
            message.content["control"] = ArrayRecord(self.control)
        return messages

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        """Add the mean change of the clients' control variates."""
        received = list(replies)
        moved = [one.content["control"].to_torch_state_dict() for one in received]
        past = self.control or {}
        self.control = {n: leaf + sum(m[n] for m in moved) / len(moved) for n, leaf in past.items()}
        for one in received:
            del one.content["control"]
        return super().aggregate_train(server_round, received)


@dataclass(frozen=True)
class Cell:
    """A federation: its clients, its server, the type of its arrays, and a client's steps."""

    optimizer: str
    strategy: str
    arrays: str
    steps: int
    seed: int

    @property
    def lr(self) -> float:
        """Learning rate of the clients."""
        return OPTIMIZERS[self.optimizer][1]

    @property
    def named(self) -> str:
        """The clients' optimizer as text, with the term of FedProx."""
        text = OPTIMIZERS[self.optimizer][0]
        joint = "," if ":" in text else ":"
        return text + (f"{joint}proximal_mu={MU}" if self.strategy == "FedProx" else "")


@dataclass
class Sent:
    """What client 0 received and sent in the audited round, from memory, and its correction."""

    before: dict[str, Tensor]
    after: dict[str, Tensor]
    correction: dict[str, Tensor]


def federate(cell: Cell, folder: Path, x: Tensor, y: Tensor, count: int) -> Sent:
    """Run the federation, keep its updates in ``folder``, and return the audited one."""
    space: dict[str, Any] = {}
    exec(TASK.format(seed=cell.seed), space)
    dtype, found = getattr(torch, cell.arrays), []
    app = ClientApp(mods=[KeepUpdates(folder / "kept", rounds=[ROUND])])

    @app.train()
    def train(msg: Any, context: Any) -> Message:
        who = int(context.node_config["partition-id"])
        model: nn.Module = space["net"]()
        model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
        before = {name: leaf.clone() for name, leaf in model.state_dict().items()}
        correction = _correction(msg, context)
        _fit(cell, model, x[who * count :][:count], y[who * count :][:count], correction)
        sent = {name: leaf.to(dtype) for name, leaf in model.state_dict().items()}
        content: dict[str, Any] = {
            "arrays": ArrayRecord(sent),
            "metrics": MetricRecord({"num-examples": count, "partition-id": who}),
        }
        if correction:
            moved = {n: (before[n] - sent[n].float()) / (cell.steps * cell.lr) for n in sent}
            own = {n: moved[n] - correction[n] for n in sent}  # c_i - c + (x - y) / (K lr)
            control = msg.content["control"].to_torch_state_dict()
            past = {n: control[n] - correction[n] for n in own}
            context.state["own"] = ArrayRecord(own)
            content["control"] = ArrayRecord({n: own[n] - past[n] for n in own})
        if who == 0:
            found.append(Sent(before, {n: one.float() for n, one in sent.items()}, correction))
        return Message(content=RecordDict(content), reply_to=msg)

    random.seed(cell.seed)
    config = {"batch-size": count, "local-epochs": cell.steps}
    grid = InProcess(app, 2, config)
    start = {name: leaf.to(dtype) for name, leaf in space["net"]().state_dict().items()}
    STRATEGIES[cell.strategy]().start(
        grid=grid, initial_arrays=ArrayRecord(start), num_rounds=ROUND,
        train_config=ConfigRecord({"lr": cell.lr}),
    )  # fmt: skip
    return found[ROUND - 1]


def _correction(msg: Any, context: Any) -> dict[str, Tensor]:
    """Return what SCAFFOLD adds to each gradient, c - c_i; empty without control variates."""
    if "control" not in msg.content:
        return {}
    control = msg.content["control"].to_torch_state_dict()
    own = context.state["own"].to_torch_state_dict() if "own" in context.state else {}
    return {name: leaf - own.get(name, torch.zeros_like(leaf)) for name, leaf in control.items()}


def _fit(cell: Cell, model: nn.Module, x: Tensor, y: Tensor, correction: dict[str, Tensor]) -> None:
    make = parse_optimizer(cell.named, lr=cell.lr)
    leaves = list(model.parameters())
    optimizer = torch.optim.SGD(leaves, cell.lr) if make is None else make(leaves)
    for _ in range(cell.steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        for name, leaf in model.named_parameters():
            if correction and leaf.grad is not None:
                leaf.grad += correction[name]
        optimizer.step()


def asked(folder: Path, module: str, kept: str, *words: str) -> dict[str, Any]:
    """Return what the command prints, or why it refuses."""
    from leakgauge.cli import main

    told, said = io.StringIO(), io.StringIO()
    sys.argv = ["leakgauge", "federation", kept, "--task", f"{module}:task", *words, "--json",
                "--only-round",
                str(ROUND), "--only-client", "0", "--out", f"run-{kept}"]  # fmt: skip
    here = Path.cwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(said):
            main()
    except SystemExit as ended:
        if ended.code:
            return {"refused": said.getvalue().strip().splitlines()[-1]}
    finally:
        os.chdir(here)
    found: dict[str, Any] = json.loads(told.getvalue())
    return found


def prepared(cell: Cell, folder: Path, count: int) -> tuple[Sent, str, Dataset, Tensor]:
    """Write the auditor's records and task, and run the federation."""
    folder.mkdir(parents=True, exist_ok=True)
    images = cifar10(side=16)
    x = torch.as_tensor(images.pixels).float() / 255
    y = torch.as_tensor(images.frame["y"].to_numpy("int64")).long()
    draw = torch.Generator().manual_seed(1000 + cell.seed)
    rows = torch.randperm(len(x), generator=draw)[: 2 * count + PUBLIC]
    x, y = x[rows], y[rows]
    client = torch.cat([torch.ones(count), 2 * torch.ones(count), torch.zeros(PUBLIC)]).long()
    torch.save({"x": x, "y": y, "client": client}, folder / "records.pt")
    module = "matrix_" + "".join(c if c.isalnum() else "_" for c in f"{folder.resolve()}")
    (folder / f"{module}.py").write_text(TASK.format(seed=cell.seed))
    sys.path.insert(0, str(folder))
    sent = federate(cell, folder, x, y, count)
    return sent, module, Dataset(x[2 * count :], y[2 * count :]), x[:count]


def rebuilt_by_all(cell: Cell, sent: Sent, public: Dataset, x: Tensor, y: Tensor) -> float:
    """Return the PSNR of the attack that knows everything, in dB."""
    space: dict[str, Any] = {}
    exec(TASK.format(seed=cell.seed), space)
    after = sent.after
    if sent.correction:  # of one step: what the server added is taken out
        after = {n: one + cell.steps * cell.lr * sent.correction[n] for n, one in after.items()}
    update = Update.from_state_dicts(
        sent.before, after, lr=cell.lr, steps=cell.steps, batch_size=len(x), records=len(x),
        model=space["net"](), optimizer=cell.named,
    )  # fmt: skip
    object.__setattr__(update, "labels", y)
    method = method_of(STRONGEST, iterations=ITERATIONS, restarts=1, are_images=True, large=False)
    seed = derive(0, NAME, RECONSTRUCTION, ROUND, "0")
    simulate = cell.steps > 1
    found = prepare_received(
        Task(space["net"]()), public, update, method, labels="known", simulate=simulate,
        optimizer=cell.named, seed=seed,
    ).rebuild()  # fmt: skip
    ours, true = (to_unit(one, low=found.low, high=found.high) for one in (found.x, x))
    order = nearest_pairs(ours.clamp(0, 1), true)
    scores = Scorer(metrics=(PSNR,)).scores(ours.clamp(0, 1)[order[0]], true[order[1]])
    return float(scores[PSNR].mean())


def reconstruction(cell: Cell, folder: Path) -> dict[str, Any]:
    """Return the figures of both attacks on records."""
    sent, module, public, x = prepared(cell, folder, RECORDS)
    words = ("--ask", "reconstruction", "--iterations", str(ITERATIONS))
    found = asked(folder, module, "kept", *words)
    y = torch.load(folder / "records.pt")["y"][:RECORDS]
    return {**found.get("reconstruction", found), "knows": rebuilt_by_all(cell, sent, public, x, y)}


def membership(cell: Cell, folder: Path) -> dict[str, Any]:
    """Return the figures of both attacks on membership."""
    sent, module, _, _ = prepared(cell, folder, MEMBERS)
    found = asked(folder, module, "kept", "--ask", "membership")
    local = LocalTraining(lr=cell.lr, batch_size=MEMBERS, epochs=cell.steps, optimizer=cell.named)
    Keeper(folder / "clean", training=local).keep(
        Exchange(ROUND, "0", sent.before, sent.after, examples=MEMBERS)
    )
    knows = asked(folder, module, "clean", "--ask", "membership")
    return {**found.get("membership", found), "knows": knows["membership"]["value"]}


def row(name: str, out: Path) -> str:
    """Return a cell's row of the table."""
    optimizer, strategy, arrays, steps = name.split("/")
    rebuilt, members = [], []
    for seed in range(SEEDS):
        cell = Cell(optimizer, strategy, arrays, int(steps), seed)
        at = out / f"{name.replace('/', '-')}-{seed}"
        rebuilt.append(reconstruction(cell, at / "records"))
        members.append(membership(cell, at / "members"))
    return " | ".join(
        ["", optimizer, strategy, arrays, steps, *_judged(rebuilt, members), ""]
    ).strip()


def _judged(rebuilt: list[dict[str, Any]], members: list[dict[str, Any]]) -> list[str]:
    """Return the judgement of a cell, and the figures behind it."""
    knows, of_members = (mean(one["knows"] for one in each) for each in (rebuilt, members))
    refused = next((one["refused"] for one in (*rebuilt, *members) if "refused" in one), None)
    if refused is not None:
        return [f"refused: {refused}", f"- / {knows:.1f}", "", f"- / {of_members:.2f}"]
    ours, auroc = (mean(one["value"] for one in each) for each in (rebuilt, members))
    near = abs(ours - knows) <= NEAR_DB or ours > knows
    near &= abs(auroc - of_members) <= NEAR_AUROC
    assumed = "; ".join(dict.fromkeys(one["assumed"] for one in rebuilt if "assumed" in one))
    wrong = not near and any("not rebuilt" in one["verdict"] for one in rebuilt)
    word = "WRONG" if wrong else "understood" if near else "assumed" if assumed else "UNSAID"
    guess = mean(one["chance"] for one in rebuilt)
    matched = ", ".join(f"{one['matched']['value']:.3f}" for one in rebuilt)
    verdicts = ", ".join(dict.fromkeys(one["verdict"] for one in rebuilt))
    figures = [
        f"{ours:.1f} / {knows:.1f} ({guess:.1f})",
        matched,
        f"{auroc:.2f} / {of_members:.2f}",
    ]
    return [word, *figures, verdicts, assumed]


def main() -> None:
    """Print the table."""
    out, *names = sys.argv[1:]
    head = ["client", "server", "arrays", "steps", "is", "PSNR ours / knows (guess)", "matched",
            "AUROC ours / knows", "verdict", "assumed"]  # fmt: skip
    print(" | ".join(["", *head, ""]).strip())
    print("|---" * len(head) + "|")
    for name in names or CELLS:
        print(row(name, Path(out)), flush=True)


if __name__ == "__main__":
    main()
