"""Split the records of a run into private, public (the adversary's) and test ones."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.checks import require, require_known
from leakgauge.core.rng import stream
from leakgauge.data import Split, split_records
from leakgauge.data.split import split_users
from leakgauge.inference.catalog import USER
from leakgauge.inference.games.blocks import MIN_BLOCKS
from leakgauge.inference.games.users import BATCHES_OF_A_USER, users_of
from leakgauge.inference.spec import InferenceSpec
from leakgauge.runs.records import Records

NEED_PUBLIC = 10
"""Minimum number of shadow records of a value for an adversary to learn from."""

NEED_LABEL = 5
"""Minimum number of private records of a label for a model to learn from."""


def split_of(records: Records, spec: InferenceSpec) -> Split:
    """Return one split for all games of the run.

    Raises:
        InputError: the secret is unknown, or a value, a label or users are too rare.
    """
    if set(spec.ask) != {USER}:
        secret = spec.secret_column
        require_known(secret, records.secrets, f"no secret {secret!r} in the data")
    rng, label = stream(spec.seed, "split"), _classes(records)
    if USER in spec.ask:
        split = split_users(
            users_of(records.users),
            label=label,
            classes=records.classes,
            least=BATCHES_OF_A_USER * spec.batch_of(USER),
            most=(spec.private_users, spec.shadow_users),
            need_label=NEED_LABEL,
            rng=rng,
        )
        _refuse_rare(records, spec, split)
        return split
    split = split_records(
        records.secrets[secret],
        users=records.users if spec.by_user else None,
        label=label,
        values=records.values.get(secret, ()),
        classes=records.classes,
        shadow=spec.shadow,
        need_private=MIN_BLOCKS,
        need_public=NEED_PUBLIC,
        need_label=NEED_LABEL,
        rng=rng,
    )
    return split if spec.private is None else _fewer_private(records, spec, split, spec.private)


def _fewer_private(records: Records, spec: InferenceSpec, split: Split, most: int) -> Split:
    """Keep a random part of the private records, as the paper does; other parts are unchanged.

    Raises:
        InputError: a value of the secret or a label becomes too rare.
    """
    drawn = stream(spec.seed, "private").permutation(len(split.private))[:most]
    fewer = replace(split, private=split.private[torch.from_numpy(np.sort(drawn))])
    secret = spec.secret_column
    codes, names = records.secrets[secret], records.values.get(secret, ())
    _refuse_few(codes, fewer.private, f"secret {secret!r}", names, MIN_BLOCKS)
    label = _classes(records)
    if label is not None:
        _refuse_few(label, fewer.private, "the label", records.classes, NEED_LABEL)
    return fewer


def _refuse_few(codes: Tensor, private: Tensor, what: str, names: Sequence[str], need: int) -> None:
    codes = codes.cpu()
    counts = torch.bincount(codes[private], minlength=int(codes.max()) + 1)
    for value in torch.unique(codes).tolist():
        name = names[value] if names else value
        require(
            int(counts[value]) >= need,
            f"{what} is {str(name)!r} in {int(counts[value])} of the {len(private)} private "
            f"records; needed are {need}: raise --private",
        )


def _classes(records: Records) -> Tensor | None:
    """Return the labels if they are classes, which must not be rare; otherwise None."""
    is_class = not records.y.is_floating_point() and records.y.ndim == 1
    return records.y if is_class else None


def _refuse_rare(records: Records, spec: InferenceSpec, split: Split) -> None:
    """Refuse a split of users with too few records of a value, which other games need."""
    secret = spec.secret_column
    if set(spec.ask) == {USER} or secret not in records.secrets:
        return
    codes = records.secrets[secret].cpu()
    names = records.values.get(secret, ())
    for value in range(int(codes.max()) + 1):
        parts = (split.private, split.public)
        private, public = (int((codes[rows] == value).sum()) for rows in parts)
        name = names[value] if names else value
        require(
            private >= MIN_BLOCKS and public >= NEED_PUBLIC,
            f"secret value {str(name)!r} has {private} private and {public} public records where "
            f"users are split for user inference; needed are {MIN_BLOCKS} and {NEED_PUBLIC}: ask "
            "for the user in a separate run",
        )
