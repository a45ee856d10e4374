"""What is wrong by design with the filters of a configuration, a line each."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from leakgauge.core.checks import InputError
from leakgauge.defenses.doubts import LARGEST, large
from leakgauge.integrations.filter_files import read_filters
from leakgauge.integrations.filter_promises import FilterPromise, PromiseTerms, promise_of


@dataclass(frozen=True)
class FilterDoubts:
    """What a configuration switches on, and what is wrong with it.

    Attributes:
        digest: sha256 of the file.
        lines: one for each filter whose promise is wrong by design.
    """

    digest: str
    lines: tuple[str, ...]


def filter_doubts(path: Path, *, parameters: int) -> FilterDoubts:
    """Return what is wrong by design with the filters that a configuration switches on.

    Args:
        path: as ``read_filters`` reads it.
        parameters: number of parameters of the model.

    Raises:
        InputError: the file is no such configuration, or an argument of a filter is wrong.
    """
    found = read_filters(path)
    asked = PromiseTerms(rounds=found.rounds or 1, parameters=parameters)
    try:
        promises = [promise_of(one, asked) for one in found.filters]
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    lines = [line for one in promises for line in _doubts(one, path.name, asked)]
    if not any(one.leaving for one in promises):
        lines.append(f"{path.name} switches on no filter of what clients send")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return FilterDoubts(digest, tuple(dict.fromkeys([*lines, *found.notes])))


def _doubts(one: FilterPromise, file: str, asked: PromiseTerms) -> Iterator[str]:
    """Doubt a filter without noise, a claim that does not follow, and what leaves beside it."""
    name = f"`{one.filter}` in {file}"
    if not one.leaving:
        return
    if not one.known:
        yield f"{name} is not known, so nothing is said of it"
    elif one.training is None:
        yield f"{name} gives no differential privacy: {one.why}"
    elif not one.holds or one.training.epsilon > LARGEST:
        claim = "" if one.claim is None else f"claims epsilon {one.claim.epsilon:g}, but "
        advice = f": write {one.instead}" if one.instead else ""
        rounds = "one round" if asked.rounds == 1 else f"{asked.rounds:,} rounds"
        yield (
            f"{name} {claim}its noise gives epsilon {large(one.training.epsilon)} over {rounds} "
            f"({asked.near}){advice}"
        )
    if not one.covers:
        yield f"{name} does not change everything that clients send: {one.notes[0]}"
