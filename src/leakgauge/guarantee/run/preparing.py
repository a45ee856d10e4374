"""Prepares the table, its encoding and the description of an audit."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from leakgauge.core.checks import nearest, require
from leakgauge.core.threads import one_thread
from leakgauge.core.types import Dataset
from leakgauge.core.versions import versions
from leakgauge.data.encoding import encode
from leakgauge.data.roles import resolve_roles
from leakgauge.data.source import Source, explained
from leakgauge.data.table import Roles, Table, make_table
from leakgauge.guarantee.checking import (
    check,
    claimed_by,
    dpsgd_of,
    neighbours_of,
    promised_by,
)
from leakgauge.guarantee.filter import FilterMechanism, claim_of, is_filter
from leakgauge.guarantee.mechanism import DPSGDMechanism
from leakgauge.guarantee.spec import BOX, CRAFTED, GuaranteeSpec
from leakgauge.results.measurements import Run
from leakgauge.runs.question import Prepared
from leakgauge.runs.spec import NONE


@dataclass(frozen=True, eq=False)
class GuaranteePrepared(Prepared):
    """An encoded table and the claimed mechanism, ready for the audit.

    Attributes:
        spec: settings with roles, attribute, canary, clip and noise filled in. ``defense`` is kept
            only if neither a setting nor a defense sets clip and noise.
        source: a table.
        attribute: column to infer.
        label: column that the model predicts.
        claimed: the DP-SGD that the mechanism claims to be, or the filter itself.
        data: the encoded table.
        classes: number of classes.
        run: settings and facts for the report.
    """

    spec: GuaranteeSpec
    attribute: str
    label: str
    claimed: DPSGDMechanism | FilterMechanism
    data: Dataset
    classes: int
    run: Run


def prepare(spec: GuaranteeSpec, source: Source) -> GuaranteePrepared:
    """Fill in the settings and encode the table.

    Raises:
        InputError: the data are not a table, or the attribute is not one of its features.
    """
    require(source.pixels is None, f"{source.name!r} holds images, no attributes; bring a table")
    require(
        source.task is None,
        f"{source.name!r} is your own task, and its records have no named columns; bring a "
        "table instead of --task",
    )
    roles = resolve_roles(
        source.roles,
        label=spec.label,
        group=spec.group,
        secret_needed=False,
        columns=source.frame.columns,
    )
    attribute = spec.attribute or next(iter(roles.secrets), "")
    require(
        attribute != "",
        f"no attribute of {source.name!r} is named; name the column to infer with --attribute, or "
        "with --secret in an audit",
    )
    spec = _resolved(spec, roles, attribute)
    check(spec)
    table = _table(spec, source, attribute, roles.label)
    with one_thread():
        every = torch.arange(len(table))
        data = encode(table, fit_on=every, scale_binary=spec.scale_binary).to(spec.device)
    return GuaranteePrepared(
        spec=spec,
        source=source,
        attribute=attribute,
        label=roles.label,
        claimed=claimed_by(spec),
        data=data,
        classes=len(table.classes),
        run=_describe(spec, source, table),
    )


def _resolved(spec: GuaranteeSpec, roles: Roles, attribute: str) -> GuaranteeSpec:
    cut = {name: ranges for name, ranges in roles.bins.items() if name == roles.label}
    kept = [name for name in roles.drop if name != attribute]
    claimed = claimed_by(spec)
    dpsgd = claimed.dpsgd if isinstance(claimed, FilterMechanism) else claimed
    claim, near = claim_of(spec.mechanism), neighbours_of(spec)
    named = is_filter(spec.mechanism) or promised_by(spec.defense) is not None
    chosen = named or (spec.clip, spec.noise) != (None, None)
    return replace(
        spec,
        attribute=attribute,
        label=roles.label,
        group=roles.group,
        drop=tuple(dict.fromkeys([*kept, *spec.drop])),
        bins=cut | dict(spec.bins),
        canary=f"{CRAFTED}-{spec.domain or BOX}" if spec.canary == CRAFTED else spec.canary,
        domain=None,
        clip=None if dpsgd is None else dpsgd.clip,
        noise=None if dpsgd is None else dpsgd.noise,
        delta=max(spec.delta, 0.0 if claim is None else claim.delta),
        unit=near.unit,
        defense=() if chosen else spec.defense or (NONE,),
    )


def _table(spec: GuaranteeSpec, source: Source, attribute: str, label: str) -> Table:
    """Return the table with the attribute among its features, and without ranges of it."""
    cut = {column: ranges for column, ranges in spec.bins.items() if column != attribute}
    roles = Roles(label, (), spec.group, spec.drop, cut, spec.merge_rare)
    for role, names in (("label", [label]), ("group", [spec.group]), ("drop", spec.drop)):
        require(
            attribute not in names,
            f"--attribute {attribute!r} cannot be audited, as --{role} names it, too; name "
            "another column",
        )
    with explained(source):
        table = make_table(source.frame, roles, drop_missing=spec.drop_missing)
    # Only the notes say why a column is not a feature.
    prefix, features = f"column {attribute!r} ", table.features
    why = "".join(f"; {note}" for note in table.notes if note.startswith(prefix))
    hint = why or nearest(attribute, map(str, features))
    require(attribute in features, f"--attribute {attribute!r} is none of the features{hint}")
    if attribute not in spec.bins:
        return table
    note = f"column {attribute!r} is not cut into ranges: this audit compares two of its values"
    return replace(table, notes=(*table.notes, note))


def _describe(spec: GuaranteeSpec, source: Source, table: Table) -> Run:
    about = {"name": source.name, "fingerprint": source.fingerprint, "records": len(table)}
    notes = [*source.notes, *table.notes]
    if spec.defense:
        dpsgd = dpsgd_of(spec)
        notes.append(
            f"DP-SGD with clip {dpsgd.clip:g} and noise {dpsgd.noise:g} is audited, since no "
            "defense of this run promises differential privacy; to audit another, add one such as "
            "--defense dpsgd:clip=1,noise=0.5"
        )
    return Run("", _settings(spec), about, notes, versions())


def _settings(spec: GuaranteeSpec) -> dict[str, Any]:
    """Return the settings that the figures depend on, by name, as plain values."""
    training = {"lr": spec.lr, "batch_size": spec.batch_size, "private": spec.private}
    return {
        "attribute": spec.attribute,
        "clip": spec.clip,
        "noise": spec.noise,
        "label": spec.label,
        "canary": spec.canary,
        "statistic": spec.statistic,
        "mechanism": spec.mechanism,
        **({"server_noise": spec.server_noise} if spec.server_noise else {}),
        "unit": spec.unit,
        "relation": spec.relation,
        "releases": spec.releases,
        "trials": spec.trials,
        "delta": spec.delta,
        "hidden": list(spec.hidden),
        "rounds": spec.rounds,
        **(training if spec.rounds else {}),
        "group": spec.group,
        "drop": list(spec.drop),
        "bins": dict(spec.bins),
        "drop_missing": spec.drop_missing,
        **({"merge_rare": spec.merge_rare} if spec.merge_rare else {}),
        "device": spec.device,
        "seed": spec.seed,
        "table": spec.data,
        **spec.reading,
    }
