"""The command that repeats a run asks the same questions with the same settings."""

import shlex
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from leakgauge.cli import main
from leakgauge.cli.running import Command
from leakgauge.runs.spec import Spec

COMMANDS = ("audit", "demo", "guarantee", "invert")


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Command]:
    """Return the audit of a command line without running it."""
    kept: list[Command] = []

    def keep(prepare: Callable[[], Command], **given: Any) -> None:
        kept.append(prepare())

    for name in COMMANDS:
        monkeypatch.setattr(import_module(f"leakgauge.cli.commands.{name}"), "run_questions", keep)

    def go(*words: str) -> Command:
        monkeypatch.setattr(sys, "argv", ["leakgauge", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        return kept.pop()

    return go


def specs(command: Command) -> dict[str, Spec]:
    return {name: spec for name, (_, spec) in command.asked.items()}


@pytest.mark.parametrize(
    "line",
    [
        "audit t.csv --label income --secret sex",
        "audit 'my data.csv' --label 'in come' --secret s --drop a --drop 'b;c' --bins 'x y=4'",
        "audit t.csv --drop-missing --group g --ask user --candidates 3 --stack --lr 0.5",
        "audit t.csv --ask property --ask attribute --defense sign "
        "--defense dpsgd:clip=2,noise=0.1 --adversary forest:kernel=10 --adversary joint",
        "audit --task m:f --secret s --allow-loop --seed 3",
        "audit t.csv --ask property --ask reconstruction --ask guarantee --seed 4 --batch-size 8 "
        "--set reconstruction.images=16 --set guarantee.clip=1.5 --set inference.rounds=2",
        "audit t.csv --ask reconstruction --adversary agic:function=logarithmic --adversary dlg "
        "--set reconstruction.redact=true --set reconstruction.hidden=32,16",
        "audit t.csv --ask property --ask reconstruction --defense prune:rate=0.9 --hidden 8 "
        "--hidden 4 --set reconstruction.defense=sign,noise:std=0.1",
        "audit t.csv --secret a --secret b --drop c --ask property --ask guarantee --rounds 3",
        "demo --rounds 2 --defense sign",
        "guarantee t.csv --attribute sex --clip 2 --noise 0.1",
        "guarantee t.csv --attribute sex --clip 2 --noise 0.1 --canary random --mechanism opacus "
        "--delta 1e-06 --hidden 3 --seed 2",
        "invert cifar10 --images 8 --method inverting-gradients --method agic:lr=0.3,relu=0",
        "invert cifar10 --batch-size 4 --local-steps 2 --local-lr 0.01 --simulate --defense sign",
        "invert cifar100 --epochs 3 --matching greedy --labels known --redact --side 16",
        "invert --update u.safetensors --task m:f --restarts 2",
    ],
)
def test_it_repeats_every_setting(prepared: Callable[..., Command], line: str) -> None:
    first = prepared(*shlex.split(line))
    program, *words = shlex.split(first.repeat)
    assert program == "leakgauge"
    again = prepared(*words)
    assert specs(again) == specs(first)
    assert again.repeat == first.repeat


def test_it_does_not_name_defaults(prepared: Callable[..., Command]) -> None:
    repeat = prepared("audit", "t.csv", "--label", "l", "--rounds", "10", "--seed", "0").repeat
    assert repeat == "leakgauge audit t.csv --ask property --label l"


def test_settings_of_one_question_stay_its_own(prepared: Callable[..., Command]) -> None:
    words = ("--ask", "property", "--ask", "guarantee", "--set", "guarantee.trials=70")
    repeat = prepared("audit", "t.csv", *words).repeat
    assert repeat.endswith("--set guarantee.trials=70")
    assert "--trials" not in repeat
