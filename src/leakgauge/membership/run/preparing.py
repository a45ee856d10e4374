"""Prepares split records and the description of a run from settings and data."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.types import Dataset, Task
from leakgauge.data import Source
from leakgauge.membership.adversaries.thresholds import Confidence
from leakgauge.membership.checking import attacks_of, defenses_of
from leakgauge.membership.observation import has_classes
from leakgauge.membership.run.given import given_model
from leakgauge.membership.run.roles import RecordRoles, assign_roles
from leakgauge.membership.run.target_model import layers_of
from leakgauge.membership.spec import MembershipSpec
from leakgauge.results.measurements import Run
from leakgauge.results.statistics import Ints
from leakgauge.runs.question import Prepared
from leakgauge.runs.records import (
    IN_TRAINING_MODE,
    Records,
    describe_run,
    records_of,
    refuse_of_a_table,
    roles_for,
)

OF_CLASSES = Confidence.name
NO_CLASSES = (
    f"the model scores no classes, so the attack '{OF_CLASSES}' is left out: only classes have a \
largest probability"
)

BOTH_MODES = "the model of --task holds {} in training mode: it is trained so, and attacked in \
evaluation mode"


@dataclass(frozen=True, eq=False)
class MembershipPrepared(Prepared):
    """Records and a model that are ready for training and attacks.

    Attributes:
        spec: settings with the roles of the columns and the attacks filled in.
        source: the data.
        task: the initial or given model and its loss.
        data: all records, with an encoding learnt from the members alone.
        roles: roles of the records.
        run: settings and facts for the report.
        label: name of the label.
        snapshots: snapshots of a given model; empty if a model is trained.
        positions: position of each record in the user's data ``[n]``; None for all of them in
            order.
    """

    spec: MembershipSpec
    task: Task
    data: Dataset
    roles: RecordRoles
    run: Run
    label: str
    snapshots: Sequence[Task] = ()
    positions: Ints | None = None

    def rows_of(self, records: Tensor) -> Ints:
        """Return the rows of records ``[k]`` in the user's data.

        Of a given model they count its members first, then the others.
        """
        rows = records.cpu().numpy()
        return rows if self.positions is None else self.positions[rows]

    def inputs(self) -> dict[str, str]:
        """Return the digest of a given model with its members and non-members."""
        given = self.run.data["fingerprint"]
        return {"checkpoint, members and non-members": given} if self.snapshots else {}


def prepare(spec: MembershipSpec, source: Source) -> MembershipPrepared:
    """Fill in roles, split the records, encode them and make the network.

    Raises:
        InputError: a role is wrong, the records are too few, files do not fit, or a defense does
            not fit the model.
    """
    by_default = not spec.adversary
    spec = _resolved(spec, source)
    given = given_model(spec, source) if spec.checkpoint else None
    records = records_of(spec, source, hidden=spec.hidden, net=spec.net)
    if given is not None:
        if by_default:
            spec, records = _for_classes(spec, records, given.snapshots[-1], given.data)
        _refuse_layers(spec, given.snapshots[-1], given.data)
        run = _described(spec, source, records, given.roles, given.snapshots[-1])
        facts = {**run.data, "records": len(given.data), "fingerprint": given.fingerprint}
        return MembershipPrepared(
            spec,
            source,
            given.snapshots[-1],
            given.data,
            given.roles,
            replace(run, data=facts),
            records.label,
            given.snapshots,
        )
    roles = assign_roles(spec, len(records.y), records.users)
    task, data = records.encode(roles.members, ())
    if by_default:
        spec, records = _for_classes(spec, records, task, data)
    for defense in defenses_of(spec):
        defense.check(task)
    _refuse_layers(spec, task, data)
    run = _described(spec, source, records, roles, task)
    if modes := run.data.get(IN_TRAINING_MODE):
        run = replace(run, notes=(*run.notes, BOTH_MODES.format(modes)))
    return MembershipPrepared(
        spec,
        source,
        task,
        data.to(spec.device),
        roles,
        run,
        records.label,
        positions=records.rows,
    )


def _resolved(spec: MembershipSpec, source: Source) -> MembershipSpec:
    """Return the settings with the roles of the columns and the attacks."""
    spec = replace(spec, adversary=spec.adversaries)
    if source.dataset is not None:
        refuse_of_a_table(spec)
        return spec
    roles = roles_for(spec, source)
    bins = {name: ranges for name, ranges in roles.bins.items() if name == roles.label}
    return replace(spec, label=roles.label, group=roles.group, drop=roles.drop, bins=bins)


def _for_classes(
    spec: MembershipSpec, records: Records, task: Task, data: Dataset
) -> tuple[MembershipSpec, Records]:
    """Return settings without the attack on classes where the model scores none, and a note."""
    if has_classes(task, data):
        return spec, records
    left = tuple(one for one in spec.adversary if one != OF_CLASSES)
    return replace(spec, adversary=left), replace(records, notes=(*records.notes, NO_CLASSES))


def _refuse_layers(spec: MembershipSpec, task: Task, data: Dataset) -> None:
    """Refuse an attack whose settings name more layers than the model has."""
    for attack in attacks_of(spec):
        if not any(key in attack.name for key in ("layers=", "hidden=", "skip=")):
            continue
        count = len(layers_of(task, data))
        needs = attack.needs
        require(
            -1 <= needs.layers <= count and -1 <= needs.hidden < count,
            f"--adversary {attack.name} needs {needs.layers} layers with gradients and "
            f"{needs.hidden} hidden ones; the model has {count}, the last of which is not hidden",
        )


def _described(
    spec: MembershipSpec, source: Source, records: Records, roles: RecordRoles, task: Task
) -> Run:
    settings = {
        "adversary": [one.name for one in attacks_of(spec)],
        "defense": [one.name for one in defenses_of(spec)],
    }
    parts = {name: len(rows) for name, rows in asdict(roles.splits[0]).items()}
    return describe_run(spec, source, records, task, settings=settings, parts=parts)
