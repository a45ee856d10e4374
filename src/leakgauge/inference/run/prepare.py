"""Make the stages of a run from settings and data."""

from dataclasses import dataclass, replace

import torch

from leakgauge.core.checks import InputError
from leakgauge.core.types import Dataset
from leakgauge.data import Source, Split
from leakgauge.inference.adversaries.plda import Plda
from leakgauge.inference.adversaries.shadow import fewest_units
from leakgauge.inference.catalog import (
    ATTRIBUTE,
    OF_FEW_USERS,
    PANEL,
    USER,
    panel_of,
    parse_adversary,
)
from leakgauge.inference.run.adversaries import (
    GameAttacks,
    adversary_names,
    attacks_for,
    defenses_of,
    without_panel,
)
from leakgauge.inference.run.description import describe
from leakgauge.inference.run.footprint import check_footprint
from leakgauge.inference.run.splitting import inference_records, split_of
from leakgauge.inference.run.stage import GameStage, make_stage
from leakgauge.inference.spec import InferenceSpec
from leakgauge.results.measurements import Run
from leakgauge.runs.records import Records


@dataclass(frozen=True, eq=False)
class InferencePrepared:
    """Stages that are ready to run, and the description of the run.

    Attributes:
        stages: stage of each game and defense.
        run: settings and facts for the report.
        dataset: name of the data.
        label: name of the label.
        refused: name and reason for each game that the settings or the data do not allow.
    """

    stages: tuple[GameStage, ...]
    run: Run
    dataset: str
    label: str
    refused: tuple[str, ...] = ()


def prepare(spec: InferenceSpec, source: Source) -> InferencePrepared:
    """Split the records once, encode them for each game, and deal the trials of each stage.

    The network is an MLP for a table, a CNN for images, or that of the user. A refused game is left
    out if another one remains.

    Args:
        spec: resolved settings.
        source: the data.

    Raises:
        InputError: the data are too few, or the model or a defense does not fit them.
    """
    records = inference_records(spec, source)
    split = split_of(records, spec)
    stages: list[GameStage] = []
    refused: list[str] = []
    for number, ask in enumerate(spec.ask, start=1):
        try:
            stages += _stages(spec, ask, records, split)
        except InputError as error:
            if number == len(spec.ask) and not stages:
                raise
            refused.append(f"{ask}: {error}")
    run = describe(stages, split, records, spec, source)
    return InferencePrepared(tuple(stages), run, source.name, records.label, tuple(refused))


def _stages(spec: InferenceSpec, ask: str, records: Records, split: Split) -> list[GameStage]:
    """Return the stages of one game, one for each defense."""
    keep = (str(spec.secret),) if ask == ATTRIBUTE else ()
    task, data = records.encode(split.private, keep)
    data = data if spec.by_user else replace(data, users=None)
    stages = []
    for defense in defenses_of(spec, ask):
        attacks, notes = _able(ask, attacks_for(spec, ask, defense), data.rows(split.public), spec)
        stage = make_stage(
            ask,
            task,
            data,
            split,
            attacks=attacks.attacks,
            panel=attacks.panel,
            notes=notes,
            spec=spec,
            defense=defense,
        )
        check_footprint(stage)
        stages.append(stage)
    return stages


HELD_OUT = 6
"""Shadow users (or records) per value that a panel needs: two in each of three folds."""


def _able(
    ask: str, attacks: GameAttacks, public: Dataset, spec: InferenceSpec
) -> tuple[GameAttacks, tuple[str, ...]]:
    """Return the adversaries that the shadow records allow, and notes for users."""
    if ask == USER:
        return _of_users(attacks, public, spec)
    secret = str(spec.secret)
    if not attacks.panel or secret not in public.secrets:
        return attacks, ()
    fewest = fewest_units(public, secret, int(public.secrets[secret].max()) + 1)
    if fewest >= HELD_OUT:
        return attacks, ()
    what = "records" if public.users is None else "users"
    alone = without_panel(attacks)
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
