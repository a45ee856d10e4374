"""The records of a run before they are encoded: from a table, images, or a user's own task."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from leakgauge.core.checks import require
from leakgauge.core.copying import copy_of
from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Dataset, Schema, Task
from leakgauge.core.versions import versions
from leakgauge.data import Roles, Source, Table, encode
from leakgauge.data.encoding import encode_pictures, make_picture_table, outputs_for
from leakgauge.data.fingerprints import fingerprint
from leakgauge.data.roles import resolve_roles
from leakgauge.data.source import explained
from leakgauge.data.table import make_table
from leakgauge.models import build, initialise, mlp
from leakgauge.results.measurements import Run
from leakgauge.results.statistics import Ints
from leakgauge.runs.spec import Spec, declared, plain

Encoding = Callable[..., tuple[Task, Dataset]]
"""(rows that the encoding learns from, secrets that stay features, only=None) -> the task, and all
records, or those at the rows ``only`` in their order."""


CNN, PYTORCH = "cnn", "pytorch"
"""Default network for images, and default scheme of the first weights."""

IN_TRAINING_MODE = "in training mode"
"""The fact of a run that names the modules of a model in training mode; see below."""

OF_A_TABLE = (
    "label",
    "loss",
    "group",
    "drop",
    "bins",
    "drop_missing",
    "merge_rare",
    "hidden",
    "net",
    "init",
)
"""Settings that a user's own task leaves no use for."""


@dataclass(frozen=True, eq=False)
class Records:
    """What is known of the records before they are encoded.

    Attributes:
        label: the label's name; ``classes`` are its values by code.
        y: labels ``[n]``, int64 codes, or numbers; of a user's task also ``[n, k]``.
        secrets: for each secret its codes ``[n]``, int64; ``values`` are its values by code.
        users: the user of each record ``[n]``, int64, or None.
        columns: features of a record before the encoding; of an image, its pixels.
        encode: makes the network and encodes the records.
        schema: names of the values; of records that came encoded, also their columns, or None.
        notes: what was done to the data and users should know.
        is_table: whether the network is the one for tables.
        warnings: columns that answer the question by themselves.
        features: names of the columns that the model sees, before the encoding.
        rows: position of each record in the user's data ``[n]``, counted from 0; None for all of
            them in order.
    """

    label: str
    y: Tensor
    classes: Sequence[str]
    secrets: Mapping[str, Tensor]
    values: Mapping[str, tuple[str, ...]]
    users: Tensor | None
    columns: int
    encode: Encoding
    schema: Schema | None = None
    notes: Sequence[str] = ()
    is_table: bool = False
    warnings: Sequence[str] = ()
    features: Sequence[str] = ()
    rows: Ints | None = None

    def facts(self, secret: str) -> dict[str, Any]:
        """Return the numbers of records, columns and users, and of records of each secret."""
        users = None if self.users is None else len(torch.unique(self.users))
        facts: dict[str, Any] = {"records": len(self.y), "columns": self.columns}
        if secret in self.secrets:
            codes = self.secrets[secret]
            names = self.values.get(secret) or [str(v) for v in range(int(codes.max()) + 1)]
            counts = torch.bincount(codes.cpu(), minlength=len(names)).tolist()
            facts["secret_values"] = dict(zip(names, counts, strict=True))
        return facts if users is None else {**facts, "users": users}


def records_of(
    spec: Spec,
    source: Source,
    *,
    hidden: tuple[int, ...],
    net: str = CNN,
    init: str = PYTORCH,
    secret: str | None = None,
) -> Records:
    """Return the records of a source in the roles that the settings name.

    The network is an MLP for a table, a convolutional one for images, or the user's own.

    Args:
        spec: resolved.
        source: the data.
        hidden: widths of the hidden layers of the network for tables.
        net: the network for images, one of ``models.NETS``.
        init: scheme of the network's first weights, one of ``models.SCHEMES``.
        secret: column that is not a feature; None without one.

    Raises:
        InputError: the data do not fit the roles.
    """
    if source.dataset is not None and source.task is not None:
        return _from_task(spec, source.task, source.dataset)
    secrets = () if secret is None else (secret,)
    roles = _roles(spec, secrets)
    if source.pixels is None:
        return _from_table(spec, source, roles, hidden, init)
    return _from_images(spec, source, roles, net, init)


def roles_for(
    spec: Spec, source: Source, *, secret: str | None = None, secret_needed: bool = False
) -> Roles:
    """Return the roles of the columns that settings and data name.

    Args:
        spec: settings with label, group, drop and bins.
        source: the data.
        secret: column to protect; None for the one that the data name.
        secret_needed: whether a missing secret is refused.

    Raises:
        InputError: a column is missing, unknown or has two roles.
    """
    return resolve_roles(
        source.roles,
        label=spec.label,
        secret=secret,
        group=spec.group,
        drop=spec.drop,
        bins=spec.bins,
        numeric=spec.numeric,
        secret_needed=secret_needed,
        columns=source.frame.columns,
    )


def describe_run(
    spec: Spec,
    source: Source,
    records: Records,
    task: Task,
    *,
    settings: Mapping[str, Any],
    parts: Mapping[str, int],
    secret: str = "",
) -> Run:
    """Return the settings of a run and the facts about its records and model.

    Args:
        spec: settings; those without a value are left out.
        source: the data.
        records: the records.
        task: the model before the training.
        settings: settings in place of those of ``spec``.
        parts: number of records in each part.
        secret: column to protect.
    """
    kept = {name: value for name, value in plain(spec).items() if value not in (None, [], {})}
    return Run(
        command="",
        settings={**kept, "label": records.label, **settings},
        data={
            "name": source.name,
            "fingerprint": source.fingerprint,
            **records.facts(secret),
            **parts,
            "model": repr(task.model),
            "parameters": fingerprint(task.model.state_dict()),
            **({IN_TRAINING_MODE: modes} if (modes := in_training_mode(source)) else {}),
        },
        notes=(*source.notes, *records.notes),
        versions=versions(),
        warnings=list(records.warnings),
    )


