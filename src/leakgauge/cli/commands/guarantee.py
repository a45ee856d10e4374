"""``leakgauge guarantee TABLE``: does DP-SGD hide an attribute of a single record?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from leakgauge.catalog import questions
from leakgauge.cli import options
from leakgauge.cli.gating import GateOptions, gated
from leakgauge.cli.running import Command, run_questions
from leakgauge.core.checks import require
from leakgauge.guarantee.spec import GuaranteeSpec
from leakgauge.runs.repeat import repeat_command

if TYPE_CHECKING:
    from leakgauge.privacy.promises import Neighbours

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


@dataclass(frozen=True)
class FilterShown:
    """What releases of a filter show.

    Attributes:
        epsilon: lower bound of epsilon.
        delta: its delta.
        confidence: two-sided confidence of the interval that it is the lower end of.
        by: name of the test.
        releases: number of scored releases.
    """

    epsilon: float
    delta: float
    confidence: float
    by: str
    releases: int


def filter_shows(
    defense: str,
    near: "Neighbours",
    *,
    each: int,
    delta: float,
    parameters: int,
    server_noise: float | None = None,
    seed: int = 0,
) -> FilterShown:
    """Return what releases of the two neighbouring updates that are furthest apart show.

    Args:
        defense: as ``parse_defense`` reads it.
        near: unit of privacy and relation of neighbours.
        each: number of scored releases of each update.
        delta: in (0, 1).
        parameters: number of parameters of an update.
        server_noise: noise multiplier of the server; None without.
        seed: seed of the noise.
    """
    from leakgauge.guarantee.filter import filter_of
    from leakgauge.guarantee.updates import audit_updates

    found = audit_updates(
        filter_of(defense, server_noise),
        near,
        parameters=parameters,
        trials=2 * each,
        delta=delta,
        seed=seed,
    )
    one = found.deciding
    at = 0.0 if found.laplace is not None else delta
    return FilterShown(one.low, at, one.confidence, found.decided_by, found.trials)
