"""A grid that is killed and started again writes the same store as an undisturbed one."""

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import leakgauge as lg
from leakgauge.catalog import questions
from leakgauge.cli import main
from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.inference.question import QUESTION
from leakgauge.inference.spec import InferenceSpec
from leakgauge.results.measurements import read_measurements
from leakgauge.runs import runner
from leakgauge.runs.cell import CellJob, run_cell
from leakgauge.runs.grid import Grid, unfold
from leakgauge.runs.grid_file import read_grid_file
from leakgauge.runs.page import write_page
from leakgauge.runs.runner import run_grid, seconds_left
from leakgauge.runs.sources import source_of
from leakgauge.runs.spec import Spec
from leakgauge.runs.store import Description, Store
from support import processes
from support.damage import flip, rewrite
from support.tables import frame

SMALL = {
    "label": "income", "secret": "sex", "shadow": 120, "trials": 200, "batch_size": 4, "rounds": 1,
    "adversary": "discriminant",
}  # fmt: skip


def read_grid(path: Path) -> Grid:
    return unfold(read_grid_file(path), questions())


def job_of(cell: Spec) -> CellJob:
    source = source_of(cell)
    return CellJob(QUESTION, QUESTION.prepare(cell, source).spec, source.name, source.fingerprint)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a table, and a grid of six cells."""
    made = tmp_path_factory.mktemp("grid")
    frame().to_csv(made / "people.csv", index=False)
    write(made, "six.yaml", {"defense": ["none", "sign", "prune:rate=0.5"], "seed": [0, 1]})
    return made


def write(folder: Path, file: str, *grids: dict, **more: object) -> Path:
    data = str(folder / "people.csv")
    content = {
        "name": Path(file).stem,
        "grids": [{"data": data, **SMALL, **one} for one in grids],
        **more,
    }
    (folder / file).write_text(yaml.safe_dump(content, sort_keys=False))
    return folder / file


def store(out: Path) -> dict[str, bytes]:
    """Return every file of the store, and the list of its cells."""
    files = [*(out / "cells").rglob("*"), out / "run.yaml"]
    return {str(one.relative_to(out)): one.read_bytes() for one in files if one.is_file()}


def put(files: dict[str, bytes], out: Path) -> None:
    for name, content in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(content)


def finished(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in out.glob("cells/*/measurements.jsonl")}


@pytest.fixture(scope="module")
def undisturbed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    assert run_grid(read_grid(folder / "six.yaml"), out) == []
    return store(out)


@pytest.fixture(scope="module")
def rendered(
    undisturbed: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, bytes]:
    """Return a store that has a page as it is."""
    out = tmp_path_factory.mktemp("rendered")
    put(undisturbed, out)
    with pytest.MonkeyPatch.context() as patch:
        assert command(patch, "report", out) == 0
    return undisturbed


def start(file: Path, out: Path, *args: str) -> subprocess.Popen:
    return processes.start([sys.executable, "-m", "leakgauge", "run", file, "--out", out, *args])


def test_each_cell_is_the_audit_of_its_settings(
    folder: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    """Compare with an audit of the same table from Python, which also runs "none"."""
    grid = read_grid(folder / "six.yaml")
    (cell,) = [one for one in grid.cells if (one.defense, one.seed) == (("sign",), 1)]
    data = lg.load(folder / "people.csv", label="income", secret="sex")
    settings = {"batch_size": 4, "rounds": 1, "trials": 200, "shadow": 120}
    result = lg.audit(
        data, "property", defenses=["sign"], adversaries=["discriminant"], seed=1, **settings
    )
    expected = [one for one in result.measurements if one.defense == "sign"]

    key = job_of(cell).key
    (tmp_path / "measurements.jsonl").write_bytes(undisturbed[f"cells/{key}/measurements.jsonl"])
    found = read_measurements(tmp_path)
    assert [(r.knowledge, r.metric, r.round, r.estimate) for r in found] == [
        (r.knowledge, r.metric, r.round, r.estimate) for r in expected
    ]
    assert {record.defense for record in found} == {"sign"}
    assert {record.knowledge for record in found} == {"static", "adaptive"}
    assert {record.seconds for record in found} == {0.0}
    assert len(undisturbed) == 3 * 6 + 1, "cell, figures and tests of records"


@pytest.mark.slow
@pytest.mark.process
def test_killed_and_started_again_with_two_jobs(
    folder: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    """Kills and jobs do not change the store."""
    out = tmp_path / "out"
    running = start(folder / "six.yaml", out)
    while len(finished(out)) < 2:
        assert running.poll() is None, "it ended before it could be killed"
        time.sleep(0.02)
    assert processes.kill(running)
    kept = finished(out)
    assert 2 <= len(kept) < 6
    progress: list[tuple[int, int]] = []
    run_grid(
        read_grid(folder / "six.yaml"),
        out,
        progress=lambda done, of, _: progress.append((done, of)),
        workers=2,
    )
    assert store(out) == undisturbed
    assert kept.items() <= finished(out).items()  # not done again
    assert progress == [(done, 6) for done in range(len(kept), 7)]
    left = sorted(child.name for child in out.iterdir() if child.name != ".locks")
    assert left == ["cells", "run.yaml", "timings.json"]


@pytest.mark.slow
@pytest.mark.process
def test_100_cells_killed_five_times_at_random(folder: Path, tmp_path: Path) -> None:
    settings = {
        "ask": ["property", "attribute"],
        "defense": ["none", "sign", "prune:rate=0.5", "clip:l2=1", "noise:std=0.01"],
        "batch_size": [2, 4],
        "seed": [0, 1, 2, 3, 4],
    }
    file = write(folder, "hundred.yaml", settings)
    began = time.monotonic()
    assert start(file, tmp_path / "whole").wait(timeout=900) == 0
    seconds = time.monotonic() - began
    rng, out, counts = stream(0, "kills"), tmp_path / "out", [0]
    for jobs in (1, 2, 1, 2, 1):
        enough = counts[-1] + rng.integers(1, 18)
        running = start(file, out, "--jobs", str(jobs))
        while len(finished(out)) < enough:
            assert running.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
        time.sleep(seconds / 100 * rng.uniform(0, 1))  # at any moment of a cell
        assert processes.kill(running)
        counts.append(len(finished(out)))
    kept = finished(out)
    assert start(file, out).wait(timeout=900) == 0
    assert store(out) == store(tmp_path / "whole")
    assert kept.items() <= finished(out).items()
    assert 0 < counts[1] < counts[-1] < 100
    assert len(finished(out)) == 100


def test_half_written_files_of_a_kill_are_harmless(
    folder: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    cells = [job_of(cell) for cell in read_grid(folder / "six.yaml").cells[:3]]
    own, foreign, kept = (Store(out).work(job.key).path for job in cells)
    (own / "finished").mkdir(parents=True)  # killed while the cell was written
    (own / "finished" / "measurements.jsonl").write_text('{"half')
    (own / "finished" / "stray").touch()
    foreign.mkdir(parents=True)  # of other code
    (foreign / "made-by.yaml").write_text("command: other\nsettings: {}\ndata: {}\n")
    (foreign / "checkpoints").mkdir()
    (foreign / "checkpoints" / "stray.npz").touch()
    assert [run_cell(job, out).refusal for job in cells] == [None] * 3
    kept.mkdir(parents=True)  # killed after the cell was kept
    for name, content in undisturbed.items():
        (out / name).parent.mkdir(exist_ok=True)
        if not (out / name).exists():
            (out / name).write_bytes(content)
    (out / "timings.json").write_text('{"half')
    assert run_grid(read_grid(folder / "six.yaml"), out) == []
    assert store(out) == undisturbed
    assert not (out / "work").exists()


def test_refused_cells_are_reported_and_the_others_kept(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    missing = str(folder / "none.csv")
    file = write(folder, "some.yaml", {"batch_size": [4, 5000]}, {"data": missing})
    out = tmp_path / "out"
    assert command(monkeypatch, "run", file, "--out", out) == 2
    printed = capsys.readouterr()
    lines = [line for line in printed.err.splitlines() if line.startswith("refused: ")]
    large, lost = lines
    assert "batch_size 5000" in large
    assert "--batch-size" in large
    assert f"data {missing}" in lost
    assert "1 of 3 cells" in printed.out
    assert len(finished(out)) == 1
    assert (out / "report.html").exists()
    assert not (out / "work").exists()


def command(monkeypatch: pytest.MonkeyPatch, *args: object) -> int:
    monkeypatch.setattr(sys, "argv", ["leakgauge", *map(str, args)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_it_prints_the_mean_of_each_setting(
    folder: Path,
    undisturbed: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    put(undisturbed, tmp_path)  # nothing is done again
    assert command(monkeypatch, "run", folder / "six.yaml", "--out", tmp_path) == 0
    printed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    found = [one for cell in finished(tmp_path) for one in read_measurements(cell.parent)]
    for defense, knowledge in (("none", "static"), ("sign", "static"), ("sign", "adaptive")):
        values = [
            one.estimate.value
            for one in found
            if (one.defense, one.knowledge) == (defense, knowledge)
            and (one.metric, one.round) == ("auroc", "accumulated")
        ]
        (line,) = [one for one in printed if one.startswith(f"defense {defense} {knowledge}")]
        assert len(values) == 2
        assert f" AUROC {sum(values) / 2:.3f} " in line
        assert line.endswith(" 2")


def test_json_and_report(
    folder: Path,
    undisturbed: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = {"where": {"defense": "sign"}, "knowledge": "adaptive", "value": 0.9}
    settings = {"defense": ["none", "sign", "prune:rate=0.5"], "seed": [0, 1]}
    file = write(tmp_path, "six.yaml", settings, paper=[row])
    shutil.copy(folder / "people.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    out = Path("leakgauge-runs", "six")
    put(undisturbed, out)  # the data are elsewhere, and no cell is run again
    assert command(monkeypatch, "run", file, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["name"], printed["size"], printed["out"], printed["asked"]) == (
        "six",
        "",
        str(out),
        6,
    )
    assert len(printed["cells"]) == 2 * (1 + 2 + 2)
    chosen = [c for c in printed["cells"] if (c["defense"], c["knowledge"]) == ("sign", "adaptive")]
    values = [cell["measurements"]["auroc"]["value"] for cell in chosen]
    (compared,) = printed["compare"]
    assert compared["seeds"] == len(values) == 2
    assert compared["ours"]["value"] == pytest.approx(sum(values) / 2)
    assert compared["difference"] == pytest.approx(sum(values) / 2 - 0.9)
    assert {path: data for path, data in store(out).items() if path != "run.yaml"} == {
        path: data for path, data in undisturbed.items() if path != "run.yaml"
    }
    page = (out / "report.html").read_bytes()
    (out / "report.html").unlink()
    assert command(monkeypatch, "report", out) == 0
    assert (out / "report.html").read_bytes() == page


def test_stopped_from_the_keyboard(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    real, count = runner.run_cell, iter(range(9))

    def stopping(job: CellJob, out: Path) -> runner.CellOutcome:
        if next(count) == 1:
            raise KeyboardInterrupt
        return real(job, out)

    monkeypatch.setattr(runner, "run_cell", stopping)
    out = tmp_path / "out"
    assert command(monkeypatch, "run", folder / "six.yaml", "--out", out) == 130
    printed = capsys.readouterr()
    assert f"kept in {out}; to resume, repeat the command" in printed.err
    assert len(finished(out)) == 1


def test_a_folder_of_something_else_is_refused(folder: Path, tmp_path: Path) -> None:
    grid = read_grid(folder / "six.yaml")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(InputError, match=r"other files \(notes.txt\) and no run"):
        run_grid(grid, tmp_path)
    other = Grid("seven", "", "", grid.question, grid.grids)
    Store.claim(tmp_path / "out", Description("run", {"name": "six", "size": ""}, ()))
    with pytest.raises(InputError, match="name is 'six' there, 'seven' here"):
        run_grid(other, tmp_path / "out")


@pytest.mark.parametrize(
    ("file", "change", "says"),
    [
        ("cells/*/cell.yaml", lambda text: "settings: {}", "is damaged; repeat the command"),
        *(
            pytest.param(
                "cells/*/cell.yaml", lambda _, text=text: text, "is damaged", marks=pytest.mark.slow
            )
            for text in ("identity: 3", "identity: 2020-01-01", "- 3")
        ),
        ("cells/*/cell.yaml", lambda text: "- [", "is damaged"),
        ("cells/*/measurements.jsonl", lambda text: "{}", "measurement"),
        ("run.yaml", lambda text: text.replace("  asked: 6\n", ""), "is damaged"),
        ("run.yaml", lambda text: text.replace("cells:", "sells:", 1), "is damaged"),
        ("run.yaml", lambda text: text.replace("paper: []", "paper: [{where: 3}]"), "is damaged"),
    ],
)
def test_a_damaged_store_is_one_line(
    rendered: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    file: str,
    change: Callable[[str], str],
    says: str,
) -> None:
    written(tmp_path, rendered)
    damaged = sorted(tmp_path.glob(file))[0]
    sealed = damaged.read_bytes()
    damaged.write_text(change(damaged.read_text()))
    assert "does not match its checksum; repeat the command" in refused(
        monkeypatch, capsys, tmp_path
    )
    damaged.write_bytes(sealed)
    rewrite(damaged, change)  # as another program might
    assert says in refused(monkeypatch, capsys, tmp_path)


def refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> str:
    """Return the line that refuses a page."""
    assert command(monkeypatch, "report", folder) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("error: ")
    assert output.err.count("\n") == 1
    return output.err


@pytest.mark.slow
def test_a_damaged_grid_ends_as_an_undamaged_one(
    folder: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    rng, notes = stream(0, "flips"), list[str]()
    written(tmp_path, undisturbed)
    one, other, third, *_ = sorted((tmp_path / "cells").iterdir())
    one.rename(tmp_path / "aside")  # two cells change places
    other.rename(one)
    (tmp_path / "aside").rename(other)
    with pytest.raises(InputError, match="belongs to another run: it is the cell"):
        write_page(tmp_path, questions())
    flip(tmp_path / "run.yaml", rng)
    flip(third / "measurements.jsonl", rng)
    assert run_grid(read_grid(folder / "six.yaml"), tmp_path, say=notes.append) == []
    assert store(tmp_path) == undisturbed
    assert [text for text in notes if "run.yaml" in text and "written anew" in text]
    assert sum("belongs to another run" in text for text in notes) == 2
    assert [text for text in notes if third.name in text and "checksum" in text]
    assert len(notes) == 4


def written(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def test_a_folder_in_use_is_one_line(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "notes.txt").touch()
    assert command(monkeypatch, "run", folder / "six.yaml", "--out", tmp_path) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1


def test_data_that_change_under_a_run_are_refused(folder: Path, tmp_path: Path) -> None:
    cell = read_grid(folder / "six.yaml").cells[0]
    ended = run_cell(CellJob(QUESTION, cell, "people.csv", "another fingerprint"), tmp_path)
    assert ended.refusal is not None
    assert "changed since the run began" in ended.refusal
    assert finished(tmp_path) == {}


def test_time_left() -> None:
    def job(**settings: object) -> CellJob:
        return CellJob(QUESTION, InferenceSpec(data="t.csv", **settings), "t.csv", "f")

    jobs = {
        "a": job(batch_size=4, seed=0),
        "b": job(batch_size=4, seed=1),
        "c": job(batch_size=64, seed=0),
        "d": job(batch_size=64, seed=1),
        "e": job(batch_size=4, seed=2),
    }
    todo = {key: jobs[key] for key in "de"}
    took = {"a": 2.0, "b": 4.0, "c": 50.0, "of another grid": 999.0}
    # d is like c, e like a and b
    assert seconds_left(took, jobs, todo, workers=1) == 50.0 + 3.0
    assert seconds_left(took, jobs, todo, workers=2) == 26.5
    assert seconds_left({}, jobs, todo, workers=1) is None
    assert seconds_left(took, jobs, {}, workers=1) == 0


def test_the_run_waits_for_a_cell_of_another_process(tmp_path: Path) -> None:
    """A worker can survive a kill of the command and continue with its cell."""
    store = Store(tmp_path)
    order: list[str] = []

    def later() -> None:
        with Store(tmp_path).alone("a" * 64):
            order.append("second")

    waiting = threading.Thread(target=later)
    with store.alone("a" * 64):
        waiting.start()
        time.sleep(0.2)
        order.append("first")
    waiting.join(timeout=10)
    assert order == ["first", "second"]
