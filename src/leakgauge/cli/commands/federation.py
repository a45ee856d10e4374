"""``leakgauge federation DIR``: what do the kept updates of a real federation give away?"""

from typing import Annotated

import typer

from leakgauge.catalog import questions
from leakgauge.cli import options
from leakgauge.cli.gating import GateOptions, gated
from leakgauge.cli.running import Command, run_questions
from leakgauge.core.checks import require
from leakgauge.federation.spec import ASKS, KEPT, FederationSpec, plain_word
from leakgauge.runs.repeat import repeat_command
from leakgauge.runs.spec import Spec, declared

NAME = "federation"

ASK = "ask"
WORDS = tuple(plain_word(one) for one in ASKS)
SHARED = ("task", "ask", "device", "seed")
"""Settings of all questions that mean something for kept updates."""

EXAMPLES = (
    "leakgauge federation kept --task audit:task",
    "leakgauge federation kept --task audit:task --ask membership --only-round 2",
    "leakgauge federation site-1/kept site-2/kept --task audit:task --owner site-1=1",
    "leakgauge federation kept --task audit:task --local-lr 0.1 --batch-size 32 --local-epochs 1",
)


@options.with_options(
    FederationSpec,
    required=("task",),
    without=set(declared(Spec)) - set(SHARED),
    helps={ASK: f"{', '.join(WORDS)}; default: all that the task's records allow"},
    suggests={ASK: lambda: WORDS},
)
@gated
def federation(
    given: options.GivenOptions,
    gate_options: GateOptions,
    folder: Annotated[
        list[str],
        typer.Argument(
            help="folder in which updates were kept (leakgauge.integrations: flower, nvflare); "
            "several of one run are read together",
            metavar="DIR...",
        ),
    ],
    out: options.Out = None,
    json_: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """Audit the updates that clients of a real federation sent: inversion, membership, property."""

    def command() -> Command:
        from leakgauge.integrations.kept_reading import read_kept

        require(all(folder), "DIR is empty; expected a folder in which updates were kept")
        read_kept(*folder)
        words = [one if one.startswith(KEPT) else f"{KEPT}{one}" for one in given.get(ASK, ())]
        typed = {**given, **({ASK: tuple(words)} if words else {})}
        spec = options.spec_of(FederationSpec, typed, kept=tuple(folder))
        asked = [word for one in spec.ask for word in (f"--{ASK}", plain_word(one))]
        repeat = repeat_command(NAME, spec, files=[*folder, *asked])
        return Command(NAME, {NAME: (questions()[NAME], spec)}, repeat)

    run_questions(
        command,
        out=out,
        workers=1,
        json_=json_,
        verbose=verbose,
        flat_json=True,
        gate_options=gate_options,
    )
