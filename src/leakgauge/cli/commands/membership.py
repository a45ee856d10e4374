"""``leakgauge membership CHECKPOINT``: asks whose records a given model was trained on."""

from typing import Annotated

import typer

from leakgauge.catalog import questions
from leakgauge.cli import options
from leakgauge.cli.gating import GateOptions, gated
from leakgauge.cli.running import Command, run_questions
from leakgauge.membership.spec import MembershipSpec
from leakgauge.runs.repeat import repeat_command
from leakgauge.runs.spec import declared

NAME = "membership"

ATTACKING = ("task", "members", "non_members", "adversary", "at_risk", "seed", "device")
"""Settings of an attack on a model that exists already; the others are about its training."""

EXAMPLES = (
    "leakgauge membership model.pt --members in.npz --non-members out.npz --task net:build",
    "leakgauge membership before.pt after.pt --members in.txt --non-members out.txt "
    "--task net:build",
)


@options.with_options(
    MembershipSpec,
    required=("task", "members", "non_members"),
    without=set(declared(MembershipSpec)) - set(ATTACKING),
)
@gated
def membership(
    given: options.GivenOptions,
    gate_options: GateOptions,
    checkpoint: Annotated[
        list[str],
        typer.Argument(
            help="weights of the model, as safetensors or from torch.save(model.state_dict(), "
            "...); several files are snapshots of one training",
        ),
    ],
    workers: options.Workers = None,
    out: options.Out = None,
    json_: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """Tell from a trained model's weights which records it was trained on."""

    def command() -> Command:
        spec = options.spec_of(MembershipSpec, given, ask=(NAME,), checkpoint=tuple(checkpoint))
        question = questions()[NAME]
        return Command(NAME, {NAME: (question, spec)}, repeat_command(NAME, spec, files=checkpoint))

    run_questions(
        command,
        out=out,
        workers=options.worker_count(workers),
        json_=json_,
        verbose=verbose,
        gate_options=gate_options,
    )
