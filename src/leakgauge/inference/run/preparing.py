"""Prepare a run: complete the settings from the data, and make the stages."""

from dataclasses import dataclass, replace

import torch
from torch import nn

from leakgauge.core.checks import InputError, nearest, require, require_choice
from leakgauge.core.types import Dataset
from leakgauge.data import Source, Split
from leakgauge.defenses.trying import FaultyDefenseError
from leakgauge.gradients import params_of
from leakgauge.inference import BATCH_GAMES
from leakgauge.inference.adversaries.plda import Plda
from leakgauge.inference.adversaries.shadow import fewest_units
from leakgauge.inference.catalog import (
    ATTRIBUTE,
    OF_FEW_USERS,
    PANEL,
    PROPORTION,
    USER,
    adversaries_for,
    panel_of,
    parse_adversary,
)
from leakgauge.inference.checking import GameAttacks, adversary_names, attacks_for, defenses_of
from leakgauge.inference.games.blocks import (
    MIN_BLOCKS,
    MIN_DISJOINT,
    BatchSizeError,
    default_that_fits,
)
from leakgauge.inference.games.games import code_of
from leakgauge.inference.games.users import check_users, default_of_users
from leakgauge.inference.run.description import describe
from leakgauge.inference.run.footprint import check_footprint
from leakgauge.inference.run.splitting import split_of
from leakgauge.inference.run.stage import GameStage, make_stage
from leakgauge.inference.spec import InferenceSpec
from leakgauge.inference.words import IID
from leakgauge.results.measurements import Run
from leakgauge.runs.question import Prepared
from leakgauge.runs.records import Records, records_of, refuse_of_a_table, roles_for
from leakgauge.runs.spec import declared


@dataclass(frozen=True, eq=False)
class InferencePrepared(Prepared):
    """The stages of a run, and its description.

    Attributes:
        spec: settings with the roles of the columns and the adversaries filled in.
        source: the data.
        stages: stage of each seed, game and defense.
        run: settings and facts for the report.
        label: name of the label.
        refused: name and reason for each game that the settings or the data do not allow.
    """

    spec: InferenceSpec
    stages: tuple[GameStage, ...]
    run: Run
    label: str
    refused: tuple[str, ...] = ()

    @property
    def model(self) -> nn.Module:
        """The model of the first stage; that of the others has the same layers."""
        return self.stages[0].task.model


def prepare(spec: InferenceSpec, source: Source) -> InferencePrepared:
    """Split the records, encode them for each game, and draw the trials of each stage.

    The network is an MLP for a table, a CNN for images, or that of the user. A refused game is left
    out if another one remains. With several seeds, each has its split, model and trials.

    Raises:
        InputError: the data do not allow a word of ``--ask`` or are too few, or the model or a
            defense does not fit them; the message states the remedy.
    """
    data = source.dataset
    spec = _of_columns(spec, source) if data is None else _of_task(spec, data)
    spec = replace(spec, adversary=adversary_names(spec))
    every = _of_each_seed(spec, source)
    first = every[0]
    notes = dict.fromkeys(text for one in every for text in one.run.notes)
    warnings = dict.fromkeys(text for one in every for text in one.run.warnings)
    return replace(
        first,
        spec=spec,
        stages=tuple(stage for one in every for stage in one.stages),
        run=replace(first.run, notes=tuple(notes), warnings=list(warnings)),
        refused=tuple(dict.fromkeys(text for one in every for text in one.refused)),
    )


def _of_each_seed(spec: InferenceSpec, source: Source) -> list[InferencePrepared]:
    """Return the stages of each seed, with batches of one size in all of them."""
    sizes: dict[str, int] = {}
    while True:
        before = dict(sizes)
        seeds = range(spec.seed, spec.seed + spec.seeds)
        every = [_prepared(replace(spec, seed=seed), source, sizes) for seed in seeds]
        if len(every) == 1 or sizes == before:
            return every


