"""A grid on a cluster writes the same store as on this machine, whatever happens to workers."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from leakgauge.catalog import questions
from leakgauge.core.checks import InputError
from leakgauge.runs import remote
from leakgauge.runs.cell import CellJob
from leakgauge.runs.executors.cluster import Clustered, LostError, spread_over
from leakgauge.runs.executors.executor import make_executor
from leakgauge.runs.grid import Grid, unfold
from leakgauge.runs.grid_file import read_grid_file
from leakgauge.runs.remote import keep_result, remote_jobs
from leakgauge.runs.runner import run_grid
from leakgauge.runs.sources import source_of
from leakgauge.runs.store import Store
from support import clusters, command, processes
from support.tables import frame
from support.toy.question import Toy, ToySpec

SMALL = {
    "label": "income", "secret": "sex", "shadow": 120, "trials": 200, "batch_size": 4, "rounds": 1,
    "adversary": "discriminant",
}  # fmt: skip


class ClusterInProcess:
    """Cluster in this process that loses the workers of chosen jobs."""

    patience = 3
    slots = 1

    def __init__(self, lost: Sequence[int] = ()) -> None:
        self.lost = list(lost)
        self.submitted: list[Callable[[], Any]] = []
        self.waiting: list[int] = []
        self.cancelled: list[int] = []

    def submit(self, job: Callable[[], Any]) -> int:
        self.submitted.append(job)
        self.waiting.append(len(self.submitted) - 1)
        return self.waiting[-1]

    def ended(self) -> list[int]:
        return [self.waiting.pop(0)] if self.slots else []

    def result(self, ticket: int) -> Any:
        if ticket in self.lost:
            raise LostError
        return self.submitted[ticket]()

    def cancel(self, tickets: Sequence[int]) -> None:
        self.cancelled = list(tickets)


def given_up(number: int) -> int:
    return -number


def silent(text: str) -> None:
    pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("cluster")
    frame().to_csv(made / "people.csv", index=False)
    return made


def job_of(folder: Path, question: Any = None, **settings: Any) -> CellJob:
    spec = ToySpec(data=str(folder / "people.csv"), **settings)
    source = source_of(spec)
    question = question or Toy()
    return CellJob(question, question.prepare(spec, source).spec, source.name, source.fingerprint)


def toy_grid(folder: Path, cells: int, question: Any = None) -> Grid:
    specs = tuple(
        ToySpec(data=str(folder / "people.csv"), factor=one) for one in range(1, cells + 1)
    )
    return Grid("toys", "", "", question or Toy(), (specs,))


def real_grid(folder: Path, name: str, settings: dict[str, Any]) -> Path:
    one = {"data": str(folder / "people.csv"), **SMALL, **settings}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump({"name": name, "grids": [one]}))
    return folder / f"{name}.yaml"


def store(out: Path) -> dict[str, bytes]:
    """Return the files that are equal in equal runs."""
    files = [*(out / "cells").rglob("*"), out / "run.yaml"]
    return {str(one.relative_to(out)): one.read_bytes() for one in files if one.is_file()}


def left_in(out: Path) -> list[str]:
    return sorted(one.name for one in out.iterdir() if one.name != ".locks")


def here(cluster: ClusterInProcess) -> Clustered:
    @contextmanager
    def connect() -> Iterator[ClusterInProcess]:
        yield cluster

    return Clustered(connect, 1)


def test_a_job_is_run_again_if_its_worker_is_lost() -> None:
    cluster = ClusterInProcess(lost=[0, 3])  # the first job, twice
    jobs = [partial(abs, number) for number in (5, 6, 7)]
    found = list(spread_over(cluster, jobs, given_up=given_up, say=silent))
    assert found == [6, 7, 5]
    assert len(cluster.submitted) == 5
    assert cluster.cancelled == []


def test_a_job_that_loses_each_worker_is_given_up_and_the_others_continue() -> None:
    cluster = ClusterInProcess(lost=[1, 3, 4])
    jobs = [partial(abs, number) for number in (5, 6, 7)]
    found = list(spread_over(cluster, jobs, given_up=given_up, say=silent))
    assert found == [5, 7, -1]
    assert len(cluster.submitted) == 3 + cluster.patience - 1


def test_jobs_that_did_not_end_are_cancelled_with_the_run() -> None:
    cluster = ClusterInProcess()
    jobs = [partial(abs, number) for number in (5, 6, 7)]
    running = spread_over(cluster, jobs, given_up=given_up, say=silent)
    assert next(running) == 5
    running.close()
    assert cluster.cancelled == [1, 2]


def test_a_cluster_without_a_worker_is_reported_once() -> None:
    notes: list[str] = []

    class Empty(ClusterInProcess):
        looks = 4

        @property
        def slots(self) -> int:
            self.looks -= 1
            return self.looks < 0

    cluster = Empty()
    jobs = [partial(abs, 5)]
    assert list(spread_over(cluster, jobs, given_up=given_up, say=notes.append)) == [5]
    assert notes == ["the cluster has no worker for these cells; they wait until it has one"]


def test_a_lost_cell_is_a_refused_one(folder: Path, tmp_path: Path) -> None:
    cluster = ClusterInProcess(lost=[1, 3, 4])
    (refused,) = run_grid(toy_grid(folder, 3), tmp_path / "out", executor=here(cluster))
    assert refused.spec.factor == 2
    assert "its worker was lost again and again" in str(refused.refusal)
    assert "\n" not in str(refused.refusal)
    assert len(store(tmp_path / "out")) == 2 * 3 + 1
    again = run_grid(toy_grid(folder, 3), tmp_path / "out")  # another executor continues
    assert again == []
    run_grid(toy_grid(folder, 3), tmp_path / "whole")
    assert store(tmp_path / "out") == store(tmp_path / "whole")


def test_work_that_processes_left_is_removed_with_the_cell(folder: Path, tmp_path: Path) -> None:
    job = job_of(folder, factor=1)
    half = Store(tmp_path / "out").work(job.key)
    (half.files / "stray").touch()
    (half.path / "checkpoints").mkdir()
    grid = toy_grid(folder, 1)
    (tmp_path / "out" / "run.yaml").parent.mkdir(exist_ok=True)
    with pytest.raises(InputError, match="other files"):
        run_grid(grid, tmp_path / "out", executor=here(ClusterInProcess()))
    whole = tmp_path / "whole"
    run_grid(grid, whole)
    (tmp_path / "out" / "run.yaml").write_bytes((whole / "run.yaml").read_bytes())
    assert run_grid(grid, tmp_path / "out", executor=here(ClusterInProcess())) == []
    assert store(tmp_path / "out") == store(whole)
    assert left_in(tmp_path / "out") == ["cells", "run.yaml", "timings.json"]


def unfit(job: CellJob, tmp_path: Path, **changes: Any) -> str:
    (order,) = remote_jobs([job], memory=None)
    order.args[1].update(changes)
    with pytest.raises(InputError) as caught:
        keep_result(order(), {job.key: job}, Store(tmp_path), silent)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("the worker ")
    assert not (tmp_path / "cells").exists()
    return str(caught.value)


def test_a_worker_with_other_versions_is_refused(folder: Path, tmp_path: Path) -> None:
    job = job_of(folder)
    other = {**job.identity["versions"], "torch": "1.0", "leakgauge": "0.0.1"}
    text = unfit(job, tmp_path, versions=other)
    assert "(there 1.0)" in text
    assert "leakgauge" in text
    assert "numpy" not in text


def test_a_worker_with_other_data_or_none_is_refused(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "people.csv", index=False)
    job = job_of(tmp_path)
    changed = frame()
    changed.loc[0, "income"] = changed.loc[1, "income"]
    changed.iloc[::-1].to_csv(tmp_path / "people.csv", index=False)
    assert "has other data" in unfit(job, tmp_path)
    (tmp_path / "people.csv").unlink()
    text = unfit(job, tmp_path)
    assert "cannot read the data" in text
    assert "LEAKGAUGE_DATA" in text


OWN = "from leakgauge.defenses import none\ndef build():\n    return none()\n"


def test_a_worker_takes_the_users_code_as_it_is_now(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_own_defense.py").write_text(OWN)
    job = job_of(folder, defense=("my_own_defense:build",))
    (order,) = remote_jobs([job], memory=None)
    assert order().outcome is not None
    (again,) = remote_jobs([job], memory=None)
    monkeypatch.setitem(sys.modules, "my_own_defense", sys)  # left by an earlier run
    assert again().unfit == ""
    assert sys.modules.get("my_own_defense") is not sys
    was = job.identity["code"]
    (tmp_path / "my_own_defense.py").write_text(OWN + "# changed\n")
    assert "has other code for 'my_own_defense:build'" in unfit(job, tmp_path, code=was)
    (tmp_path / "my_own_defense.py").unlink()
    assert "lacks the code 'my_own_defense:build'" in unfit(job, tmp_path, code=was)


def test_a_worker_without_the_device_is_refused(folder: Path, tmp_path: Path) -> None:
    job = job_of(folder)
    elsewhere = replace(job, spec=replace(job.spec, device="meta:7"))
    assert "lacks a device" in unfit(elsewhere, tmp_path)


def test_a_cell_with_large_files_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "LARGEST", 10)
    (refused,) = run_grid(toy_grid(folder, 1), tmp_path / "out", executor=here(ClusterInProcess()))
    assert "use --executor processes" in str(refused.refusal)


@pytest.mark.parametrize(("name", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_a_missing_extra_is_one_line(
    name: str, package: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = real_grid(folder, "missing", {"seed": 0})
    find = remote.importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda one, *more: None if one == package else find(one, *more)
    )
    ended = command.run("run", file, "--executor", name, "--out", tmp_path / "out")
    assert ended.returncode == 2
    assert ended.stderr.splitlines() == [
        f"error: --executor {name} needs {package}, which is not installed: "
        f"pip install 'leakgauge[{name}]'"
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--executor", "slurm"], "--executor is 'slurm'"),
        (["--address", "tcp://localhost:1"], "--address is of a cluster"),
        (["--executor", "dask", "--address", "a:1", "--jobs", "2"], "--jobs is given"),
        (["--executor", "dask", "--address", "nonsense://a:1"], "--address is 'nonsense://a:1'"),
        (["--executor", "dask", "--address", "tcp://127.0.0.1:1"], "cannot be reached"),
        (["--executor", "dask", "--address", "127.0.0.1:99999"], "cannot be reached"),
        (["--executor", "ray", "--address", "tcp://127.0.0.1:1"], "expected that of a ray cluster"),
        (["--executor", "ray", "--address", "ray://127.0.0.1:1"], "cannot be reached"),
        (["--executor", "dask", "--address", "a:1", "--max-memory", "1GB"], "LEAKGAUGE_MAX_MEMORY"),
    ],
)
def test_options_that_do_not_fit_are_one_line(
    words: list[str], says: str, folder: Path, tmp_path: Path
) -> None:
    name = words[1] if words[1] in ("dask", "ray") else ""
    if name:
        pytest.importorskip({"dask": "distributed", "ray": "ray"}[name])
    file = real_grid(folder, "options", {"seed": 0})
    ended = command.run("run", file, "--out", tmp_path / "out", *words)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_processes_share_the_folder_and_clusters_do_not() -> None:
    common = {"address": None, "max_memory": None, "gpu": False}
    assert not make_executor("processes", jobs=3, **common).apart
    assert make_executor("processes", jobs=3, **common).workers == 3
    pytest.importorskip("distributed")
    two = make_executor("dask", jobs=2, **common)
    assert (two.apart, two.workers) == (True, 2)
    assert two.memory is not None


@pytest.fixture(scope="module")
def dask() -> Iterator[Any]:
    """Yield a cluster of two workers in separate processes."""
    pytest.importorskip("distributed")
    with clusters.started(sys.executable, clusters.SCRIPT, "dask") as running:
        address = json.loads(running.stdout.readline())
        yield running, address


def at(address: str) -> Any:
    return make_executor("dask", jobs=None, address=address, max_memory=None, gpu=False)


@pytest.mark.slow
@pytest.mark.process
def test_dask_leaves_the_store_of_one_process(folder: Path, tmp_path: Path, dask: Any) -> None:
    """With real cells, sums on a worker's thread are equal to the last bit."""
    file = real_grid(folder, "two", {"defense": ["none", "sign"], "seed": 0})
    grid = unfold(read_grid_file(file), questions())
    assert run_grid(grid, tmp_path / "out", executor=at(dask[1])) == []
    assert len(set(clusters.workers_of(tmp_path / "out")) - {os.getpid()}) == 2
    assert run_grid(grid, tmp_path / "whole") == []
    assert store(tmp_path / "out") == store(tmp_path / "whole")
    assert left_in(tmp_path / "out") == ["cells", "run.yaml", "timings.json"]


