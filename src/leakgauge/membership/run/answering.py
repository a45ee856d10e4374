"""Runs the question and returns the answer."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from time import perf_counter

import numpy as np

from leakgauge.core.checks import InputError, require
from leakgauge.core.knowledge import ADAPTIVE, STATIC
from leakgauge.core.rng import derive, stream
from leakgauge.core.threads import one_thread
from leakgauge.defenses import none
from leakgauge.membership.adversaries.adversary import MembershipAttack
from leakgauge.membership.checking import attacks_of, defenses_of
from leakgauge.membership.run.at_risk import AtRisk, keep_at_risk, most_at_risk, supported
from leakgauge.membership.run.exposing import record_tests
from leakgauge.membership.run.federated import federated_targets
from leakgauge.membership.run.over_participants import over_participants
from leakgauge.membership.run.preparing import MembershipPrepared
from leakgauge.membership.run.scoring import (
    AttackScores,
    Targets,
    blocks_of,
    decoded,
    encoded,
    headline,
    model_measurements,
    norm_measurements,
    score_attack,
)
from leakgauge.membership.run.target_model import TargetModel, given_target, trained_target
from leakgauge.membership.run.training import MembershipRecipe
from leakgauge.membership.spec import QUESTION, MembershipSpec
from leakgauge.results.measurements import HEADLINE, CellContext, Measurement
from leakgauge.results.record_tests import keep_record_tests
from leakgauge.runs.parts import Kept, begin, each_once
from leakgauge.runs.question import Answer, Progress
from leakgauge.runs.work import WorkFolder, digest_of, elsewhere

Part = tuple[str, str, str]
"""Defense, knowledge and the attack's name."""

AttackJob = Callable[[], Kept | str]

TargetModels = Mapping[str, Sequence[TargetModel]]
"""Target models by defense; a federation has one for each attacked participant."""


def answer(
    prepared: MembershipPrepared,
    folder: WorkFolder,
    progress: Progress,
    *,
    workers: int | None = None,
) -> Answer:
    """Train a model under each defense, attack it, and score the attacks.

    Finished trainings and attacks of a killed run are read back.

    Raises:
        InputError: no model could be trained and attacked.
    """
    begin(folder, prepared.run, progress, identity=elsewhere(prepared.run))
    models, missing = _target_models(prepared, folder, progress)
    scored, refused = _attacked(prepared.spec, models, folder, progress, workers)
    measurements = list(_measurements(prepared, models, scored))
    at_risk = _at_risk(prepared, measurements, scored, models)
    keep_at_risk(folder.files, at_risk)
    keep_record_tests(folder.files, record_tests(prepared, measurements, scored, models))
    return Answer(prepared.run, measurements, (*missing, *refused))


def _target_models(
    prepared: MembershipPrepared, folder: WorkFolder, progress: Progress
) -> tuple[dict[str, Sequence[TargetModel]], list[str]]:
    """Return the target models of each defense, and why some are missing."""
    spec = prepared.spec
    if prepared.snapshots:
        recipe = MembershipRecipe(prepared.task, spec)
        given = given_target(prepared.snapshots, prepared.data, prepared.roles.splits[0], recipe)
        return {none().name: [given]}, []
    models: dict[str, Sequence[TargetModel]] = {}
    missing = []
    defenses = defenses_of(spec)
    for defense in defenses:
        recipe = MembershipRecipe(prepared.task, spec, defense)
        try:
            models[defense.name] = _trained(prepared, recipe, folder, progress)
        except InputError as error:
            if defense is defenses[-1] and not models:
                raise
            missing.append(f"{defense.name}: {error}")
    return models, missing


def _trained(
    prepared: MembershipPrepared, recipe: MembershipRecipe, folder: WorkFolder, progress: Progress
) -> Sequence[TargetModel]:
    data, roles, spec = prepared.data, prepared.roles, prepared.spec
    if spec.participants > 1:
        return federated_targets(recipe, data, roles, folder, progress)
    needed = max(attack.needs.references for attack in attacks_of(spec))
    return [trained_target(data, roles, recipe, needed, folder, progress)]


def _attacked(
    spec: MembershipSpec,
    models: TargetModels,
    folder: WorkFolder,
    progress: Progress,
    workers: int | None,
) -> tuple[dict[Part, Sequence[AttackScores]], list[str]]:
    """Return the scores of each attack under each defense, and why some are missing."""
    attacks = {one.name: one for one in attacks_of(spec)}
    parts = {"/".join(part): part for part in _parts(attacks, models)}
    after = {
        defense: " ".join(digest_of(one.params) for one in trained)
        for defense, trained in models.items()
    }
    found, reasons = each_once(
        folder,
        {name: after[part[0]] for name, part in parts.items()},
        lambda left: _jobs({name: parts[name] for name in left}, attacks, models, spec.seed),
        partial(progress.step, f"{QUESTION}: attacking"),
        workers=workers,
    )
    refused = [f"{parts[name][2]}: {reason}" for name, reason in reasons.items()]
    if not found:
        raise InputError("; ".join(dict.fromkeys(refused)))
    return {parts[name]: decoded(kept) for name, kept in found.items()}, refused


