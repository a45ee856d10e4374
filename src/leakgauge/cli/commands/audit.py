"""``leakgauge audit DATA``: several questions, one folder, one report."""

from pathlib import Path
from typing import Annotated, Any

import typer

from leakgauge.catalog import asks, questions
from leakgauge.cli import options
from leakgauge.cli.gating import GateOptions, gated
from leakgauge.cli.running import Command, run_questions
from leakgauge.core.checks import require
from leakgauge.runs.asking import ALL, AuditRequest, adversaries, all_allowed, asked_of, read_sets
from leakgauge.runs.repeat import repeat_audit
from leakgauge.runs.setting import ASKING, RUN

MAIN = next(iter(questions().values())).Spec
"""The ``Spec`` whose settings are options; other questions take theirs by ``--set``."""

DataArgument = Annotated[
    str | None,
    typer.Argument(
        help="a table (CSV, Excel, Parquet, JSON lines, ...; - for the standard input), "
        "images (.npz, or a folder with a CSV), or the name of a "
        f"dataset: {', '.join(options.DATASETS)}",
        autocompletion=options.dataset,
    ),
]
QuestionSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="QUESTION.KEY=VALUE: a setting of one question (repeatable)",
        metavar="<str>",
        rich_help_panel=ASKING,
    ),
]
WithControls = Annotated[
    bool,
    typer.Option(
        "--controls",
        help="two more runs a question: a placebo, which must stay at chance, and a planted leak, "
        "which must be found",
        rich_help_panel=RUN,
    ),
]
Against = Annotated[
    Path | None,
    typer.Option(
        help="the --out of a finished audit: print the differences from it, and let rules such as "
        "'advantage.difference.low > 0.02' decide on them",
        metavar="<dir>",
        rich_help_panel=RUN,
    ),
]
ShowValues = Annotated[
    bool,
    typer.Option(
        "--show-values",
        help="show the values of the most exposed records of a table in the report, not their row "
        "numbers alone",
        rich_help_panel=RUN,
    ),
]
SUGGESTS = {
    "ask": lambda: (*asks(), ALL),
    "adversary": lambda: adversaries(questions()),
}
HELPS = {"ask": f"{', '.join(asks())}, or {ALL} that the data allow"}


EXAMPLES = (
    "leakgauge audit people.csv --label income --secret sex",
    "leakgauge audit adult --ask property --ask reconstruction --defense prune:rate=0.99",
    "leakgauge audit adult --ask all --seeds 3",
    "leakgauge audit adult --fail-if 'advantage.high>0.05' --junit junit.xml --sarif leaks.sarif",
    "leakgauge audit adult --against base --fail-if 'advantage.difference.low>0.02'",
    "leakgauge audit adult --ask all --controls",
    "leakgauge audit --task my_task:build --secret sex",
)


@options.with_options(MAIN, helps=HELPS, suggests=SUGGESTS)
@gated
def audit(
    given: options.GivenOptions,
    gate_options: GateOptions,
    data: DataArgument = None,
    set_: QuestionSettings = None,
    controls: WithControls = False,
    against: Against = None,
    show_values: ShowValues = False,
    workers: options.Workers = None,
    max_memory: options.MaxMemory = None,
    out: options.Out = None,
    json_: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """Measure what the gradients of training on DATA give away; one report for all questions."""
    require(
        (data is None) != ("task" not in given),
        "expected either DATA (a table, images or a dataset's name) or --task MODULE:FUNCTION",
    )
    options_ = {**given, **({"data": data} if data else {})}
    run_questions(
        lambda: command_of("audit", options_, set_ or ()),
        out=out,
        workers=options.worker_count(workers),
        max_memory=max_memory,
        json_=json_,
        verbose=verbose,
        gate_options=gate_options,
        controls=controls,
        against=against,
        show_values=show_values,
    )


def command_of(name: str, given: dict[str, Any], sets: Any) -> Command:
    """Return what ``leakgauge audit`` or ``demo`` runs.

    Raises:
        InputError: a word, an option or a setting is wrong, or the data do not allow it.
    """
    known = questions()
    words = given.pop("ask", ())
    wanted = AuditRequest(words, given, read_sets(sets, known))
    if ALL not in words:
        asked = asked_of(wanted, known)
        return Command(name, asked, repeat_audit(name, asked, MAIN))
    from leakgauge.runs.sources import source_of
    from leakgauge.runs.spec import make_spec

    here: dict[str, Any] = {key: given[key] for key in ("data", "task", "seed") if key in given}
    asked, prepared, reasons = all_allowed(wanted, known, source_of(make_spec(MAIN, here)))
    repeat = repeat_audit(name, asked, MAIN)
    notes = [f"`{word}`: {why}" for word, why in reasons.items()]
    return Command(name, asked, repeat, notes, prepared)
