"""``leakgauge promise FILE``: what the privacy filters of a federation promise."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leakgauge.cli.stopping import DIFFERS
from leakgauge.core.checks import InputError, require

if TYPE_CHECKING:
    from rich.table import Table

    from leakgauge.cli.commands.guarantee import FilterShown
    from leakgauge.integrations.filter_promises import FilterPromise, PromiseTerms
    from leakgauge.privacy.promises import Follows

    Released = Sequence["FilterShown | None"]

EXAMPLES = (
    "leakgauge promise app/config/config_fed_client.json --parameters 7033300 --rounds 20",
    "leakgauge promise pyproject.toml --fail-above 8",
    "leakgauge promise app/config/config_fed_client.json --shows 1000",
)


def promise(
    file: Annotated[
        Path,
        typer.Argument(
            help="NVFlare's config_fed_client.json, config_fed_server.json or privacy.json, "
            "Flower's pyproject.toml, or YAML with mods"
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
    fail_above: Annotated[
        float | None,
        typer.Option(
            help="end with exit code 3 unless a filter of everything that is sent keeps the "
            "epsilon of the training at or below this"
        ),
    ] = None,
    json_: Annotated[
        bool, typer.Option("--json", help="print one JSON object and nothing else")
    ] = False,
) -> None:
    """Say what the privacy filters of a federation claim, what follows, and what to write instead.

    Nothing is run without --shows. Exit code 0: done. 3: --fail-above. 2: the file is refused.
    """
    from leakgauge.integrations.filter_files import read_filters
    from leakgauge.integrations.filter_promises import promise_of

    found = read_filters(file)
    require(len(found.filters) > 0, f"{file}: switches on no filter")
    times = rounds if rounds is not None else found.rounds or 1
    asked = _asked(unit, relation, times, delta, parameters, units)
    try:
        promises = [promise_of(one, asked) for one in found.filters]
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
    released = [_released(one, asked, shows, seed) for one in promises]
    if json_:
        print(json.dumps(_as_json(promises, asked, released), allow_nan=False))
    else:
        _print(promises, asked, released if shows else None)
    if fail_above is not None and not any(one.keeps(fail_above) for one in promises):
        raise typer.Exit(DIFFERS)


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
    if shows is None or not one.defense:
        return None
    from leakgauge.cli.commands.guarantee import filter_shows
    from leakgauge.core.checks import require_count
    from leakgauge.integrations.filter_promises import RELEASED

    require_count(shows, "--shows")
    return filter_shows(
        one.defense,
        asked.near,
        each=shows,
        delta=asked.delta if one.claim is None else one.claim.delta or asked.delta,
        parameters=min(asked.parameters or RELEASED, RELEASED),
        server_noise=one.server_noise,
        seed=seed,
    )


def _print(
    promises: "Sequence[FilterPromise]", asked: "PromiseTerms", released: "Released | None"
) -> None:
    from rich.text import Text

    from leakgauge.cli.gating import wide_console

    console = wide_console()
    console.print(_table(promises, asked, released))
    for one in promises:
        for note in one.notes:
            console.print(Text(f"{one.filter}: {note}"), soft_wrap=True)
    console.print(Text(f"unit of privacy: {asked.near}"), soft_wrap=True)
    if released is not None:
        console.print(Text(_RELEASES), soft_wrap=True)


_RELEASES = (
    "shows: a lower bound from releases of two neighbouring updates of at most 1,000 parameters, "
    "as far apart as the filter lets them be; Gaussian and Laplace test assume noise of this kind"
)


def _table(
    promises: "Sequence[FilterPromise]", asked: "PromiseTerms", released: "Released | None"
) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    several = [f"follows, {asked.rounds} rounds"] if asked.rounds > 1 else []
    shows = [] if released is None else ["shows, one round"]
    for name in ("filter", "claims", "follows, one round", *several, *shows, "write instead"):
        table.add_column(name)
    for one, audited in zip(promises, released or [None] * len(promises), strict=True):
        claim = "no epsilon"
        if one.claim is not None:
            claim = f"epsilon {one.claim.epsilon:g} at delta {one.claim.delta:g}"
        style = "" if one.holds or not one.known else "bold red"
        cells = [_followed(one, one.one), *([_followed(one, one.training)] if several else [])]
        shown = [_shown(audited)] if shows else []
        marked = (Text(cell, style=style) for cell in cells)
        table.add_row(one.filter, claim, *marked, *shown, one.instead)
    return table


def _shown(found: "FilterShown | None") -> str:
    if found is None:
        return "not released"
    return (
        f"epsilon {found.epsilon:.3g} or more at delta {found.delta:g} ({found.by}, "
        f"{100 * found.confidence:.3g} %)"
    )


def _followed(one: "FilterPromise", follows: "Follows | None") -> str:
    from leakgauge.defenses.doubts import large

    if follows is None:
        return one.why if not one.known else f"no differential privacy: {one.why}"
    ends = list(dict.fromkeys(map(large, (follows.least, follows.epsilon))))
    return f"epsilon {' to '.join(ends)} at delta {follows.delta:g}"


def _as_json(
    promises: "Sequence[FilterPromise]", asked: "PromiseTerms", released: "Released"
) -> dict[str, Any]:
    return {
        "unit": asked.near.unit,
        "relation": asked.near.relation,
        "rounds": asked.rounds,
        "filters": [
            {
                "filter": one.filter,
                "known": one.known,
                "claims": None if one.claim is None else vars(one.claim),
                "follows": _plain(one.one),
                "training": _plain(one.training),
                "why": one.why,
                "shows": None if shown is None else vars(shown),
                "instead": one.instead,
                "notes": list(one.notes),
            }
            for one, shown in zip(promises, released, strict=True)
        ],
    }


def _plain(follows: "Follows | None") -> dict[str, float | None] | None:
    if follows is None:
        return None
    ends = {"epsilon": follows.epsilon, "least": follows.least}
    plain = {name: one if math.isfinite(one) else None for name, one in ends.items()}
    return {**plain, "delta": follows.delta}
