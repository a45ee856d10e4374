"""Many runs as one folder: what is read, what is said to be left out, what is written."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from leakgauge.catalog import questions
from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.data.source import frame_source
from leakgauge.report.bundle.entry import Entry
from leakgauge.results.measurements import Estimate
from leakgauge.results.scores import MOST_AT_RISK
from leakgauge.runs.audit import describe, prepare_all, run_audit
from leakgauge.runs.bundle import writing
from leakgauge.runs.bundle.finding import find_runs
from leakgauge.runs.bundle.reading import ReadRun, read_run
from leakgauge.runs.bundle.writing import write_bundle
from leakgauge.runs.question import Silent
from leakgauge.runs.timings import read_timings
from support.damage import flip
from support.made_runs import NORMAL, make_records
from support.many_runs import KEY, START, WEEK, write_audit, write_grid
from support.tables import frame
from support.toy.question import Toy, ToySpec

PAGE = "index.html"


def bundle(out: Path, *places: Path) -> tuple[writing.WrittenBundle, str]:
    written = write_bundle(places, out, questions())
    return written, written.index.read_text("utf-8")


def read(folder: Path) -> ReadRun:
    return read_run(folder, folder.name, questions())


def entry(folder: Path) -> Entry:
    return read(folder).entry


def test_an_audit_is_read_with_its_figures_date_and_report(tmp_path: Path) -> None:
    records = [*make_records(2.0, 0.02, 1), *make_records(1.0, 0.02, 1, defense="sign")[:-1]]
    found = read(write_audit(tmp_path / "run", records, report=""))
    plain, defended = found.entry.points
    assert (plain.title, plain.verdict, plain.level) == (
        "property of sex",
        "Strong leakage",
        "strong",
    )
    assert plain.estimate.value == pytest.approx(NORMAL.cdf(2.0 / 2**0.5))
    assert (defended.title, defended.verdict) == ("property of sex, sign", "Clear leakage")
    assert (found.entry.when, found.entry.recorded) == (START, True)
    assert found.entry.top == [plain]
    assert "Strong leakage" in found.report


def test_the_stronger_knowledge_of_a_defense_is_its_figure(tmp_path: Path) -> None:
    both = [
        *make_records(0.5, 0.02, 1, defense="sign", knowledge="static")[:-1],
        *make_records(2.5, 0.02, 1, defense="sign", knowledge="adaptive")[:-1],
    ]
    (found,) = entry(write_audit(tmp_path / "run", both)).points
    assert found.estimate.value == pytest.approx(NORMAL.cdf(2.5 / 2**0.5))


def test_a_run_without_a_date_has_that_of_its_files(tmp_path: Path) -> None:
    found = entry(write_audit(tmp_path / "old", make_records(), when=None))
    assert not found.recorded
    assert abs((datetime.now(UTC) - found.when).total_seconds()) < 600
    _, page = bundle(tmp_path / "out", tmp_path / "old")
    assert "does not record when it was finished" in page


def test_an_audit_records_when_it_was_finished_once(tmp_path: Path) -> None:
    source = frame_source(frame(30))
    prepared = prepare_all({"toy": (Toy(), ToySpec())}, source=source)
    dates = []
    for _ in range(2):  # the second is read back
        run_audit(tmp_path, describe("audit", prepared), prepared, progress=Silent())
        dates.append(read_timings(tmp_path)["toy"].finished)
    assert dates[0] == dates[1]
    assert dates[0] is not None
    assert abs((datetime.now(UTC) - dates[0]).total_seconds()) < 600
    (tmp_path / "timings.json").unlink()
    run_audit(tmp_path, describe("audit", prepared), prepared, progress=Silent())
    assert read_timings(tmp_path) == {}


def test_the_cells_of_a_grid_are_means_over_seeds(tmp_path: Path) -> None:
    found = entry(write_grid(tmp_path / "grid", (2.4, 1.8)))
    assert [one.where for one in found.points] == ["batch size 1", "batch size 2"]
    assert found.points[1].estimate.value == pytest.approx(NORMAL.cdf(1.8 / 2**0.5))
    assert found.points[1].estimate.n == 2
    assert "1 of 5 cells" in found.notes[0]
    assert "is a grid" in found.apart


def test_what_cannot_be_read_is_said_and_the_rest_is_shown(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    write_audit(runs / "good", make_records())
    write_audit(runs / "later", make_records(), versions={"leakgauge": "99.1.0"})
    write_audit(runs / "half", make_records(), unfinished=["membership"])
    damaged = write_audit(runs / "damaged", make_records())
    flip(damaged / "cells" / KEY / "measurements.jsonl", stream(0, "flip"))
    (runs / "begun").mkdir()
    (runs / "begun" / "run.yaml").write_bytes((runs / "good" / "run.yaml").read_bytes())
    (runs / "foreign").mkdir()
    (runs / "foreign" / "run.yaml").write_text("steps: []\n")
    (runs / "notes").mkdir()
    written, page = bundle(tmp_path / "out", runs)
    assert set(written.unread) == {"damaged", "begun", "foreign"}
    assert "is finished" in written.unread["begun"]
    assert all("checksum" in written.unread[name] for name in ("damaged", "foreign"))
    assert all(name in page.partition('id="unread"')[2] for name in written.unread)
    assert str(tmp_path) not in page
    assert "made by leakgauge 99.1.0" in page
    assert "membership: not finished" in page
    assert "is not finished (membership), so it is not compared" in page


def test_a_run_of_a_question_that_is_not_installed_is_named(tmp_path: Path) -> None:
    folder = write_audit(tmp_path / "run", make_records())
    with pytest.raises(InputError, match="'inference' is not installed"):
        read_run(folder, "run", {})


def test_a_report_that_runs_a_script_is_made_anew(tmp_path: Path) -> None:
    report = "<!doctype html><html><script>alert(1)</script></html>"
    found = read(write_audit(tmp_path / "run", make_records(), report=report))
    assert "alert(1)" not in found.report
    assert "made anew" in found.entry.notes[0]
    ours = found.report.replace("Strong leakage", "As it was")
    (tmp_path / "run" / "report.html").write_text(ours)
    assert read(tmp_path / "run").report == ours
    (tmp_path / "run" / "report.html").write_text(
        ours.replace("default-src 'none'", "default-src *")
    )
    assert "As it was" not in read(tmp_path / "run").report


def test_figures_that_this_version_cannot_read_are_no_traceback(tmp_path: Path) -> None:
    """An earlier version may have kept other details than the report needs."""
    risk = replace(make_records()[-1], metric=MOST_AT_RISK, adversary="forest")
    written, page = bundle(
        tmp_path / "out",
        write_audit(tmp_path / "old", [*make_records(), risk]),
        write_audit(tmp_path / "good", make_records()),
    )
    assert "KeyError" in written.unread["old"]
    assert "another version" in page


def test_the_page_names_nobody(tmp_path: Path) -> None:
    """The user most at risk stands in a report alone, where its own settings decide."""
    risk = replace(
        make_records()[-1],
        metric=MOST_AT_RISK,
        adversary="forest",
        estimate=Estimate(0.99, 0.9, 1.0, 40),
        details={"user": "patient-17", "users compared": "40"},
    )
    folder = write_audit(tmp_path / "run", [*make_records(), risk], report="")
    _, page = bundle(tmp_path / "out", folder)
    assert "patient-17" in (tmp_path / "out" / "reports" / "run.html").read_text()
    assert "patient-17" not in page
    assert str(tmp_path) not in page


def test_runs_have_the_names_of_their_folders(tmp_path: Path) -> None:
    for name in ("a/run", "b/run", "b/.hidden/run", "b run"):
        write_audit(tmp_path / name, make_records())
    found = find_runs([tmp_path, tmp_path / "b" / "run"])
    assert [one.relative_to(tmp_path).as_posix() for one in found.folders] == [
        "a/run",
        "b/run",
        "b run",
    ]
    written, page = bundle(tmp_path / "out", tmp_path)
    assert written.runs == 3
    assert "a/run</a>" in page
    assert sorted(one.name for one in (tmp_path / "out" / "reports").iterdir()) == [
        "a-run.html",
        "b-run-.html",
        "b-run.html",
    ]


def test_pairs_near_in_time_of_the_same_data_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(4):
        write_audit(tmp_path / str(n), make_records(), when=START + n * WEEK, seed=n)
    write_audit(tmp_path / "other", make_records(), data="clinic", when=START + 5 * WEEK)
    runs = [read(tmp_path / name) for name in ("other", "3", "2", "1", "0")]

    def pairs() -> list[tuple[int, int]]:
        compared = writing._compared(runs, questions(), Silent())
        return [(one.before, one.after) for one in compared]

    assert pairs() == [(2, 1), (3, 2), (4, 3), (3, 1), (4, 2), (4, 1)]
    monkeypatch.setattr(writing, "MOST_PAIRS", 4)
    assert pairs() == [(2, 1), (3, 2), (4, 3), (3, 1)]
    monkeypatch.setattr(writing, "MOST_FIGURES", 2 * 2 * len(make_records()))
    assert pairs() == [(2, 1), (3, 2)]


def test_an_earlier_bundle_is_replaced_and_nothing_else_is(tmp_path: Path) -> None:
    first, second = (write_audit(tmp_path / name, make_records()) for name in ("one", "two"))
    out = tmp_path / "out"
    bundle(out, first)
    bundle(out, second)
    assert [one.name for one in (out / "reports").iterdir()] == ["two.html"]
    (out / "mine.txt").write_text("keep")
    for taken in (out, first):
        with pytest.raises(InputError, match="holds other files"):
            bundle(taken, second)
    assert (out / "mine.txt").read_text() == "keep"


@pytest.mark.parametrize("place", ["nowhere", "empty", "file"])
def test_a_place_without_a_run_is_refused(place: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"expected the --out of a run, or a folder with runs"):
        bundle(tmp_path / "out", tmp_path / place)
    assert not (tmp_path / "out").exists()