def _prepared(spec: InferenceSpec, source: Source, sizes: dict[str, int]) -> InferencePrepared:
    """Return the stages of one seed; default batches that do not fit get smaller ``sizes``."""
    records = records_of(
        spec,
        source,
        hidden=spec.hidden,
        net=spec.net,
        secret=spec.secret,
    )
    split = _fitting_split(spec, records, sizes)
    stages: list[GameStage] = []
    refused: list[str] = []
    for number, ask in enumerate(spec.ask, start=1):
        try:
            stages += _fitting_stages(spec, ask, records, split, sizes)
        except InputError as error:
            if number == len(spec.ask) and not stages:
                raise
            refused.append(f"{ask}: {error}")
    run = describe(stages, split, records, spec, source)
    return InferencePrepared(spec, source, tuple(stages), run, records.label, tuple(refused))


def _fitting_split(spec: InferenceSpec, records: Records, sizes: dict[str, int]) -> Split:
    """Return the split; a default batch that is too large for the users gets smaller."""
    first = spec.batch_of(USER) if USER in spec.ask else 1
    refusal: InputError | None = None
    for size in range(sizes.get(USER, first), 0, -1):
        sized = spec if size == first else replace(spec, batch_size=size)
        try:
            split = split_of(records, sized)
            _refuse(sized, records, split)
        except InputError as error:
            refusal = refusal or error
            if spec.batch_size is not None:
                break
            continue
        if size < first:
            sizes[USER] = size
        return split
    assert refusal is not None
    raise refusal


def _fitting_stages(
    spec: InferenceSpec, ask: str, records: Records, split: Split, sizes: dict[str, int]
) -> list[GameStage]:
    """Return the stages of one game; a default batch that does not fit gets smaller."""
    while True:
        size = sizes.get(ask)
        try:
            stages = _stages(spec if size is None else replace(spec, batch_size=size), ask,
                             records, split)  # fmt: skip
        except BatchSizeError as error:
            now = spec.batch_of(ask) if size is None else size
            if spec.batch_size is not None or now == 1:
                raise
            sizes[ask] = min(error.most, now - 1)
            continue
        except FaultyDefenseError:
            raise
        except InputError as error:
            if size is None:
                raise
            reason = str(error).partition("; ")[0]  # its advice would raise the batch size
            raise InputError(
                f"the private records allow batches of {size}, not the default "
                f"{spec.batch_of(ask)}, and {reason}; bring more records"
                + (", or lower --ratio-bins" if ask == PROPORTION else "")
            ) from error
        if size is None:
            return stages
        default, disjoint = spec.batch_of(ask), MIN_DISJOINT if spec.draw == IID else MIN_BLOCKS
        note = (
            default_of_users(default, size)
            if ask == USER
            else default_that_fits(default, size, disjoint)
        )
        return [replace(one, notes=(*one.notes, note)) for one in stages]


def _stages(spec: InferenceSpec, ask: str, records: Records, split: Split) -> list[GameStage]:
    """Return the stages of one game, one for each defense."""
    keep = (spec.secret_column,) if ask == ATTRIBUTE else ()
    used, split = _used(split, len(records.y))
    only = None if len(used) == len(records.y) else used
    task, data = records.encode(used[split.private], keep, only)
    data = data if spec.by_user else replace(data, users=None)
    params = params_of(task.model)
    positions = used[split.private].numpy()
    positions = positions if records.rows is None else records.rows[positions]
    stages = []
    for defense in defenses_of(spec, ask):
        attacks = attacks_for(spec, ask, defense, params=params)
        able, notes = _able(ask, attacks, data.rows(split.public), spec)
        stage = make_stage(
            ask,
            task,
            data,
            split,
            attacks=able.attacks,
            panel=able.panel,
            notes=notes,
            spec=spec,
            defense=defense,
        )
        check_footprint(stage)
        stages.append(replace(stage, positions=positions))
    return stages


def _used(split: Split, count: int) -> tuple[torch.Tensor, Split]:
    """Return the rows that some part holds ``[k]``, ascending, and the parts among them."""
    parts = {name: getattr(split, name) for name in ("private", "public", "test")}
    held = torch.zeros(count, dtype=torch.bool)
    for rows in parts.values():
        held[rows] = True
    place = held.cumsum(0) - 1
    return held.nonzero()[:, 0], Split(**{name: place[rows] for name, rows in parts.items()})


