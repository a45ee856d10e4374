"""From settings and data to records that are split, and the description of a run."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from leakgauge.core.rng import stream
from leakgauge.core.types import Dataset, Task
from leakgauge.core.versions import versions
from leakgauge.data import Source, fingerprint
from leakgauge.data.roles import resolve_roles
from leakgauge.data.split_members import MemberSplit, split_members
from leakgauge.membership.run.federated_split import federated_splits
from leakgauge.membership.run.given import given_model
from leakgauge.membership.run.playing import attacks_of, defenses_of
from leakgauge.results.measurements import Run
from leakgauge.runs.records import Records, records_of, refuse_of_a_table
from leakgauge.runs.spec import plain

if TYPE_CHECKING:
    from leakgauge.membership.spec import MembershipSpec


@dataclass(frozen=True, eq=False)
class Prepared:
    """Records that are ready to train on and to attack.

    Attributes:
        task: the model and its loss; initial, unless it exists already.
        data: all records, encoded; the encoding learnt from the members alone.
        splits: whose they are; of a federation, one for each attack.
        run: settings and facts for the report.
        dataset: the data's name.
        label: the label's name.
        snapshots: of a model that exists already; empty for one that is to be trained.
        held: rows of each participant of a federation; empty for central training.
    """

    task: Task
    data: Dataset
    splits: Sequence[MemberSplit]
    run: Run
    dataset: str
    label: str
    snapshots: Sequence[Task] = ()
    held: Sequence[Tensor] = ()

    @property
    def trained_on(self) -> Tensor:
        """Rows of all members."""
        if self.held:
            return torch.cat(list(self.held))
        return self.splits[0].members


def prepare(spec: MembershipSpec, source: Source) -> Prepared:
    """Split the records, encode them and make the network.

    Args:
        spec: resolved.
        source: the data.

    Raises:
        InputError: the data are too few, or do not fit.
    """
    if spec.checkpoint:
        return _prepare_given(spec, source)
    records = _records(spec, source)
    held, splits = _split(spec, records)
    members = torch.cat(list(held)) if held else splits[0].members
    task, data = records.encode(members, ())
    task = Task(copy.deepcopy(task.model).eval(), task.loss)
    run = _describe(spec, source, records, splits[0], task)
    data = data.to(spec.device)
    return Prepared(task, data, splits, run, source.name, records.label, held=held)


def _prepare_given(spec: MembershipSpec, source: Source) -> Prepared:
    given, records = given_model(spec, source), _records(spec, source)
    run = _describe(spec, source, records, given.split, given.snapshots[-1])
    facts = {**run.data, "records": len(given.data), "fingerprint": given.fingerprint}
    return Prepared(
        given.snapshots[-1],
        given.data,
        [given.split],
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
        _split(spec, _records(spec, source))


def _records(spec: MembershipSpec, source: Source) -> Records:
    return records_of(spec, source, hidden=spec.hidden, net=spec.net)


def _split(
    spec: MembershipSpec, records: Records
) -> tuple[Sequence[Tensor], Sequence[MemberSplit]]:
    """Return the rows of each participant of a federation, and whose the records are."""
    count, users = len(records.y), records.users
    if spec.participants > 1:
        return federated_splits(spec, count, users)
    rng = stream(spec.seed, "members")
    split = split_members(count, users=users, members=spec.size, rng=rng)
    return (), [split]


def _describe(
    spec: MembershipSpec, source: Source, records: Records, split: MemberSplit, task: Task
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
            **{name: len(rows) for name, rows in asdict(split).items()},
            "model": repr(task.model),
            "parameters": fingerprint(task.model.state_dict()),
        },
        notes=(*source.notes, *records.notes),
        versions=versions(),
        warnings=list(records.warnings),
    )
