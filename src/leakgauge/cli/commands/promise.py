"""``leakgauge promise FILE``: what the privacy filters of a federation promise."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leakgauge.cli.stopping import DIFFERS
from leakgauge.core.checks import InputError, require

if TYPE_CHECKING:
    from leakgauge.cli.commands.guarantee import FilterShown
    from leakgauge.integrations.filter_promises import FilterPromise, PromiseTerms
    from leakgauge.integrations.switched_on import FilterFile

EXAMPLES = (
    "leakgauge promise app/config/config_fed_client.json --parameters 7033300 --rounds 20",
    "leakgauge promise pyproject.toml --fail-if 'published.epsilon>8'",
    "leakgauge promise app/config/config_fed_client.json --shows 1000",
)


def promise(
    file: Annotated[
        Path,
        typer.Argument(
            help="NVFlare's config_fed_client, config_fed_server (.json, .yml, .conf) or "
            "privacy.json, Flower's pyproject.toml, or YAML with mods"
        ),
    ],
    unit: Annotated[
        str, typer.Option(help="who is protected: client or record", metavar="<str>")
    ] = "client",
    relation: Annotated[
        str,
        typer.Option(help="how neighbours differ: replace, or add (or remove)", metavar="<str>"),
    ] = "replace",
    rounds: Annotated[
        int | None, typer.Option(help="rounds of the training (default: those of the file, else 1)")
    ] = None,
    parameters: Annotated[
        int | None,
        typer.Option(help="parameters of the model, for SVTPrivacy (default: 1,000,000)"),
    ] = None,
    units: Annotated[
        int | None, typer.Option(help="number of clients or records, to compare delta with")
    ] = None,
    delta: Annotated[float, typer.Option(help="delta for filters that name none")] = 1e-5,
    shows: Annotated[
        int | None,
        typer.Option(
            help="make this many releases of each of two neighbouring updates by each filter, and "
            "print the epsilon that they show"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="seed of the releases")] = 0,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            help="a rule such as 'epsilon > 8' that ends the command with exit code 3: epsilon is "
            "that of all rounds for what a client sends, published.epsilon that of the published "
            "model; without differential privacy it is infinite (repeatable)",
            metavar="<rule>",
        ),
    ] = None,
    json_: Annotated[
        bool, typer.Option("--json", help="print one JSON object and nothing else")
    ] = False,
) -> None:
    """Say what the privacy filters of a federation claim, what follows, and what to write instead.

    Nothing is run without --shows. Exit code 0: done. 3: --fail-if. 2: the file is refused.
    """
    from leakgauge.cli.promise_gate import outcomes_of, print_outcomes, read_rules
    from leakgauge.cli.promise_table import as_json, print_promises
    from leakgauge.integrations.filter_files import read_filters

    rules = read_rules(fail_if or ())
    found = read_filters(file)
    times = rounds if rounds is not None else found.rounds or 1
    asked = _asked(unit, relation, times, delta, parameters, units)
    promises = _promises(file, found, asked)
    released = [_released(one, asked, shows, seed) for one in promises]
    outcomes = outcomes_of(rules, promises, found.scopes)
    if json_:
        gate = {"gate": [one.as_json() for one in outcomes]} if outcomes else {}
        print(json.dumps({**as_json(promises, found, asked, released), **gate}, allow_nan=False))
    else:
        print_promises(promises, found, asked, released if shows else None)
        print_outcomes(outcomes)
    if any(one.fails for one in outcomes):
        raise typer.Exit(DIFFERS)


def _promises(file: Path, found: "FilterFile", asked: "PromiseTerms") -> "Sequence[FilterPromise]":
    from leakgauge.integrations.filter_promises import promise_of

    try:
        return [promise_of(one, asked) for one in found.filters]
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


def _asked(
    unit: str, relation: str, rounds: int, delta: float, parameters: int | None, units: int | None
) -> "PromiseTerms":
    from leakgauge.core.checks import require_choice, require_count
    from leakgauge.integrations.filter_promises import PromiseTerms
    from leakgauge.privacy.promises import ADD, CLIENT, RECORD, REPLACE, Neighbours

    require_choice(unit, "--unit", (CLIENT, RECORD))
    require_choice(relation, "--relation", (ADD, REPLACE))
    for name, value in (("--rounds", rounds), ("--parameters", parameters), ("--units", units)):
        if value is not None:
            require_count(value, name)
    require(0 < delta < 1, f"--delta is {delta:g}; expected a number between 0 and 1")
    near = Neighbours(unit, relation)  # type: ignore[arg-type]
    return PromiseTerms(near, rounds, delta, parameters, units)


def _released(
    one: "FilterPromise", asked: "PromiseTerms", shows: int | None, seed: int
) -> "FilterShown | None":
    """Return what releases of a filter show; None where none are asked for, or it has no code."""
    from leakgauge.core.checks import require_count

    if shows is not None:
        require_count(shows, "--shows")
    if shows is None or not one.defense or not one.leaving:
        return None
    from leakgauge.cli.commands.guarantee import filter_shows
    from leakgauge.integrations.filter_promises import RELEASED

    return filter_shows(
        one.defense,
        asked.near,
        each=shows,
        delta=asked.delta if one.claim is None else one.claim.delta or asked.delta,
        parameters=min(asked.parameters or RELEASED, RELEASED),
        server_noise=one.server_noise,
        seed=seed,
    )
