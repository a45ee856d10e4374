"""Runs the questions of a command: folder, progress, report, and the printed answer."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from leakgauge.catalog import questions
from leakgauge.cli.comparing import print_differences, read_reference
from leakgauge.cli.gating import GateOptions, exit_with, gate_as_json, print_gate, wide_console
from leakgauge.cli.options import run_path
from leakgauge.cli.progress import bars
from leakgauge.cli.stopping import INTERRUPTED, stoppable
from leakgauge.cli.styles import STYLES, verdict_text
from leakgauge.core.memory import bounded
from leakgauge.runs.question import answering

if TYPE_CHECKING:
    from leakgauge.evidence.controls import Control
    from leakgauge.report.section import Section
    from leakgauge.runs.audit import AuditQuestion, AuditRun
    from leakgauge.runs.question import Asked, Question


@dataclass(frozen=True)
class Command:
    """What a command runs.

    Attributes:
        name: name of the command.
        asked: the questions with their settings.
        repeat: the command line that repeats it.
        not_asked: why other questions are not asked.
        prepared: the questions with their data; None prepares them from ``asked``.
    """

    name: str
    asked: "Asked"
    repeat: str
    not_asked: Sequence[str] = ()
    prepared: "Mapping[str, AuditQuestion] | None" = None


def run_questions(
    prepare: Callable[[], Command],
    *,
    out: Path | None,
    workers: int | None,
    max_memory: str | None = None,
    json_: bool,
    verbose: bool = False,
    flat_json: bool = False,
    gate_options: GateOptions | None = None,
    controls: bool = False,
    against: Path | None = None,
    show_values: bool = False,
) -> None:
    """Run the questions to the end, write the report and print the answer.

    Args:
        prepare: reads the data and returns what to run.
        out: folder of the run; None makes a new one.
        workers: processes; None chooses a number from the amount of work.
        max_memory: a size in words; None for half of what is free.
        json_: whether to print JSON alone.
        verbose: whether to print the whole answer, in paragraphs.
        flat_json: whether the JSON has the figures of the only question at its top level.
        gate: rules and files of a build.
        controls: whether to run a placebo and a planted leak of each question as well.
        against: folder of a finished audit to compare with; None for none.
        show_values: whether the report shows the values of the most exposed records.

    Raises:
        InputError: nothing could be measured.
        Exit: something was refused or stopped, or a rule or a promise fails.
    """
    from leakgauge.cli.options import check_device
    from leakgauge.evidence.controls import failures, plain_control, run_controls
    from leakgauge.evidence.parts import parts_of_audit
    from leakgauge.report.exposure import MOST
    from leakgauge.report.warned import warnings_of
    from leakgauge.runs.audit import describe, prepare_all, run_audit
    from leakgauge.runs.exposed_values import forget_values, keep_values, refuse_values
    from leakgauge.runs.exposure import exposures_of
    from leakgauge.runs.page import sections_of, write_report
    from leakgauge.runs.sources import forget

    forget()  # another command of this process may have read what changed since
    began, notices = time.perf_counter(), Console(stderr=True)
    with bounded(max_memory), notices.status("reading the data"):
        command = prepare()
        for device in {spec.device for _, spec in command.asked.values()}:
            check_device(device)
        build = gate_options or GateOptions()
        named = _named(command.asked)
        reference = None if against is None else read_reference(against, out, named)
        build.check(named, questions(), None if reference is None else reference.parts)
        prepared = command.prepared or prepare_all(command.asked)
        source = next(iter(prepared.values())).source
        if show_values:
            refuse_values(source)
    repeat = f"{command.repeat} --controls" if controls else command.repeat
    description = describe(command.name, prepared, repeat=repeat, notes=command.not_asked)
    path = run_path(out, command.name)
    for note in command.not_asked:
        notices.print(Text(f"not asked: {note}"), soft_wrap=True)
    with stoppable(notices, f"to resume, repeat the command with --out {path}"):
        with bounded(max_memory), bars(notices) as progress:
            audit = run_audit(path, description, prepared, progress=progress, workers=workers)
        forget_values(path)
        if show_values:
            keep_values(path, exposures_of(audit), source, MOST)
        sections = sections_of(audit, questions())
        report = write_report(audit, questions(), sections)
        parts, runs = parts_of_audit(audit, sections, questions()), None
        if reference is not None and not audit.stopped:
            runs = reference.compared_with(audit, parts)
        gate = build.evaluate(parts, runs=runs)
        checked: list[Control] = []
        if controls and not audit.stopped:
            answered = {name: prepared[name] for name in audit.answers}
            with bounded(max_memory), bars(notices) as progress:
                checked = run_controls(path, answered, progress=progress, workers=workers)
    early = {text for one in audit.answers.values() for text in one.run.warnings}
    for text in warnings_of(sections):
        if text not in early:
            notices.print(Text(f"warning: {text}", style="yellow"), soft_wrap=True)
    for text in failures(checked):
        notices.print(Text(f"warning: {text}", style="yellow"), soft_wrap=True)
    for text in audit.missing:
        notices.print(Text(f"refused: {text}"), soft_wrap=True)
    if json_:
        values = _as_json(audit, sections, report, flat=flat_json)
        values |= {"controls": [plain_control(one) for one in checked]} if controls else {}
        values |= {} if runs is None else {"against": runs.differences.to_json()}
        print(json.dumps({**values, **gate_as_json(gate)}, allow_nan=False))
    else:
        if checked:
            wide_console().print(_controls_table(checked))
        _print_answer(sections, report, time.perf_counter() - began, verbose=verbose)
        _print_exposure(audit)
        if runs is not None:
            print_differences(runs.differences, verbose=verbose)
        print_gate(gate, wide_console())
    if audit.stopped:
        notices.print(
            Text(f"stopped; to resume, repeat the command with --out {path}"), soft_wrap=True
        )
        raise typer.Exit(INTERRUPTED)
    exit_with(gate, refused=bool(audit.missing))


def _named(asked: "Asked") -> "list[Question]":
    """Return the questions under the names of their answers."""
    known = questions()
    return [answering(key, known) or question for key, (question, _) in asked.items()]


def _print_answer(
    sections: "Sequence[Section]", report: Path, seconds: float, *, verbose: bool
) -> None:
    """Print one line for each test, the worst first, one sentence, and the path of the report."""
    from leakgauge.report.page import caveats_of, strongest
    from leakgauge.report.wording import quoted

    console = wide_console()
    if verbose:
        _print_paragraphs(console, sections)
    console.print(_table(sections))
    worst = strongest(sections)
    if worst is not None:
        console.print(Text("\n" + quoted(worst.text)), soft_wrap=True)
        if worst.context:
            console.print(Text(worst.context), soft_wrap=True)
    for caveat in caveats_of(sections):
        console.print(Text(caveat), soft_wrap=True)
    console.print(Text(f"report: {report}  ({seconds:.0f} s)"), soft_wrap=True)


def _print_exposure(audit: "AuditRun") -> None:
    """Print how many records are named above chance, and where all of them stand."""
    from leakgauge.report.exposure import exposure_sentence
    from leakgauge.runs.exposure import EXPOSURE_FILE, exposures_of

    found = exposures_of(audit)
    for one in found:
        said = exposure_sentence(one, several=len(found) > 1)
        wide_console().print(Text(f"records: {said}"), soft_wrap=True)
    if found:
        path = audit.path / EXPOSURE_FILE
        wide_console().print(Text(f"by record: {path}"), soft_wrap=True)


def _controls_table(checked: "Sequence[Control]") -> Table:
    """Return a table of the controls: what they are, whether they passed, and their figures."""
    from leakgauge.evidence.controls import figures_of, outcome_of

    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("control of", "kind", "outcome", "figure"):
        table.add_column(name, no_wrap=True)
    styles = {True: "green", False: "bold red", None: ""}
    for one in checked:
        table.add_row(
            Text(one.question),
            Text(one.kind),
            Text(outcome_of(one), style=styles[one.passed]),
            Text(figures_of(one) or one.reason),
        )
    return table


def _print_paragraphs(console: Console, sections: "Sequence[Section]") -> None:
    for section in sections:
        for line in section.lines:
            style = STYLES.get(line.level or "", "")
            if line.heading:
                detail = f" ({line.detail})" if line.detail else ""
                console.print(Text(f"\n{line.heading}", style=style or "bold") + Text(detail))
                console.print(Text(line.text), soft_wrap=True)
            else:
                console.print(Text(f"\n{line.text}", style=style), soft_wrap=True)


def _table(sections: "Sequence[Section]") -> Table:
    from leakgauge.report.section import asked_about
    from leakgauge.report.wording import change, number

    rows = [row for section in sections for row in section.tests or section.rows]
    table = Table(box=None, padding=(0, 2, 0, 0))
    names = ["question", "test", "verdict", "figure", "95 % interval", "beyond baselines"]
    empty = {
        "test": not any(row.test for row in rows),
        "beyond baselines": all(row.beyond is None for row in rows),
    }
    kept = [name for name in names if not empty.get(name)]
    for name in kept:
        table.add_column(name, no_wrap=True)
    for row in rows:
        figure = "" if row.estimate is None else f"{row.metric} {number(row.estimate.value)}"
        cells = {
            "question": Text(asked_about(row, rows)),
            "test": Text(row.test),
            "verdict": verdict_text(row.verdict, row.level),
            "figure": Text(figure),
            "95 % interval": Text(row.interval),
            "beyond baselines": Text("" if row.beyond is None else change(row.beyond)),
        }
        table.add_row(*(cells[name] for name in kept))
    return table


def _as_json(
    audit: "AuditRun", sections: "Sequence[Section]", report: Path, *, flat: bool
) -> dict[str, Any]:
    from leakgauge.report.exposure import exposure_as_json
    from leakgauge.runs.exposure import exposures_of
    from leakgauge.runs.store import Store, files_of

    store, known = Store(audit.path), questions()
    figures = {}
    for name, answer in audit.answers.items():
        question = answering(name, known)
        assert question is not None
        figures[name] = question.to_json(answer, files_of(store, name))
    if flat:
        return {**next(iter(figures.values())), "report": str(report)}
    rows = [_row(section, row) for section in sections for row in section.rows]
    return {
        "report": str(report),
        "data": dict(audit.description.data),
        "summary": rows,
        "headline": [one for each in figures.values() for one in each.get("headline", ())],
        **figures,
        "exposure": exposure_as_json(exposures_of(audit)),
        "missing": audit.missing,
        "not_asked": list(audit.description.notes),
        "repeat": audit.description.repeat,
    }


def _row(section: "Section", row: Any) -> Mapping[str, Any]:
    one = row.estimate
    figure = None if one is None else {"value": one.value, "low": one.low, "high": one.high}
    return {
        "question": section.name,
        "ask": row.ask,
        **({"secret": row.secret} if row.secret else {}),
        "verdict": row.verdict,
        "level": row.level,
        "metric": row.metric,
        "figure": figure,
        "chance": row.chance,
        **({} if row.standing is None else {"reference": asdict(row.standing)}),
        **({"causes": [asdict(one) for one in row.causes]} if row.causes else {}),
    }
