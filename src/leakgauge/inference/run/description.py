"""The description of a run in plain values for the report."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from leakgauge.core.versions import versions
from leakgauge.data import Source, Split, fingerprint
from leakgauge.gradients import MAX_BYTES, params_of
from leakgauge.inference.catalog import USER
from leakgauge.inference.checking import defenses_of
from leakgauge.inference.games.users import BATCHES_OF_A_USER
from leakgauge.inference.run.stage import GameStage
from leakgauge.inference.spec import InferenceSpec
from leakgauge.privacy.certificates import guarantees
from leakgauge.results.measurements import Run
from leakgauge.runs.records import Records

OF_GAMES = ("allow_loop", "ratio_bins", "ratio_of", "ratio_counts", "candidates", "stack")
OF_USERS = ("private_users", "shadow_users")
"""Settings that only user inference has."""


def describe(
    stages: Sequence[GameStage], split: Split, records: Records, spec: InferenceSpec, source: Source
) -> Run:
    """Return the settings of a run and the facts about its data, games and defenses."""
    games = {one.game.name: one for one in stages}
    return Run(
        command="",
        settings=_settings({name: one.batch_size for name, one in games.items()}, records, spec),
        data={
            "name": source.name,
            "fingerprint": source.fingerprint,
            **records.facts(spec.secret_column),
            "private": len(split.private),
            "public": len(split.public),
            "test": len(split.test),
            "games": {
                name: {"secret": one.secret, "values": list(one.game.value_names)}
                for name, one in games.items()
            },
            **({"features": list(records.features)} if records.features else {}),
            "blocks": {name: int(one.game.block.max()) + 1 for name, one in games.items()},
            "model": {name: repr(one.task.model) for name, one in games.items()},
            "parameters": {
                name: fingerprint(one.task.model.state_dict()) for name, one in games.items()
            },
        },
        notes=(
            *source.notes,
            *records.notes,
            *(
                _users(records, split, spec, games[USER].batch_size if USER in games else None)
                if USER in spec.ask
                else _rare(records, split, spec)
            ),
            *(note for one in games.values() for note in (*one.game.notes, *one.notes)),
        ),
        versions=versions(),
        guarantees=_guarantees(stages),
        warnings=list(records.warnings),
    )


def _users(records: Records, split: Split, spec: InferenceSpec, batch: int | None) -> list[str]:
    """Return notes about the users of each part, and about those that are left out."""
    assert records.users is not None
    users = records.users.cpu()
    each = [len(torch.unique(users[rows])) for rows in (split.private, split.public, split.test)]
    private, public, test = each
    notes = [
        f"the users were split for user inference: {private} are trained on, {public} are the "
        f"adversary's, {test} test; --shadow is not used"
    ]
    total, used = len(torch.unique(users)), sum(each)
    if used < total:
        notes.append(
            f"{total - used} of {total} users have fewer than "
            f"{BATCHES_OF_A_USER * (batch or spec.batch_of(USER))} records (two batches) and take "
            "no part, not even in training"
        )
    wanted = (spec.private_users, spec.shadow_users)
    if private < wanted[0] or public < wanted[1]:
        notes.append(
            f"users are too few for {wanted[0]} private and {wanted[1]} shadow users and the test "
            "users"
        )
    return notes


def _rare(records: Records, split: Split, spec: InferenceSpec) -> list[str]:
    """Return notes about the effect of rare values of the secret on the shadow records."""
    secret = spec.secret_column
    names = records.facts(secret).get("secret_values", {})
    counts = torch.bincount(records.secrets[secret][split.public].cpu(), minlength=len(names))
    notes = []
    if len(split.public) < spec.shadow:
        notes.append(
            f"the adversary has {len(split.public)} shadow records, not {spec.shadow}: at most a "
            "quarter of the records of any value are shadow records"
        )
    if int(counts.max()) > int(counts.min()) + 1:
        rare, fewest = min(zip(names, counts.tolist(), strict=True), key=lambda pair: pair[1])
        notes.append(
            f"{secret!r} is {rare!r} in {fewest} shadow records only, a quarter of its records; "
            "other values fill the set, and shadow batches are drawn equally often from each"
        )
    return notes


def _settings(games: Mapping[str, int], records: Records, spec: InferenceSpec) -> dict[str, Any]:
    """Return the settings of a run; a number that depends on the game is stated for each.

    Args:
        games: the batch size of each game.
        records: the records.
        spec: the settings.
    """
    data: dict[str, Any] = {"data": spec.data} if spec.data else {}
    if spec.task is None:
        data |= {"group": spec.group, "drop": list(spec.drop), "bins": dict(spec.bins)}
        data |= {"drop_missing": spec.drop_missing, "merge_rare": spec.merge_rare}
        data |= {"loss": spec.loss, **spec.reading}
    else:
        data["task"] = spec.task
    return {
        "label": records.label,
        **data,
        "ask": list(spec.ask),
        "adversary": list(spec.adversary),
        "defense": [one.name for one in defenses_of(spec, spec.ask[0])],
        "secret": spec.secret or spec.group or USER,
        "batch_size": _of_games(games),
        "rounds": spec.rounds,
        "trials": _of_games({ask: spec.trials_of(ask) for ask in games}),
        "lr": spec.lr,
        "batches": spec.batches,
        "draw": spec.draw,
        "prior": spec.prior,
        "seed": spec.seed,
        "max_bytes": MAX_BYTES,
        **{name: getattr(spec, name) for name in OF_GAMES},
        "optimizer": spec.optimizer,
        "shadow": spec.shadow,
        **({name: getattr(spec, name) for name in OF_USERS} if USER in spec.ask else {}),
        **({"private": spec.private} if spec.private is not None else {}),
        **({} if spec.by_user else {"by_user": False}),
        **({"seeds": spec.seeds} if spec.seeds > 1 else {}),
        **({"hidden": list(spec.hidden)} if records.is_table else {}),
        "device": spec.device,
    }


def _of_games(numbers: Mapping[str, int]) -> int | dict[str, int]:
    """Return the number of all games, or that of each if they differ."""
    first, *others = set(numbers.values())
    return dict(numbers) if others else first


def _guarantees(stages: Sequence[GameStage]) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for one in stages:
        known.setdefault(one.game.name, {})[one.defense.name] = guarantees(
            one.defense.release,
            batch_size=one.batch_size,
            records=len(one.private),
            rounds=one.spec.rounds,
            parameters=sum(leaf.numel() for leaf in params_of(one.task.model).values()),
            prior=one.game.prior,
        )
    return known
