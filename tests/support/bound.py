"""A folder with every kind of input that a command reads, and how each of them changes."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn

from leakgauge.core.checks import require
from leakgauge.inversion.metrics.lpips import WEIGHTS_FILE, _shapes
from leakgauge.models import mlp
from leakgauge.runs import audit, runner
from leakgauge.training import Update
from support import command
from support.kept import keep_federation

COLUMNS, ROWS, PICTURES = 6, 400, 160

TASK = """
import json
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

import leakgauge
from bound_net import network

def build():
    kept = np.load("records.npz")
    settings = json.loads(Path("settings.json").read_text())

    def loss(outputs, targets):
        return cross_entropy(outputs, targets, label_smoothing=settings["smoothing"])

    x, y = torch.tensor(kept["x"]), torch.tensor(kept["y"])
    secrets = {"sex": torch.tensor(kept["sex"]), "client": torch.tensor(kept["client"])}
    return leakgauge.Task(network(), loss), leakgauge.from_arrays(x, y, secrets)
"""

NET = """
from torch import nn

def network():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
"""

PARTS = '''
from dataclasses import dataclass
from pathlib import Path

from bound_share import SHARE
from leakgauge.defenses import Defense, Transform
from leakgauge.inference import Forest
from leakgauge.inversion.exact import Division


@dataclass(frozen=True)
class Scaled(Transform):
    """Sends a share of the gradient."""

    def __call__(self, grads, rngs):
        return {name: SHARE * leaf for name, leaf in grads.items()}


def defense():
    return Defense("scaled", update=Scaled())


@dataclass(frozen=True)
class Small(Forest):
    """A forest whose number of trees is in a file that is read when it is fitted."""

    def fit(self, *given, **more):
        trees = int((Path(__file__).parent / "trees.txt").read_text())
        return Forest(trees=trees).fit(*given, **more)


@dataclass(frozen=True)
class Divided(Division):
    """Division by another name."""


def mechanism(grads, generator):
    return {name: SHARE * leaf.sum(0) for name, leaf in grads.items()}
'''

LM = """
import torch
from torch import nn

import leakgauge

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(20, 8), nn.Linear(8, 20)

    def forward(self, tokens):
        return self.head(torch.tanh(self.words(tokens)))

def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())

def build():
    tokens = torch.load("tokens.pt")
    return leakgauge.Task(Model(), loss), leakgauge.Dataset(tokens, tokens)
"""


class Captured(BaseException):
    """Ends a command before it measures, with the identities of what it would have measured."""


FILTERS = """mods:
  - LocalDpMod: {clipping_norm: 1, sensitivity: 0.5, epsilon: 10, delta: 1.0e-5}
