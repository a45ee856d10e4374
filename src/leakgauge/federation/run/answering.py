"""Runs the question to its end: each question of each kept update, then the figures."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from leakgauge.core.checks import InputError
from leakgauge.core.files import write_text
from leakgauge.core.versions import versions
from leakgauge.data.source import Source
from leakgauge.federation.run import judging_members, rebuilding, simulating
from leakgauge.federation.run.figures import Found, measurements_of
from leakgauge.federation.run.preparing import Prepared, count_of, not_asked, prepare
from leakgauge.federation.spec import FederationSpec
from leakgauge.federation.words import MEMBERSHIP, NAME, PROPERTY, RECONSTRUCTION, plain_word
from leakgauge.integrations.kept_reading import KeptUpdate, as_json
from leakgauge.inversion.attack import search_progress
from leakgauge.inversion.scoring import are_pictures
from leakgauge.results.measurements import PICTURES_FILE, Run
from leakgauge.runs.question import Answer, Progress
from leakgauge.runs.spec import plain
from leakgauge.runs.stages import Kept
from leakgauge.runs.work import WorkFolder

MOST_PICTURES = 8
"""Pictures of an update that the report shows, at most."""

NOTES_FILE = "clients.json"
_NOT_SHOWN = ("kept", "files", "data")
"""Settings that the description of a run does not list: the checksum stands for what was kept."""


@dataclass
class _Played:
    """What is finished, and why other parts are missing."""

    found: Found = field(default_factory=Found)
    missing: list[str] = field(default_factory=list)
    stopped: bool = False


def answer(
    spec: FederationSpec,
    source: Source,
    folder: WorkFolder,
    progress: Progress,
    *,
    workers: int | None = None,
) -> Answer:
    """Attack each kept update, and return the figures by round and client.

    Raises:
        InputError: nothing could be measured.
    """
    prepared = prepare(spec, source)
    run = _described(prepared, source)
    folder.guard(run)
    for note in run.notes:
        progress.note(note)
    played = _play(prepared, folder, progress)
    warnings = _warnings(played.found)
    for text in warnings:
        progress.warn(text)
    if not spec.redact:
        _keep_pictures(folder, played.found)
    _keep_notes(folder, prepared, played.found)
    measurements = measurements_of(prepared, played.found, source.name)
    if not measurements:
        raise InputError("; ".join(dict.fromkeys(played.missing)))
    run = replace(run, warnings=warnings)
    return Answer(run, measurements, tuple(played.missing), played.stopped)


def _play(prepared: Prepared, folder: WorkFolder, progress: Progress) -> _Played:
    played = _Played()
    found = played.found
    updates = prepared.kept.updates
    for ask in prepared.spec.ask:
        for number, one in enumerate(updates, start=1):
            what = f"{plain_word(ask)}, {one.name}"
            if ask == MEMBERSHIP and one.client not in prepared.held:
                played.missing.append(f"{what}: the records of this client are unknown")
                continue
            try:
                if ask == RECONSTRUCTION:
                    found.rebuilt[one] = _rebuilt(prepared, one, folder, progress)
                elif ask == MEMBERSHIP:
                    found.told[one] = _told(prepared, one, folder)
                else:
                    found.named[one] = _named(prepared, one, folder)
            except InputError as error:
                played.missing.append(f"{what}: {error}")
            except KeyboardInterrupt:
                if not any((found.rebuilt, found.told, found.named)):
                    raise
                played.missing.append(f"{what} and what follows: you stopped the run")
                played.stopped = True
                return played
            progress.step(f"{NAME}: {plain_word(ask)}", number, len(updates))
    return played


def _rebuilt(
    prepared: Prepared, one: KeptUpdate, folder: WorkFolder, progress: Progress
) -> rebuilding.RebuiltUpdate:
    def make() -> Kept:
        iterations = rebuilding.method(prepared).iterations
        search = search_progress(progress, f"{NAME}: {one.name}", iterations)
        made = rebuilding.rebuild(prepared, one, search)
        return made.to_arrays(redact=prepared.spec.redact)

    return rebuilding.from_arrays(_once(folder, RECONSTRUCTION, one, make))


def _told(prepared: Prepared, one: KeptUpdate, folder: WorkFolder) -> judging_members.Told:
    kept = _once(
        folder,
        MEMBERSHIP,
        one,
        lambda: judging_members.judge_members(prepared, one).to_arrays(),
    )
    return judging_members.from_arrays(kept)


def _named(prepared: Prepared, one: KeptUpdate, folder: WorkFolder) -> simulating.Named:
    kept = _once(folder, PROPERTY, one, lambda: simulating.name_property(prepared, one).to_arrays())
    return simulating.from_arrays(kept)


def _once(folder: WorkFolder, ask: str, one: KeptUpdate, make: Callable[[], Kept]) -> Kept:
    """What the folder holds of a question about an update; else it is made, and kept."""
    name = f"{ask}/{one.number:04d}/{one.client}"
    kept = folder.arrays(name)
    if kept is not None:
        return kept
    made = make()
    folder.keep_arrays(name, *made)
    return made


def _warnings(found: Found) -> list[str]:
    """Why updates may not mean what a search takes them for: of several, the first one's words."""
    doubted = {one: each.warnings for one, each in found.rebuilt.items() if each.warnings}
    if not doubted:
        return []
    first, texts = next(iter(doubted.items()))
    share = f"{len(doubted)} of {len(found.rebuilt)} updates are not what the search takes them for"
    return [f"{share}; {first.name}: {text}" for text in texts]


