"""The question of reconstruction, end to end: run, resume, section, JSON, and what it loads."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import leakgauge.inversion
from leakgauge.core.checks import InputError
from leakgauge.core.files import read_sealed
from leakgauge.core.types import Dataset, Task
from leakgauge.data import Source
from leakgauge.inversion import words
from leakgauge.inversion.checking import check
from leakgauge.inversion.epochs.assignment import METHODS as IMAGE_MATCHINGS
from leakgauge.inversion.labels.inference import LabelMethod
from leakgauge.inversion.methods import (
    DAGER,
    EXACT,
    EXACT_BATCH,
    FISHED,
    IMPRINT,
    METHODS,
    TABLEAK,
)
from leakgauge.inversion.question import QUESTION
from leakgauge.inversion.run import answering
from leakgauge.inversion.run.attempt import Attempt, attempts_of
from leakgauge.inversion.run.preparing import prepare
from leakgauge.inversion.run.rebuilt import Rebuilt
from leakgauge.inversion.search.presets import PRESETS
from leakgauge.inversion.spec import InversionSpec
from leakgauge.models import SCHEMES, named
from leakgauge.results.measurements import SECONDS, Measurement
from leakgauge.results.record_tests import RECORD_TESTS_FILE
from leakgauge.runs.audit import AuditRun, describe, prepare_all, run_audit
from leakgauge.runs.question import Silent
from leakgauge.runs.sources import task_source
from leakgauge.runs.spec import make_spec, plain
from leakgauge.runs.store import Store
from leakgauge.runs.work import WorkFolder
from leakgauge.training import Update
from support.sources import people, pictures, table_source

pytestmark = pytest.mark.usefixtures("few_scales")

NAME = QUESTION.name
SMALL = {"images": 2, "iterations": 3, "net": "lenet", "data": "pictures"}


def spec_of(**settings: Any) -> InversionSpec:
    spec = make_spec(InversionSpec, {**SMALL, **settings})
    assert isinstance(spec, InversionSpec)
    return spec


def audited(out: Path, source: Source, **settings: Any) -> AuditRun:
    resolved = prepare_all({NAME: (QUESTION, spec_of(**settings))}, source=source)
    return run_audit(out, describe("audit", resolved), resolved, progress=Silent())


def timeless(measurements: Any) -> list[Measurement]:
    return [replace(one, seconds=0.0) for one in measurements if one.metric != SECONDS]


def test_every_public_name_loads() -> None:
    for name in leakgauge.inversion.__all__:
        assert getattr(leakgauge.inversion, name) is not None


TWO = {"method": ("dlg-adam", "agic"), "defense": ("none", "sign")}
PAIRS = {**TWO, "knowledge": "static"}
"""Two attempts of each method: enough to stop between them."""

TITLES = [
    ("dlg-adam", "none", "static"),
    ("dlg-adam", "sign", "static"),
    ("dlg-adam", "sign", "adaptive"),
    ("agic", "none", "static"),
    ("agic", "sign", "static"),
    ("agic", "sign", "adaptive"),
]


def test_an_audit_measures_reads_back_and_renders(tmp_path: Path) -> None:
    first = audited(tmp_path / "run", pictures(), **TWO)
    measured = first.answers[NAME].measurements
    assert list(dict.fromkeys((m.adversary, m.defense, m.knowledge) for m in measured)) == TITLES
    assert {m.question for m in measured} == {"reconstruction"}
    again = audited(tmp_path / "run", pictures(), **TWO)
    assert list(again.answers[NAME].measurements) == list(measured)
    folder = Store(tmp_path / "run").folder(NAME)
    assert {one.name for one in folder.iterdir()} == {
        *("cell.yaml", "measurements.jsonl", "pictures.safetensors", "attempts.json"),
        RECORD_TESTS_FILE,
    }
    assert not (tmp_path / "run" / "work").exists()
    section, other = (QUESTION.section(run.answers[NAME], folder) for run in (first, again))
    assert section == other
    assert section.private
    assert str(section.html).count("data:image/png") == 2 * 7  # the truth and six attempts
    assert [row.ask for row in section.rows] == [NAME]
    assert len(section.lines) == 6
    assert section.effect is not None
    assert section.effect.defense == "sign"
    told = QUESTION.to_json(first.answers[NAME], folder)
    assert [(one["method"], one["defense"], one["knowledge"]) for one in told["results"]] == TITLES
    json.dumps(told, allow_nan=False)


def stopping(monkeypatch: pytest.MonkeyPatch, at: str, how: BaseException) -> Callable[[], None]:
    """Attempts of method ``at`` raise; the function that is returned undoes it."""
    original = answering.rebuild

    def rebuild(scenario: Any, attempt: Attempt, **given: Any) -> Rebuilt:
        if attempt.method == at:
            raise how
        return original(scenario, attempt, **given)

    monkeypatch.setattr(answering, "rebuild", rebuild)
    return lambda: monkeypatch.setattr(answering, "rebuild", original)


class Killed(BaseException):
    """A kill: nothing of the program runs after it."""


def test_a_killed_run_goes_on_with_equal_measurements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = audited(tmp_path / "whole", pictures(), **PAIRS)
    undo = stopping(monkeypatch, "agic", Killed())
    with pytest.raises(Killed):
        audited(tmp_path / "killed", pictures(), **PAIRS)
    undo()
    stopping(monkeypatch, "dlg-adam", AssertionError("finished attempts are not played again"))
    resumed = audited(tmp_path / "killed", pictures(), **PAIRS)
    assert timeless(resumed.measurements) == timeless(whole.measurements)
    for name in ("pictures.safetensors", "attempts.json"):
        kept = [Store(tmp_path / one).folder(NAME) / name for one in ("whole", "killed")]
        assert kept[0].read_bytes() == kept[1].read_bytes()


def test_a_stopped_run_answers_with_what_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undo = stopping(monkeypatch, "agic", KeyboardInterrupt())
    stopped = audited(tmp_path / "run", pictures(), **PAIRS)
    answer = stopped.answers[NAME]
    assert stopped.stopped
    assert answer.missing == ("agic and the attempts after it: you stopped the run",)
    assert {m.adversary for m in answer.measurements} == {"dlg-adam"}
    section = QUESTION.section(answer, Store(tmp_path / "run").work(NAME).files)
    assert "you stopped the run" in section.html
    undo()
    assert not audited(tmp_path / "run", pictures(), **PAIRS).stopped


def test_a_run_stopped_before_anything_is_finished_has_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping(monkeypatch, "dlg-adam", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        audited(tmp_path / "run", pictures(), **PAIRS)


def test_a_refused_attempt_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping(monkeypatch, "agic", InputError("no such thing"))
    answer = audited(tmp_path / "run", pictures(), **TWO).answers[NAME]
    assert answer.missing == (
        "agic: no such thing",
        "agic, sign, static: no such thing",
        "agic, sign, adaptive: no such thing",
    )


def read_arrays(folder: WorkFolder, name: str) -> dict[str, np.ndarray]:
    """The arrays of a checkpoint, whichever run made it."""
    _, _, content = read_sealed(folder.path / "checkpoints" / f"{name}.npz").partition(b"\n")
    with np.load(io.BytesIO(content)) as stored:
        return dict(stored)


def test_attempts_kept_by_other_settings_are_not_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undo = stopping(monkeypatch, "agic", Killed())
    with pytest.raises(Killed):
        audited(tmp_path / "run", pictures(), **PAIRS, seed=1)
    undo()
    store = Store(tmp_path / "run")
    kept = store.work(NAME)
    assert read_arrays(kept, "attempt-0001")
    resolved = prepare_all({NAME: (QUESTION, spec_of(**PAIRS, seed=2))}, source=pictures())[NAME]
    QUESTION.run(resolved.prepared, kept, Silent())
    assert read_arrays(kept, "attempt-0003")
    other = audited(tmp_path / "other", pictures(), **PAIRS, seed=2).measurements
    again = QUESTION.run(resolved.prepared, kept, Silent()).measurements
    assert timeless(again) == timeless(other)


def test_checkpoints_of_a_redacted_run_hold_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = pictures()
    assert source.pixels is not None
    for redact in (False, True):
        undo = stopping(monkeypatch, "agic", Killed())
        with pytest.raises(Killed):
            audited(tmp_path / f"{redact}", source, **PAIRS, redact=redact, draw="first")
        undo()
        kept = read_arrays(Store(tmp_path / f"{redact}").work(NAME), "attempt-0001")
        truth = source.pixels[:2] / np.float32(255)
        assert kept["truth"].size == (0 if redact else truth.size)
        assert redact or np.allclose(kept["truth"], truth, atol=1e-6)
        assert kept["x"].size == (0 if redact else truth.size)


def test_a_table_is_scored_by_column(tmp_path: Path) -> None:
    settings = {"method": "exact", "net": "mlp", "label": "income", "data": "people"}
    source = table_source(people())
    answer = audited(tmp_path / "run", source, **settings).answers[NAME]
    folder = Store(tmp_path / "run").folder(NAME)
    section = QUESTION.section(answer, folder)
    (row,) = section.rows
    assert (row.level, row.metric, row.strength) == ("strong", "Columns right", 1.0)
    assert "--defense dpsgd" in section.next_command
    told = QUESTION.to_json(answer, folder)
    assert told["columns"] == dict.fromkeys(("height", "town", "sex", "age"), 1.0)
    assert told["per_image"] == [{"columns": 1.0, "cells": 1.0}] * 2


# --- settings ------------------------------------------------------------------------------------


def test_resolved_settings_resolve_to_themselves() -> None:
    for source, settings in (
        (pictures(), {"batch_size": 3, "images": None}),
        (table_source(people()), {"net": "mlp", "label": "income", "hidden": (5,)}),
    ):
        once = prepare(spec_of(**settings), source).spec
        check(once)
        assert prepare(once, source).spec == once
        assert make_spec(InversionSpec, plain(once)) == once
    assert prepare(spec_of(batch_size=3, images=None), pictures()).spec.images == 9


@pytest.mark.parametrize(
    ("settings", "methods"),
    [
        ({}, ("exact-batch",)),
        ({"batch_size": 4, "local_steps": 2, "images": 8}, ("exact-batch",)),
        ({"defense": ("none", "sign")}, ("exact-batch", "leakgauge")),
        ({"defense": "sign", "knowledge": "adaptive"}, ("leakgauge",)),
        ({"iterations": 7}, ("exact-batch", "leakgauge")),
        ({"epochs": 2}, ("leakgauge",)),
        ({"method": "agic"}, ("agic",)),
        ({"loss": "mse", "label": "age"}, ("exact",)),
    ],
)
def test_the_methods_for_a_table_unless_named(
    settings: dict[str, Any], methods: tuple[str, ...]
) -> None:
    spec = spec_of(**{"net": "mlp", "label": "income", "iterations": None, **settings})
    assert prepare(spec, table_source(people())).spec.method == methods


def test_the_method_for_images_unless_named() -> None:
    assert prepare(spec_of(), pictures()).spec.method == ("leakgauge",)


@pytest.mark.parametrize(
    ("settings", "knowledge"),
    [
        ({"defense": "sign"}, ["static", "adaptive"]),
        ({"defense": "quantise:levels=4"}, ["static"]),
        ({"defense": "sign", "knowledge": "static"}, ["static"]),
        ({"defense": "sign", "knowledge": "adaptive"}, ["adaptive"]),
        ({"defense": ("none", "sign"), "knowledge": "adaptive"}, ["static", "adaptive"]),
        (
            {"defense": ("none", "sign"), "knowledge": ("static", "adaptive")},
            ["static", "static", "adaptive"],
        ),
        ({"defense": "sign", "method": "exact", "net": "mlp"}, ["static"]),
    ],
)
def test_the_knowledge_that_is_tried(settings: dict[str, Any], knowledge: list[str]) -> None:
    assert [one.knowledge for one in attempts_of(spec_of(**settings))] == knowledge


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"knowledge": "adaptive"}, "name one with --defense"),
        ({"knowledge": "adaptive", "defense": "sign", "method": "exact"}, "adapts to no defense"),
        ({"knowledge": "some", "defense": "sign"}, "--knowledge is 'some'"),
        ({"task": "mine:build", "data": "", "epochs": 2}, "--epochs does not go with the text"),
        ({"update": "u.safetensors", "data": ""}, "--update and --task go together"),
    ],
)
def test_contradictions_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        check(spec_of(**settings))


def test_a_model_of_one_s_own_needs_an_update() -> None:
    task = Task(nn.Linear(3, 2), cross_entropy)
    source = task_source(task, Dataset(torch.rand(9, 3), torch.arange(9) % 2))
    with pytest.raises(InputError, match="leakgauge invert --update FILE --task"):
        prepare(spec_of(), source)


def test_paper_figures_that_no_attempt_has() -> None:
    plain_, defended = spec_of(), spec_of(defense="sign")
    assert plain_.unmeasured("static", "accumulated") == ""
    assert defended.unmeasured("adaptive", "accumulated") == ""
    assert "without a defense" in plain_.unmeasured("adaptive", "accumulated")
    assert spec_of(epochs=2).unmeasured("static", 2) == ""
    assert "epoch 3" in spec_of(epochs=2).unmeasured("static", 3)
    assert "epoch 1" in plain_.unmeasured("static", 1)


def test_the_words_are_those_of_the_code_they_name() -> None:
    exact = (EXACT, EXACT_BATCH, TABLEAK, IMPRINT, FISHED)
    assert (*PRESETS, *exact, DAGER) == tuple(METHODS)
    assert tuple(SCHEMES) == named.SCHEMES
    assert (*IMAGE_MATCHINGS, words.GRADIENTS, words.KNOWN) == words.MATCHINGS
    inferred = set(get_args(LabelMethod)) - {"auto", "idlg"}
    assert inferred == set(words.LABELS) - {"known", "inferred"}


def test_an_update_is_answered_without_a_score(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    x, y = torch.rand(1, 1, 4, 4), torch.tensor([1])
    before = {name: leaf.detach().clone() for name, leaf in model.named_parameters()}
    cross_entropy(model(x), y).backward()
    grads = {name: leaf.grad for name, leaf in model.named_parameters()}
    Update("gradient", grads, before, batch_size=1).save(tmp_path / "sent.safetensors")
    public = Dataset(torch.rand(20, 1, 4, 4), torch.arange(20) % 3)
    source = task_source(Task(model, cross_entropy), public)
    spec = InversionSpec(task="mine:build", update=str(tmp_path / "sent.safetensors"), iterations=4)
    resolved = prepare_all({NAME: (QUESTION, spec)}, source=source)
    audit = run_audit(tmp_path / "run", describe("invert", resolved), resolved, progress=Silent())
    answer, folder = audit.answers[NAME], Store(tmp_path / "run").folder(NAME)
    loss, *others = answer.measurements
    assert {one.metric for one in others} <= {"matched", "label_residual"}
    assert (loss.metric, loss.estimate.n) == ("loss", 1)
    section = QUESTION.section(answer, folder)
    assert section.rows[0].level == "unknown"
    assert section.lines[-1].text == "labels (inferred): 1"
    assert QUESTION.to_json(answer, folder)["labels"] == [1]


def test_settings_and_question_load_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "import leakgauge.inversion.spec, leakgauge.inversion.question\n"
        "heavy = {'torch', 'matplotlib', 'jinja2', 'sklearn', 'pandas', 'scipy'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
