"""Inference as a question: asked, killed, resumed, read back, shown, and repeated."""

import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.data import from_arrays
from leakgauge.data.source import Source, open_data
from leakgauge.inference.checking import check
from leakgauge.inference.question import QUESTION
from leakgauge.inference.run import answering, preparing
from leakgauge.inference.run.preparing import prepare
from leakgauge.inference.spec import InferenceSpec
from leakgauge.results.measurements import Run
from leakgauge.runs.audit import AuditRun, describe, prepare_all, run_audit
from leakgauge.runs.question import Silent
from leakgauge.runs.sources import task_source
from support.synthetic import records, small_task

pytestmark = pytest.mark.usefixtures("blank_charts")

SMALL = {"batch_size": 16, "rounds": 2, "trials": 200, "shadow": 200}


@pytest.fixture(scope="module")
def rand() -> Source:
    source = open_data("randhie")
    return replace(source, frame=source.frame.iloc[:1800].reset_index(drop=True))


def asked(out: Path, source: Source, **settings) -> AuditRun:
    quick = {**SMALL, "adversary": ("energies:batches=100",)}
    spec = InferenceSpec(**{"data": source.name, **quick, **settings})
    resolved = prepare_all({QUESTION.name: (QUESTION, spec)}, source=source)
    description = describe("audit", resolved)
    return run_audit(out, description, resolved, progress=Silent(), workers=1)


def figures(audit: AuditRun) -> list:
    return [replace(one, seconds=0.0) for one in audit.measurements]


def test_an_answer_is_kept_and_read_back(rand: Source, tmp_path: Path, monkeypatch) -> None:
    settings = {
        "ask": ("property", "proportion"),
        "defense": ("none", "prune:rate=0.9"),
        "ratio_bins": 2,
        "rounds": 1,
        "trials": 100,
        "adversary": ("energies:batches=50", "forest:trees=5,batches=50"),
    }
    first = asked(tmp_path / "run", rand, **settings)
    monkeypatch.setattr(answering, "attack_round", killed)
    again = asked(tmp_path / "run", rand, **settings)
    assert figures(first) == figures(again) != []
    section = QUESTION.section(again.answers["inference"], tmp_path)
    assert [row.ask for row in section.rows] == ["property", "proportion"]
    assert section.effect is not None
    assert section == QUESTION.section(first.answers["inference"], tmp_path)
    for anchor, _ in section.nav:
        assert f'id="{anchor}"' in section.html
    cells = QUESTION.to_json(again.answers["inference"], tmp_path)["cells"]
    assert {(one["ask"], one["defense"]) for one in cells} == {
        (ask, defense) for ask in settings["ask"] for defense in settings["defense"]
    }


def test_the_words_of_an_audit_share_one_preparation(
    rand: Source, tmp_path: Path, monkeypatch
) -> None:
    """The records are read and split once; all stages exist before the run starts."""
    read, split, calls = preparing.records_of, preparing.split_of, []

    def counted_read(*args, **kwargs):
        calls.append("records")
        return read(*args, **kwargs)

    def counted_split(*args):
        calls.append("split")
        return split(*args)

    monkeypatch.setattr(preparing, "records_of", counted_read)
    monkeypatch.setattr(preparing, "split_of", counted_split)
    monkeypatch.setattr(answering, "attack_round", killed)
    words = ("property", "attribute", "proportion", "user")
    with pytest.raises(KeyboardInterrupt):
        asked(tmp_path, rand, ask=words, adversary=("panel",), batch_size=2, ratio_bins=2)
    assert calls == ["records", "split"]


def test_a_kill_between_rounds_changes_no_figure(rand: Source, tmp_path: Path, monkeypatch) -> None:
    whole = asked(tmp_path / "whole", rand)
    play, played = answering.attack_round, []

    def once(*args):
        if played:
            raise KeyboardInterrupt
        played.append(args[1])
        return play(*args)

    monkeypatch.setattr(answering, "attack_round", once)
    with pytest.raises(KeyboardInterrupt):
        asked(tmp_path / "killed", rand)

    def counted(*args):
        played.append(args[1])
        return play(*args)

    train, finished = answering.trajectory, []

    def continued(*args, after: int = 0, **given):
        finished.append(after)
        return train(*args, after=after, **given)

    monkeypatch.setattr(answering, "attack_round", counted)
    monkeypatch.setattr(answering, "trajectory", continued)
    assert figures(asked(tmp_path / "killed", rand)) == figures(whole)
    assert played == [1, 2]
    assert finished == [1]


def killed(*args, **kwargs):
    raise KeyboardInterrupt


