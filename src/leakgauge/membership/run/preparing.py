"""Prepares split records and the description of a run from settings and data."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from leakgauge.core.types import Dataset, Task
from leakgauge.core.versions import versions
from leakgauge.data import Source, fingerprint
from leakgauge.data.roles import resolve_roles
from leakgauge.membership.checking import attacks_of, defenses_of
from leakgauge.membership.run.given import given_model
from leakgauge.membership.run.roles import RecordRoles, assign_roles
from leakgauge.results.measurements import Run
from leakgauge.runs.records import Records, records_of, refuse_of_a_table
from leakgauge.runs.spec import plain

if TYPE_CHECKING:
    from leakgauge.membership.spec import MembershipSpec


@dataclass(frozen=True, eq=False)
class MembershipPrepared:
    """Records and a model that are ready for training and attacks.

    Attributes:
        task: the initial or given model and its loss.
        data: all records, with an encoding learnt from the members alone.
        roles: roles of the records.
        run: settings and facts for the report.
        dataset: name of the data.
        label: name of the label.
        snapshots: snapshots of a given model; empty if a model is trained.
    """

    task: Task
    data: Dataset
    roles: RecordRoles
    run: Run
    dataset: str
    label: str
    snapshots: Sequence[Task] = ()


def prepare(spec: MembershipSpec, source: Source) -> MembershipPrepared:
    """Split the records, encode them and make the network.

    Args:
        spec: resolved.
        source: the data.

    Raises:
        InputError: the data are too few, or do not fit, or a defense does not fit the model.
    """
    if spec.checkpoint:
        return _prepare_given(spec, source)
    records = _records(spec, source)
    roles = assign_roles(spec, len(records.y), records.users)
    task, data = records.encode(roles.members, ())
    task = Task(copy.deepcopy(task.model).eval(), task.loss)
    for defense in defenses_of(spec):
        defense.check(task)
    run = _describe(spec, source, records, roles, task)
    data = data.to(spec.device)
    return MembershipPrepared(task, data, roles, run, source.name, records.label)


def _prepare_given(spec: MembershipSpec, source: Source) -> MembershipPrepared:
    given, records = given_model(spec, source), _records(spec, source)
    run = _describe(spec, source, records, given.roles, given.snapshots[-1])
    facts = {**run.data, "records": len(given.data), "fingerprint": given.fingerprint}
    return MembershipPrepared(
        given.snapshots[-1],
        given.data,
        given.roles,
        replace(run, data=facts),
        source.name,
        records.label,
        given.snapshots,
    )


def resolved(spec: MembershipSpec, source: Source) -> dict[str, Any]:
    """Return the settings that the data fill in.

    Raises:
        InputError: a role is missing or wrong.
    """
    if source.dataset is not None:
        refuse_of_a_table(spec)
        return {"adversary": spec.adversaries}
    roles = resolve_roles(
        source.roles,
        label=spec.label,
        group=spec.group,
        drop=spec.drop,
        bins=spec.bins,
        numeric=spec.numeric,
        secret_needed=False,
        columns=source.frame.columns,
    )
    bins = {name: ranges for name, ranges in roles.bins.items() if name == roles.label}
    return {
        "label": roles.label,
        "group": roles.group,
        "drop": roles.drop,
        "bins": bins,
        "adversary": spec.adversaries,
    }


def check_split(spec: MembershipSpec, source: Source) -> None:
    """Refuse records that cannot be split.

    Raises:
        InputError: they are too few, or files do not fit.
    """
    if spec.checkpoint:
        given_model(spec, source)
    else:
        records = _records(spec, source)
        assign_roles(spec, len(records.y), records.users)


def _records(spec: MembershipSpec, source: Source) -> Records:
    return records_of(spec, source, hidden=spec.hidden, net=spec.net)


def _describe(
    spec: MembershipSpec, source: Source, records: Records, roles: RecordRoles, task: Task
) -> Run:
    kept = {name: value for name, value in plain(spec).items() if value not in (None, [], {})}
    return Run(
        command="",
        settings={
            **kept,
            "label": records.label,
            "adversary": [one.name for one in attacks_of(spec)],
            "defense": [one.name for one in defenses_of(spec)],
        },
        data={
            "name": source.name,
            "fingerprint": source.fingerprint,
            **records.facts(""),
            **{name: len(rows) for name, rows in asdict(roles.splits[0]).items()},
            "model": repr(task.model),
            "parameters": fingerprint(task.model.state_dict()),
        },
        notes=(*source.notes, *records.notes),
        versions=versions(),
        warnings=list(records.warnings),
    )
