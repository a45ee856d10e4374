"""``leakgauge invert DATA``: can records be rebuilt from what clients send?"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.text import Text
from typer import Argument, Context, Exit, Option

from leakgauge.cli import options
from leakgauge.cli.bars import search_bars
from leakgauge.cli.invert_json import as_json, title
from leakgauge.cli.receive import OWN, Asked, receive
from leakgauge.cli.stopping import INTERRUPTED, REFUSED
from leakgauge.core.checks import InputError, require
from leakgauge.data import open_data
from leakgauge.inference.run import versions
from leakgauge.inversion.metrics.lpips import NO_WEIGHTS, Lpips, default_lpips
from leakgauge.inversion.report.page import write_inversion
from leakgauge.inversion.report.wording import sentences
from leakgauge.inversion.run.attempt import rebuild
from leakgauge.inversion.run.kept import keep_evidence
from leakgauge.inversion.run.scenario import Scenario, scenario_of
from leakgauge.inversion.run.scoring import Rebuilt, records_of
from leakgauge.inversion.run.spec import (
    EXACT,
    GRADIENTS,
    INFERRED,
    ITERATIONS,
    MATCHINGS,
    METHODS,
    InversionCell,
    default_image_count,
)
from leakgauge.inversion.search.adaptive import adapts
from leakgauge.models import NETS, SCHEMES
from leakgauge.results.measurements import Run, write_measurements
from leakgauge.runs.store import RunFolder

COMMAND = "invert"


def run(
    context: Context,
    data: Annotated[
        str | None,
        Argument(
            help="images (.npz, a folder with a CSV), a table, or a dataset's name: its records "
            "are sent, attacked and compared with what was rebuilt"
        ),
    ] = None,
    update: Annotated[
        Path | None,
        Option(
            help="in place of DATA: what a real client sent, a file of leakgauge's Update.save; "
            "needs --task"
        ),
    ] = None,
    task: Annotated[
        str | None,
        Option(
            help="with --update: MODULE:FUNCTION that returns (Task, Dataset), your model and "
            "public records of the same shape"
        ),
    ] = None,
    images: Annotated[
        int | None,
        Option(
            help=f"records that are attacked, the first ones (default {InversionCell.images}, or "
            "the next number that makes whole updates); with --update, how many it is of, where "
            "the file does not say"
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        Option(
            help=f"NAME[:key=value,...]: {', '.join(METHODS)} (default leakgauge; {EXACT} is for "
            "tables); repeatable"
        ),
    ] = None,
    label: Annotated[str | None, Option(help="the column that the model predicts")] = None,
    batch_size: Annotated[int, Option(help="records of a step of the client")] = 1,
    local_steps: Annotated[int, Option(help="steps of the client before it sends")] = 1,
    local_lr: Annotated[float, Option(help="learning rate of the client's steps")] = 1e-4,
    simulate: Annotated[
        bool, Option("--simulate", help="simulate the local steps: slower, right at any rate")
    ] = False,
    epochs: Annotated[
        int,
        Option(help="epochs in each of which one client that holds all the records sends updates"),
    ] = 1,
    matching: Annotated[
        str | None,
        Option(
            help=f"with --epochs: how records are found again, {', '.join(MATCHINGS)} (default "
            f"{GRADIENTS}: ours, slower; AGIC's is greedy)"
        ),
    ] = None,
    iterations: Annotated[
        int | None,
        Option(help=f"of the search (default {ITERATIONS}; the papers take up to 24,000)"),
    ] = None,
    restarts: Annotated[int, Option(help="of the search; the smallest loss is kept")] = 1,
    labels: Annotated[
        str, Option(help="inferred from the gradient, or known (granted to the attacker)")
    ] = INFERRED,
    net: Annotated[
        str | None, Option(help=f"{', '.join(NETS)} (default slim; for tables mlp)")
    ] = None,
    init: Annotated[str, Option(help=f"initial weights: {', '.join(SCHEMES)}")] = "pytorch",
    side: Annotated[
        int, Option(help="images are resized to so many pixels each way")
    ] = InversionCell.side,
    weights: Annotated[
        str | None, Option(help="trained weights: safetensors, or a state dict of torch")
    ] = None,
    hidden: options.Hidden = None,
    defense: options.Defenses = None,
    group: Annotated[str | None, Option(help="the column of the person: no feature")] = None,
    drop: Annotated[list[str] | None, Option(help="column to leave out; repeatable")] = None,
    bins: Annotated[list[str] | None, Option(help="COL=N: cut a numeric label in N")] = None,
    drop_missing: Annotated[bool, Option("--drop-missing", help="skip rows without label")] = False,
    lpips: Annotated[Path | None, Option(help="weights of LPIPS (AlexNet), safetensors")] = None,
    redact: Annotated[
        bool, Option("--redact", help="neither keep nor show any record, true or rebuilt")
    ] = False,
    device: options.Device = "cpu",
    seed: options.Seed = 0,
    out: options.Out = None,
    json_: options.Json = False,
) -> None:
    """Can the records be rebuilt from the gradients or updates that clients send?"""
    methods = method or [InversionCell.method]
    require((data is None) != (update is None), "expected either DATA, or --update with --task")
    require((update is None) == (task is None), "--update and --task go together; give both")
    torch_device = options.torch_device(device)
    if update is not None:
        options.refuse_others(context, OWN, "is about DATA, which an --update takes the place of")
        asked = Asked(
            *(update, str(task), methods, images, iterations, restarts, labels, simulate, redact),
            *(torch_device, seed),
        )
        receive(asked, COMMAND, out=out, json_=json_)
        return
    first = InversionCell(
        data=str(data),
        method=methods[0],
        label=label,
        images=default_image_count(batch_size * local_steps) if images is None else images,
        batch_size=batch_size,
        local_steps=local_steps,
        local_lr=local_lr,
        epochs=epochs,
        matching=matching,
        iterations=iterations,
        restarts=restarts,
        labels=labels,
        net=net,
        side=side,
        init=init,
        weights=weights,
        hidden=tuple(hidden or ()),
        simulate=simulate,
        group=group,
        drop=tuple(drop or ()),
        bins=options.bin_counts(bins or ()),
        drop_missing=drop_missing,
        device=torch_device,
        seed=seed,
    )
    play(first, methods, defense or (), lpips=lpips, redact=redact, out=out, json_=json_)


def play(
    first: InversionCell,
    methods: Sequence[str],
    defenses: Sequence[str],
    *,
    lpips: Path | None = None,
    redact: bool = False,
    out: Path | None = None,
    json_: bool = False,
) -> None:
    """Play every attempt to the end, write records and report, print the answer.

    Args:
        first: the settings that all attempts share.
        methods: names of attacks.
        defenses: as ``--defense`` names them.
        lpips: weights of LPIPS; None looks where they usually lie.
        redact: whether to keep no record.
        out: the folder; None makes a new one.
        json_: whether to print JSON alone.

    Raises:
        InputError: what is asked cannot be played.
    """
    began, notices = time.perf_counter(), Console(stderr=True)
    asked = attempts(first, methods, defenses)
    for cell in asked:
        cell.check()
    score = default_lpips() if lpips is None else Lpips.load(lpips)
    source = open_data(first.data, side=first.side)
    cells = [cell.settled(source) for cell in asked]
    scene = scenario_of(source, cells[0])  # Methods and defenses have no part in it.
    described = _described(cells, scene, source.name, source.fingerprint)
    told = {"redact": redact, "lpips": None if lpips is None else str(lpips)}
    described = replace(described, settings={**described.settings, **told})
    path = options.run_path(out, COMMAND)
    folder = RunFolder.claim(path, described)
    for note in described.notes:
        notices.print(Text(f"note: {note}"), soft_wrap=True)
    if score is None and source.pixels is not None:
        notices.print(Text(f"note: {NO_WEIGHTS}"), soft_wrap=True)
    pairs, missing, exit_code = _rebuilt(cells, scene, score, notices)
    rebuilt = [one for _, one in pairs]
    for text in missing:
        notices.print(Text(text), soft_wrap=True)
    for warning in dict.fromkeys(text for one in rebuilt for text in one.warnings):
        notices.print(Text(f"warning: {warning}", style="yellow"), soft_wrap=True)
    told_of = [(cell, one, records_of(cell, source.name, one)) for cell, one in pairs]
    found = [record for _, _, records in told_of for record in records]
    write_measurements(folder.path, found)
    if not redact:
        keep_evidence(folder.path, scene, rebuilt)
    report = write_inversion(folder.path, described, found)
    if json_:
        print(json.dumps(as_json(told_of, report), allow_nan=False))
    else:
        for line in sentences(found):
            Console().print(Text("\n" + line))
        seconds = time.perf_counter() - began
        Console().print(Text(f"\nreport: {report}  ({seconds:.0f} s)"), soft_wrap=True)
    if exit_code:
        raise Exit(exit_code)


def attempts(
    first: InversionCell, methods: Sequence[str], defenses: Sequence[str]
) -> list[InversionCell]:
    """Every method without a defense, and against each defense without and with knowing it.

    The latter only where an attacker can do something about it.
    """
    found = []
    for name in dict.fromkeys(methods):
        own = replace(first, method=name)
        found.append(own)
        for text in dict.fromkeys(one for one in defenses if one != "none"):
            defended = replace(own, defense=text)
            found.append(defended)
            if name != EXACT and adapts(own.settings, defended.client.defense):
                found.append(replace(defended, adaptive=True))
    return found


def _described(cells: Sequence[InversionCell], scene: Scenario, name: str, fingerprint: str) -> Run:
    settings = asdict(cells[0])
    for left in ("ask", "adaptive", "first"):
        del settings[left]
    settings |= {
        "method": list(dict.fromkeys(cell.method for cell in cells)),
        "defense": list(dict.fromkeys(cell.defense for cell in cells if cell.defense != "none")),
        "table": settings.pop("data"),
    }
    about = {"name": name, "fingerprint": fingerprint, "records": len(scene.x)}
    return Run(COMMAND, settings, about, scene.notes, versions())


def _rebuilt(
    cells: Sequence[InversionCell],
    scene: Scenario,
    score: Lpips | None,
    notices: Console,
) -> tuple[list[tuple[InversionCell, Rebuilt]], list[str], int]:
    """Every attempt that can be played, why others cannot, and the exit code that says so.

    What is done is not lost, also where the user stops a later attempt.

    Raises:
        InputError: the first attempt cannot be played.
        Exit: the user stopped it.
    """
    found: list[tuple[InversionCell, Rebuilt]] = []
    missing = []
    with search_bars(notices) as start:
        for cell in cells:
            searches = cell.method != EXACT
            progress = start(title(cell), cell.settings.iterations) if searches else None
            try:
                one = rebuild(scene, cell, lpips=score, progress=progress)
            except InputError as error:
                if not found:
                    raise
                missing.append(f"refused: {title(cell)}: {error}")
            except KeyboardInterrupt:
                if not found:
                    raise
                missing.append(f"stopped: {title(cell)}; it and what follows were not played")
                return found, missing, INTERRUPTED
            else:
                found.append((cell, one))
    return found, missing, REFUSED if missing else 0
