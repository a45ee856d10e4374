"""The record of a run: bounded in memory, whole on disk, and resumed after a kill."""

import json
import os
import time
from pathlib import Path

import pytest
import torch

from leakgauge import InputError, Monitor
from leakgauge.tokens.monitor.buffers import Reservoir, Ring
from leakgauge.tokens.monitor.publisher import MOST
from leakgauge.tokens.monitor.settings import BATCHES, MonitorSettings
from support.loops import network, train
from support.processes import begin


def endless(folder: Path) -> None:
    model = network()
    with Monitor(model, every=1, checkpoints=0, out=folder):
        train(model, 10**6)


def steps(folder: Path) -> list[int]:
    lines = (folder / "records.jsonl").read_text().splitlines()
    return [json.loads(line)["step"] for line in lines]


def watched(folder: Path, count: int, **settings: int) -> Monitor:
    model = network()
    with Monitor(model, every=10, checkpoints=0, out=folder, **settings) as monitor:  # type: ignore[arg-type]
        train(model, count)
    return monitor


def test_the_file_has_what_memory_has(tmp_path: Path) -> None:
    monitor = watched(tmp_path / "run", 35)
    lines = (tmp_path / "run" / "records.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == monitor.records
    assert steps(tmp_path / "run") == [0, 10, 20, 30]


def test_the_same_folder_goes_on_behind_its_last_entry(tmp_path: Path) -> None:
    watched(tmp_path, 35)
    monitor = watched(tmp_path, 20)
    assert steps(tmp_path) == [0, 10, 20, 30, 40, 50]
    assert [one["step"] for one in monitor.records] == [0, 10, 20, 30, 40, 50]
    assert monitor.next_step == 51


@pytest.mark.parametrize("count", [25, 35])
def test_a_start_drops_what_comes_behind_it(tmp_path: Path, count: int) -> None:
    watched(tmp_path, count)
    watched(tmp_path, 11, start=20)
    assert steps(tmp_path) == [0, 10, 20, 30]


@pytest.mark.parametrize("torn", ['{"step": 40, "che', '{"step": 40, "cheap": 0.5}', "\n"])
def test_a_torn_last_line_is_dropped(tmp_path: Path, torn: str) -> None:
    watched(tmp_path, 35)
    with (tmp_path / "records.jsonl").open("a") as file:
        file.write(torn)
    watched(tmp_path, 10)
    assert steps(tmp_path) == [0, 10, 20, 30, 40]


@pytest.mark.parametrize("name", ["notes.txt", "run.yaml"])
def test_a_folder_of_another_kind_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("something else")
    with pytest.raises(InputError, match="which contains other files") as refusal:
        Monitor(network(), out=tmp_path)
    assert "\n" not in str(refusal.value)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.process
def test_a_killed_run_resumes_its_record(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = begin(endless, folder)
    try:
        file, deadline = folder / "records.jsonl", time.monotonic() + 60
        while not (file.is_file() and file.read_bytes().count(b"\n") > 20):
            assert process.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.kill()
        process.join()
    before = [int(json.loads(line)["step"]) for line in file.read_bytes().splitlines(True)[:-1]]
    model = network()
    with Monitor(model, every=1, checkpoints=0, out=folder) as monitor:
        first = monitor.next_step
        train(model, 5)
    after = steps(folder)
    assert first >= before[-1]
    assert after[: len(before)] == before == list(range(len(before)))
    assert after == list(range(first + 5))


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").is_file(), reason="reads Linux' /proc")
@pytest.mark.parametrize("steps", [60_000, pytest.param(10**6, marks=pytest.mark.slow)])
def test_many_steps_take_no_more_memory_than_few(steps: int) -> None:
    """Simulated: each hundredth step has another gradient."""
    torch.manual_seed(0)
    model = torch.nn.Linear(20, 2)
    sizes = {}
    with Monitor(model, every=100, gather=100, checkpoints=[10**9], window=500) as monitor:
        monitor.drive()
        for step in range(steps):
            if step % 100 == 0:
                model.zero_grad()
                model(torch.randn(8, 20)).square().mean().backward()
            monitor.look()
            if step + 1 in (steps // 4, steps):
                sizes[step + 1] = resident()
        ring = monitor._estimates._kept_gradients
        assert len(ring) == 500
        assert ring.bytes == 500 * 256 * 4
    assert monitor.next_step == steps
    assert steps < 10**6 or MOST / 2 <= len(monitor.records) <= MOST + 1
    assert [monitor.records[0]["step"], monitor.records[-1]["step"]] == [0, steps - 100]
    assert sizes[steps] - sizes[steps // 4] < 4 * 2**20


def test_a_reservoir_keeps_what_a_loop_writes_later() -> None:
    """A loader may give the same memory each time, and a batch may be longer than the others."""
    records, x = Reservoir(3), torch.zeros(2, 1)
    for number in range(5):
        x.fill_(number)
        records.add(x, torch.tensor([number, number]))
    assert [part.tolist() for part, _ in records.batches()] == [[[3]], [[4], [4]]]
    records.add(torch.full((4, 1), 9.0), torch.full((4,), 9))
    assert [y.tolist() for _, y in records.batches()] == [[9, 9, 9]]
    assert (len(records), records.batch_size, records.last) == (3, 3, 3)


@pytest.mark.parametrize("checkpoints", [500, 80, 81, 1, [0], [3, 700], range(100, 900, 200)])
def test_records_are_read_in_the_steps_before_a_checkpoint(checkpoints) -> None:
    watch = MonitorSettings(checkpoints=checkpoints)
    for step in range(1000):
        soon = any(watch.is_checkpoint(one) for one in range(step, step + BATCHES))
        assert watch.is_recorded(step) == soon, step


def test_a_ring_and_a_reservoir_forget_the_oldest() -> None:
    ring, records = Ring(3), Reservoir(3)
    for number in range(7):
        ring.add(torch.tensor([float(number)]))
        records.add(torch.tensor([[float(number)]]), torch.tensor([number]))
    assert ring.rows()[:, 0].tolist() == [4, 5, 6]
    assert [y.tolist() for _, y in records.batches()] == [[4], [5], [6]]