HELD_OUT = 6
"""Shadow users (or records) per value that a panel needs: two in each of three folds."""


def _able(
    ask: str, attacks: GameAttacks, public: Dataset, spec: InferenceSpec
) -> tuple[GameAttacks, tuple[str, ...]]:
    """Return the adversaries that the shadow records allow, and notes for users."""
    if ask == USER:
        return _of_users(attacks, public, spec)
    secret = spec.secret_column
    if not attacks.panel or secret not in public.secrets:
        return attacks, ()
    fewest = fewest_units(public, secret, int(public.secrets[secret].max()) + 1)
    if fewest >= HELD_OUT:
        return attacks, ()
    what = "records" if public.users is None else "users"
    named = (one for one in attacks.attacks if one.name not in attacks.panel)
    paper = parse_adversary(adversaries_for(ask)[0])  # it needs no folds
    alone = GameAttacks(tuple({one.name: one for one in (paper, *named)}.values()))
    note = (
        f"a value of {secret!r} has {fewest} shadow {what}; a panel needs {HELD_OUT} to hold some "
        f"out, so {alone.attacks[0].name} runs alone; raise --shadow, or bring more {what}"
    )
    return alone, (note,)


def _of_users(
    attacks: GameAttacks, public: Dataset, spec: InferenceSpec
) -> tuple[GameAttacks, tuple[str, ...]]:
    """Return the adversaries of user inference; the default depends on the number of users."""
    (default,) = panel_of(USER)
    users = 0 if public.users is None else len(torch.unique(public.users))
    need = Plda.folds * spec.candidates
    if PANEL not in adversary_names(spec) or default in spec.adversary or users >= need:
        return attacks, ()
    others = [one for one in attacks.attacks if one.name not in (default, OF_FEW_USERS)]
    note = (
        f"{default} needs {need} shadow users for {spec.candidates} candidates, there are {users}; "
        f"{OF_FEW_USERS} replaces it"
    )
    return GameAttacks((parse_adversary(OF_FEW_USERS), *others)), (note,)


def _of_task(spec: InferenceSpec, data: Dataset) -> InferenceSpec:
    """Fill in the named secret, or the only one of the dataset."""
    refuse_of_a_table(spec)
    if set(spec.ask) == {USER}:
        return spec
    known = list(data.secrets)
    require(len(known) > 0, "the Dataset of --task has no secrets; fill Dataset.secrets")
    require(len(known) == 1 or spec.secret is not None, f"--secret is missing{nearest('', known)}")
    secret = known[0] if spec.secret is None else spec.secret
    require_choice(secret, "--secret", known)
    return replace(spec, secret=secret)


def _of_columns(spec: InferenceSpec, source: Source) -> InferenceSpec:
    if source.pixels is not None:
        require(
            spec.hidden == declared(type(spec))["hidden"].default,
            "--hidden is about the network for tables; images have a small CNN; leave it out",
        )
        require(
            ATTRIBUTE not in spec.ask,
            "the features of images are their pixels, so no attribute is among them; ask for the "
            "property",
        )
    needed = set(spec.ask) != {USER}
    roles = roles_for(spec, source, secret=spec.secret, secret_needed=needed)
    return replace(
        spec,
        label=roles.label,
        secret=next(iter(roles.secrets), None),
        group=roles.group,
        drop=roles.drop,
        bins=roles.bins,
    )


def _refuse(spec: InferenceSpec, records: Records, split: Split) -> None:
    """Refuse what the records do not allow, before any training."""
    for ask in spec.ask:
        if ask == USER:
            assert records.users is not None
            private = records.users[split.private.to(records.users.device)]
            counts = torch.unique(private, return_counts=True)[1].tolist()
            check_users(counts, batch_size=spec.batch_of(USER), candidates=spec.candidates)
        elif not (ask == ATTRIBUTE and records.is_table):  # a table keeps its secret as a feature
            BATCH_GAMES[ask].check_schema(records.schema, spec.secret_column)
        if ask == PROPORTION:
            names = records.values.get(spec.secret_column, ())
            code_of(records.secrets[spec.secret_column], spec.secret_column, names, spec.ratio_of)