def _keep_pictures(folder: WorkFolder, found: Found) -> None:
    """Keep rebuilt pictures, and the true ones beside them, uint8 ``[n, c, h, w]``."""
    parts = {}
    for one, rebuilt in found.rebuilt.items():
        if are_pictures(rebuilt.x):
            pair = {"rebuilt": rebuilt.x, "truth": rebuilt.truth}
            for kind, x in pair.items():
                if len(x):
                    shown = (255 * x[:MOST_PICTURES]).round().clamp(0, 255).to(torch.uint8)
                    parts[f"{one.number}/{one.client}/{kind}"] = shown.contiguous()
    if parts:
        save_file(parts, folder.files / PICTURES_FILE)


def _keep_notes(folder: WorkFolder, prepared: Prepared, found: Found) -> None:
    """What the report says of each update beside its figures."""
    rows = []
    for one in prepared.kept.updates:
        row = as_json(one)
        if one in found.rebuilt and len(found.rebuilt[one].labels):
            row["labels"] = found.rebuilt[one].labels.tolist()
        if one in found.told:
            row["adversary"] = found.told[one].adversary
        if one in found.named:
            row["posterior"] = np.exp(found.named[one].log_posterior).round(4).tolist()
        rows.append(row)
    write_text(folder.files / NOTES_FILE, json.dumps(rows))


def _described(prepared: Prepared, source: Source) -> Run:
    spec, kept = prepared.spec, prepared.kept
    settings: Mapping[str, Any] = plain(spec)
    facts = {
        "name": source.name,
        "fingerprint": source.fingerprint,
        "updates": len(kept.updates),
        "rounds": len(kept.rounds),
        "clients": len(kept.clients),
        "public": len(prepared.public),
        "kept": kept.fingerprint,
        "seen by": ", ".join(dict.fromkeys(one.seen for one in kept.updates)),
        "framework": ", ".join(dict.fromkeys(one.source for one in kept.updates)),
    }
    shown = {
        name: value
        for name, value in settings.items()
        if name not in _NOT_SHOWN and value not in (None, [], {}, False)
    }
    return Run("", shown, facts, (*source.notes, *_notes(prepared)), versions())


def _notes(prepared: Prepared) -> Sequence[str]:
    notes = [f"{plain_word(ask)} is not asked: {why}" for ask, why in not_asked(prepared).items()]
    if RECONSTRUCTION not in prepared.spec.ask:
        return notes
    few = sum(
        one.examples is not None and prepared.spec.images is None and one.examples > limit
        for one in prepared.kept.updates
        for limit in [count_of(prepared, one)]
    )
    if few:
        notes.append(
            f"{few} updates are of more records than a search looks for; it finds records whose "
            "mean gradient is like the update's (--images)"
        )
    several = (one for one in prepared.kept.updates if _steps(prepared, one) > 1)
    if not prepared.spec.simulate and any(prepared.known(one).momentum for one in several):
        notes.append(
            "clients use momentum: their change of weights is scaled to a mean gradient as if the "
            "gradient were the same at each step; --simulate takes the steps themselves"
        )
    if not prepared.held:
        notes.append("the clients' records are not known here, so rebuilt ones are not scored")
    return notes


def _steps(prepared: Prepared, one: KeptUpdate) -> int:
    return prepared.known(one).steps_over(one.examples) or 1
