"""From a user's table or images, or a user's own task, to the stages of a run."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from torch import nn
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import nearest, require
from leakgauge.core.rng import stream, torch_stream
from leakgauge.core.types import Dataset, Task
from leakgauge.data import Roles, Source, Split, Table, encode, split_records
from leakgauge.data.image_tables import encode_pictures, make_picture_table
from leakgauge.data.split_users import split_users
from leakgauge.data.table import make_table
from leakgauge.inference import AttributeInference, UserInference
from leakgauge.inference.games.blocks import MIN_BLOCKS
from leakgauge.inference.games.users import persons_of
from leakgauge.inference.run import Settings, Stage, audit, stage
from leakgauge.inference.run.description import UNTOLD, Found, Origin, describe
from leakgauge.inference.run.plan import Plan
from leakgauge.models import cnn, mlp
from leakgauge.results.measurements import Measurement, Run

NEED_PUBLIC = 10
"""Fewer shadow records of a value than this teach no adversary."""

NEED_LABEL = 5
"""Fewer private records of a label than this teach no model."""

PERSON = "person"
"""The name of what user inference asks for, where no column names the persons."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """Stages that are ready to run, and the description of the run.

    Attributes:
        stages: one for each question and defense.
        run: for ``run.yaml`` and the report.
        dataset: the data's name; label, the label's.
    """

    stages: tuple[Stage, ...]
    run: Run
    dataset: str
    label: str

    def audit(self) -> list[Measurement]:
        """Play every stage in this process, keeping nothing on disk."""
        return [
            record
            for scene in self.stages
            for record in audit(scene, dataset=self.dataset, label=self.label)
        ]


Encoding = Callable[[str, Split], tuple[Task, Dataset]]
"""(the question asked, whose the records are) -> the task, and all records encoded."""


def from_source(
    source: Source,
    roles: Roles,
    plan: Plan,
    origin: Origin = UNTOLD,
    *,
    drop_missing: bool = False,
) -> Prepared:
    """A network for what ``open_data`` found: an MLP for a table, a CNN for images.

    Raises:
        InputError: the data do not fit the roles, or are too few for what is asked.
    """
    origin = replace(origin, notes=[*origin.notes, *source.notes])
    if source.pixels is None:
        return from_table(make_table(source.frame, roles, drop_missing=drop_missing), plan, origin)
    table, rows = make_picture_table(source.frame, roles, drop_missing=drop_missing)
    pixels = source.pixels
    _, channels, height, width = pixels.shape
    require(height == width, f"images are {height} x {width}; expected squares")

    def encoded(ask: str, split: Split) -> tuple[Task, Dataset]:
        require(
            ask != AttributeInference.name,
            "the features of images are their pixels, so no attribute is among them; ask for the "
            "property",
        )
        generator = torch_stream(plan.settings.seed, "model")
        model = cnn(channels, len(table.classes), height, generator=generator)
        data = encode_pictures(table, pixels, rows, fit_on=split.private)
        return _task(model, plan), data

    return _from_table(table, encoded, plan, origin, pixels=channels * height * width)


def from_table(table: Table, plan: Plan, origin: Origin = UNTOLD) -> Prepared:
    """An MLP on a table: split once, encoded for each question, one network for each.

    Raises:
        InputError: the table is too small for what is asked.
    """
    secret = plan.settings.secret

    def encoded(ask: str, split: Split) -> tuple[Task, Dataset]:
        keep = (secret,) if ask == AttributeInference.name else ()
        data = encode(table, fit_on=split.private, keep=keep)
        generator = torch_stream(plan.settings.seed, "model")
        model = mlp(data.x.shape[1], len(table.classes), hidden=plan.hidden, generator=generator)
        return _task(model, plan), data

    return _from_table(table, encoded, plan, origin)


def from_task(task: Task, data: Dataset, plan: Plan, origin: Origin = UNTOLD) -> Prepared:
    """The user's own model and data, the same for every question.

    Raises:
        InputError: the model or the data do not fit what is asked.
    """
    schema = data.schema
    if plan.device != "cpu":  # the caller's model stays where it is
        task = Task(copy.deepcopy(task.model).to(plan.device), task.loss)
    found = Found(
        label=schema.label if schema else "label",
        y=data.y,
        classes=schema.classes if schema else (),
        secrets=data.secrets,
        values=schema.secrets if schema else {},
        users=data.users,
        columns=int(np.prod(data.x.shape[1:])),
    )
    return _prepared(found, lambda ask, split: (task, data), plan, origin)


def _task(model: nn.Module, plan: Plan) -> Task:
    return Task(model.to(plan.device), cross_entropy)


def _from_table(
    table: Table, encoded: Encoding, plan: Plan, origin: Origin, *, pixels: int | None = None
) -> Prepared:
    found = Found(
        label=table.label,
        y=table.y,
        classes=table.classes,
        secrets=table.secrets,
        values=table.values,
        users=table.users,
        columns=table.features.shape[1] if pixels is None else pixels,
        notes=table.notes,
        is_table=pixels is None,
    )
    return _prepared(found, encoded, plan, origin)


def _prepared(found: Found, encoded: Encoding, plan: Plan, origin: Origin) -> Prepared:
    secret = plan.settings.secret
    if plan.about_more_than_persons:
        require(
            secret in found.secrets,
            f"no secret {secret!r} in the data{nearest(secret, found.secrets)}",
        )
    split = _split(found, plan)
    stages: list[Stage] = []
    for ask in plan.asks:
        task, data = encoded(ask, split)
        stages += [
            stage(
                ask,
                task,
                data,
                split,
                attacks=plan.attacks(ask),
                settings=_settings(ask, plan, origin),
                defense=defense,
            )
            for defense in plan.parsed_defenses
        ]
    run = describe(stages, split, found, plan, origin)
    return Prepared(tuple(stages), run, origin.name, found.label)


def _settings(ask: str, plan: Plan, origin: Origin) -> Settings:
    """User inference asks for the person, whatever else the run asks for."""
    if ask != UserInference.name:
        return plan.settings
    return replace(plan.settings, secret=origin.settings.get("group") or PERSON)


def _split(found: Found, plan: Plan) -> Split:
    """The same whatever is asked, so that the questions of one run are about the same records."""
    rng = stream(plan.settings.seed, "split")
    if plan.about_persons:
        users = persons_of(found.users)
        split = split_users(
            users, label=found.y, classes=found.classes, need_label=NEED_LABEL, rng=rng
        )
        _refuse_rare(found, plan, split)
        return split
    secret = plan.settings.secret
    return split_records(
        found.secrets[secret],
        users=found.users,
        label=found.y,
        values=found.values.get(secret, ()),
        classes=found.classes,
        shadow=plan.shadow,
        need_private=MIN_BLOCKS,
        need_public=NEED_PUBLIC,
        need_label=NEED_LABEL,
        rng=rng,
    )


def _refuse_rare(found: Found, plan: Plan, split: Split) -> None:
    """Persons are split without a look at the secret, which other questions need on both sides."""
    secret = plan.settings.secret
    if secret not in found.secrets or not plan.about_more_than_persons:
        return
    codes = found.secrets[secret].cpu()
    for value in range(int(codes.max()) + 1):
        private, public = (
            int((codes[rows] == value).sum()) for rows in (split.private, split.public)
        )
        names = found.values.get(secret, ())
        name = names[value] if names else value
        require(
            private >= MIN_BLOCKS and public >= NEED_PUBLIC,
            f"secret value {str(name)!r} has {private} private and {public} public records where "
            f"persons are split for user inference; needed are {MIN_BLOCKS} and {NEED_PUBLIC}: ask "
            "for the user in a run of its own",
        )
