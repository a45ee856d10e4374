"""What ``leakgauge promise`` prints: a verdict, a table, what to write instead, and notes."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from leakgauge.cli.gating import wide_console
from leakgauge.defenses.doubts import LARGEST, large
from leakgauge.integrations.filter_promises import epsilon_kept

if TYPE_CHECKING:
    from leakgauge.cli.commands.guarantee import FilterShown
    from leakgauge.integrations.filter_promises import FilterPromise, PromiseTerms
    from leakgauge.integrations.switched_on import FilterFile
    from leakgauge.privacy.promises import Follows

    Released = Sequence[FilterShown | None]

_RELEASES = (
    "Shows: a lower bound from releases of two neighbouring updates of at most 1,000 parameters, "
    "as far apart as the filter lets them be; Gaussian and Laplace test assume noise of this kind."
)


def print_promises(
    promises: "Sequence[FilterPromise]",
    found: "FilterFile",
    asked: "PromiseTerms",
    released: "Released | None" = None,
) -> None:
    """Print the answer for people, the verdict first.

    Args:
        promises: those of the file's filters.
        found: what the file says beside them.
        asked: the terms under which they are read.
        released: what releases of each show; None where none were made.
    """
    console = wide_console()
    leaving = [one for one in promises if one.leaving]
    for line, style in _verdicts(leaving, found, asked):
        console.print(Text(line, style=style), soft_wrap=True)
    if leaving:
        console.print()
        console.print(promise_table(promises, asked, released))
    _print_advice(leaving, console)
    _print_notes(promises, found, console)
    near = f"Unit of privacy: {asked.near}."
    console.print(Text(f"\n{near} Rounds: {asked.rounds:,}."), soft_wrap=True)
    if released is not None:
        console.print(Text(_RELEASES), soft_wrap=True)


def as_json(
    promises: "Sequence[FilterPromise]",
    found: "FilterFile",
    asked: "PromiseTerms",
    released: "Released",
) -> dict[str, Any]:
    """Return the answer as plain values; an infinite epsilon is null."""
    return {
        "unit": asked.near.unit,
        "relation": asked.near.relation,
        "rounds": asked.rounds,
        "sent": _plain(epsilon_kept(promises, found.scopes)),
        "published": _plain(epsilon_kept(promises, found.scopes, published=True)),
        "filters": [
            {
                "filter": one.filter,
                **({"scope": one.scope} if one.scope else {}),
                "known": one.known,
                "covers": one.covers,
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
        "notes": list(found.notes),
    }


def _verdicts(
    promises: "Sequence[FilterPromise]", found: "FilterFile", asked: "PromiseTerms"
) -> Iterator[tuple[str, str]]:
    """Return what the configuration keeps of what a client sends, and of the published model."""
    if not promises:
        said = "The file switches on no filter of what a client sends, which leaves as it is."
        yield said, "bold red"
        return
    kept = epsilon_kept(promises, found.scopes)
    if kept is None and any(not one.known for one in promises):
        said = "What a client sends has no differential privacy that is known here."
        yield said, "bold red"
    else:
        yield _verdict("What a client sends", kept, asked)
    if any(one.central for one in promises):
        kept = epsilon_kept(promises, found.scopes, published=True)
        yield _verdict("The published model", kept, asked)


def _verdict(what: str, kept: "Follows | None", asked: "PromiseTerms") -> tuple[str, str]:
    if kept is None:
        return f"{what} has no differential privacy.", "bold red"
    times = "one round" if asked.rounds == 1 else f"{asked.rounds:,} rounds"
    said = f"{what} keeps {_epsilon(kept)} over {times}"
    if kept.epsilon > LARGEST:
        return f"{said}, which protects nothing.", "bold red"
    return f"{said}.", "green" if kept.epsilon <= 8 else ""


def promise_table(
    promises: "Sequence[FilterPromise]",
    asked: "PromiseTerms",
    released: "Released | None" = None,
) -> Table:
    """Return a table of what the filters of what leaves claim, and of what follows and shows."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    several = [f"follows, {asked.rounds:,} rounds"] if asked.rounds > 1 else []
    shows = [] if released is None else ["shows, one round"]
    for name in ("filter", "claims", "follows, one round", *several, *shows):
        table.add_column(name, overflow="fold")
    rows = zip(promises, released or [None] * len(promises), strict=True)
    for one, audited in dict.fromkeys(row for row in rows if row[0].leaving):
        style = "" if one.holds or not one.known else "bold red"
        follows = [_followed(one, one.one), *([_followed(one, one.training)] if several else [])]
        claim = "" if one.claim is None else f"epsilon {one.claim.epsilon:g}"
        delta = "" if one.claim is None or not one.claim.delta else f", delta {one.claim.delta:g}"
        cells = [Text(cell, style=style) for cell in follows]
        shown = [Text(_shown(audited))] if shows else []
        table.add_row(Text(_named(one)), Text(f"{claim}{delta}" or "no epsilon"), *cells, *shown)
    return table


