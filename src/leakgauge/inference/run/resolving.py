"""Complete the settings from the data, and refuse what the data do not allow."""

from dataclasses import replace
from typing import TypeVar

import torch

from leakgauge.core.checks import nearest, require
from leakgauge.core.types import Dataset
from leakgauge.data import Source
from leakgauge.data.roles import resolve_roles
from leakgauge.inference import BATCH_GAMES
from leakgauge.inference.catalog import ATTRIBUTE, PROPORTION, USER
from leakgauge.inference.games.games import code_of
from leakgauge.inference.games.users import check_users
from leakgauge.inference.run.adversaries import adversary_names
from leakgauge.inference.run.splitting import inference_records, split_of
from leakgauge.inference.spec import InferenceSpec
from leakgauge.runs.records import Records, refuse_of_a_table
from leakgauge.runs.spec import declared

S = TypeVar("S", bound=InferenceSpec)


def resolve(spec: S, source: Source) -> S:
    """Return the settings with the roles of the columns and the adversaries filled in.

    Raises:
        InputError: the data do not allow a word of ``--ask``; the message states the remedy.
    """
    if source.dataset is not None:
        resolved = _of_task(spec, source.dataset)
    else:
        resolved = _of_columns(spec, source)
    resolved = replace(resolved, adversary=adversary_names(resolved))
    _refuse(resolved, inference_records(resolved, source))
    return resolved


def _of_task(spec: S, data: Dataset) -> S:
    refuse_of_a_table(spec)
    if set(spec.ask) == {USER}:
        return spec
    return replace(spec, secret=_only_secret(data, spec.secret))


def _only_secret(data: Dataset, named: str | None) -> str:
    """Return the named secret, or the only one of the dataset."""
    known = list(data.secrets)
    require(len(known) > 0, "the Dataset of --task has no secrets; fill Dataset.secrets")
    if named is None:
        require(len(known) == 1, f"--secret is missing{nearest('', known)}")
        return known[0]
    require(named in known, f"--secret is {named!r}{nearest(named, known)}")
    return named


def _of_columns(spec: S, source: Source) -> S:
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
    roles = resolve_roles(
        source.roles,
        label=spec.label,
        secret=spec.secret,
        group=spec.group,
        drop=spec.drop,
        bins=spec.bins,
        numeric=spec.numeric,
        secret_needed=set(spec.ask) != {USER},
        columns=source.frame.columns,
    )
    return replace(
        spec,
        label=roles.label,
        secret=next(iter(roles.secrets), None),
        group=roles.group,
        drop=roles.drop,
        bins=roles.bins,
    )


def _refuse(spec: InferenceSpec, records: Records) -> None:
    """Refuse what the records do not allow, before any training."""
    split = split_of(records, spec)
    for ask in spec.ask:
        if ask == USER:
            assert records.users is not None
            private = records.users[split.private.to(records.users.device)]
            counts = torch.unique(private, return_counts=True)[1].tolist()
            check_users(counts, batch_size=spec.batch_of(USER), candidates=spec.candidates)
        elif not (ask == ATTRIBUTE and records.is_table):  # a table keeps its secret as a feature
            BATCH_GAMES[ask].check_schema(records.schema, str(spec.secret))
        if ask == PROPORTION:
            names = records.values.get(str(spec.secret), ())
            code_of(records.secrets[str(spec.secret)], str(spec.secret), names, spec.ratio_of)
