"""Whose the records of a run are: private, public (the adversary's) or test."""

from torch import Tensor

from leakgauge.core.checks import nearest, require
from leakgauge.core.rng import stream
from leakgauge.data import Source, Split, split_records
from leakgauge.data.split_users import split_users
from leakgauge.inference.catalog import USER
from leakgauge.inference.games.blocks import MIN_BLOCKS
from leakgauge.inference.games.users import BATCHES_OF_A_USER, users_of
from leakgauge.inference.settings import InferenceSettings
from leakgauge.runs.records import Records, records_of

NEED_PUBLIC = 10
"""Fewest shadow records of a value from which an adversary can learn."""

NEED_LABEL = 5
"""Fewest private records of a label from which a model can learn."""


def inference_records(spec: InferenceSettings, source: Source) -> Records:
    """Return the records of a run, before they are split."""
    return records_of(
        spec,
        source,
        hidden=spec.hidden,
        net=spec.net,
        secret=spec.secret,
        merge_rare=spec.merge_rare,
    )


def split_of(records: Records, spec: InferenceSettings) -> Split:
    """Return one split for all games of the run, so that they are about the same records.

    Raises:
        InputError: there is no such secret, or a value, a label or users are too rare.
    """
    if set(spec.ask) != {USER}:
        secret = str(spec.secret)
        require(
            secret in records.secrets,
            f"no secret {secret!r} in the data{nearest(secret, records.secrets)}",
        )
    rng = stream(spec.seed, "split")
    if USER in spec.ask:
        split = split_users(
            users_of(records.users),
            label=_classes(records),
            classes=records.classes,
            least=BATCHES_OF_A_USER * spec.batch_size,
            most=(spec.private_users, spec.shadow_users),
            need_label=NEED_LABEL,
            rng=rng,
        )
        _refuse_rare(records, spec, split)
        return split
    return split_records(
        records.secrets[secret],
        users=records.users,
        label=_classes(records),
        values=records.values.get(secret, ()),
        classes=records.classes,
        shadow=spec.shadow,
        need_private=MIN_BLOCKS,
        need_public=NEED_PUBLIC,
        need_label=NEED_LABEL,
        rng=rng,
    )


def _classes(records: Records) -> Tensor | None:
    """Return the labels, of which none may be rare; None where they are no classes."""
    is_class = not records.y.is_floating_point() and records.y.ndim == 1
    return records.y if is_class else None


def _refuse_rare(records: Records, spec: InferenceSettings, split: Split) -> None:
    """Users are split without a look at the secret, which other games need on both sides."""
    secret = str(spec.secret)
    if set(spec.ask) == {USER} or secret not in records.secrets:
        return
    codes = records.secrets[secret].cpu()
    names = records.values.get(secret, ())
    for value in range(int(codes.max()) + 1):
        private, public = (
            int((codes[rows] == value).sum()) for rows in (split.private, split.public)
        )
        name = names[value] if names else value
        require(
            private >= MIN_BLOCKS and public >= NEED_PUBLIC,
            f"secret value {str(name)!r} has {private} private and {public} public records where "
            f"users are split for user inference; needed are {MIN_BLOCKS} and {NEED_PUBLIC}: ask "
            "for the user in a run of its own",
        )
