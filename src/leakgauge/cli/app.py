"""The commands."""

import re
import sys
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer

from leakgauge.audit import REUSE, UNIFORM, Settings
from leakgauge.checks import InputError, require
from leakgauge.cli import options
from leakgauge.cli.running import INTERRUPTED, run
from leakgauge.cli.usertask import load_task, only_secret
from leakgauge.data import Roles, fingerprint, make_table, randhie, read_table
from leakgauge.experiment.prepare import Origin, Plan, Prepared, from_table, from_task
from leakgauge.report import write_report

USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="print the version")] = False,
) -> None:
    """Measures how much private information leaks through the gradients of a training run."""
    if show_version:
        print(version("leakgauge"))
    elif context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def audit(
    table: Annotated[Path | None, typer.Argument(help="a CSV or Parquet file")] = None,
    label: Annotated[str | None, typer.Option(help="the column that the model predicts")] = None,
    secret: Annotated[str | None, typer.Option(help="the column that nobody should learn")] = None,
    task: Annotated[
        str | None,
        typer.Option(help="MODULE:FUNCTION that returns your own (Task, Dataset); no TABLE then"),
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="the column that names the person of each row")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="column to leave out; repeatable")] = None,
    bins: Annotated[
        list[str] | None,
        typer.Option(help="COL=N: cut a numeric label or secret into N ranges; repeatable"),
    ] = None,
    drop_missing: Annotated[
        bool, typer.Option("--drop-missing", help="leave out rows without label, secret or group")
    ] = False,
    ask: options.Ask = None,
    adversary: options.Adversary = None,
    defense: options.Defenses = None,
    batch_size: options.BatchSize = 16,
    rounds: options.Rounds = 10,
    trials: options.Trials = 5000,
    shadow: options.Shadow = 1000,
    batches: options.Batches = REUSE,
    prior: options.Prior = UNIFORM,
    lr: options.LearningRate = 0.01,
    hidden: options.Hidden = None,
    allow_loop: options.AllowLoop = False,
    seed: options.Seed = 0,
    workers: options.Workers = None,
    device: options.Device = "cpu",
    out: options.Out = None,
    json_: options.Json = False,
) -> None:
    """Does a secret leak through the gradients of training on this table?"""
    require((table is None) != (task is None), "expected either a TABLE or --task MODULE:FUNCTION")

    def plan(secret: str) -> Plan:
        return Plan(
            asks=tuple(ask or ["property"]),
            adversaries=tuple(adversary or ["forest"]),
            settings=Settings(
                secret, batch_size, rounds, trials, lr, batches, prior, seed, allow_loop=allow_loop
            ),
            shadow=shadow,
            hidden=tuple(hidden or (100,)),
            device=options.torch_device(device),
            defenses=tuple(defense or ()),
        )

    def prepare() -> Prepared:
        if table is None:
            options.only_with_table(
                {
                    "--label": label,
                    "--group": group,
                    "--drop": drop,
                    "--bins": bins,
                    "--drop-missing": drop_missing,
                    "--hidden": hidden,
                }
            )
            return _from_task(str(task), secret, plan(secret or ""))
        require(label is not None, "--label is missing; name the column that the model predicts")
        require(secret is not None, "--secret is missing; name the column that nobody should learn")
        roles = Roles(
            str(label), (str(secret),), group, tuple(drop or ()), options.bin_counts(bins or ())
        )
        return _from_table(table, roles, drop_missing, plan(str(secret)))

    run(prepare, out, options.worker_count(workers), json_=json_)


@app.command()
def demo(
    ask: options.Ask = None,
    adversary: options.Adversary = None,
    batch_size: options.BatchSize = 16,
    rounds: options.Rounds = 10,
    trials: options.Trials = 5000,
    seed: options.Seed = 0,
    workers: options.Workers = None,
    out: options.Out = None,
    json_: options.Json = False,
) -> None:
    """The same on a table that needs no download: the RAND Health Insurance Experiment."""

    def prepare() -> Prepared:
        plan = Plan(
            asks=tuple(ask or ["property"]),
            adversaries=tuple(adversary or ["forest"]),
            settings=Settings("female", batch_size, rounds, trials, seed=seed),
        )
        frame, roles = randhie(), Roles("any_visit", ("female",), group="zper")
        origin = Origin(
            "demo",
            "RAND Health Insurance Experiment",
            fingerprint(frame),
            settings={"group": roles.group},
        )
        return from_table(make_table(frame, roles), plan, origin)

    run(prepare, out, options.worker_count(workers), json_=json_)


@app.command()
def report(folder: Annotated[Path, typer.Argument(help="the --out of a finished run")]) -> None:
    """Rebuild the page of a finished run from its records."""
    require(folder.is_dir(), f"no such folder: {str(folder)!r}; expected the --out of a run")
    print(f"report: {write_report(folder)}")


def _from_table(path: Path, roles: Roles, drop_missing: bool, plan: Plan) -> Prepared:
    frame = read_table(path)
    table = make_table(frame, roles, drop_missing=drop_missing)
    settings = {
        "table": str(path),
        "group": roles.group,
        "drop": list(roles.drop),
        "bins": dict(roles.bins),
        "drop_missing": drop_missing,
    }
    return from_table(table, plan, Origin("audit", path.name, fingerprint(frame), settings))


def _from_task(spec: str, secret: str | None, plan: Plan) -> Prepared:
    task, data = load_task(spec, seed=plan.settings.seed)
    plan = plan.about(only_secret(data, secret))
    return from_task(task, data, plan, Origin("audit", spec, fingerprint(data), {"task": spec}))


def main() -> None:
    """Run a command; a refusal is one line on stderr and exit code 2."""
    try:
        code = app(standalone_mode=False)
    except InputError as error:
        sys.exit(_refuse(str(error)))
    except MemoryError:
        sys.exit(
            _refuse("this needs more memory than there is; lower --trials, --hidden, --shadow")
        )
    except USAGE_ERROR as error:
        sys.exit(_refuse(_with_value(error.format_message())))  # type: ignore[attr-defined]
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    sys.exit(code or 0)


def _with_value(message: str) -> str:
    """Typer names the option, not what came: look that up in what was typed."""
    found = re.search(r"'(--[a-z-]+)'", message)
    typed = dict(pairwise(sys.argv)) | dict(
        word.split("=", 1) for word in sys.argv if word.startswith("--") and "=" in word
    )
    if found is None or found[1] not in typed:
        return message
    return f"{message} (came: {typed[found[1]]!r})"


def _refuse(reason: str) -> int:
    print(f"error: {' '.join(reason.split())}", file=sys.stderr)
    return 2
