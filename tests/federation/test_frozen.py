"""Clients that send a part of the model: whether the audit has the rest as they had it."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from leakgauge.integrations.kept import Exchange, Keeper
from leakgauge.integrations.kept_base import BaseSource
from leakgauge.integrations.training_settings import LocalTraining
from support.command import Ended, run
from support.kept import normal

COUNT = 12
TASK = """
import torch
import leakgauge
from torch import nn

def net(seed=None):
    if seed is not None:
        torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    model[0].requires_grad_(False)
    return model

def data():
    kept = torch.load("records.pt")
    return leakgauge.from_arrays(kept["x"], kept["y"], {"client": kept["client"]})

def seeded():
    return leakgauge.Task(net(0)), data()

def other():
    return leakgauge.Task(net(1)), data()

def drawn():
    return leakgauge.Task(net()), data()
"""
ASSUMED = "the frozen weights are the task's (their checksum was not kept)"


def keep(folder: Path, name: str, *, checksum: bool) -> None:
    """Keep what a client sends that trains the last layer, and write the auditor's module."""
    space: dict[str, Any] = {}
    exec(TASK, space)
    model: nn.Module = space["net"](0)
    x, y = normal(3 * COUNT, 6, name="x"), torch.arange(3 * COUNT) % 2
    before = {name: leaf.clone() for name, leaf in model.state_dict().items() if name[0] == "2"}
    sgd = torch.optim.SGD(model[2].parameters(), 0.1)
    nn.functional.cross_entropy(model(x[:COUNT]), y[:COUNT]).backward()
    sgd.step()
    after = {name: leaf for name, leaf in model.state_dict().items() if name[0] == "2"}
    local = LocalTraining(lr=0.1, batch_size=COUNT, epochs=1, optimizer="sgd")
    base = BaseSource(model if checksum else None).base(before)
    sent = Exchange(1, "0", before, after, examples=COUNT, base=base)
    Keeper(folder / "kept", training=local).keep(sent)
    client = (torch.arange(len(x)) < COUNT).long()
    torch.save({"x": x, "y": y, "client": client}, folder / "records.pt")
    (folder / f"{name}.py").write_text(TASK)


def asked(folder: Path, task: str, *words: object) -> Ended:
    given = ("--task", task, "--ask", "reconstruction", "--ask", "membership", "--iterations", 3)
    return run("federation", "kept", *given, *words, cwd=folder)


def test_without_a_checksum_the_base_is_assumed_aloud(tmp_path: Path) -> None:
    keep(tmp_path, "frozen_assumed", checksum=False)
    ended = asked(tmp_path, "frozen_assumed:seeded", "--json", "--out", "run")
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert all(ASSUMED in found[ask]["assumed"] for ask in ("reconstruction", "membership"))
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert page.count("Assumed: the frozen weights are the task") >= 2
    # The wrong base cannot be told here, so the same is said of it.
    ended = asked(tmp_path, "frozen_assumed:other", "--out", "other")
    assert ended.returncode == 0, ended.stderr
    assert "Assumed: the frozen weights are the task's" in ended.stdout


def test_a_base_that_the_task_draws_is_refused_in_one_line(tmp_path: Path) -> None:
    keep(tmp_path, "frozen_drawn", checksum=False)
    ended = asked(tmp_path, "frozen_drawn:drawn")
    assert ended.returncode == 2
    assert "draws '0.weight', '0.bias' at random, which the clients have" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_kept_checksum_decides(tmp_path: Path) -> None:
    keep(tmp_path, "frozen_kept", checksum=True)
    ended = asked(tmp_path, "frozen_kept:seeded", "--json", "--out", "run")
    assert ended.returncode == 0, ended.stderr
    assert "frozen weights" not in ended.stdout
    for task in ("other", "drawn"):
        ended = asked(tmp_path, f"frozen_kept:{task}")
        assert ended.returncode == 2
        assert "the client's model has 2 tensors of checksum" in ended.stderr
        assert "load the base weights that the clients loaded" in ended.stderr
        assert ended.stderr.count("\n") == 1
