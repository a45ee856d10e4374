"""The bound on memory: sizes in words, free memory, refusals, and the number of processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from leakgauge.core import memory
from leakgauge.core.checks import InputError
from leakgauge.core.memory import BASE, VARIABLE, allowed, bounded, fitting, free, require_memory
from support.command import figures, run


@pytest.mark.parametrize("text", ["", "much", "4XB", "-1GB", "0", "1.2.3GB", "GB", "nan"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(InputError, match=r"^--max-memory is .*; expected a size, for example 4GB"):
        memory.read_size(text)


def test_half_of_what_is_free_unless_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < free() <= whole
    monkeypatch.setattr(memory, "free", lambda: 3000)
    assert allowed() == 1500
    with bounded("2GB"):
        assert allowed() == 2 * 10**9
        with bounded(None):
            assert allowed() == 2 * 10**9
    assert VARIABLE not in os.environ


def test_a_container_bounds_what_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("1000\n")
    monkeypatch.setattr(memory, "CONTAINER", tmp_path)
    assert free() == 4000
    (tmp_path / "memory.max").write_text("max\n")
    assert free() > 10**6


def test_as_many_processes_as_fit() -> None:
    with bounded("3GB"):
        assert [fitting(8, need) for need in (0, 9 * 10**8, 10**12)] == [5, 2, 1]
        require_memory(3 * 10**9 - BASE, "it", "take less")
        with pytest.raises(
            InputError, match=r"^it needs 3 GB of memory, and 3 GB may be used; take"
        ):
            require_memory(3 * 10**9 - BASE + 1, "it", "take less")


SMALL = ("--rounds", 1, "--trials", 60, "--shadow", 200, "--workers", 1)


def test_the_bound_changes_no_figure(tmp_path: Path) -> None:
    for name, size in (("a", "1.5GB"), ("b", "40GB")):
        words = (
            "--adversary",
            "forest:trees=3,batches=200",
            "--max-memory",
            size,
            "--out",
            tmp_path / name,
        )
        assert run("audit", "randhie", *SMALL, *words).returncode == 0
    assert figures(tmp_path / "a") == figures(tmp_path / "b")


def test_features_that_do_not_fit_are_refused_before_any_training(tmp_path: Path) -> None:
    words = ("--adversary", "forest", "--hidden", 20000, "--max-memory", "2GB")
    ended = run("audit", "randhie", *SMALL, *words, "--out", tmp_path / "run")
    assert ended.returncode == 2
    assert ended.stderr.strip().count("\n") == 0
    assert "forest, which keeps the features of 2,000 shadow batches, needs" in ended.stderr
    assert "use --adversary forest:batches=" in ended.stderr
    advised = ended.stderr.partition("--adversary forest:batches=")[2].partition(",")[0]
    with bounded("2GB"):
        again = (*SMALL, "--adversary", f"forest:batches={advised}", "--hidden", 20000)
        assert run("audit", "randhie", *again, "--trials", 0).stderr.count("needs") == 0


PEAK = """
import resource, torch
from leakgauge.inference.adversaries.sharing import features_of
from leakgauge.inference.adversaries.views import FlattenView
chunks = ({{"w": torch.full((10, {width}), float(n))}} for n in range(100))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
(features,) = features_of(chunks, [FlattenView()], 1000)
assert (features[::10, 0] == range(100)).all()
print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before), features.nbytes)
"""


@pytest.mark.slow
@pytest.mark.process
def test_features_are_held_once() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PEAK.format(width=100_000)], capture_output=True, text=True
    )
    peak, size = map(int, ended.stdout.split())
    assert size == 4 * 10**8
    assert peak < 1.2 * size
