"""``leakgauge guarantee TABLE``: does DP-SGD hide an attribute of a single record?"""

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic_core import to_json
from rich.console import Console
from rich.text import Text
from typer import Argument, Option

from leakgauge.cli import options
from leakgauge.cli.stopping import stoppable
from leakgauge.core.checks import InputError, require, require_choice
from leakgauge.core.threads import one_thread
from leakgauge.core.user_code import function_of, one_line
from leakgauge.data import open_data
from leakgauge.guarantee import Craft, LikelihoodRatio, Mechanism, Pair, Result
from leakgauge.guarantee.canary import Domain
from leakgauge.guarantee.report.page import write_guarantee
from leakgauge.guarantee.report.wording import BROKEN, finding, sentences
from leakgauge.guarantee.run import (
    CANARIES,
    CRAFTED,
    MECHANISMS,
    STATISTICS,
    GuaranteeCell,
    audited,
    checked_table,
    records_of,
)
from leakgauge.inference.run.judging import versions
from leakgauge.results.measurements import Measurement, Run, write_measurements
from leakgauge.runs.store import RunFolder

COMMAND = "guarantee"
ENDS = ("value", "low", "high")


def run(
    table: Annotated[str, Argument(help="a CSV or Parquet file, or the name of a table")],
    attribute: Annotated[str, Option(help="the column whose two values are told apart")],
    clip: Annotated[float, Option(help="C of DP-SGD: no record's gradient is longer")],
    noise: Annotated[float, Option(help="sigma of DP-SGD: of the noise on each coordinate")],
    label: Annotated[str | None, Option(help="the column that the model predicts")] = None,
    trials: Annotated[int, Option(help="releases that are judged")] = 5000,
    canary: Annotated[str, Option(help="crafted (the worst record found) or random")] = CRAFTED,
    domain: Annotated[
        str | None,
        Option(help="where a crafted record may lie: free (default, as in the paper), box, valid"),
    ] = None,
    statistic: Annotated[str, Option(help=" or ".join(STATISTICS))] = LikelihoodRatio.name,
    mechanism: Annotated[
        str,
        Option(
            help=f"what is audited: {', '.join(MECHANISMS)}, or your own as MODULE:FUNCTION, "
            "which is called with (gradients by name [1, ...], torch.Generator)"
        ),
    ] = "dpsgd",
    delta: Annotated[float, Option(help="of every epsilon")] = 1e-5,
    hidden: options.Hidden = None,
    group: Annotated[str | None, Option(help="the column of the person: no feature")] = None,
    drop: Annotated[list[str] | None, Option(help="column to leave out; repeatable")] = None,
    bins: Annotated[list[str] | None, Option(help="COL=N: cut a numeric label in N")] = None,
    drop_missing: Annotated[bool, Option("--drop-missing", help="skip rows without label")] = False,
    device: options.Device = "cpu",
    seed: options.Seed = 0,
    out: options.Out = None,
    json_: options.Json = False,
) -> None:
    """Does DP-SGD hide an attribute of a single record, as it promises?"""
    began, notices = time.perf_counter(), Console(stderr=True)
    kind = _canary(canary, domain)
    own = None if mechanism in MECHANISMS or ":" not in mechanism else _own(mechanism)
    cell = GuaranteeCell(
        data=table,
        attribute=attribute,
        clip=clip,
        noise=noise,
        label=label,
        canary=kind,
        statistic=statistic,
        mechanism="dpsgd" if own is not None else mechanism,
        trials=trials,
        delta=delta,
        hidden=tuple(hidden or (100,)),
        group=group,
        drop=tuple(drop or ()),
        bins=options.bin_counts(bins or ()),
        drop_missing=drop_missing,
        device=options.torch_device(device),
        seed=seed,
    )
    cell.check()
    source = open_data(table)
    cell = cell.settled(source)
    records = checked_table(source, cell)
    asked = {**asdict(cell), "table": table, "mechanism": mechanism}
    del asked["data"], asked["ask"]
    about = {"name": source.name, "fingerprint": source.fingerprint, "records": len(records)}
    notes = [*source.notes, *records.notes]
    described = Run(COMMAND, asked, about, notes, versions())
    path = options.run_path(out, COMMAND)
    folder = RunFolder.claim(path, described)
    for note in notes:
        notices.print(Text(f"note: {note}"), soft_wrap=True)
    with (
        stoppable(notices, "an audit of a guarantee cannot go on later: the command begins anew"),
        notices.status("finding a record and releasing its gradients"),
        one_thread(),
    ):
        try:
            pair, result = audited(records, cell, mechanism=own)
        except InputError:
            raise
        except Exception as error:
            if own is None:
                raise
            raise InputError(f"--mechanism {mechanism} raised {one_line(error)}") from error
    found = records_of(cell, source.name, pair, result)
    write_measurements(folder.path, found)
    report = write_guarantee(folder.path, described, found)
    if json_:
        print(to_json(as_json(described, found, pair, result, report)).decode())
        return
    for line in sentences(finding(asked, found)):
        Console().print(Text("\n" + line, style="bold red" if line.startswith(BROKEN) else ""))
    seconds = time.perf_counter() - began
    Console().print(Text(f"\nreport: {report}  ({seconds:.0f} s)"), soft_wrap=True)


def _canary(canary: str, domain: str | None) -> str:
    """As a cell names it: with the domain of a crafted one."""
    require_choice(canary, "--canary", (CRAFTED, *CANARIES))
    if domain is not None:
        require_choice(domain, "--domain", get_args(Domain))
        require(canary == CRAFTED, "--domain needs --canary crafted; leave one out")
    return f"{CRAFTED}-{domain or Craft.domain}" if canary == CRAFTED else canary


def _own(spec: str) -> Mechanism:
    """The user's mechanism; MODULE:FUNCTION is itself what is called."""
    function: Callable[..., Any] = function_of(spec, "--mechanism")
    return function


def as_json(
    run: Run, records: list[Measurement], pair: Pair, result: Result, report: Path
) -> dict[str, Any]:
    """What was asked and found, by name; null stands for an interval without an upper end."""
    found = finding(run.settings, records)
    kind, _, domain = str(run.settings["canary"]).partition("-")
    estimates = {
        "estimate": result.estimate,
        "gaussian": result.gaussian,
        "in_sample": result.in_sample,
    }
    return {
        **run.settings,
        "canary": kind,
        "domain": domain or None,
        "values": pair.attribute.values,
        "distance_over_clip": result.distance_over_clip,
        "epsilon": {
            **{name: _ends(one) for name, one in estimates.items()},
            **found.theory,
        },
        "saturated": found.saturated,
        "violated": found.violated,
        "report": str(report),
    }


def _ends(estimate: Any) -> dict[str, float | None]:
    ends = {end: float(getattr(estimate, end)) for end in ENDS}
    return {end: value if math.isfinite(value) else None for end, value in ends.items()}
