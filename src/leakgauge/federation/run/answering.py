"""Asks each question of each kept update, and returns the figures."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from safetensors.torch import save_file

from leakgauge.core.checks import InputError
from leakgauge.core.files import write_text
from leakgauge.federation.run import members, over_rounds, properties, rebuilding
from leakgauge.federation.run.describing import description_of
from leakgauge.federation.run.figures import UpdateResults, measurements_of
from leakgauge.federation.run.members import MembershipResult
from leakgauge.federation.run.preparing import FederationPrepared
from leakgauge.federation.run.searching import method
from leakgauge.federation.spec import MEMBERSHIP, NAME, PROPERTY, RECONSTRUCTION, plain_word
from leakgauge.integrations.kept_reading import KeptUpdate, as_json
from leakgauge.inversion.attack import search_progress
from leakgauge.inversion.scoring import are_pictures
from leakgauge.results.measurements import PICTURES_FILE
from leakgauge.runs.parts import Kept, begin, once
from leakgauge.runs.question import Answer, Progress
from leakgauge.runs.work import WorkFolder

MOST_PICTURES = 8
"""Largest number of pictures of an update in the report."""

NOTES_FILE = "clients.json"


def answer(
    prepared: FederationPrepared,
    folder: WorkFolder,
    progress: Progress,
    *,
    workers: int | None = None,
) -> Answer:
    """Attack each kept update, and return the figures by round and client.

    Raises:
        InputError: nothing could be measured.
    """
    run = description_of(prepared)
    begin(folder, run, progress, identity=run)
    doubted = () if prepared.doubted is None else prepared.doubted.lines
    for text in doubted:
        progress.warn(text)
    found, missing, stopped = _attack(prepared, folder, progress)
    warnings = _warnings(found)
    for text in warnings:
        progress.warn(text)
    if not prepared.spec.redact:
        _keep_pictures(folder, found)
    _keep_notes(folder, prepared, found)
    measurements = measurements_of(prepared, found)
    if not measurements:
        raise InputError("; ".join(dict.fromkeys(missing)))
    return Answer(
        replace(run, warnings=[*doubted, *warnings]), measurements, tuple(missing), stopped
    )


def _attack(
    prepared: FederationPrepared, folder: WorkFolder, progress: Progress
) -> tuple[UpdateResults, list[str], bool]:
    """Return finished results, why others are missing, and whether the user stopped the run."""
    found, missing = UpdateResults(), list[str]()
    updates = prepared.kept.updates
    for ask in prepared.spec.ask:
        for number, one in enumerate(updates, start=1):
            what = f"{plain_word(ask)}, {one.name}"
            if ask == MEMBERSHIP and one.client not in prepared.held:
                missing.append(f"{what}: the records of this client are unknown")
                continue
            try:
                name = f"{ask}/{one.number:04d}/{one.client}"
                kept = once(folder, name, partial(_made, ask, prepared, one, progress))
                if ask == RECONSTRUCTION:
                    found.rebuilt[one] = rebuilding.from_arrays(kept)
                elif ask == MEMBERSHIP:
                    found.members[one] = members.from_arrays(kept)
                else:
                    found.properties[one] = properties.from_arrays(kept)
            except InputError as error:
                missing.append(f"{what}: {error}")
            except KeyboardInterrupt:
                if not any((found.rebuilt, found.members, found.properties)):
                    raise
                missing.append(f"{what} and what follows: you stopped the run")
                return found, missing, True
            progress.step(f"{NAME}: {plain_word(ask)}", number, len(updates))
    try:
        missing += _over_rounds(prepared, folder, progress, found)
    except KeyboardInterrupt:
        missing.append("membership over all rounds: you stopped the run")
        return found, missing, True
    return found, missing, False


def _over_rounds(
    prepared: FederationPrepared, folder: WorkFolder, progress: Progress, found: UpdateResults
) -> list[str]:
    """Add the results of clients over all rounds, and return why some are missing.

    A client with one update and no others to compare with has none beyond that of its update.
    """
    missing = []
    clients = list(dict.fromkeys(one.client for one in found.members))
    for number, client in enumerate(clients, start=1):
        single = {one.number: each for one, each in found.members.items() if one.client == client}
        if len(single) > 1 or over_rounds.is_compared(prepared, client):
            make = partial(_made_over_rounds, prepared, client, list(single.values()))
            rounds = " ".join(map(str, single))
            try:
                kept = once(folder, f"{MEMBERSHIP}/over rounds/{client}", make, after=rounds)
                found.over_rounds[client] = over_rounds.from_arrays(kept)
            except InputError as error:
                missing.append(f"membership over all rounds, client {client}: {error}")
        progress.step(f"{NAME}: {plain_word(MEMBERSHIP)}, all rounds", number, len(clients))
    return missing


def _made_over_rounds(
    prepared: FederationPrepared, client: str, single: Sequence[MembershipResult]
) -> Kept:
    return over_rounds.to_arrays(over_rounds.infer_over_rounds(prepared, client, single))


def _made(ask: str, prepared: FederationPrepared, one: KeptUpdate, progress: Progress) -> Kept:
    """Return the result of one question about one update, as arrays and plain values."""
    if ask == MEMBERSHIP:
        return members.infer_members(prepared, one).to_arrays()
    if ask == PROPERTY:
        return properties.infer_property(prepared, one).to_arrays()
    iterations = method(prepared.spec, prepared.data.x).iterations
    search = search_progress(progress, f"{NAME}: {one.name}", iterations)
    return rebuilding.rebuild(prepared, one, search).to_arrays(redact=prepared.spec.redact)


def _warnings(found: UpdateResults) -> list[str]:
    """Return why updates may not be what a search assumes, in the words of the first one."""
    doubted = {one: each.warnings for one, each in found.rebuilt.items() if each.warnings}
    if not doubted:
        return []
    first, texts = next(iter(doubted.items()))
    share = f"{len(doubted)} of {len(found.rebuilt)} updates are not what the search assumes"
    return [f"{share}; {first.name}: {text}" for text in texts]


def _keep_pictures(folder: WorkFolder, found: UpdateResults) -> None:
    """Keep pairs of rebuilt and true pictures, uint8 ``[n, c, h, w]``."""
    parts = {}
    for one, rebuilt in found.rebuilt.items():
        if are_pictures(rebuilt.x):
            for kind, x in (("rebuilt", rebuilt.x), ("truth", rebuilt.truth)):
                if len(x):
                    shown = (255 * x[:MOST_PICTURES]).round().clamp(0, 255).to(torch.uint8)
                    parts[f"{one.number}/{one.client}/{kind}"] = shown.contiguous()
    if parts:
        save_file(parts, folder.files / PICTURES_FILE)


def _keep_notes(folder: WorkFolder, prepared: FederationPrepared, found: UpdateResults) -> None:
    """Keep the report's facts about each update, apart from its figures."""
    rows = []
    for one in prepared.kept.updates:
        row = as_json(one)
        if one in found.rebuilt and len(found.rebuilt[one].labels):
            row["labels"] = found.rebuilt[one].labels.tolist()
        if one in found.rebuilt and len(found.rebuilt[one].starts):
            row["starts"] = found.rebuilt[one].starts.round(2).tolist()
        if one in found.members:
            row["adversary"] = found.members[one].adversary
        if one in found.properties:
            row["posterior"] = np.exp(found.properties[one].log_posterior).round(4).tolist()
        rows.append(row)
    write_text(folder.files / NOTES_FILE, json.dumps(rows))
