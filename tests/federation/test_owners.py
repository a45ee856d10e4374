"""Whose records a kept client's are: by its partition or by the auditor, never by its position."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from leakgauge.core.checks import InputError
from leakgauge.integrations.kept import Exchange, Keeper
from leakgauge.integrations.kept_reading import other_runs, read_kept
from leakgauge.training import Protocol
from support.command import Ended, run
from support.kept import keep_federation, normal

WORDS = ("--ask", "membership", "--adversary", "loss-after")


def coin(n: int, name: str) -> torch.Tensor:
    return (normal(n, 1, name=name)[:, 0] > 0).long()


def keep(folder: Path, names: tuple[str, ...], **more: Any) -> str:
    """Two clients that memorise 60 and 70 records."""
    sizes = (60, 70)
    parts = [(normal(n, 12, name=f"client {at}"), coin(n, f"y {at}")) for at, n in enumerate(sizes)]
    return keep_federation(
        folder,
        "nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 2)",
        parts,
        (normal(120, 12, name="public"), coin(120, "public y")),
        Protocol(rounds=1, lr=0.5, batch_size=10, epochs=30),
        {},
        config={"lr": 0.5, "local-epochs": 30, "batch-size": 10},
        names=names,
        **more,
    )


def federation(folder: Path, name: str, *words: object, kept: tuple[str, ...] = ("kept",)) -> Ended:
    return run("federation", *kept, "--task", f"{name}:task", *WORDS, *words, cwd=folder)


def aurocs(ended: Ended) -> dict[str, float]:
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)["membership"]["updates"]
    return {one["client"]: one["value"] for one in found}


def refused(ended: Ended) -> str:
    assert ended.returncode == 2, ended.stdout
    (line,) = [one for one in ended.stderr.splitlines() if one.startswith("error: ")]
    return line


def test_partitions_have_their_records_whichever_were_kept(tmp_path: Path) -> None:
    whole = aurocs(federation(tmp_path, keep(tmp_path, ("0", "1")), "--json", "--out", "whole"))
    for path in (tmp_path / "kept").rglob("0.*"):
        path.unlink()
    second = aurocs(federation(tmp_path, name_of(tmp_path), "--json", "--out", "second"))
    assert second == {"1": whole["1"]}
    assert whole["1"] > 0.7


def name_of(folder: Path) -> str:
    return next(folder.glob("auditor_*.py")).stem


NODES = ("918273645546372819", "118273645546372811")
"""Random numbers of nodes, whose order is not that of the partitions."""


def test_numbers_of_nodes_are_refused_with_the_way_out(tmp_path: Path) -> None:
    name = keep(tmp_path, NODES)
    line = refused(federation(tmp_path, name))
    assert f"whose records client {NODES[1]!r} has is unknown" in line
    assert f"--owner {NODES[1]}=1" in line


def test_the_auditor_names_owners(tmp_path: Path) -> None:
    name = keep(tmp_path, NODES)
    owners = [word for at, node in enumerate(NODES) for word in ("--owner", f"{node}={at + 1}")]
    named = aurocs(federation(tmp_path, name, *owners, "--json", "--out", "named"))
    assert min(named.values()) > 0.7
    wrong = [word for at, node in enumerate(NODES) for word in ("--owner", f"{node}={2 - at}")]
    assert "trained on 70 records, and the task's Dataset has 60" in refused(
        federation(tmp_path, name, *wrong)
    )
    assert "no" in refused(federation(tmp_path, name, "--owner", "9=1")).lower()
    assert "ends at 2" in refused(federation(tmp_path, name, "--owner", f"{NODES[0]}=3"))
    one = [word for node in NODES for word in ("--owner", f"{node}=1")]
    assert "one number for two clients" in refused(federation(tmp_path, name, *one))


def exchange(client: str, run_: str = "", number: int = 1, value: float = 0.0) -> Exchange:
    before, after = {"w": torch.zeros(2)}, {"w": torch.full((2,), value)}
    return Exchange(number, client, before, after, run=run_)


def test_another_run_is_kept_under_its_own_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = Keeper(tmp_path / "kept")
    with caplog.at_level(logging.WARNING):
        for run_, client in (("17", "0"), ("17", "1"), ("18", "0"), ("17", "2")):
            keeper.keep(exchange(client, run_))
    assert read_kept(tmp_path / "kept").clients == ["0", "1", "2"]
    other = tmp_path / "kept" / "runs" / "18"
    assert read_kept(other).clients == ["0"]
    assert other_runs(read_kept(tmp_path / "kept")) == [other]
    said = [one.message for one in caplog.records if "are kept in" in one.message]
    assert said == [f"updates of this federation are kept in {at}" for at in (keeper.path, other)]


def test_a_folder_without_an_identity_does_not_get_a_run_mixed_in(tmp_path: Path) -> None:
    Keeper(tmp_path).keep(exchange("0"))
    Keeper(tmp_path).keep(exchange("0", "18"))
    assert [one.run for one in read_kept(tmp_path).updates] == [""]
    assert [one.run for one in read_kept(tmp_path / "runs" / "18").updates] == ["18"]


def test_a_relative_folder_is_that_of_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    keeper = Keeper("kept")
    monkeypatch.chdir(tmp_path / "elsewhere")
    keeper.keep(exchange("0"))
    assert read_kept(tmp_path / "kept").clients == ["0"]


def test_folders_of_one_run_are_read_together(tmp_path: Path) -> None:
    for client in "01":
        Keeper(tmp_path / client).keep(exchange(client, "17"))
    Keeper(tmp_path / "other").keep(exchange("2", "18"))
    assert read_kept(tmp_path / "0", tmp_path / "1").clients == ["0", "1"]
    with pytest.raises(InputError, match=r"updates of 2 runs \(17, 18\)"):
        read_kept(tmp_path / "0", tmp_path / "other")
    with pytest.raises(InputError, match="client 0 is kept twice"):
        read_kept(tmp_path / "0", tmp_path / "0")


def test_the_command_reads_several_folders(tmp_path: Path) -> None:
    name = keep(tmp_path, ("0", "1"), run="17")
    together = aurocs(federation(tmp_path, name, "--json", "--out", "together"))
    for path in (tmp_path / "kept").rglob("1.*"):
        to = tmp_path / "second" / path.relative_to(tmp_path / "kept")
        to.parent.mkdir(parents=True, exist_ok=True)
        path.rename(to)
    models = tmp_path / "kept" / "models"
    (tmp_path / "second" / "models").mkdir()
    for path in models.iterdir():
        (tmp_path / "second" / "models" / path.name).write_bytes(path.read_bytes())
    apart = federation(tmp_path, name, "--json", "--out", "apart", kept=("kept", "second"))
    assert aurocs(apart) == together
