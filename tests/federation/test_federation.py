"""Kept updates with a planted leak or none, through the command."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from leakgauge.training import Protocol
from support.command import Ended, run
from support.kept import keep_federation, normal

SMOOTH = "nn.Linear(12, 16), nn.Sigmoid(), nn.Linear(16, 4)"


def federation(folder: Path, name: str, *words: object, function: str = "task") -> Ended:
    return run("federation", "kept", "--task", f"{name}:{function}", *words, cwd=folder)


def asked(folder: Path, name: str, *words: object, out: str = "run") -> dict[str, Any]:
    ended = federation(folder, name, *words, "--json", "--out", out)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


ONE_STEP = Protocol(rounds=2, lr=0.1, batch_size=1)
MOMENTUM = Protocol(
    rounds=1,
    lr=2.0,
    batch_size=1,
    epochs=4,
    optimizer=partial(torch.optim.SGD, lr=2.0, momentum=0.9),
)


def single_records(folder: Path, protocol: Protocol = ONE_STEP) -> str:
    """Two clients with one record each."""
    x, public = normal(2, 12, name="x"), normal(40, 12, name="public")
    y = torch.arange(40) % 4
    return keep_federation(
        folder,
        SMOOTH,
        [(x[:1], y[:1]), (x[1:], y[1:2])],
        (public, y),
        protocol,
        {},
        config={"lr": protocol.lr, "local-epochs": protocol.epochs, "batch-size": 1},
    )


@pytest.mark.calibration
def test_single_records_are_rebuilt_in_every_round(tmp_path: Path) -> None:
    """One step on one record is a gradient that holds the record."""
    name = single_records(tmp_path)
    words = ("--ask", "reconstruction", "--method", "idlg", "--iterations", 50, "--labels")
    found = asked(tmp_path, name, *words, "inferred")["reconstruction"]
    assert {(one["round"], one["client"]) for one in found["updates"]} == {
        (1, "0"), (1, "1"), (2, "0"), (2, "1"),
    }  # fmt: skip
    assert all(one["value"] > 30 > one["chance"] + 10 for one in found["updates"])
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "let the clients train with it" in page
    assert "--defense" not in page, "this command has no such option"


def test_clipped_updates_are_matched_in_direction(tmp_path: Path) -> None:
    """Steps of a fiftieth of the rate that the configuration names, as after a clip."""
    smaller = replace(ONE_STEP, rounds=1, optimizer=partial(torch.optim.SGD, lr=0.002))
    name = single_records(tmp_path, smaller)
    search = ("--method", "inverting-gradients", "--iterations", 60, "--restarts", 1)
    words = ("--ask", "reconstruction", "--local-optimizer", "sgd", *search)
    found = asked(tmp_path, name, *words)["reconstruction"]
    assert found["matched"]["value"] < 0.1
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "Matched in direction to" in page


@pytest.mark.slow
@pytest.mark.calibration
def test_steps_with_momentum_are_simulated(tmp_path: Path) -> None:
    """Long steps are far from one gradient: only their simulation finds every record."""
    name = single_records(tmp_path, MOMENTUM)
    words = ("--ask", "reconstruction", "--only-round", 1, "--iterations", 300)
    psnr = []
    for out, more in (("one", ("--no-simulate",)), ("steps", ())):
        found = asked(tmp_path, name, *words, *more, "--momentum", 0.9, out=out)["reconstruction"]
        psnr.append([one["value"] for one in found["updates"]])
    as_one, steps = psnr
    assert min(as_one) < 30 < 60 < min(steps), psnr


@pytest.mark.usefixtures("few_scales")
def test_a_finished_part_is_not_played_again(tmp_path: Path) -> None:
    name = single_records(tmp_path)
    words = ("--ask", "reconstruction", "--iterations", 3)
    first = asked(tmp_path, name, *words)
    again = asked(tmp_path, name, *words)
    assert first == again
    assert (tmp_path / "run" / "cells" / "federation").is_dir()


@pytest.mark.usefixtures("few_scales")
def test_nothing_is_scored_or_kept_without_the_clients_records(tmp_path: Path) -> None:
    name = single_records(tmp_path)
    ended = federation(tmp_path, name, "--iterations", 3, "--out", "run", function="public")
    assert ended.returncode == 0, ended.stderr
    assert "Not scored" in ended.stdout
    assert "membership is not asked: the owners of the task's records are unknown" in ended.stderr
    assert "property is not asked: the task's Dataset has no secret" in ended.stderr


def members(folder: Path, *, claimed: bool = True) -> str:
    """Two clients that memorise 60 records; or records that the auditor assigns to them."""
    parts = [(normal(60, 12, name=f"client {at}"), _coin(60, f"y {at}")) for at in range(2)]
    others = [(normal(60, 12, name=f"other {at}"), _coin(60, f"z {at}")) for at in range(2)]
    public = normal(120, 12, name="public"), _coin(120, "public y")
    return keep_federation(
        folder,
        "nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 4)",
        parts,
        public,
        Protocol(rounds=1, lr=0.5, batch_size=10, epochs=60),
        {},
        config={"lr": 0.5, "local-epochs": 60, "batch-size": 10},
        claimed=None if claimed else others,
    )


@pytest.mark.calibration
@pytest.mark.parametrize("theirs", [True, False])
def test_members_are_told_and_records_of_others_are_not(tmp_path: Path, theirs: bool) -> None:
    name = members(tmp_path, claimed=theirs)
    found = asked(tmp_path, name, "--ask", "membership")["membership"]
    assert len(found["updates"]) == 2
    if theirs:
        assert all(one["low"] > 0.5 for one in found["updates"]), found
    else:
        assert found["low"] < 0.5 < found["high"]


def scanners(folder: Path, *, differ: bool = True) -> str:
    """Two clients; the second's records are darker, or the property changes nothing."""
    value = torch.cat([torch.zeros(10), torch.ones(10), torch.arange(480) % 2]).long()
    x = normal(len(value), 12, name="x")
    x = x * torch.where(value == 1, 0.3, 1.0)[:, None] if differ else x
    y = _coin(len(value), "y")
    clients = [(x[:10], y[:10]), (x[10:20], y[10:20])]
    return keep_federation(
        folder,
        SMOOTH,
        clients,
        (x[20:], y[20:]),
        Protocol(rounds=2, lr=0.1, batch_size=5),
        {"scanner": value},
        config={"lr": 0.1, "local-epochs": 1, "batch-size": 5},
    )


