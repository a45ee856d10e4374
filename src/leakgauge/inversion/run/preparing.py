"""Fills in what the data decide, and refuses what they do not allow."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from leakgauge.core.checks import InputError, require
from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.data import Roles, Source
from leakgauge.data.roles import resolve_roles
from leakgauge.inversion.methods import DAGER, STRONGEST, TABLE, TOKENS, strongest
from leakgauge.inversion.metrics.lpips import Lpips
from leakgauge.inversion.run.attempt import attempts_of, with_ladder
from leakgauge.inversion.run.receive import prepare_update
from leakgauge.inversion.run.scenario import scenario_of, weights_file
from leakgauge.inversion.words import (
    HIDDEN,
    ITERATIONS,
    MLP,
    SERVER_LR,
    default_image_count,
)
from leakgauge.models.words import NETS
from leakgauge.runs.spec import NONE

if TYPE_CHECKING:
    from leakgauge.inversion.spec import InversionSpec

Value = TypeVar("Value")

_LABEL_NAMES = ("y", "label")
"""Columns of data without named roles that are taken for the label."""


def resolve(spec: InversionSpec, source: Source) -> InversionSpec:
    """Return the settings with the roles, the network and the number of records filled in.

    Raises:
        InputError: the data or files do not allow it; the message says what would.
    """
    if spec.update is not None:
        spec = replace(spec, method=spec.method or (STRONGEST,))
        iterations = prepare_update(spec, source).method.iterations
        return replace(spec, iterations=iterations or spec.iterations, files=_digest(spec))
    if source.task is not None:
        return _with_text(spec, source)
    spec = with_ladder(spec)
    spec = replace(spec, method=spec.method or _strongest(spec, source))
    resolved = _with_network(_with_roles(spec, source), source)
    if spec.lpips is not None:
        Lpips.load(spec.lpips)
    # It refuses now what would be refused after the first files.
    scenario = scenario_of(source, resolved)
    return replace(_over_epochs(resolved), draw=scenario.drawn, files=_digest(spec))


def _with_text(spec: InversionSpec, source: Source) -> InversionSpec:
    """Return the settings for the sequences of a language model; refuse any other task."""
    assert source.dataset is not None
    x = source.dataset.x
    require(
        x.dim() == 2 and not x.is_floating_point(),
        f"the records of --task are {list(x.shape[1:])} {str(x.dtype).removeprefix('torch.')}; "
        "only a language model's token sequences ([L], int64) are rebuilt from its own data: name "
        "DATA, or attack a client's update: leakgauge invert --update FILE --task MODULE:FUNCTION",
    )
    spec = replace(spec, method=spec.method or (DAGER,))
    for attempt in attempts_of(spec):
        require(
            attempt.attack.traits.needs == TOKENS,
            f"--method {attempt.method} rebuilds images or rows of tables, and --task has token "
            f"sequences; choose {DAGER}",
        )
    images = spec.images or default_image_count(spec.records_per_update)
    resolved = replace(spec, label=spec.label or "label", images=images)
    return replace(resolved, draw=scenario_of(source, resolved).drawn)


def _strongest(spec: InversionSpec, source: Source) -> tuple[str, ...]:
    """Return the strongest methods that fit a spec without methods."""
    one_gradient = not spec.ladder and spec.epochs == 1 and set(spec.knowledge) != {ADAPTIVE}
    return strongest(
        is_table=source.pixels is None and one_gradient,
        searches=spec.iterations is not None or spec.restarts > 1 or spec.simulate,
        is_defended=set(spec.defense) != {NONE},
    )


def _with_roles(spec: InversionSpec, source: Source) -> InversionSpec:
    is_table, roles = source.pixels is None, _roles(spec, source)
    require(
        is_table or not (spec.group or spec.drop),
        "--group and --drop are about the features of a table; leave them out for images",
    )
    return replace(
        spec,
        label=roles.label,
        group=roles.group if is_table else None,
        drop=roles.drop if is_table else (),
        bins=roles.bins,
        images=spec.images or default_image_count(spec.records_per_update),
    )


def _roles(spec: InversionSpec, source: Source) -> Roles:
    columns = [str(name) for name in source.frame.columns]
    label = spec.label
    if label is None and source.roles is None:
        likely = [name for name in _LABEL_NAMES if name in columns]
        label = likely[0] if likely else columns[0] if len(columns) == 1 else None
    return resolve_roles(
        source.roles,
        label=label,
        group=spec.group,
        drop=spec.drop,
        bins=spec.bins,
        numeric=spec.numeric,
        secret_needed=False,
        columns=columns,
    )


def _with_network(spec: InversionSpec, source: Source) -> InversionSpec:
    is_table = source.pixels is None
    net = spec.net or (MLP if is_table else "slim")
    for attempt in attempts_of(spec):
        require(
            attempt.attack.traits.needs != TOKENS,
            f"--method {attempt.method} rebuilds token sequences; give a language model by --task",
        )
        require(
            is_table or attempt.attack.traits.needs != TABLE,
            f"--method {attempt.method} needs a table: a first linear layer and known columns; "
            "the networks for images have neither",
        )
    require(
        (net == MLP) == is_table,
        f"--net is {net!r}, but {source.name!r} holds {'a table' if is_table else 'images'}; "
        f"choose {MLP if is_table else 'one of ' + ', '.join(NETS)}",
    )
    require(
        is_table or not spec.hidden,
        "--hidden is about the network for tables; images have --net; leave it out",
    )
    resolved = replace(spec, net=net, hidden=(spec.hidden or HIDDEN) if is_table else ())
    return replace(resolved, iterations=_iterations(resolved))


def _iterations(spec: InversionSpec) -> int | None:
    """Return the iterations that all methods share; None where each has its own number."""
    default = spec.iterations or ITERATIONS
    return _shared(one.attack.iterations or default for one in attempts_of(spec))


def _over_epochs(spec: InversionSpec) -> InversionSpec:
    """Fill in what several epochs need; a rule stays open where each method has its own."""
    if spec.epochs == 1:
        return spec
    averaged = spec.local_lr * spec.local_steps
    rules = [one.rules for one in attempts_of(spec)]
    return replace(
        spec,
        server_lr=spec.server_lr or (SERVER_LR if spec.local_steps == 1 else averaged),
        matching=_shared(one.matching for one in rules),
        joint=_shared(one.joint for one in rules),
        gamma=_shared(one.later for one in rules),
    )


def _shared(values: Iterable[Value]) -> Value | None:
    """The one value that all of them are; None where they differ."""
    different = set(values)
    return different.pop() if len(different) == 1 else None


def _digest(spec: InversionSpec) -> str:
    """The sha256 of the files that settings name; empty where they name none."""
    weights = None if spec.weights is None else weights_file(spec.weights)
    paths = [Path(path) for path in (spec.update, weights, spec.lpips) if path is not None]
    if not paths:
        return ""
    try:
        return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()
    except OSError as error:
        raise InputError(f"{error.filename!r} cannot be read ({error.strerror})") from error
