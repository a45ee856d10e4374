"""``leakgauge demo``: an audit of data that come with the package."""

from leakgauge.cli import options
from leakgauge.cli.commands.audit import HELPS, MAIN, QuestionSettings, command_of
from leakgauge.cli.gating import GateOptions, gated
from leakgauge.cli.running import run_questions
from leakgauge.runs.spec import declared

DATA = "randhie"
OWN = ("ask", "adversary", "defense", "batch_size", "rounds", "trials", "shadow", "seed")
"""The settings that have an option here; those about the data are fixed."""


EXAMPLES = ("leakgauge demo", "leakgauge demo --ask property --ask guarantee --rounds 3")


@options.with_options(MAIN, helps=HELPS, without=set(declared(MAIN)) - set(OWN))
@gated
def demo(
    given: options.GivenOptions,
    gate_options: GateOptions,
    set_: QuestionSettings = None,
    workers: options.Workers = None,
    max_memory: options.MaxMemory = None,
    out: options.Out = None,
    json_: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """Audit the RAND Health Insurance Experiment, which needs no download."""
    run_questions(
        lambda: command_of("audit", {**given, "data": DATA}, set_ or ()),
        out=out,
        workers=options.worker_count(workers),
        max_memory=max_memory,
        json_=json_,
        verbose=verbose,
        gate_options=gate_options,
    )