@pytest.mark.slow
@pytest.mark.process
def test_dask_loses_a_worker_and_uses_one_that_joins_late(
    folder: Path, tmp_path: Path, dask: Any
) -> None:
    running, address = dask
    hold, out, killed, late = folder / "hold", tmp_path / "out", [], []
    hold.touch()

    def progress(done: int, of: int, left: float | None) -> None:
        if done == 0:
            disturbing.start()

    def disturb() -> None:
        killed.append(clusters.ask(running, "kill"))
        late.extend(clusters.ask(running, "join"))
        hold.unlink()

    disturbing = threading.Thread(target=disturb)
    grid = toy_grid(folder, 12, clusters.Waiting())
    assert run_grid(grid, out, executor=at(address), progress=progress) == []
    disturbing.join()
    assert set(late) <= set(clusters.workers_of(out))
    assert not set(killed) & set(clusters.workers_of(out))
    assert run_grid(grid, tmp_path / "whole") == []
    assert store(out) == store(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.process
def test_ray_leaves_the_store_of_one_process(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    file = real_grid(folder, "one", {"seed": 0})
    out = tmp_path / "out"
    ended = command.process("run", file, "--executor", "ray", "--out", out)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    assert run_grid(unfold(read_grid_file(file), questions()), tmp_path / "whole") == []
    assert store(out) == store(tmp_path / "whole")
    assert left_in(out) == ["cells", "report.html", "run.yaml", "timings.json"]


HUNDRED = {
    "ask": ["property", "attribute"],
    "defense": ["none", "sign", "prune:rate=0.5", "clip:l2=1", "noise:std=0.01"],
    "batch_size": [2, 4],
    "seed": [0, 1, 2, 3, 4],
}


@pytest.fixture(scope="module")
def hundred(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a grid of 100 cells, and the folder of its run by two processes of this machine."""
    file = real_grid(folder, "hundred", HUNDRED)
    out = tmp_path_factory.mktemp("hundred") / "out"
    assert started(file, out, "--jobs", "2").wait(timeout=1800) == 0
    return file, out


@pytest.fixture(scope="module")
def twenty_five(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a grid of 25 cells, and the folder of its run by two processes of this machine."""
    file = real_grid(folder, "twenty_five", {**HUNDRED, "ask": "property", "batch_size": 4})
    out = tmp_path_factory.mktemp("twenty_five") / "out"
    assert started(file, out, "--jobs", "2").wait(timeout=600) == 0
    return file, out


def started(file: Path, out: Path, *words: str) -> subprocess.Popen:
    return processes.start([sys.executable, "-m", "leakgauge", "run", file, "--out", out, *words])


def finished(out: Path) -> int:
    return len(list(out.glob("cells/*/measurements.jsonl")))


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("name", ["dask", "ray"])
def test_100_cells_with_two_workers_killed_and_a_third_that_joins(
    name: str, hundred: tuple[Path, Path], tmp_path: Path
) -> None:
    pytest.importorskip({"dask": "distributed", "ray": "ray"}[name])
    file, whole = hundred
    out, killed = tmp_path / "out", []
    with clusters.started(sys.executable, clusters.SCRIPT, name) as cluster:
        address = json.loads(cluster.stdout.readline())
        driver = started(file, out, "--executor", name, "--address", address)
        for cells in (10, 30):
            clusters.until(lambda least=cells: finished(out) >= least, 900)
            killed.append(clusters.ask(cluster, "kill"))
        clusters.until(lambda: finished(out) >= 40, 900)
        late = set(clusters.ask(cluster, "join"))
        while driver.poll() is None:
            if name == "ray":  # Ray starts and stops workers by itself
                late |= set(clusters.ask(cluster, "late"))
            time.sleep(0.5)
        assert driver.wait() == 0
    assert finished(out) == 100
    assert store(out) == store(whole)
    counts = Counter(clusters.workers_of(out))
    by_late = sum(counts[pid] for pid in late)
    print(f"{name}: killed {killed}; cells by process {dict(counts)}; by the late one {by_late}")
    assert by_late > 0
    assert len(set(killed)) == 2


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("name", ["dask", "ray"])
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_continues_with_another_executor(
    name: str, sent: int, code: int, twenty_five: tuple[Path, Path], tmp_path: Path
) -> None:
    """Ctrl-C goes to all processes of a terminal."""
    pytest.importorskip({"dask": "distributed", "ray": "ray"}[name])
    file, whole = twenty_five
    out = tmp_path / "out"
    with (tmp_path / "output").open("w") as output:
        running = subprocess.Popen(
            [sys.executable, "-m", "leakgauge", "run", file, "--out", out, "--executor", name,
             "--jobs", "2"], stderr=output, stdout=output, start_new_session=True,
        )  # fmt: skip
    clusters.until(lambda: finished(out) >= 2, 300)
    if sent == signal.SIGINT:
        os.killpg(running.pid, sent)
    else:
        running.send_signal(sent)
    assert running.wait(timeout=30) == code
    text = (tmp_path / "output").read_text()
    assert "Traceback" not in text
    assert text.rstrip().endswith("repeat the command")
    assert 2 <= finished(out) < 25
    assert started(file, out, "--jobs", "2").wait(timeout=600) == 0
    assert store(out) == store(whole)
