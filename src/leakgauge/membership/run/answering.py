"""Runs the question to its end and returns the answer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from leakgauge.core.checks import InputError
from leakgauge.core.knowledge import ADAPTIVE, STATIC
from leakgauge.core.rng import stream
from leakgauge.data import Source
from leakgauge.defenses import none
from leakgauge.membership.adversaries.adversary import Attack
from leakgauge.membership.run.at_risk import AtRisk, calibration, keep_at_risk, most_at_risk
from leakgauge.membership.run.attacking import play
from leakgauge.membership.run.cell import Cell
from leakgauge.membership.run.judged import Judged, decoded, encoded
from leakgauge.membership.run.judging import (
    Targets,
    blocks_of,
    headline,
    held_out_auroc,
    judge,
)
from leakgauge.membership.run.model import model_measurements, norm_measurements
from leakgauge.membership.run.playing import attacks_of, defenses_of
from leakgauge.membership.run.preparing import Prepared, prepare
from leakgauge.membership.run.training import Recipe
from leakgauge.membership.run.world import World, given_world, trained_world
from leakgauge.membership.spec import QUESTION, MembershipSpec
from leakgauge.results.measurements import HEADLINE, Measurement, Run
from leakgauge.runs.executors import spread
from leakgauge.runs.question import Answer, Progress
from leakgauge.runs.stages import Kept
from leakgauge.runs.work import WorkFolder, digest_of

Part = tuple[str, str, Attack]
"""Defense, knowledge and attack."""


def answer(
    spec: MembershipSpec,
    source: Source,
    folder: WorkFolder,
    progress: Progress,
    *,
    workers: int | None = None,
) -> Answer:
    """Train a model under each defense, attack it, and judge the attacks.

    What a kill left finished is read back: trained models, and what attacks said.

    Raises:
        InputError: the data do not fit, or no model could be trained and attacked.
    """
    prepared = prepare(spec, source)
    folder.guard(_elsewhere(prepared.run))
    for note in prepared.run.notes:
        progress.note(note)
    for warning in prepared.run.warnings:
        progress.warn(warning)
    worlds, missing = _worlds(spec, prepared, folder, progress)
    judged, refused = _attacked(spec, worlds, folder, progress, workers)
    targets = _targets(prepared, next(iter(worlds.values())), spec)
    measurements = list(_measurements(spec, prepared, worlds, judged, targets))
    keep_at_risk(folder.files, _at_risk(spec, measurements, judged, targets, worlds))
    return Answer(prepared.run, measurements, (*missing, *refused))


def _worlds(
    spec: MembershipSpec, prepared: Prepared, folder: WorkFolder, progress: Progress
) -> tuple[dict[str, World], list[str]]:
    """Return the trained model of each defense, and why one is missing."""
    if prepared.snapshots:
        given = given_world(prepared.snapshots, prepared.data, prepared.split, spec)
        return {none().name: given}, []
    worlds: dict[str, World] = {}
    missing = []
    needed = max(attack.needs.references for attack in attacks_of(spec))
    defenses = defenses_of(spec)
    for defense in defenses:
        recipe = Recipe(prepared.task, spec, defense)
        try:
            worlds[defense.name] = trained_world(
                prepared.data, prepared.split, recipe, needed, folder, progress
            )
        except InputError as error:
            if defense is defenses[-1] and not worlds:
                raise
            missing.append(f"{defense.name}: {error}")
    return worlds, missing


def _attacked(
    spec: MembershipSpec,
    worlds: Mapping[str, World],
    folder: WorkFolder,
    progress: Progress,
    workers: int | None,
) -> tuple[dict[Part, Judged], list[str]]:
    """Return what each attack said under each defense, and why one is missing."""
    done: dict[Part, Judged | str] = {}
    left: dict[Part, str] = {}
    for part in _parts(spec, worlds):
        after = digest_of(worlds[part[0]].params)
        kept = folder.arrays(_name(part), after=after)
        if kept is None:
            left[part] = after
        else:
            done[part] = decoded(kept)
    total = len(done) + len(left)
    progress.step(f"{QUESTION}: attacking", len(done), total)
    jobs = [partial(_play, part, worlds, spec.seed) for part in left]
    for part, said in spread(jobs, workers=workers):
        if isinstance(said, str):
            done[part] = said
        else:
            folder.keep_arrays(_name(part), *said, after=left[part])
            done[part] = decoded(said)
        progress.step(f"{QUESTION}: attacking", len(done), total)
    judged = {part: one for part, one in done.items() if isinstance(one, Judged)}
    refused = [f"{part[2].name}: {one}" for part, one in done.items() if isinstance(one, str)]
    if not judged:
        raise InputError("; ".join(dict.fromkeys(refused)))
    return {part: judged[part] for part in _parts(spec, worlds) if part in judged}, refused


def _parts(spec: MembershipSpec, worlds: Mapping[str, World]) -> Iterator[Part]:
    for defense in worlds:
        for knowledge in (STATIC,) if defense == none().name else (STATIC, ADAPTIVE):
            for attack in attacks_of(spec):
                yield defense, knowledge, attack


def _play(part: Part, worlds: Mapping[str, World], seed: int) -> tuple[Part, Kept | str]:
    defense, knowledge, attack = part
    world = worlds[defense]
    undefended = worlds.get(none().name, world)
    prepared_in = world if knowledge == ADAPTIVE else undefended
    try:
        return part, encoded(play(attack, world, prepared_in=prepared_in, seed=seed))
    except InputError as error:
        return part, str(error)


def _name(part: Part) -> str:
    defense, knowledge, attack = part
    return f"{defense}/{knowledge}/{attack.name}"


def _targets(prepared: Prepared, world: World, spec: MembershipSpec) -> Targets:
    rows = world.targets.rows
    data = prepared.data.rows(rows)
    schema = data.schema
    users = None if data.users is None else data.users.cpu().numpy()
    classes = schema.classes if schema is not None else ()
    of_classes = not data.y.is_floating_point() and data.y.ndim == 1
    label = data.y.cpu().numpy() if of_classes else np.full(len(rows), -1)
    block = blocks_of(len(rows), users, rng=stream(spec.seed, QUESTION, "blocks"))
    return Targets(world.targets.member, label, block, classes)


def _measurements(
    spec: MembershipSpec,
    prepared: Prepared,
    worlds: Mapping[str, World],
    judged: Mapping[Part, Judged],
    targets: Targets,
) -> Iterator[Measurement]:
    validation = next(iter(worlds.values())).validation.member
    for defense, world in worlds.items():
        cell = Cell(prepared.dataset, prepared.label, defense, STATIC, "", spec.seed)
        for knowledge in (STATIC, ADAPTIVE):
            of_attacks = {
                part[2].name: list(
                    judge(
                        replace(cell, knowledge=knowledge, adversary=part[2].name),
                        one,
                        targets,
                        held_out_auroc(one, validation),
                    )
                )
                for part, one in judged.items()
                if part[:2] == (defense, knowledge)
            }
            if of_attacks:
                yield from headline(of_attacks)
                for each in of_attacks.values():
                    yield from each
        sides = (
            prepared.data.rows(rows) for rows in (prepared.split.members, world.targets.others)
        )
        yield from model_measurements(cell, world.snapshots[-1], *sides)
        yield from norm_measurements(cell, world.norms, targets.member)


def _at_risk(
    spec: MembershipSpec,
    measurements: Sequence[Measurement],
    judged: Mapping[Part, Judged],
    targets: Targets,
    worlds: Mapping[str, World],
) -> dict[str, Sequence[AtRisk]]:
    """Return the records most at risk under each defense, by its headline's strongest attack."""
    world = next(iter(worlds.values()))
    rows, validation = world.targets.rows.cpu().numpy(), world.validation.member
    found: dict[str, Sequence[AtRisk]] = {}
    for defense, knowledge, attack in dict.fromkeys(
        (one.defense, one.knowledge, one.adversary) for one in measurements if one.round == HEADLINE
    ):
        said = next(
            one
            for part, one in judged.items()
            if (part[0], part[1], part[2].name) == (defense, knowledge, attack)
        )
        found[defense] = most_at_risk(
            said.targets,
            targets.member,
            rows,
            count=spec.at_risk,
            calibrate=calibration(said.validation, validation),
        )
    return found


def _elsewhere(run: Run) -> Run:
    """The run without where its data lie, which changes no figure; their fingerprint counts."""
    settings = {name: value for name, value in run.settings.items() if name != "data"}
    return replace(run, settings=settings)
