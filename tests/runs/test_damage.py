"""Damaged, swapped and foreign files do not change figures: they are noted and made again."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.data.source import frame_source
from leakgauge.guarantee.question import QUESTION as GUARANTEE
from leakgauge.guarantee.run import answering as guarantee
from leakgauge.guarantee.run import record
from leakgauge.inversion.question import QUESTION as INVERSION
from leakgauge.results.measurements import SECONDS, Measurement
from leakgauge.runs.audit import AuditRun, describe, prepare_all, run_audit
from leakgauge.runs.page import read_audit, write_page
from leakgauge.runs.spec import make_spec
from leakgauge.runs.work import WorkFolder
from support.damage import Killed, Notes, Short, flip, kill_after
from support.sources import people, pictures
from support.tables import frame
from support.toy.question import Toy, ToySpec, ToyStage

Runner = Callable[..., AuditRun]
"""Function of folder and progress that returns the audit."""


class Closing(ToyStage):
    """Stage that combines all rounds at the end."""

    def close(self, states: Any, progress: Any) -> Any:
        import numpy as np

        return {"sum": np.array([float(sum(one["count"][0] for one in states))])}, {}


def runner_of(question: Any, settings: dict[str, Any], source: Any) -> Runner:
    def run(out: Path, progress: Any = None) -> AuditRun:
        spec = make_spec(question.Spec, settings)
        resolved = prepare_all({question.name: (question, spec)}, source=source)
        return run_audit(out, describe("audit", resolved), resolved, progress=progress or Notes())

    return run


def timeless(audit: AuditRun) -> list[Measurement]:
    return [replace(one, seconds=0.0) for one in audit.measurements if one.metric != SECONDS]


def toy(folder: Path, patch: pytest.MonkeyPatch) -> Runner:
    """Return an audit that was killed after all rounds."""
    patch.setattr("support.toy.question.ToyStage", Closing)
    run = runner_of(Toy(), {}, frame_source(frame()))
    with patch.context() as context:
        context.setattr(Closing, "judge", dies)
        killed(run, folder)
    return run


def invert(folder: Path, patch: pytest.MonkeyPatch) -> Runner:
    """Return a reconstruction that was killed in the second attempt."""
    settings = {
        "images": 1, "iterations": 3, "net": "lenet", "data": "p", "method": ("dlg-adam", "agic"),
    }  # fmt: skip
    return killed_after(6, runner_of(INVERSION, settings, pictures()), folder, patch)


def killed_after(states: int, run: Runner, folder: Path, patch: pytest.MonkeyPatch) -> Runner:
    with patch.context() as context:
        kill_after(context, states)
        killed(run, folder)
    return run


def killed(run: Runner, folder: Path) -> None:
    with pytest.raises(Killed):
        run(folder)


def guaranteed(**settings: Any) -> Runner:
    usual = {
        "data": "p", "attribute": "sex", "label": "income", "trials": 60, "hidden": (4,),
        "clip": 2.0, "noise": 0.1, "canary": "crafted-valid",
    }  # fmt: skip
    return runner_of(GUARANTEE, {**usual, **settings}, frame_source(people()))


def search(folder: Path, patch: pytest.MonkeyPatch) -> Runner:
    """Return an audit that was killed in the sweep over columns of the second start."""
    patch.setattr(record, "Craft", Short)
    return killed_after(9, guaranteed(), folder, patch)


def ascent(folder: Path, patch: pytest.MonkeyPatch) -> Runner:
    """Return an audit that was killed in the ascent."""
    patch.setattr(record, "Craft", Short)
    return killed_after(20, guaranteed(canary="crafted-box"), folder, patch)


def release(folder: Path, patch: pytest.MonkeyPatch) -> Runner:
    """Return an audit that was killed after the last trial."""
    run = guaranteed(canary="random")
    with patch.context() as context:
        context.setattr(guarantee, "measurements_of", dies)
        killed(run, folder)
    return run


def dies(*_: Any, **__: Any) -> None:
    raise Killed


KINDS = [
    (toy, ["made-by.json", "closing.npz", "state-0002.safetensors", "step-0002.npz"], 5),
    (invert, ["attempt-0001.npz", "search.state"], 3),
    (search, ["starts.state", "start-001.state"], 2),
    (ascent, ["ascent.state"], 2),
    (release, ["record.npz", "choose-1.state", "judge-0.state"], 4),
]


@pytest.mark.parametrize("most", [1, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("kill", "files", "flips"), KINDS, ids=[one[0].__name__ for one in KINDS])
def test_a_flipped_bit_does_not_change_figures(
    kill: Callable[..., Runner],
    files: list[str],
    flips: int,
    most: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = kill(tmp_path / "killed", monkeypatch)
    rng, whole = stream(0, "flips"), timeless(run(tmp_path / "whole"))
    assert checksum_notes(run, copied(tmp_path, "unharmed"), whole) == []
    for number in range(min(flips, most) * len(files)):
        out = copied(tmp_path, str(number))
        (damaged,) = (out / "work").rglob(files[number % len(files)])
        flip(damaged, rng)
        (note,) = checksum_notes(run, out, whole)
        assert damaged.name in note


def copied(folder: Path, name: str, what: str = "killed") -> Path:
    shutil.copytree(folder / what, folder / name)
    return folder / name


def checksum_notes(run: Runner, out: Path, whole: list[Measurement]) -> list[str]:
    """Return the notes on remade files, for a run that must end like the whole one."""
    notes = Notes()
    assert timeless(run(out, notes)) == whole
    return [text for text in notes.texts if "anew" in text or "runs again" in text]


@pytest.mark.parametrize(
    ("taken", "put", "noted"),
    [
        ("step-0001.npz", "step-0002.npz", 2),
        ("state-0002.safetensors", "state-0003.safetensors", 1),  # later ones are not read
        ("closing.npz", "step-0003.npz", 2),
    ],
)
def test_a_copied_or_swapped_round_does_not_change_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: str, put: str, noted: int
) -> None:
    run = toy(tmp_path / "killed", monkeypatch)
    whole = timeless(run(tmp_path / "whole"))
    rounds = Path("work", "toy", "checkpoints", "toy")
    out = copied(tmp_path, "copied") / rounds
    shutil.copy(out / taken, out / put)
    (note,) = checksum_notes(run, tmp_path / "copied", whole)
    assert put in note
    assert "of another run or another part" in note
    out = copied(tmp_path, "swapped") / rounds
    (out / taken).rename(out / "aside")
    (out / put).rename(out / taken)
    (out / "aside").rename(out / put)
    assert len(checksum_notes(run, tmp_path / "swapped", whole)) == noted


def test_a_round_of_another_run_or_after_other_rounds_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = toy(tmp_path / "killed", monkeypatch)
    whole = timeless(run(tmp_path / "whole"))
    other = runner_of(Toy(), {}, frame_source(frame()[:50]))
    with monkeypatch.context() as context:
        context.setattr(Closing, "judge", dies)
        killed(other, tmp_path / "other")
    rounds = Path("work", "toy", "checkpoints", "toy")
    for name in ("state-0002.safetensors", "step-0002.npz", "closing.npz"):
        out = copied(tmp_path, name)
        shutil.copy(tmp_path / "other" / rounds / name, out / rounds / name)
        (note,) = checksum_notes(run, out, whole)
        assert name in note
    # A round of the same run after other states differs only in its predecessors.
    folder = WorkFolder(tmp_path / "work")
    folder.keep_arrays("step", {}, {"number": 1}, after="one")
    assert folder.arrays("step", after="one") is not None
    assert folder.arrays("step", after="another") is None


def test_checkpoints_of_a_version_without_identities_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = toy(tmp_path / "killed", monkeypatch)
    whole = timeless(run(tmp_path / "whole"))
    (tmp_path / "killed" / "work" / "toy" / "made-by.json").rename(tmp_path / "made-by.yaml")
    (note,) = checksum_notes(run, tmp_path / "killed", whole)
    assert "checkpoints of another run" in note


# --- finished cells ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cell.yaml", "measurements.jsonl", "kept.txt"])
def test_a_damaged_cell_is_run_again_and_not_shown_on_pages(tmp_path: Path, name: str) -> None:
    run = runner_of(Toy(), {}, frame_source(frame()))
    whole, rng = timeless(run(tmp_path / "whole")), stream(0, "flips", name)
    before = store(tmp_path / "whole")
    assert checksum_notes(run, tmp_path / "whole", whole) == []
    for number in range(5):
        out = copied(tmp_path, str(number), "whole")
        flip(out / "cells" / "toy" / name, rng)
        with pytest.raises(InputError, match=r"checksum; repeat the command of the run to make it"):
            read_audit(out)
        (note,) = checksum_notes(run, out, whole)
        assert name in note
        assert note.endswith("; this cell runs again")
        assert store(out) == before


def store(out: Path) -> dict[str, bytes]:
    files = [*(out / "cells").rglob("*"), out / "run.yaml"]
    return {str(one.relative_to(out)): one.read_bytes() for one in files if one.is_file()}


def test_a_cell_with_a_file_too_many_or_too_few_is_run_again(tmp_path: Path) -> None:
    run = runner_of(Toy(), {}, frame_source(frame()))
    whole = timeless(run(tmp_path / "whole"))
    for change in (
        lambda cell: (cell / "rows.json").write_text("{}"),
        lambda cell: (cell / "kept.txt").unlink(),
        lambda cell: (cell / "measurements.jsonl").unlink(),
        lambda cell: (cell / "cell.yaml").unlink(),
    ):
        change(tmp_path / "whole" / "cells" / "toy")
        assert len(checksum_notes(run, tmp_path / "whole", whole)) == 1
    assert checksum_notes(run, tmp_path / "whole", whole) == []


def test_a_cell_of_another_run_is_run_again(tmp_path: Path) -> None:
    run = runner_of(Toy(), {}, frame_source(frame()))
    whole = timeless(run(tmp_path / "whole"))
    runner_of(Toy(), {"factor": 2}, frame_source(frame()))(tmp_path / "other")
    shutil.rmtree(tmp_path / "whole" / "cells" / "toy")
    shutil.copytree(tmp_path / "other" / "cells", tmp_path / "whole" / "cells", dirs_exist_ok=True)
    with pytest.raises(InputError, match="belongs to another run"):
        read_audit(tmp_path / "whole")
    (note,) = checksum_notes(run, tmp_path / "whole", whole)
    assert "belongs to another run (factor is 2 there, 1 here); this cell runs again" in note


def test_a_damaged_description_is_refused_by_report_and_written_again_by_a_run(
    tmp_path: Path,
) -> None:
    run = runner_of(Toy(), {}, frame_source(frame()))
    whole, rng = timeless(run(tmp_path / "whole")), stream(0, "flips")
    before = store(tmp_path / "whole")
    for number in range(8):
        out = copied(tmp_path, str(number), "whole")
        flip(out / "run.yaml", rng)
        with pytest.raises(InputError, match=r"checksum; repeat the command of the run to write"):
            write_page(out, {})
        (note,) = checksum_notes(run, out, whole)
        assert "run.yaml" in note
        assert store(out) == before


def test_damaged_reasons_of_a_refusal_are_not_shown(tmp_path: Path) -> None:
    class Refusing(Toy):
        name = "refusing"

        def run(self, *given: Any, workers: int | None = None) -> Any:
            raise InputError("no such thing")

    source = frame_source(frame())
    resolved = prepare_all(
        {"toy": (Toy(), ToySpec()), "refusing": (Refusing(), ToySpec())}, source=source
    )
    run_audit(tmp_path / "out", describe("audit", resolved), resolved, progress=Notes())
    assert read_audit(tmp_path / "out").missing == ["refusing: no such thing"]
    flip(tmp_path / "out" / "refused.yaml", stream(0, "flips"))
    with pytest.raises(InputError, match=r"refused\.yaml' is damaged"):
        read_audit(tmp_path / "out")