@pytest.mark.calibration
@pytest.mark.parametrize("differ", [True, False])
def test_a_property_is_named_where_it_changes_records(tmp_path: Path, differ: bool) -> None:
    name = scanners(tmp_path, differ=differ)
    words = ("--ask", "property", "--shadow", 60, "--only-round", 1)
    found = asked(tmp_path, name, *words)["property"]
    assert len(found["updates"]) == 2
    if differ:
        assert all(one["low"] > 0.7 for one in found["updates"]), found
        assert found["property_right"]["value"] == 1.0
    else:
        assert found["low"] < 0.5 < found["high"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("kept")
    return folder, scanners(folder)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only-round", 9], "round 9 was not kept; there are 1, 2"),
        (["--only-client", "5"], "no client '5' was kept"),
        (["--method", "exact"], "--method exact is for single gradients"),
        (["--adversary", "rmia"], "--adversary rmia trains its own models"),
        (["--momentum", 1.5], "--momentum is 1.5"),
        (["--secret", "scaner"], "no secret 'scaner' in the task's Dataset; did you mean"),
        (["--simulate", "--images", 3, "--ask", "reconstruction"], "leave out --simulate"),
        (["--local-steps", 2, "--local-epochs", 2], "name two lengths of a round"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(
    kept: tuple[Path, str], words: list[object], said: str
) -> None:
    ended = federation(kept[0], kept[1], *words)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_an_empty_folder_and_a_wrong_model_are_refused(kept: tuple[Path, str]) -> None:
    ended = run("federation", "nowhere", "--task", f"{kept[1]}:task", cwd=kept[0])
    assert (ended.returncode, "no such folder: 'nowhere'" in ended.stderr) == (2, True)
    path = kept[0] / "other_model.py"
    path.write_text(
        f"import torch, leakgauge, {kept[1]} as own\n"
        "def task():\n    _, data = own.task()\n"
        "    return leakgauge.Task(torch.nn.Linear(12, 4)), data\n"
    )
    ended = federation(kept[0], "other_model")
    assert ended.returncode == 2
    assert "round 1, client 0: " in ended.stderr


@pytest.mark.usefixtures("few_scales")
def test_the_page_the_card_and_the_repeat_command(kept: tuple[Path, str]) -> None:
    folder, name = kept
    ended = federation(folder, name, "--shadow", 40, "--iterations", 3, "--out", "all")
    assert ended.returncode == 0, ended.stderr
    page = (folder / "all" / "report.html").read_text()
    assert "By round and client" in page
    assert "The property as it is named" in page
    repeat = (folder / "all" / "run.yaml").read_text()
    assert f"leakgauge federation kept --task {name}:task" in repeat
    again = run("report", "all", cwd=folder)
    assert again.returncode == 0, again.stderr
    assert (folder / "all" / "report.html").read_text() == page
    made = run("card", "all", cwd=folder)
    assert made.returncode == 0, made.stderr
    card = json.loads((folder / "all" / "audit-card.json").read_text())
    assert "NISTAML.033" in json.dumps(card)


@pytest.mark.usefixtures("few_scales")
def test_no_record_is_kept_with_redact(tmp_path: Path) -> None:
    name = single_records(tmp_path)
    words = ("--ask", "reconstruction", "--iterations", 3, "--redact", "--out", "run")
    assert federation(tmp_path, name, *words).returncode == 0
    cell = tmp_path / "run" / "cells" / "federation"
    assert not (cell / "pictures.safetensors").exists()
    assert "labels" not in (cell / "clients.json").read_text()


def _coin(count: int, name: str) -> Tensor:
    return (normal(count, name=name) > 0).long()