def test_users_own_tasks_have_secrets_of_their_own(tmp_path: Path) -> None:
    data = records(3.0, n=1200)
    source = task_source(small_task(data), data, name="task")
    audit = asked(tmp_path / "run", source, data="", task="module:function", trials=300)
    assert audit.answers["inference"].run.settings["secret"] == "s"
    (row,) = QUESTION.section(audit.answers["inference"], tmp_path).rows
    assert row.level == "strong"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"label": "income"}, "--label is about a TABLE"),
        ({"hidden": (3,)}, "--hidden is about a TABLE"),
        ({"secret": "sex"}, "--secret is 'sex'; known: 's'"),
        ({"ask": ("user",)}, "user inference needs the user of each record"),
    ],
)
def test_what_a_task_does_not_allow_is_refused(settings: dict, says: str) -> None:
    data = records(0.0, n=1200)
    source = task_source(small_task(data), data)
    with pytest.raises(InputError, match=says):
        prepare(InferenceSpec(task="module:function", **{**SMALL, **settings}), source)


def test_a_task_without_secrets_says_what_would_allow_it() -> None:
    x = stream(0, "x").normal(size=(50, 3))
    data = from_arrays(x, (x[:, 0] > 0).astype(int), {})
    with pytest.raises(InputError, match=r"no secrets; fill Dataset\.secrets"):
        prepare(InferenceSpec(task="module:function"), task_source(small_task(data), data))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {"ask": ("user",), "batch_size": 64},
            r"\(0 of them with 128 records or more\) leave",
        ),
        ({"secret": "plan", "ask": ("proportion",)}, "no column"),
        ({"ask": ("proportion",), "ratio_of": "maybe"}, "--ratio-of is 'maybe', not a value of"),
        ({"shadow": 4}, "shadow is 4"),
    ],
)
def test_what_a_table_does_not_allow_is_refused(rand: Source, settings: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        prepare(InferenceSpec(data="randhie", **settings), rand)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"rounds": 0}, "--rounds is 0; expected a whole number of 1 or more"),
        ({"lr": 0.0}, "--lr is 0.0; expected a number above 0"),
        ({"ratio_bins": 1}, "--ratio-bins is 1"),
        ({"ask": ("propperty",)}, "did you mean 'property'"),
        ({"ask": ()}, "--ask is empty"),
        ({"ask": ("user", "user")}, "--ask repeats a word"),
        ({"adversary": ("forrest",)}, "did you mean 'forest'"),
        ({"adversary": ("forest", "forest")}, "--adversary repeats a name"),
        ({"defense": ()}, "--defense is empty"),
        ({"defense": ("prun",)}, "did you mean 'prune'"),
        ({"ask": ("proportion",), "batch_size": 4}, "raise --batch-size to at least 6"),
    ],
)
def test_settings_are_refused_before_the_data_are_read(settings: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        check(InferenceSpec(**settings))


def test_figures_that_no_cell_has_are_named() -> None:
    bare, defended = InferenceSpec(rounds=3), InferenceSpec(defense=("sign",))
    assert "without a defense only static ones exist" in bare.unmeasured("adaptive", 1)
    assert bare.unmeasured("static", 3) == defended.unmeasured("adaptive", "accumulated") == ""
    assert "rounds 1 to 3" in bare.unmeasured("static", 4)
    assert bare.unmeasured("static", "first-2") == ""
    assert "of 3 rounds, sums exist for the first 2;" in bare.unmeasured("static", "first-3")


def next_command(**settings) -> list[str]:
    from leakgauge.inference.report.next_command import next_command
    from leakgauge.inference.report.verdict import verdicts
    from support.made_runs import make_records

    run = Run("", {"ask": ["property"], **settings}, {})
    return shlex.split(next_command(run, verdicts(run, make_records(2.0)), QUESTION))


def test_the_next_command_leaves_out_numbers_that_the_games_decide() -> None:
    for numbers in (
        {"batch_size": 16, "trials": 5000},
        {"ask": ["property", "user"], "batch_size": {"property": 16, "user": 8},
         "trials": {"property": 5000, "user": 1000}},
    ):  # fmt: skip
        command = next_command(data="d.csv", **numbers)
        assert command
        assert "--batch-size" not in command
        assert "--trials" not in command
    assert "--batch-size" in next_command(data="d.csv", batch_size=8)


def test_the_next_command_tries_defenses_where_it_leaks() -> None:
    roles = {"label": "in come", "drop": ["a", "b;c"], "bins": {"x y": 4}, "drop_missing": True}
    words = next_command(data="my data", **roles)
    assert words[:3] == ["leakgauge", "audit", "my data"]
    for pair in (["--label", "in come"], ["--drop", "b;c"], ["--bins", "x y=4"]):
        assert pair in [words[i : i + 2] for i in range(len(words))]
    assert words.count("--defense") == 2
    assert next_command(data="d.csv", defense=["none", "sign"]) == []
    assert next_command(label="income") == []  # nobody says which data
    assert "--label" not in next_command(task="model:build", label="income")


@pytest.mark.process
def test_settings_and_question_load_no_heavy_package() -> None:
    code = (
        "import sys, leakgauge.inference.spec, leakgauge.inference.question; "
        "print([m for m in ('torch', 'matplotlib', 'jinja2', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
