"""A killed long computation continues from its last state, and ends as if undisturbed."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from leakgauge.core.rng import stream
from leakgauge.guarantee.directions import PILOT
from leakgauge.guarantee.mechanism import DPSGDMechanism
from leakgauge.guarantee.run import record
from leakgauge.guarantee.search import VersionDistance
from leakgauge.inversion.search import descent
from leakgauge.inversion.search.descent import Descent, descend
from leakgauge.inversion.search.settings import SearchSettings
from leakgauge.runs import checkpoint
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.runs.work import WorkFolder
from support import command, processes
from support.damage import Killed, Short, kill_after
from support.sources import people

ROWS, SIZE = 3, 5


def test_a_state_of_any_shape_is_read_back(tmp_path: Path) -> None:
    state = {
        "rng": stream(0, "x").bit_generator.state,
        0: [torch.arange(3), None, {"inf": float("inf"), "third": 1 / 3, "yes": True}],
        "half": torch.ones(2, dtype=torch.bfloat16),
        "scalar": torch.tensor(1.5, dtype=torch.float64),
    }
    kept = Checkpoint(WorkFolder(tmp_path), "long").part("one", after="this")
    kept.keep(state)
    read = kept.read()
    assert read["rng"] == state["rng"]
    assert torch.equal(read[0][0], torch.arange(3))
    assert read[0][1:] == [None, {"inf": float("inf"), "third": 1 / 3, "yes": True}]
    assert torch.equal(read["half"], state["half"])
    assert read["scalar"].dtype == torch.float64
    assert Checkpoint(WorkFolder(tmp_path), "long").part("one", after="that").read() is None


def test_states_are_a_minute_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    whole = Checkpoint(WorkFolder(tmp_path), "long")
    part = whole.part("one")
    assert checkpoint.SECONDS_BETWEEN == 60
    for seconds, due in ((59.9, False), (60.0, True), (119.0, True)):
        now[0] = 1000 + seconds
        assert part.due == whole.due == due
    part.keep({})
    assert not whole.due
    assert not Checkpoint(None).due


# --- one search ----------------------------------------------------------------------------------


def loss(x: torch.Tensor, scores: torch.Tensor | None, rows: torch.Tensor, done: float) -> Any:
    """Return a loss that differs by row and share of the iterations; one row is never finite."""
    curved = (x - rows.view(-1, 1)).pow(4).sum(1) + (1 - done) * x.sin().sum(1)
    if scores is not None:
        curved = curved + scores.softmax(-1).square().sum((1, 2))
    return curved + torch.where(rows == ROWS - 1, float("nan"), 0.0)


def minimised(how: SearchSettings, kept: Checkpoint | None, *, joint: bool) -> Descent:
    start = torch.from_numpy(stream(0, "start").normal(size=(ROWS, SIZE))).float()
    scores = torch.ones(ROWS, 2, 3) * torch.arange(3) if joint else None
    low, high = torch.tensor(-0.5), torch.tensor(1.5)
    return descend(loss, how, start, scores, low=low, high=high, snapshots=4, checkpoint=kept)


SEARCHES = [
    SearchSettings(optimizer="adam", iterations=12, boxed=True),
    SearchSettings(optimizer="signed-adam", iterations=12, warmup=3, keep_best=False),
    SearchSettings(optimizer="adam", iterations=40, patience=3, tolerance=0.1),
    SearchSettings(
        optimizer="lbfgs", iterations=6, inner=4, lr=0.3, schedule="constant", boxed=True
    ),
]


@pytest.mark.parametrize("how", SEARCHES, ids=lambda how: f"{how.optimizer}-{how.iterations}")
@pytest.mark.parametrize("joint", [False, True])
def test_a_search_killed_at_any_iteration_ends_equal(
    how: SearchSettings, joint: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = minimised(how, None, joint=joint)
    for at in range(1, min(int(whole.iterations.max()), 8)):
        kept = Checkpoint(WorkFolder(tmp_path / str(at)), "long")
        with monkeypatch.context() as patch:
            kill_after(patch, at)
            with pytest.raises(Killed):
                minimised(how, kept, joint=joint)
        with monkeypatch.context() as patch:
            first = firsts(patch)
            resumed = minimised(how, kept, joint=joint)
        assert first[0] == at
        for name in vars(whole):
            if name != "seconds":
                assert equal(getattr(resumed, name), getattr(whole, name)), (name, at)


def equal(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


def firsts(patch: pytest.MonkeyPatch) -> list[int]:
    """Record the numbers of all further iterations."""
    made: list[int] = []
    original = descent._State.step

    def step(self: Any, at: int, *limits: Any) -> bool:
        made.append(at)
        return original(self, at, *limits)

    patch.setattr(descent._State, "step", step)
    return made


# --- the whole command, killed at many moments ----------------------------------------------------


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "people.csv"
    people().to_csv(path, index=False)
    return path


def inverting(table: Path, *more: object) -> list[object]:
    return ["invert", table, "--label", "income", "--images", 4, "--method", "agic", *more]


def guaranteeing(table: Path, *more: object) -> list[object]:
    return [
        "guarantee", table, "--label", "income", "--attribute", "sex", "--hidden", 4,
        "--clip", 2, "--noise", 0.3, *more,
    ]  # fmt: skip


def finish(words: list[object], out: Path) -> list[str]:
    done = command.run(*words, "--out", out)
    assert done.returncode == 0, done.stderr
    return command.figures(out)


def cells(out: Path) -> dict[str, bytes]:
    """Return the files of the finished cell without seconds."""
    timed = ("cell.yaml", "measurements.jsonl", "attempts.json")
    files = [one for one in out.glob("cells/*/*") if one.name not in timed]
    return {one.name: one.read_bytes() for one in files}


@pytest.mark.slow
def test_a_search_over_epochs_killed_at_many_moments_ends_equal(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kills hit each epoch's search, the refinement of the assignment, and the joint search."""
    words = inverting(
        table, "--iterations", 20, "--epochs", 2, "--batch-size", 2, "--local-lr", 0.1,
        "--matching", "gradients",
    )  # fmt: skip
    with monkeypatch.context() as patch:
        made = firsts(patch)
        whole = finish(words, tmp_path / "whole")
    for at in (15, 35, 60):
        out = tmp_path / str(at)
        with monkeypatch.context() as patch:
            kill_after(patch, at)
            with pytest.raises(Killed):
                command.run(*words, "--out", out)
        with monkeypatch.context() as patch:
            left = firsts(patch)
            assert finish(words, out) == whole
        assert 0 < len(left) < len(made) - at / 2
        assert cells(out) == cells(tmp_path / "whole")
        assert not (out / "work").exists()


