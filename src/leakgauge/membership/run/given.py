"""A given model with its members and others, instead of a model trained here."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from leakgauge.core.checks import InputError, require
from leakgauge.core.copying import copy_of
from leakgauge.core.numbers import is_number
from leakgauge.core.rng import stream
from leakgauge.core.types import Dataset, Task
from leakgauge.data import Source, fingerprint
from leakgauge.data.arrays import from_arrays
from leakgauge.data.read import read_npz
from leakgauge.data.split_members import split_known
from leakgauge.membership.run.roles import RecordRoles, cut
from leakgauge.membership.spec import MembershipSpec
from leakgauge.models.weights import load_weights


@dataclass(frozen=True, eq=False)
class GivenModel:
    """A given model and its records.

    Attributes:
        snapshots: the model with the weights of each checkpoint, in eval mode.
        data: members first, then others.
        roles: roles of the records, without shadow records.
        fingerprint: checksum of checkpoints and records.
    """

    snapshots: tuple[Task, ...]
    data: Dataset
    roles: RecordRoles
    fingerprint: str


def given_model(spec: MembershipSpec, source: Source) -> GivenModel:
    """Return the model and the records that a command names.

    Raises:
        InputError: a file cannot be read or does not fit, or records overlap or are too few.
    """
    assert source.task is not None
    assert source.dataset is not None
    assert spec.members is not None
    assert spec.non_members is not None
    given = source.task
    models = (load_weights(copy_of(given.model), Path(path)) for path in spec.checkpoint)
    snapshots = tuple(Task(one.to(spec.device).eval(), given.loss) for one in models)
    members = read_records(spec.members, source.dataset)
    others = read_records(spec.non_members, source.dataset)
    _refuse_overlap(members, others, spec)
    data = _together(members, others)
    rows = torch.split(torch.arange(len(data)), [len(members), len(others)])
    split = split_known(*rows, rng=stream(spec.seed, "members"))
    weights = [fingerprint(one.model.state_dict()) for one in snapshots]
    content = " ".join([*weights, fingerprint(data), str(len(members))])
    roles = RecordRoles([rows[0]], rows[1], [cut(split, spec)])
    found = hashlib.sha256(content.encode()).hexdigest()
    return GivenModel(snapshots, data.to(spec.device), roles, found)


def _together(members: Dataset, others: Dataset) -> Dataset:
    require(
        members.y.shape[1:] == others.y.shape[1:] and members.y.dtype == others.y.dtype,
        f"labels of members are {list(members.y.shape[1:])} {members.y.dtype} and of non-members "
        f"{list(others.y.shape[1:])} {others.y.dtype}; save both alike",
    )
    x, y = torch.cat([members.x, others.x]), torch.cat([members.y, others.y])
    return replace(members, x=x, y=y, secrets={}, users=None)


def _refuse_overlap(members: Dataset, others: Dataset, spec: MembershipSpec) -> None:
    """Raise an error for records in both files, as their membership is contradictory."""
    both = np.isin(_keys(others), _keys(members))
    count = int(both.sum())
    first = np.flatnonzero(both)[:3].tolist()
    require(
        count == 0,
        f"{count} of {len(others)} records in {spec.non_members!r} are in {spec.members!r}, too "
        f"(positions {', '.join(map(str, first))}{', ...' if count > 3 else ''}, counted from 0); "
        "leave them out of one",
    )


def _keys(data: Dataset) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
    """Return a digest of each record, its label included."""
    x, y = data.x.cpu().numpy(), data.y.cpu().numpy()
    content = (one.tobytes() + label.tobytes() for one, label in zip(x, y, strict=True))
    return np.array([hashlib.sha256(one).hexdigest() for one in content])


WANTED = "expected a .npz with arrays x and y, or a text file with one row number a line"


def read_records(path: str, data: Dataset) -> Dataset:
    """Return the records in a file.

    Args:
        path: a ``.npz`` with the model's inputs ``x`` ``[n, ...]`` and labels ``y`` ``[n]`` or
            ``[n, k]``; or a text file with one row number of ``data`` a line, counted from 0.
        data: records of the user's task.

    Raises:
        InputError: the file cannot be read, or does not fit the data.
    """
    file = Path(path)
    require(file.is_file(), f"records {path!r}: no such file; {WANTED}")
    if file.suffix == ".npz":
        return _from_arrays(file, data)
    return data.rows(torch.from_numpy(_rows(file, len(data))))


def _from_arrays(file: Path, data: Dataset) -> Dataset:
    arrays = read_npz(file, ("x", "y"))
    records = from_arrays(arrays["x"], arrays["y"], {}, dtype=data.x.dtype)
    wanted, came = list(data.x.shape[1:]), list(records.x.shape[1:])
    require(
        came == wanted,
        f"records in {str(file)!r} are of shape {came}; those of the task's Dataset are {wanted}",
    )
    return records


def _rows(file: Path, count: int) -> NDArray[np.int64]:
    try:
        lines = file.read_text(encoding="utf-8").split()
    except UnicodeDecodeError as error:
        raise InputError(f"records {str(file)!r} are not text; {WANTED}") from error
    bad = next((line for line in lines if not (line.isdecimal() and is_number(line))), None)
    require(bad is None, f"records {str(file)!r} hold {str(bad)[:40]!r}; {WANTED}")
    numbers = [int(line) for line in lines]
    largest = max(numbers, default=0)
    require(
        largest < count,
        f"records {str(file)!r} name row {largest}; the task's Dataset has {count} rows, "
        "counted from 0",
    )
    rows = np.array(numbers, dtype=np.int64)
    found, counts = np.unique(rows, return_counts=True)
    repeated = found[counts > 1]
    require(
        len(repeated) == 0,
        f"records {str(file)!r} name row {repeated[:1].sum()} more than once; name each once",
    )
    return rows
