"""``leakgauge invert DATA``: can records be rebuilt from what clients send?"""

from typing import Annotated

import typer

from leakgauge.catalog import questions
from leakgauge.cli import options
from leakgauge.cli.gating import GateOptions, gated
from leakgauge.cli.running import Command, run_questions
from leakgauge.core.checks import require
from leakgauge.inversion.spec import InversionSpec
from leakgauge.runs.repeat import repeat_command

NAME = "reconstruction"


EXAMPLES = (
    "leakgauge invert cifar10 --images 8 --net slim",
    "leakgauge invert adult --batch-size 4 --defense noise:std=0.01",
    "leakgauge invert --update update.safetensors --task my_task:build",
    "leakgauge invert --task my_language_model:build --batch-size 2",
)


@options.with_options(InversionSpec, without=("ask",))
@gated
def invert(
    given: options.GivenOptions,
    gate_options: GateOptions,
    data: Annotated[
        str | None,
        typer.Argument(
            help="images (.npz, a folder with a CSV), a table, or a dataset's name: its records "
            "are sent, attacked and compared with what was rebuilt",
            autocompletion=options.dataset,
        ),
    ] = None,
    out: options.Out = None,
    json_: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """Rebuild records from the gradients or updates that clients send."""
    require(
        (data is None) == ("update" in given or "task" in given),
        "expected either DATA, or --update with --task, or --task with a language model",
    )
    require("update" not in given or "task" in given, "--update and --task go together; give both")

    def command() -> Command:
        question = questions()[NAME]
        spec = options.spec_of(InversionSpec, given, ask=(NAME,), data=data or "")
        return Command("invert", {NAME: (question, spec)}, repeat_command("invert", spec))

    run_questions(
        command,
        out=out,
        workers=1,
        json_=json_,
        verbose=verbose,
        flat_json=True,
        gate_options=gate_options,
    )