class Slow:
    """DP-SGD that counts its releases, one at a time."""

    calls = 0

    def __call__(self, grads: Any, generator: torch.Generator) -> Any:
        Slow.calls += 1
        return DPSGDMechanism(2.0, 0.3)(grads, generator)


def release(grads: Any, generator: torch.Generator) -> Any:
    """Release a gradient by the user's own mechanism."""
    return Slow()(grads, generator)


MOMENTS = [20, *(pytest.param(at, marks=pytest.mark.slow) for at in (4, 12, 50, 70, 120))]


@pytest.mark.parametrize("at", MOMENTS)
def test_a_guarantee_killed_at_many_moments_ends_equal(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """The kills hit the sweeps over columns, the ascents, and pauses between trials."""
    monkeypatch.setattr(record, "Craft", Short)
    words = guaranteeing(
        table, "--domain", "box", "--trials", 40, "--mechanism", f"{__name__}:release"
    )
    asked = searched(monkeypatch)
    whole = finish(words, tmp_path / "whole")
    needed, Slow.calls = list(asked), 0
    asked.clear()
    with monkeypatch.context() as patch:
        kill_after(patch, at)
        with pytest.raises(Killed):
            command.run(*words, "--out", tmp_path / "killed")
    assert finish(words, tmp_path / "killed") == whole
    assert Slow.calls == PILOT + 80  # no release is repeated
    assert set(asked) == set(needed)  # the same path through columns and steps
    assert len(asked) <= len(needed) + 2  # the best of two finished searches is measured again


def searched(patch: pytest.MonkeyPatch) -> list[tuple[str, bytes]]:
    """Record the kind and the record of all further distances."""
    measured: list[tuple[str, bytes]] = []
    original = VersionDistance.measure

    def measure(self: VersionDistance, x: Any, y: Any, distance: Any) -> Any:
        measured.append((distance, x.detach().numpy().tobytes()))
        return original(self, x, y, distance)

    patch.setattr(VersionDistance, "measure", measure)
    return measured


# --- killed from outside --------------------------------------------------------------------------


HURRIED = (
    "import leakgauge.runs.checkpoint as c; c.SECONDS_BETWEEN = 0.05\n"
    "from leakgauge.cli import main; main()"
)


def killed_with_a_state(words: list[object], out: Path, name: str) -> None:
    """Kill a process of the command by SIGKILL after it has kept two states."""
    running = processes.start([sys.executable, "-c", HURRIED, *words, "--out", out])
    try:
        seen: set[int] = set()
        while len(seen) < 2:
            assert running.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
            seen |= {one.stat().st_mtime_ns for one in out.glob(f"work/*/checkpoints/{name}")}
    finally:
        processes.kill(running)


@pytest.mark.slow
@pytest.mark.process
def test_a_killed_process_continues_within_its_attempt(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, out = inverting(table, "--iterations", 150), tmp_path / "killed"
    killed_with_a_state(words, out, "attempt-0001/search.state")
    made = firsts(monkeypatch)
    resumed = finish(words, out)
    assert 0 < made[0] < 150
    assert resumed == finish(words, tmp_path / "whole")
    assert cells(out) == cells(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.process
def test_a_killed_guarantee_continues_within_its_search(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, out = guaranteeing(table, "--domain", "box", "--trials", 200), tmp_path / "killed"
    killed_with_a_state(words, out, "search/cosine/ascent.state")
    measured = searched(monkeypatch)
    resumed = finish(words, out)
    left = len(measured)
    assert resumed == finish(words, tmp_path / "whole")
    assert 0 < left < len(measured) - left
