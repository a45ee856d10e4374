"""The commands."""

import re
import sys
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer
from safetensors import SafetensorError

from leakgauge.cli import experiment, guarantee, invert, options, reconstruction
from leakgauge.cli.running import run
from leakgauge.cli.stopping import INTERRUPTED
from leakgauge.cli.usertask import load_task, only_secret
from leakgauge.core.checks import InputError, require
from leakgauge.data import Roles, Source, fingerprint, make_table, open_data, randhie
from leakgauge.data.roles import resolve_roles
from leakgauge.data.source import DATASETS
from leakgauge.guarantee.report.page import write_guarantee
from leakgauge.inference.run import REUSE, UNIFORM, Settings
from leakgauge.inference.run.description import Origin
from leakgauge.inference.run.plan import Plan
from leakgauge.inference.run.prepare import (
    PERSON,
    Prepared,
    from_source,
    from_table,
    from_task,
)
from leakgauge.inversion.report.page import write_inversion
from leakgauge.report import write_report
from leakgauge.results.measurements import read_measurements, read_run

USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]

NO_MEMORY = "this needs more memory than there is; lower --trials, --hidden, --shadow"

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
    context: typer.Context,
    table: Annotated[
        str | None,
        typer.Argument(
            help="a CSV or Parquet file, images (.npz, or a folder with a CSV), or a dataset's "
            f"name: {', '.join(DATASETS)}"
        ),
    ] = None,
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
    ask: options.AnyAsk = None,
    adversary: options.AnyAdversary = None,
    defense: options.Defenses = None,
    batch_size: options.BatchSize = 16,
    rounds: options.Rounds = 10,
    trials: options.Trials = 5000,
    shadow: options.Shadow = 1000,
    batches: options.Batches = REUSE,
    stack: options.Stack = False,
    ratio_bins: options.RatioBins = 6,
    candidates: options.CandidateCount = 2,
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
    if reconstruction.asked_alone(ask or []):
        reconstruction.play_audit(context)
        return
    plan = Plan(
        asks=tuple(ask or ["property"]),
        adversaries=tuple(adversary or []),
        settings=Settings(
            secret or "",
            batch_size,
            rounds,
            trials,
            lr,
            batches,
            prior,
            seed,
            allow_loop=allow_loop,
            ratio_bins=ratio_bins,
            candidates=candidates,
            stack=stack,
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
            return _from_task(str(task), secret, plan)
        source = open_data(table)
        require(
            source.pixels is None or not hidden,
            "--hidden is about the network for tables; images have a small CNN; leave it out",
        )
        roles = resolve_roles(
            source.roles,
            label=label,
            secret=secret,
            group=group,
            drop=drop or (),
            bins=options.bin_counts(bins or ()),
            secret_needed=plan.about_more_than_persons,
            columns=source.frame.columns,
        )
        return _from_source(table, source, roles, drop_missing, plan)

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
            adversaries=tuple(adversary or []),
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
    print(f"report: {(experiment.report_grid if experiment.is_grid(folder) else _rebuilt)(folder)}")


def _rebuilt(folder: Path) -> Path:
    run = read_run(folder)
    if run.command == guarantee.COMMAND:
        return write_guarantee(folder, run, read_measurements(folder))
    if run.command == invert.COMMAND:
        return write_inversion(folder, run, read_measurements(folder))
    return write_report(folder)


app.command("run")(experiment.run)
app.command("guarantee")(guarantee.run)
app.command("invert")(invert.run)


def _from_source(
    word: str, source: Source, roles: Roles, drop_missing: bool, plan: Plan
) -> Prepared:
    settings = {
        "table": word,
        "group": roles.group,
        "drop": list(roles.drop),
        "bins": dict(roles.bins),
        "drop_missing": drop_missing,
    }
    secret = roles.secrets[0] if roles.secrets else str(roles.group)
    origin = Origin("audit", source.name, source.fingerprint, settings)
    return from_source(source, roles, plan.about(secret), origin, drop_missing=drop_missing)


def _from_task(spec: str, secret: str | None, plan: Plan) -> Prepared:
    task, data = load_task(spec, seed=plan.settings.seed)
    if plan.about_more_than_persons:
        plan = plan.about(only_secret(data, secret))
    elif secret is None:
        plan = plan.about(PERSON)
    return from_task(task, data, plan, Origin("audit", spec, fingerprint(data), {"task": spec}))


def main() -> None:
    """Run a command; a refusal is one line on stderr and exit code 2."""
    try:
        code = app(standalone_mode=False)
    except InputError as error:
        sys.exit(_refuse(str(error)))
    except MemoryError:
        sys.exit(_refuse(NO_MEMORY))
    except RuntimeError as error:
        if "alloc" not in str(error):  # as torch says it
            raise
        sys.exit(_refuse(NO_MEMORY))
    except (OSError, SafetensorError) as error:
        sys.exit(_refuse(f"{error}; what is finished is kept: repeat the command to go on"))
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
