"""``leakgauge guarantee TABLE``: does DP-SGD hide an attribute of a single record?"""

from typing import Annotated

import typer

from leakgauge.catalog import questions
from leakgauge.cli import options
from leakgauge.cli.gating import GateOptions, gated
from leakgauge.cli.running import Command, run_questions
from leakgauge.core.checks import require
from leakgauge.guarantee.spec import GuaranteeSpec
from leakgauge.runs.repeat import repeat_command

NAME = "guarantee"


EXAMPLES = (
    "leakgauge guarantee adult --attribute sex --clip 1 --noise 1",
    "leakgauge guarantee adult --attribute sex --clip 1 --noise 1 --mechanism my_module:release",
    "leakgauge guarantee adult --attribute sex --mechanism "
    "local-dp:clip=1,sensitivity=1,epsilon=1,delta=1e-05",
)


@options.with_options(GuaranteeSpec, required=("attribute",), without=("ask", "task", "defense"))
@gated
def guarantee(
    table: Annotated[
        str,
        typer.Argument(
            help="a table (CSV, Excel, Parquet, JSON lines, ...), or the name of a table",
            autocompletion=options.dataset,
        ),
    ],
    given: options.GivenOptions,
    gate_options: GateOptions,
    out: options.Out = None,
    json_: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """Measure whether DP-SGD hides an attribute of a single record, as it promises."""

    from leakgauge.guarantee.filter import is_filter  # loads torch

    require(
        "private" not in given or given.get("rounds", 0) > 0,
        "--private is about the records to train on, and without --rounds nothing is trained; "
        "add --rounds, or leave it out",
    )

    for name in ("clip", "noise"):
        require(
            name in given or is_filter(given.get("mechanism", "dpsgd")),
            f"--{name} is missing; name the clip and the noise of DP-SGD, or a filter that has its "
            "own with --mechanism local-dp:...",
        )

    def command() -> Command:
        question = questions()[NAME]
        spec = options.spec_of(GuaranteeSpec, given, ask=(NAME,), data=table)
        repeat = repeat_command("guarantee", spec)
        return Command("guarantee", {question.name: (question, spec)}, repeat)

    run_questions(
        command,
        out=out,
        workers=1,
        json_=json_,
        verbose=verbose,
        flat_json=True,
        gate_options=gate_options,
    )