"""


@contextmanager
def stopped(patch: pytest.MonkeyPatch) -> Iterator[None]:
    def audited(path: Path, description: audit.Description, *given: object, **more: object) -> None:
        raise Captured(dict(description.identities))

    class Store(runner.Store):
        @classmethod
        def claim(cls, path: Path, description: audit.Description, *given: object) -> None:
            raise Captured(sorted(description.cells))

    with patch.context() as inside:
        inside.setattr(audit, "run_audit", audited)
        inside.setattr(runner, "Store", Store)
        yield


def identity(folder: Path, patch: pytest.MonkeyPatch, *words: object) -> object:
    """Return the identities of the answers of a command, which is stopped before it measures."""
    with stopped(patch):
        try:
            ended = command.run(*words, cwd=folder)
        except Captured as captured:
            found = captured.args[0]
        else:
            pytest.fail(f"{words} ended with {ended.returncode}: {ended.stderr}")
    require(len(found) > 0, f"{words} asks nothing")
    return found


@dataclass(frozen=True)
class Change:
    """A change of an input's content.

    Attributes:
        path: the file in the folder.
        change: writes other content of it.
    """

    path: str
    change: Callable[[Path], None]

    @contextmanager
    def made(self, folder: Path) -> Iterator[None]:
        """Change the input, and restore it at the end."""
        path = folder / self.path
        files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
        before = {one: one.read_bytes() for one in files}
        self.change(path)
        assert any(one.read_bytes() != content for one, content in before.items())
        yield
        for one, content in before.items():
            one.write_bytes(content)


def text(before: str, after: str) -> Callable[[Path], None]:
    """Return a change of a text file."""

    def change(path: Path) -> None:
        content = path.read_text()
        assert before in content
        path.write_text(content.replace(before, after, 1))

    return change


def tensors(path: Path) -> None:
    """Move each tensor of a file."""
    if path.suffix == ".pt":
        torch.save({name: leaf + 1 for name, leaf in torch.load(path).items()}, path)
    else:
        save_file({name: leaf + 1 for name, leaf in load_file(path).items()}, path)


def arrays(path: Path) -> None:
    """Turn the records of a file around."""
    kept = dict(np.load(path))
    np.savez(path, **{**kept, "x": kept["x"][::-1]})


def picture(path: Path) -> None:
    """Invert an image; its file keeps its name."""
    pixels = 255 - np.asarray(Image.open(path))
    Image.fromarray(pixels).save(path)


def update(path: Path) -> None:
    """Write another client's update."""
    _update(seed=2).save(path)


def federation(path: Path) -> None:
    """Let clients with other records train into the same folder."""
    _federation(path.parent, seed=2)


INPUTS = {
    "table": Change("people.csv", text("high", "low")),
    "image": Change("faces/7.png", picture),
    "CSV of images": Change("faces/faces.csv", text(",f", ",m")),
    "task": Change("bound_task.py", text("cross_entropy(outputs", "2 * cross_entropy(outputs")),
    "code that the task imports": Change("bound_net.py", text("nn.Tanh()", "nn.ReLU()")),
    "data of the task": Change("records.npz", arrays),
    "settings of the task": Change("settings.json", text("0.0", "0.1")),
    "language model": Change("bound_lm.py", text("torch.tanh", "torch.relu")),
    "tokens": Change("tokens.pt", lambda path: torch.save(torch.load(path).flip(0), path)),
    "own code": Change("bound_parts.py", text("SHARE * leaf", "SHARE + leaf")),
    "code that own code imports": Change("bound_share.py", text("0.5", "0.6")),
    "file that own code names": Change("trees.txt", text("5", "6")),
    "weights": Change("weights.safetensors", tensors),
    "lpips": Change("lpips.safetensors", tensors),
    "lpips of the data folder": Change(f"data/{WEIGHTS_FILE}", tensors),
    "update": Change("update.safetensors", update),
    "checkpoint": Change("model.pt", tensors),
    "members": Change("in.txt", text("0\n", "399\n")),
    "non-members": Change("out.txt", text("100\n", "398\n")),
    "members' arrays": Change("in.npz", arrays),
    "kept update": Change("kept", federation),
    "filters": Change("filters.yaml", text("0.5", "0.6")),
    "grid file": Change("grid.yaml", text("120", "130")),
}


