"""``leakgauge compare DIR DIR``: the differences of two audits."""

import json
from pathlib import Path
from typing import Annotated

import typer

from leakgauge.catalog import questions
from leakgauge.cli.comparing import print_differences
from leakgauge.cli.gating import (
    GateOptions,
    exit_with,
    gate_as_json,
    gated,
    print_gate,
    wide_console,
)
from leakgauge.core.checks import require

EXAMPLES = (
    "leakgauge compare audit-before audit-after",
    "leakgauge compare plain defended --defense prune:rate=0.99 --out differences.html",
    "leakgauge compare base new --fail-if 'advantage.difference.low>0.02' --markdown comment.md",
)


@gated
def compare(
    before: Annotated[Path, typer.Argument(help="the --out of a finished audit")],
    after: Annotated[Path, typer.Argument(help="the --out of the audit after a change")],
    gate_options: GateOptions,
    defense: Annotated[
        list[str] | None,
        typer.Option(
            help="defense of AFTER to compare; default: all (repeatable)", metavar="<str>"
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="defense of BEFORE to compare with; default: the same one, else none",
            metavar="<str>",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="HTML file to write", metavar="<file>")] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="print all figures, not the main ones alone")
    ] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="print one JSON object and nothing else")
    ] = False,
) -> None:
    """Compare two finished audits: what leaks less, what leaks more, and the price."""
    from leakgauge.evidence.between import check_sides, two_runs
    from leakgauge.evidence.parts import parts_of_audit
    from leakgauge.runs.differences import read_finished
    from leakgauge.runs.page import sections_of

    require(
        out is None or (not out.is_dir() and out.parent.is_dir()),
        f"--out is {str(out)!r}; expected a file to write in a folder that exists",
    )
    known = questions()
    first, second = read_finished(before), read_finished(after)
    sections = sections_of(second, known) if gate_options.files else None
    new = parts_of_audit(second, sections, known)
    runs = two_runs(first, second, new, known, defenses=defense or (), against=against or "")
    check_sides(gate_options.rules, runs, known)
    found = runs.differences
    gate = gate_options.evaluate_between(runs)
    gate_options.write(new, gate, runs)
    if out is not None:
        found.to_html(out)
    if json_:
        print(json.dumps({**found.to_json(), **gate_as_json(gate)}, allow_nan=False))
    else:
        print_differences(found, out, verbose=verbose)
        print_gate(gate, wide_console())
    exit_with(gate, refused=False)
