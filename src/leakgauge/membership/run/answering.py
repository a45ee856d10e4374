"""Runs the question to its end and returns the answer."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter

import numpy as np

from leakgauge.core.checks import InputError, require
from leakgauge.core.knowledge import ADAPTIVE, STATIC
from leakgauge.core.rng import derive, stream
from leakgauge.core.threads import one_thread
from leakgauge.data import Source
from leakgauge.defenses import none
from leakgauge.membership.adversaries.adversary import Attack
from leakgauge.membership.adversaries.supervised import fit_platt
from leakgauge.membership.checking import attacks_of, defenses_of
from leakgauge.membership.run.at_risk import AtRisk, keep_at_risk, most_at_risk
from leakgauge.membership.run.federated import federated_worlds
from leakgauge.membership.run.judging import (
    Cell,
    Judged,
    Targets,
    blocks_of,
    decoded,
    encoded,
    headline,
    judge,
    model_measurements,
    norm_measurements,
)
from leakgauge.membership.run.over_participants import over_participants
from leakgauge.membership.run.preparing import Prepared, prepare
from leakgauge.membership.run.training import Recipe
from leakgauge.membership.run.world import World, given_world, trained_world
from leakgauge.membership.spec import QUESTION, MembershipSpec
from leakgauge.results.measurements import HEADLINE, Measurement
from leakgauge.runs.executors.processes import spread
from leakgauge.runs.question import Answer, Progress
from leakgauge.runs.stages import Kept
from leakgauge.runs.work import WorkFolder, digest_of, elsewhere

Part = tuple[str, str, str]
"""Defense, knowledge and the attack's name."""

Job = Callable[[], tuple[Part, Kept | str]]

Worlds = Mapping[str, Sequence[World]]
"""By defense, what is attacked; a federation's attackers attack each participant by itself."""


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
    folder.guard(elsewhere(prepared.run))
    for note in prepared.run.notes:
        progress.note(note)
    for warning in prepared.run.warnings:
        progress.warn(warning)
    worlds, missing = _worlds(spec, prepared, folder, progress)
    judged, refused = _attacked(spec, worlds, folder, progress, workers)
    targets = [_targets(prepared, one, spec) for one in next(iter(worlds.values()))]
    measurements = list(_measurements(spec, prepared, worlds, judged, targets))
    keep_at_risk(folder.files, _at_risk(spec, measurements, judged, worlds))
    return Answer(prepared.run, measurements, (*missing, *refused))


def _worlds(
    spec: MembershipSpec, prepared: Prepared, folder: WorkFolder, progress: Progress
) -> tuple[dict[str, Sequence[World]], list[str]]:
    """Return what is attacked under each defense, and why one is missing."""
    if prepared.snapshots:
        recipe = Recipe(prepared.task, spec)
        given = given_world(prepared.snapshots, prepared.data, prepared.whose.splits[0], recipe)
        return {none().name: [given]}, []
    worlds: dict[str, Sequence[World]] = {}
    missing = []
    defenses = defenses_of(spec)
    for defense in defenses:
        recipe = Recipe(prepared.task, spec, defense)
        try:
            worlds[defense.name] = _trained(prepared, recipe, folder, progress)
        except InputError as error:
            if defense is defenses[-1] and not worlds:
                raise
            missing.append(f"{defense.name}: {error}")
    return worlds, missing


def _trained(
    prepared: Prepared, recipe: Recipe, folder: WorkFolder, progress: Progress
) -> Sequence[World]:
    data, whose = prepared.data, prepared.whose
    if recipe.spec.participants > 1:
        return federated_worlds(recipe, data, whose, folder, progress)
    needed = max(attack.needs.references for attack in attacks_of(recipe.spec))
    return [trained_world(data, whose, recipe, needed, folder, progress)]


def _attacked(
    spec: MembershipSpec,
    worlds: Worlds,
    folder: WorkFolder,
    progress: Progress,
    workers: int | None,
) -> tuple[dict[Part, Sequence[Judged]], list[str]]:
    """Return what each attack said under each defense, and why one is missing."""
    attacks = {one.name: one for one in attacks_of(spec)}
    parts = list(_parts(attacks, worlds))
    after = {name: " ".join(digest_of(one.params) for one in each) for name, each in worlds.items()}
    kept = {part: folder.arrays("/".join(part), after=after[part[0]]) for part in parts}
    done: dict[Part, Sequence[Judged] | str] = {
        part: decoded(one) for part, one in kept.items() if one is not None
    }
    left = {part: attacks[part[2]] for part in parts if part not in done}
    progress.step(f"{QUESTION}: attacking", len(done), len(parts))
    for part, said in spread(_jobs(left, worlds, spec.seed), workers=workers):
        if not isinstance(said, str):
            folder.keep_arrays("/".join(part), *said, after=after[part[0]])
        done[part] = said if isinstance(said, str) else decoded(said)
        progress.step(f"{QUESTION}: attacking", len(done), len(parts))
    refused = [f"{part[2]}: {one}" for part, one in done.items() if isinstance(one, str)]
    judged = {part: one for part in parts if not isinstance(one := done[part], str)}
    if not judged:
        raise InputError("; ".join(dict.fromkeys(refused)))
    return judged, refused


