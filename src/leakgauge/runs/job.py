"""A cell of a grid with its data: what its figures depend on, and how it is prepared."""

import functools
from dataclasses import dataclass, replace
from typing import Any

from leakgauge.core.checks import require
from leakgauge.data import Roles, Source, open_data
from leakgauge.data.roles import resolve_roles
from leakgauge.inference.run import versions
from leakgauge.inference.run.description import Origin
from leakgauge.inference.run.prepare import Prepared, from_source
from leakgauge.inversion.run.spec import InversionCell
from leakgauge.runs.cell import AnyCell, Cell, plain
from leakgauge.runs.cellstore import key_of


@dataclass(frozen=True)
class Job:
    """A cell with all that its figures depend on.

    Attributes:
        cell: with its label, secret, group, dropped columns and bins filled in.
        data: the name of the data, for the records.
        fingerprint: of their content.
    """

    cell: AnyCell
    data: str
    fingerprint: str

    @property
    def identity(self) -> dict[str, Any]:
        """All that the figures depend on, as plain values; not where the data lie."""
        return {
            "settings": {**plain(self.cell), "data": self.data},
            "fingerprint": self.fingerprint,
            "versions": versions(),
        }

    @functools.cached_property
    def key(self) -> str:
        """The cell's name in a store."""
        return key_of(self.identity)


def job_of(cell: AnyCell) -> Job:
    """Read the cell's data and fill in what it leaves to them.

    Raises:
        InputError: there are no such data, or they do not say what the cell leaves open.
    """
    source = opened(cell.data, side_of(cell))
    if not isinstance(cell, Cell):
        return Job(cell.settled(source), source.name, source.fingerprint)
    roles = resolve_roles(
        source.roles,
        label=cell.label,
        secret=cell.secret,
        group=cell.group,
        drop=cell.drop,
        bins=cell.bins,
        secret_needed=cell.plan.about_more_than_persons,
        columns=source.frame.columns,
    )
    whole = replace(
        cell,
        label=roles.label,
        secret=next(iter(roles.secrets), None),
        group=roles.group,
        drop=roles.drop,
        bins=roles.bins,
    )
    return Job(whole, source.name, source.fingerprint)


def prepared(cell: Cell, source: Source) -> Prepared:
    """The stages of one cell.

    Raises:
        InputError: the data do not fit what is asked.
    """
    secrets = () if cell.secret is None else (cell.secret,)
    roles = Roles(str(cell.label), secrets, cell.group, cell.drop, cell.bins)
    settings = {
        "group": roles.group,
        "drop": list(roles.drop),
        "bins": dict(roles.bins),
        "drop_missing": cell.drop_missing,
    }
    origin = Origin("run", source.name, source.fingerprint, settings)
    plan = cell.plan.about(cell.secret or str(cell.group))
    return from_source(source, roles, plan, origin, drop_missing=cell.drop_missing)


def source_of(job: Job) -> Source:
    """The data of a job.

    Raises:
        InputError: they changed since the job was made.
    """
    source = opened(job.cell.data, side_of(job.cell))
    require(
        source.fingerprint == job.fingerprint,
        f"data {job.cell.data!r} changed since the run began; start it again",
    )
    return source


@functools.cache
def opened(name: str, side: int) -> Source:
    """The data, read once in each process."""
    return open_data(name, side=side)


def side_of(cell: AnyCell) -> int:
    """Height and width of images, in pixels."""
    return cell.side if isinstance(cell, InversionCell) else 32
