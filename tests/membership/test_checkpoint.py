"""``leakgauge membership``: a model that plain PyTorch saved, as a new user would try it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from support import command
from support.worlds import noise

pytestmark = pytest.mark.usefixtures("blank_charts")

NET = """
import leakgauge as lg
import numpy as np
import torch
from torch import nn


def build():
    data = np.load("all.npz")
    net = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 10))
    return lg.Task(net), lg.Dataset(torch.tensor(data["x"]), torch.tensor(data["y"]))
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory) -> Path:
    """A folder with a network, two snapshots of its training, and who was in it."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "my_net_of_tests.py").write_text(NET)
    data = noise(600, seed=5)
    np.savez(folder / "all.npz", x=data.x, y=data.y)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for step in range(200):
        if step == 20:
            torch.save(net.state_dict(), folder / "early.pt")
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(data.x[:200]), data.y[:200]).backward()
        optimizer.step()
    torch.save({"epoch": 9, "model_state_dict": net.state_dict()}, folder / "model.pt")
    torch.save(net, folder / "whole.pt")
    save_file(net.state_dict(), folder / "model.safetensors")
    torch.save({**net.state_dict(), "2.bias": torch.zeros(11)}, folder / "other.pt")
    broken = {**net.state_dict(), "2.bias": torch.full((10,), torch.nan)}
    torch.save(broken, folder / "broken.pt")
    np.savez(folder / "in.npz", x=data.x[:200], y=data.y[:200])
    np.savez(folder / "out.npz", x=data.x[200:400], y=data.y[200:400])
    for name, rows in {
        "in.txt": range(200), "out.txt": range(200, 400), "both.txt": range(190, 400),
        "few.txt": range(3), "far.txt": range(590, 601), "twice.txt": [1, *range(9)],
    }.items():  # fmt: skip
        (folder / name).write_text("\n".join(map(str, rows)))
    (folder / "words.txt").write_text("alice\nbob\n")
    return folder


GIVEN = {
    "--members": "in.txt",
    "--non-members": "out.txt",
    "--task": "my_net_of_tests:build",
    "--adversary": "loss",
}


def membership(here: Path, *words: object) -> command.Ended:
    return command.run("membership", *words, *command.unless_given(GIVEN, words), cwd=here)


@pytest.mark.parametrize(
    ("checkpoint", "kind"),
    [
        ("model.pt", "npz"),
        ("model.safetensors", "txt"),
        pytest.param("model.pt", "txt", marks=pytest.mark.slow),
        pytest.param("model.safetensors", "npz", marks=pytest.mark.slow),
    ],
)
def test_members_of_a_saved_model_are_recognised(
    here: Path, checkpoint: str, kind: str, tmp_path: Path
) -> None:
    files = ("--members", f"in.{kind}", "--non-members", f"out.{kind}")
    ended = membership(here, checkpoint, *files, "--json", "--out", tmp_path / "run")
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)["membership"]["headline"][0]
    assert said["auroc"]["value"] > 0.95
    assert said["train_accuracy"]["value"] == 1.0
    assert "Whose records were used?" in (tmp_path / "run" / "report.html").read_text()


def test_two_snapshots_are_attacked_jointly_and_apart(here: Path, tmp_path: Path) -> None:
    attacks = ("--adversary", "gradients:epochs=2", "--adversary", "gradients:epochs=2,joint=0")
    run = ("--json", "--out", tmp_path / "run")
    ended = membership(here, "early.pt", "model.pt", *attacks, *run)
    assert ended.returncode == 0, ended.stderr
    cells = json.loads(ended.stdout)["membership"]["cells"]
    values = [one["accumulated"]["auroc"]["value"] for one in cells]
    assert len(set(values)) == 2
    assert min(values) > 0.9


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--members", "both.txt"), "200 of 200 records in 'out.txt' are in 'both.txt', too"),
        (("--members", "few.txt"), "there are 3 members; bring 10 or more"),
        (("--members", "far.txt"), "name row 600; the task's Dataset has 600 rows"),
        (("--members", "twice.txt"), "name row 1 more than once; name each once"),
        (("--members", "words.txt"), "hold 'alice'; expected a .npz with arrays x and y, or"),
        (("--members", "model.pt"), "'model.pt' are not text; expected a .npz"),
        (("--members", "none.npz"), "records 'none.npz': no such file"),
        (("--adversary", "shadow"), "attack 'shadow' trains its own models"),
        (("--adversary", "rmia:gamma=2"), "attack 'rmia:gamma=2' trains its own models"),
    ],
)
def test_wrong_records_are_refused_in_one_line(here: Path, words, says: str) -> None:
    refused(membership(here, "model.pt", *words), says)


@pytest.mark.parametrize(
    ("checkpoint", "says"),
    [
        ("other.pt", "do not fit Sequential: '2.bias' of other shapes ([11], expected [10])"),
        ("whole.pt", "hold a pickle that would run code when read"),
        ("broken.pt", "'2.bias' is not finite"),
        ("none.pt", "no such file"),
        ("in.txt", "save the model's state_dict() as safetensors"),
    ],
)
def test_wrong_checkpoints_are_refused_in_one_line(here: Path, checkpoint: str, says: str) -> None:
    refused(membership(here, checkpoint), says)


def refused(ended: command.Ended, says: str) -> None:
    assert ended.returncode == 2
    assert says in ended.stderr
    assert ended.stderr.startswith("error: ")
    assert ended.stderr.count("\n") == 1


def test_settings_of_a_checkpoint_go_together() -> None:
    ended = command.run("audit", "randhie", "--ask", "membership", "--set", "membership.members=a")
    refused(ended, "a CHECKPOINT, --members, --non-members and --task go together; give all")


MINE = """
from leakgauge.membership import Needs


class LowLoss:
    name, needs = "low-loss", Needs()

    def __init__(self, power: float = 1.0):
        self.power = power

    def fit(self, known, *, seed):
        return self

    def log_odds(self, records):
        return -self.power * records.log_loss.mean(1).numpy()


class Lost(LowLoss):
    def log_odds(self, records):
        return super().log_odds(records) * float("nan")
"""


def test_an_attack_of_ones_own_is_played_and_checked(here: Path, tmp_path: Path) -> None:
    (here / "mine_of_tests.py").write_text(MINE)
    own = ("--adversary", "mine_of_tests:LowLoss:power=2", "--adversary", "loss")
    ended = membership(here, "model.pt", *own, "--json", "--out", tmp_path / "run")
    assert ended.returncode == 0, ended.stderr
    first, second = json.loads(ended.stdout)["membership"]["cells"]
    assert first["accumulated"]["auroc"] == second["accumulated"]["auroc"]
    lost = ("--adversary", "mine_of_tests:Lost", "--out", tmp_path / "lost")
    ended = membership(here, "model.pt", *lost)
    assert ended.returncode == 2
    said = "error: mine_of_tests:Lost: its code gave 160 log odds for 160 records, and 160 are not"
    assert said in ended.stderr