def _jobs(left: Mapping[Part, Attack], worlds: Worlds, seed: int) -> list[Job]:
    """Return what is left to play; all attacks look at the same views of the records."""
    if not left:
        return []
    needs = [attack.needs for attack in left.values()]
    viewed = {name: [one.viewed(needs) for one in each] for name, each in worlds.items()}
    jobs: list[Job] = []
    for part, attack in left.items():
        defense, knowledge, _ = part
        learned_at = defense if knowledge == ADAPTIVE else none().name
        known = viewed.get(learned_at, viewed[defense])
        jobs.append(partial(_play, part, attack, viewed[defense], known, seed))
    return jobs


def _parts(attacks: Iterable[str], worlds: Worlds) -> Iterator[Part]:
    for defense in worlds:
        for knowledge in (STATIC,) if defense == none().name else (STATIC, ADAPTIVE):
            for attack in attacks:
                yield defense, knowledge, attack


def _play(
    part: Part,
    attack: Attack,
    attacked: Sequence[World],
    learned_at: Sequence[World],
    seed: int,
) -> tuple[Part, Kept | str]:
    """Return what an attack said, or why it could not be played."""
    try:
        each = [
            play(attack, world, prepared_in=known, seed=seed)
            for world, known in zip(attacked, learned_at, strict=True)
        ]
        return part, encoded(each)
    except InputError as error:
        return part, str(error)


def _targets(prepared: Prepared, world: World, spec: MembershipSpec) -> Targets:
    rows = world.targets.rows
    data = prepared.data.rows(rows)
    schema = data.schema
    users = None if data.users is None else data.users.cpu().numpy()
    classes = schema.classes if schema is not None else ()
    of_classes = not data.y.is_floating_point() and data.y.ndim == 1
    label = data.y.cpu().numpy() if of_classes else np.full(len(rows), -1)
    block = blocks_of(len(rows), users, rng=stream(spec.seed, QUESTION, "blocks"))
    return Targets(world.targets.member, label, block, classes, world.validation.member)


def _measurements(
    spec: MembershipSpec,
    prepared: Prepared,
    worlds: Worlds,
    judged: Mapping[Part, Sequence[Judged]],
    targets: Sequence[Targets],
) -> Iterator[Measurement]:
    whose = prepared.whose
    sides = [prepared.data.rows(rows) for rows in (whose.members, whose.outside)]
    for defense, attacked in worlds.items():
        cell = Cell(prepared.dataset, prepared.label, defense, STATIC, "", spec.seed)
        for knowledge in (STATIC, ADAPTIVE):
            of_attacks = {
                part[2]: over_participants(
                    [
                        list(judge(replace(cell, knowledge=knowledge, adversary=part[2]), *one))
                        for one in zip(each, targets, strict=True)
                    ]
                )
                for part, each in judged.items()
                if part[:2] == (defense, knowledge)
            }
            if of_attacks:
                yield from headline(of_attacks)
                for each in of_attacks.values():
                    yield from each
        yield from over_participants(
            [
                [
                    *model_measurements(cell, world.snapshots[-1], *sides),
                    *norm_measurements(cell, world.norms, world.targets.member),
                ]
                for world in attacked
            ]
        )


def _at_risk(
    spec: MembershipSpec,
    measurements: Sequence[Measurement],
    judged: Mapping[Part, Sequence[Judged]],
    worlds: Worlds,
) -> dict[str, Sequence[AtRisk]]:
    """Return the records most at risk under each defense, by its headline's strongest attack."""
    found: dict[str, Sequence[AtRisk]] = {}
    for defense, knowledge, attack in dict.fromkeys(
        (one.defense, one.knowledge, one.adversary) for one in measurements if one.round == HEADLINE
    ):
        each = next(one for part, one in judged.items() if part == (defense, knowledge, attack))
        exposed = [
            one
            for said, world in zip(each, worlds[defense], strict=True)
            for one in most_at_risk(
                said.targets,
                world.targets.member,
                world.targets.rows.cpu().numpy(),
                count=spec.at_risk,
                calibrate=fit_platt(said.validation, world.validation.member),
            )
        ]
        found[defense] = sorted(exposed, key=lambda one: -one.odds)[: spec.at_risk]
    return found


def play(attack: Attack, world: World, *, prepared_in: World, seed: int) -> Judged:
    """Fit an attack and judge targets.

    Args:
        attack: the attack.
        world: with the model that is judged.
        prepared_in: with the model that the attack is fitted at: the same for an adaptive one.
        seed: of its randomness.

    Raises:
        InputError: a judgement is not finite.
    """
    began = perf_counter()
    with one_thread():
        adversary = attack.fit(prepared_in.known(attack.needs), seed=derive(seed, attack.name))
        targets, validation = (
            adversary.log_odds(world.side(one, attack.needs)) for one in ("targets", "validation")
        )
    bad = int((~np.isfinite(targets)).sum())
    require(
        bad == 0 and len(targets) == len(world.targets.rows),
        f"its code gave {len(targets)} log odds for {len(world.targets.rows)} "
        f"records, {bad} of them not finite; return one finite number for each",
    )
    return Judged(targets, validation, perf_counter() - began, repr(attack))