def _shown(found: "FilterShown | None") -> str:
    if found is None:
        return "not released"
    return (
        f"epsilon {found.epsilon:.3g} or more at delta {found.delta:g} ({found.by}, "
        f"{100 * found.confidence:.3g} %)"
    )


def _named(one: "FilterPromise") -> str:
    place = f" ({one.scope})" if one.scope else ""
    return f"{one.filter}{place}" + ("" if one.covers else " *")


def _followed(one: "FilterPromise", follows: "Follows | None") -> str:
    if follows is None:
        return "no differential privacy" if one.known else "not known"
    return _epsilon(follows)


def _epsilon(follows: "Follows") -> str:
    ends = list(dict.fromkeys(map(large, (follows.least, follows.epsilon))))
    delta = f", delta {follows.delta:g}" if follows.delta else ""
    return f"epsilon {' to '.join(ends)}{delta}"


def _print_advice(promises: "Sequence[FilterPromise]", console: Console) -> None:
    """Print what to write in place of each filter; equal advice stands once."""
    advice: dict[str, list[str]] = {}
    for one in promises:
        if one.instead and one.covers:
            advice.setdefault(one.instead, []).append(one.filter)
    if advice:
        console.print(Text("\nWrite instead", style="bold"))
    for instead, names in advice.items():
        console.print(Text(f"- {_about(names, promises)}{instead}"), soft_wrap=True)


def _print_notes(
    promises: "Sequence[FilterPromise]", found: "FilterFile", console: Console
) -> None:
    """Print why nothing follows and what else is to be known; equal notes stand once."""
    notes: dict[str, list[str]] = {one: [] for one in found.notes}
    for one in promises:
        for note in _notes_of(one):
            notes.setdefault(note, []).append(one.filter)
    if notes:
        console.print(Text("\nNotes", style="bold"))
    for note, names in notes.items():
        console.print(Text(f"- {_about(names, promises)}{note}"), soft_wrap=True)
    if any(one.leaving and not one.covers for one in promises):
        text = "* It does not change everything that a client sends, so it counts as none."
        console.print(Text(text), soft_wrap=True)


def _notes_of(one: "FilterPromise") -> Iterator[str]:
    """Return what is to be known of a filter; of one that changes nothing that leaves, that."""
    if one.leaving and one.known and one.why:
        yield one.why
    yield from one.notes if one.leaving else one.notes[:1]


def _about(names: Sequence[str], promises: "Sequence[FilterPromise]") -> str:
    """Return the filters that a line is about; nothing where there is only one filter."""
    if not names or len({one.filter for one in promises}) == 1:
        return ""
    return f"{', '.join(dict.fromkeys(names))}: "


def _plain(follows: "Follows | None") -> dict[str, float | None] | None:
    if follows is None:
        return None
    ends = {"epsilon": follows.epsilon, "least": follows.least}
    plain = {name: one if math.isfinite(one) else None for name, one in ends.items()}
    return {**plain, "delta": follows.delta}