def _jobs(
    left: Mapping[str, Part],
    attacks: Mapping[str, MembershipAttack],
    models: TargetModels,
    seed: int,
) -> dict[str, AttackJob]:
    """Return the remaining attacks as jobs, which share the views of the records."""
    needs = [attacks[attack].needs for _, _, attack in left.values()]
    viewed = {name: [one.viewed(needs) for one in group] for name, group in models.items()}
    jobs: dict[str, AttackJob] = {}
    for name, (defense, knowledge, attack) in left.items():
        learned_at = defense if knowledge == ADAPTIVE else none().name
        known = viewed.get(learned_at, viewed[defense])
        jobs[name] = partial(_run, attacks[attack], viewed[defense], known, seed)
    return jobs


def _parts(attacks: Iterable[str], models: TargetModels) -> Iterator[Part]:
    for defense in models:
        for knowledge in (STATIC,) if defense == none().name else (STATIC, ADAPTIVE):
            for attack in attacks:
                yield defense, knowledge, attack


def _run(
    attack: MembershipAttack,
    attacked: Sequence[TargetModel],
    learned_at: Sequence[TargetModel],
    seed: int,
) -> Kept | str:
    """Return the scores of an attack, or why it failed."""
    both = zip(attacked, learned_at, strict=True)
    try:
        return encoded([run_attack(attack, one, fitted_at=at, seed=seed) for one, at in both])
    except InputError as error:
        return str(error)


def _targets(prepared: MembershipPrepared, model: TargetModel) -> Targets:
    data = prepared.data.rows(model.targets.rows)
    users = None if data.users is None else data.users.cpu().numpy()
    classes = () if data.schema is None else data.schema.classes
    of_classes = not data.y.is_floating_point() and data.y.ndim == 1
    label = data.y.cpu().numpy() if of_classes else np.full(len(data), -1)
    block = blocks_of(len(data), users, rng=stream(prepared.spec.seed, QUESTION, "blocks"))
    return Targets(model.targets.member, label, block, classes, model.validation.member)


def _measurements(
    prepared: MembershipPrepared,
    models: TargetModels,
    scored: Mapping[Part, Sequence[AttackScores]],
) -> Iterator[Measurement]:
    roles, dataset, seed = prepared.roles, prepared.source.name, prepared.spec.seed
    sides = [prepared.data.rows(rows) for rows in (roles.members, roles.outside)]
    targets = [_targets(prepared, one) for one in next(iter(models.values()))]
    for defense, attacked in models.items():
        context = CellContext(
            question=QUESTION, dataset=dataset, label=prepared.label, defense=defense, seed=seed
        )
        for knowledge in (STATIC, ADAPTIVE):
            by_attack = {}
            for part, each in scored.items():
                if part[:2] == (defense, knowledge):
                    one = replace(context, knowledge=knowledge, adversary=part[2])
                    both = zip(each, targets, strict=True)
                    found = [list(score_attack(one, *pair)) for pair in both]
                    by_attack[part[2]] = over_participants(found)
            if by_attack:
                yield from headline(by_attack)
                yield from chain(*by_attack.values())
        of_models = [
            [
                *model_measurements(context, model.snapshots[-1], *sides),
                *norm_measurements(context, model.norms, model.targets.member),
            ]
            for model in attacked
        ]
        yield from over_participants(of_models)


def _at_risk(
    prepared: MembershipPrepared,
    measurements: Sequence[Measurement],
    scored: Mapping[Part, Sequence[AttackScores]],
    models: TargetModels,
) -> dict[str, Sequence[AtRisk]]:
    """Return the records most at risk under each defense, by its headline's strongest attack."""
    found: dict[str, Sequence[AtRisk]] = {}
    count = prepared.spec.at_risk
    for part in dict.fromkeys(
        (one.defense, one.knowledge, one.adversary) for one in measurements if one.round == HEADLINE
    ):
        among = sum(one[:2] == part[:2] for one in scored)
        exposed = [
            one
            for scores, model in zip(scored[part], models[part[0]], strict=True)
            for one in most_at_risk(
                scores.targets,
                model.targets.member,
                prepared.rows_of(model.targets.rows),
                count=count,
                calibrate=supported(scores.validation, model.validation.member, among=among),
            )
        ]
        found[part[0]] = sorted(exposed, key=lambda one: -one.odds)[:count]
    return found


def run_attack(
    attack: MembershipAttack, model: TargetModel, *, fitted_at: TargetModel, seed: int
) -> AttackScores:
    """Return the log odds of a fitted attack on targets and validation records.

    The attack is fitted at the model ``fitted_at``; an adaptive attack at the target model itself.

    Raises:
        InputError: log odds are missing or not finite, or the same for all records, because the
            loss of every single record is.
    """
    began = perf_counter()
    with one_thread():
        adversary = attack.fit(fitted_at.known(attack.needs), seed=derive(seed, attack.name))
        targets, validation = (
            adversary.log_odds(model.side(one, attack.needs)) for one in ("targets", "validation")
        )
    bad = int((~np.isfinite(targets)).sum())
    require(
        bad == 0 and len(targets) == len(model.targets.rows),
        f"its code gave {len(targets)} log odds for {len(model.targets.rows)} "
        f"records, and {bad} are not finite; return one finite number for each",
    )
    if targets.min() == targets.max():
        losses = model.side("targets", attack.needs).log_loss
        require(
            bool(losses.min() < losses.max()),
            "it sees nothing, since the loss of every single record is the same: records interact "
            "in this loss; name attacks on outputs with --adversary, such as label-loss",
        )
    return AttackScores(targets, validation, perf_counter() - began, repr(attack))