def write_inputs(folder: Path) -> None:
    """Write every input of ``INPUTS``, and the files of four grids."""
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], ROWS)
    people = {"income": rng.choice(["high", "low"], ROWS), "sex": sex, "user": np.arange(ROWS) // 8}
    numbers = {f"x{at}": rng.normal(size=ROWS) for at in range(4)}
    pd.DataFrame({**people, **numbers}).to_csv(folder / "people.csv", index=False)
    (folder / "faces").mkdir()
    for at in range(PICTURES):
        pixels = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "faces" / f"{at}.png")
    named = {"file": [f"{at}.png" for at in range(PICTURES)], "smile": np.arange(PICTURES) % 2}
    pd.DataFrame({**named, "sex": sex[:PICTURES]}).to_csv(
        folder / "faces" / "faces.csv", index=False
    )
    x, y = rng.normal(size=(ROWS, COLUMNS)).astype("float32"), np.arange(ROWS) % 2
    client = np.array([1] * 20 + [2] * 20 + [0] * (ROWS - 40))
    sex_code = (sex == "m").astype(np.int64)
    np.savez(folder / "records.npz", x=x, y=y, sex=sex_code, client=client)
    np.savez(folder / "in.npz", x=x[:100], y=y[:100])
    for name, source in {
        "bound_task.py": TASK, "bound_net.py": NET, "bound_parts.py": PARTS, "bound_lm.py": LM,
        "bound_share.py": "SHARE = 0.5\n", "trees.txt": "5", "settings.json": '{"smoothing": 0.0}',
        "filters.yaml": FILTERS,
        "in.txt": "\n".join(map(str, range(100))), "out.txt": "\n".join(map(str, range(100, 200))),
    }.items():  # fmt: skip
        (folder / name).write_text(source)
    torch.save(torch.arange(20 * 4).reshape(20, 4) % 20, folder / "tokens.pt")
    _write_weights(folder)
    _update(seed=1).save(folder / "update.safetensors")
    _federation(folder, seed=1)
    common = {"rounds": 1, "trials": 120, "adversary": "logistic"}
    roles = {"label": "income", "secret": "sex", "shadow": 100, "batch_size": 4}
    own = {"adversary": "bound_parts:Small", "defense": "bound_parts:defense"}
    for name, cell in {
        "grid": {"data": "people.csv", **common, **roles},
        "table": {"data": "people.csv", **common, **roles},
        "own": {"data": "people.csv", **common, **roles, **own},
    }.items():  # fmt: skip
        (folder / f"{name}.yaml").write_text(json.dumps({"name": name, "grids": [cell]}))
    grid = {"ask": "reconstruction", "data": "people.csv", "label": "income", "images": 2,
            "drop": [["user"]], "hidden": [[8]], "method": "exact",
            "weights": "weights.safetensors"}  # fmt: skip
    whole = {"name": "weights", "grids": [grid]}
    (folder / "weights.yaml").write_text(json.dumps(whole))


def _write_weights(folder: Path) -> None:
    def plain(net: nn.Module) -> dict[str, torch.Tensor]:
        return {name: leaf.clone() for name, leaf in net.state_dict().items()}

    save_file(plain(mlp(6, 2, (8,), generator=torch.Generator())), folder / "weights.safetensors")
    torch.save(plain(_network()), folder / "model.pt")
    lpips = {name: torch.rand(shape) for name, shape in _shapes().items()}
    for path in (folder / "lpips.safetensors", folder / "data" / WEIGHTS_FILE):
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(lpips, path)


def _network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(COLUMNS, 8), nn.Tanh(), nn.Linear(8, 2))


def _update(seed: int) -> Update:
    net = _network()
    x = torch.randn(2, COLUMNS, generator=torch.Generator().manual_seed(seed))
    nn.functional.cross_entropy(net(x), torch.tensor([0, 1])).backward()
    grads = {name: leaf.grad for name, leaf in net.named_parameters() if leaf.grad is not None}
    return Update("gradient", grads, {n: p.detach() for n, p in net.named_parameters()}, records=2)


def _federation(folder: Path, seed: int) -> None:
    from leakgauge.training import Protocol

    x = torch.randn(40, COLUMNS, generator=torch.Generator().manual_seed(seed))
    y = torch.arange(40) % 2
    keep_federation(
        folder,
        f"nn.Linear({COLUMNS}, 8), nn.Tanh(), nn.Linear(8, 2)",
        [(x[:20], y[:20]), (x[20:], y[20:])],
        (x, y),
        Protocol(rounds=1, lr=0.1, batch_size=5),
        {},
        config={"lr": 0.1, "local-epochs": 1, "batch-size": 5},
    )