def in_training_mode(source: Source) -> str:
    """Return the kinds of a user's modules in training mode that act otherwise in evaluation mode.

    They are those with dropout or running statistics, by name of the class; empty without any.
    """
    found = () if source.task is None else source.task.model.modules()
    kinds = {type(one).__name__: None for one in found if one.training and _has_modes(one)}
    return ", ".join(kinds)


def _has_modes(module: nn.Module) -> bool:
    own = getattr(module, "dropout", 0.0)  # of an RNN, or of attention
    return isinstance(module, _BatchNorm | _DropoutNd) or (isinstance(own, float) and own > 0)


def refuse_of_a_table(spec: Spec) -> None:
    """Refuse settings of a table for a user's own task.

    Raises:
        InputError: one of them is given.
    """
    known = declared(type(spec))
    for name in OF_A_TABLE:
        require(
            name not in known or getattr(spec, name) == known[name].default,
            f"--{name.replace('_', '-')} is about a TABLE; with --task the function decides; "
            "leave it out",
        )


def _from_task(spec: Spec, task: Task, data: Dataset) -> Records:
    schema = data.schema
    if spec.device != "cpu":  # the caller's model stays where it is
        task = Task(copy_of(task.model).to(spec.device), task.loss)
    return Records(
        label=schema.label if schema else "label",
        y=data.y,
        classes=schema.classes if schema else (),
        secrets=data.secrets,
        values=schema.secrets if schema else {},
        users=data.users,
        columns=int(np.prod(data.x.shape[1:])),
        encode=lambda fit_on, keep, only=None: (task, _rows(data, only)),
        schema=schema,
    )


def _from_table(
    spec: Spec, source: Source, roles: "RolesKey", hidden: tuple[int, ...], init: str
) -> Records:
    table = _table(source, roles, spec.drop_missing)

    def encoded(
        fit_on: Tensor, keep: tuple[str, ...], only: Tensor | None = None
    ) -> tuple[Task, Dataset]:
        data = encode(table, fit_on=fit_on, keep=keep, only=only, scale_binary=spec.scale_binary)
        generator = torch_stream(spec.seed, "model")
        model = mlp(data.x.shape[1], outputs_for(table), hidden=hidden, generator=generator)
        if init != PYTORCH:
            initialise(model, init, generator=torch_stream(spec.seed, "model"))
        return _task(model, spec), data

    return _of_table(table, encoded, table.features.shape[1], is_table=True)


def _from_images(spec: Spec, source: Source, roles: "RolesKey", net: str, init: str) -> Records:
    pixels = source.pixels
    assert pixels is not None
    _, channels, height, width = pixels.shape
    require(height == width, f"images are {height} x {width}; expected squares")
    table, rows = _picture_table(source, roles, spec.drop_missing)

    def encoded(
        fit_on: Tensor, keep: tuple[str, ...], only: Tensor | None = None
    ) -> tuple[Task, Dataset]:
        generator = torch_stream(spec.seed, "model")
        classes = outputs_for(table)
        model = build(
            net, channels=channels, classes=classes, side=height, init=init, generator=generator
        )
        binary = spec.scale_binary
        data = encode_pictures(table, pixels, rows, fit_on=fit_on, scale_binary=binary)
        return _task(model, spec), _rows(data, only)

    return _of_table(table, encoded, channels * height * width, is_table=False)


def _rows(data: Dataset, only: Tensor | None) -> Dataset:
    return data if only is None else data.rows(only.to(data.y.device))


def _task(model: nn.Module, spec: Spec) -> Task:
    return Task(model.to(spec.device), spec.loss)


def _of_table(table: Table, encode: Encoding, columns: int, *, is_table: bool) -> Records:
    return Records(
        label=table.label,
        y=table.y,
        classes=table.classes,
        secrets=table.secrets,
        values=table.values,
        users=table.users,
        columns=columns,
        encode=encode,
        schema=Schema((), table.label, table.classes, dict(table.values)),
        notes=table.notes,
        is_table=is_table,
        warnings=table.warnings if is_table else (),
        features=tuple(map(str, table.features.columns)) if is_table else (),
        rows=table.rows,
    )


RolesKey = tuple[
    str, tuple[str, ...], str | None, tuple[str, ...], tuple[tuple[str, int], ...], int, bool
]


def _roles(spec: Spec, secrets: tuple[str, ...]) -> RolesKey:
    bins = tuple(spec.bins.items())
    return str(spec.label), secrets, spec.group, spec.drop, bins, spec.merge_rare, spec.numeric


def _made_roles(key: RolesKey) -> Roles:
    label, secrets, group, drop, bins, merge_rare, numeric = key
    return Roles(label, secrets, group, drop, dict(bins), merge_rare, numeric)


@lru_cache(maxsize=4)  # the questions of an audit share it
def _table(source: Source, key: RolesKey, drop_missing: bool) -> Table:
    with explained(source):
        return make_table(source.frame, _made_roles(key), drop_missing=drop_missing)


@lru_cache(maxsize=4)
def _picture_table(source: Source, key: RolesKey, drop_missing: bool) -> Any:
    with explained(source):
        return make_picture_table(source.frame, _made_roles(key), drop_missing=drop_missing)
