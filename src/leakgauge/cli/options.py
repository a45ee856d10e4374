"""The options that commands share, and how their words are checked."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from leakgauge.core.checks import InputError, require, require_count
from leakgauge.defenses.catalog import HELP as DEFENSE_HELP
from leakgauge.inference.catalog import GAMES
from leakgauge.inference.catalog import HELP as ADVERSARY_HELP
from leakgauge.inference.run import EMPIRICAL, FRESH, REUSE, UNIFORM
from leakgauge.inversion.run.spec import EXACT, METHODS, QUESTION

RUNS = Path("leakgauge-runs")

Ask = Annotated[
    list[str] | None,
    typer.Option(help=f"what to infer: {', '.join(GAMES)} (default property); repeatable"),
]
Adversary = Annotated[
    list[str] | None,
    typer.Option(help=f"who infers it: {ADVERSARY_HELP}; repeatable"),
]
AnyAsk = Annotated[
    list[str] | None,
    typer.Option(
        "--ask",
        help=f"what to infer: {', '.join(GAMES)} (default property), repeatable; or "
        f"{QUESTION}, alone: are the records themselves rebuilt, as leakgauge invert plays it",
    ),
]
AnyAdversary = Annotated[
    list[str] | None,
    typer.Option(
        "--adversary",
        help=f"who infers it: {ADVERSARY_HELP}; for {QUESTION} {', '.join(METHODS)} (default "
        f"leakgauge; {EXACT} is for tables); repeatable",
    ),
]
Defenses = Annotated[
    list[str] | None,
    typer.Option(
        "--defense",
        help=f"{DEFENSE_HELP}; repeatable",
    ),
]
BatchSize = Annotated[int, typer.Option(help="records in a private batch and in a training step")]
Rounds = Annotated[int, typer.Option(help="rounds of training; a round is an epoch")]
Trials = Annotated[int, typer.Option(help="private batches that are attacked")]
Shadow = Annotated[
    int,
    typer.Option(
        help="records that the adversary has of its own, at most; where --ask has user, it has "
        "those of 40 % of the persons instead"
    ),
]
Batches = Annotated[
    str, typer.Option(help=f"{REUSE}: one batch in all rounds; {FRESH}: a new one each round")
]
Stack = Annotated[
    bool,
    typer.Option(
        "--stack",
        help="weight the rounds by what held-out shadow batches show, for every adversary but "
        "matching and encoder; slower",
    ),
]
RatioBins = Annotated[
    int, typer.Option(help="proportion: the ranges of the share that are told apart")
]
CandidateCount = Annotated[
    int, typer.Option("--candidates", help="user: the persons that a batch may be of")
]
Prior = Annotated[str, typer.Option(help=f"of the secret: {UNIFORM} or {EMPIRICAL}")]
LearningRate = Annotated[float, typer.Option("--lr", help="learning rate of the training")]
Hidden = Annotated[
    list[int] | None, typer.Option(help="width of a hidden layer (default 100); repeatable")
]
AllowLoop = Annotated[
    bool,
    typer.Option(
        "--allow-loop", help="take a model that torch.func cannot vectorise; slower, exact"
    ),
]
Seed = Annotated[int, typer.Option(help="all randomness follows from it")]
Workers = Annotated[
    int | None, typer.Option(help="processes (default: one a core where the work is worth it)")
]
Device = Annotated[str, typer.Option(help="where torch computes: cpu, cuda, cuda:1, ...")]
Out = Annotated[
    Path | None, typer.Option(help=f"folder of the run (default: a new one in {RUNS}/)")
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else")]


def run_path(out: Path | None, command: str) -> Path:
    """The folder of a run: the one that is named, or a new one."""
    return out or RUNS / f"{command}-{datetime.now():%Y%m%d-%H%M%S-%f}"


def bin_counts(given: Sequence[str]) -> Mapping[str, int]:
    """``["age=4"]`` as ``{"age": 4}``."""
    counts: dict[str, int] = {}
    for text in given:
        name, equals, number = text.rpartition("=")
        require(
            bool(name and equals and number.isdecimal()),
            f"--bins is {text!r}; expected COL=N, for example age=4",
        )
        require(name not in counts, f"--bins names {name!r} twice; name it once")
        counts[name] = int(number)
    return counts


def torch_device(name: str) -> str:
    """The device's name, where torch has it."""
    try:
        torch.zeros(1, device=name).sum().item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0][:120]
        raise InputError(
            f"--device {name} cannot be used here ({reason}); cpu always can"
        ) from error
    return name


def worker_count(given: int | None) -> int | None:
    """Processes, as given; None leaves it to the run."""
    if given is not None:
        require_count(given, "--workers")
    return given


def refuse_others(context: typer.Context, kept: Collection[str], why: str) -> None:
    """Refuse every option that is not at its default and has no part here.

    Args:
        context: of the command.
        kept: names of the function's arguments that have a part.
        why: completes the sentence that the option's name begins.
    """
    for one in context.command.params:
        value = context.params.get(str(one.name))
        unset = value == one.get_default(context) or value in (None, (), [])
        require(one.name in kept or unset, f"{one.opts[-1]} {why}; leave it out")


def only_with_table(given: Mapping[str, Any]) -> None:
    """Refuse options about a table's columns where there is no table."""
    for name, value in given.items():
        require(not value, f"{name} is about a TABLE; with --task the function decides")
