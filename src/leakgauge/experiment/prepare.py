"""From a user's table, or a user's own task, to the stages of a run and its description."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from leakgauge.audit import Settings, Stage, audit, stage, versions
from leakgauge.checks import nearest, require, require_choice, require_count
from leakgauge.data import Split, Table, encode, fingerprint, split_records
from leakgauge.defenses import Defense, parse_defense
from leakgauge.inference import ATTACKS, GAMES, AttributeInference, PropertyInference
from leakgauge.inference.games import MIN_BLOCKS
from leakgauge.models import mlp
from leakgauge.records import Record, Run
from leakgauge.rng import stream, torch_stream
from leakgauge.types import Dataset, Task

NEED_PUBLIC = 10
"""Fewer shadow records of a value than this teach no adversary."""

NEED_LABEL = 5
"""Fewer private records of a label than this teach no model."""


@dataclass(frozen=True)
class Plan:
    """What is asked of one run, by names and plain values.

    Attributes:
        asks: names of games.
        adversaries: names of attacks.
        settings: how they are played.
        shadow: shadow records, at most.
        hidden: widths of the hidden layers of the network for tables.
        device: where torch computes.
        defenses: ``"prune:rate=0.99"``, ...; training without a defense always stands beside them.
    """

    asks: tuple[str, ...]
    adversaries: tuple[str, ...]
    settings: Settings
    shadow: int = 1000
    hidden: tuple[int, ...] = (100,)
    device: str = "cpu"
    defenses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_count(self.shadow, "number of shadow records (--shadow)")
        for width in self.hidden:
            require_count(width, "width of a hidden layer (--hidden)")
        words = (("--ask", self.asks, GAMES), ("--adversary", self.adversaries, ATTACKS))
        for option, names, known in words:
            require(
                isinstance(names, tuple) and len(names) > 0,
                f"{option} is {names!r}; expected a tuple of one or more of {', '.join(known)}",
            )
            for name in names:
                require_choice(name, option, known)
            require(len(set(names)) == len(names), f"{option} names one twice: {', '.join(names)}")

    @property
    def parsed_defenses(self) -> list[Defense]:
        """No defense, then each of the others once."""
        texts = ("none", *self.defenses)
        found = [parse_defense(text, batch_size=self.settings.batch_size) for text in texts]
        return list({defense.name: defense for defense in found}.values())

    def about(self, secret: str) -> "Plan":
        """The same plan for another secret."""
        return replace(self, settings=replace(self.settings, secret=secret))


@dataclass(frozen=True, eq=False)
class Prepared:
    """Stages that are ready to run, and the description of the run.

    Attributes:
        stages: one for each question.
        run: for ``run.yaml`` and the report.
        dataset: the data's name; label, the label's.
    """

    stages: tuple[Stage, ...]
    run: Run
    dataset: str
    label: str

    def audit(self) -> list[Record]:
        """Play every stage in this process, keeping nothing on disk."""
        return [
            record
            for scene in self.stages
            for record in audit(scene, dataset=self.dataset, label=self.label)
        ]


@dataclass(frozen=True)
class Origin:
    """Where the data came from, for the description.

    Attributes:
        command: ``"audit"`` or ``"demo"``.
        name: the data's name.
        fingerprint: of the data as it came.
        settings: further settings, which the reading of the data depends on.
        notes: what was done to the data.
    """

    command: str = "audit"
    name: str = "table"
    fingerprint: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()


def from_table(table: Table, plan: Plan, origin: Origin = Origin()) -> Prepared:
    """An MLP on a table: split once, encoded for each question, one network for each.

    Raises:
        InputError: the table is too small for what is asked.
    """
    settings = plan.settings
    _refuse_unknown(settings.secret, table.secrets)
    values = table.values[settings.secret]
    split = _split(
        table.secrets[settings.secret], table.users, table.y, values, table.classes, plan
    )
    stages: list[Stage] = []
    for ask in plan.asks:
        keep = {AttributeInference.name: (settings.secret,), PropertyInference.name: ()}[ask]
        data = encode(table, fit_on=split.private, keep=keep)
        model = mlp(
            data.x.shape[1],
            len(table.classes),
            hidden=plan.hidden,
            generator=torch_stream(settings.seed, "model"),
        ).to(plan.device)
        stages += _stages(ask, Task(model, cross_entropy), data, split, plan)
    facts = {
        "records": len(table),
        "columns": table.features.shape[1],
        "secret_values": _counts(table.secrets[settings.secret], values),
        "persons": None if table.users is None else len(torch.unique(table.users)),
    }
    notes = [*origin.notes, *table.notes]
    run = _describe(stages, split, plan, origin, table.label, facts, notes)
    return Prepared(tuple(stages), run, origin.name, table.label)


def from_task(task: Task, data: Dataset, plan: Plan, origin: Origin = Origin()) -> Prepared:
    """The user's own model and data, the same for every question.

    Raises:
        InputError: the model or the data do not fit what is asked.
    """
    settings, schema = plan.settings, data.schema
    _refuse_unknown(settings.secret, data.secrets)
    codes = data.secrets[settings.secret]
    names = schema.secrets[settings.secret] if schema else ()
    split = _split(codes, data.users, data.y, names, schema.classes if schema else (), plan)
    if plan.device != "cpu":  # the caller's model stays where it is
        task = Task(copy.deepcopy(task.model).to(plan.device), task.loss)
    stages = [one for ask in plan.asks for one in _stages(ask, task, data, split, plan)]
    values = names or tuple(str(value) for value in range(int(codes.max()) + 1))
    facts = {
        "records": len(data),
        "columns": int(np.prod(data.x.shape[1:])),
        "secret_values": _counts(codes, values),
        "persons": None if data.users is None else len(torch.unique(data.users)),
    }
    label = schema.label if schema else "label"
    run = _describe(stages, split, plan, origin, label, facts, origin.notes)
    return Prepared(tuple(stages), run, origin.name, label)


def _refuse_unknown(secret: str, known: Mapping[str, Tensor]) -> None:
    require(secret in known, f"no secret {secret!r} in the data{nearest(secret, known)}")


def _split(
    secret: Tensor,
    users: Tensor | None,
    label: Tensor,
    values: Sequence[str],
    classes: Sequence[str],
    plan: Plan,
) -> Split:
    """The same whatever is asked, so that the questions of one run are about the same records."""
    return split_records(
        secret,
        users=users,
        label=label,
        values=values,
        classes=classes,
        shadow=plan.shadow,
        need_private=MIN_BLOCKS,
        need_public=NEED_PUBLIC,
        need_label=NEED_LABEL,
        rng=stream(plan.settings.seed, "split"),
    )


def _stages(ask: str, task: Task, data: Dataset, split: Split, plan: Plan) -> list[Stage]:
    """One without a defense, and one for each: the same records, trials and initial model."""
    attacks = [ATTACKS[name]() for name in plan.adversaries]
    return [
        stage(ask, task, data, split, attacks=attacks, settings=plan.settings, defense=defense)
        for defense in plan.parsed_defenses
    ]


def _counts(codes: Tensor, values: Sequence[str]) -> dict[str, int]:
    counts = torch.bincount(codes.cpu(), minlength=len(values)).tolist()
    return dict(zip(values, counts, strict=True))


def _describe(
    stages: Sequence[Stage],
    split: Split,
    plan: Plan,
    origin: Origin,
    label: str,
    facts: Mapping[str, Any],
    notes: Sequence[str],
) -> Run:
    return Run(
        command=origin.command,
        settings={
            "label": label,
            **origin.settings,
            "ask": list(plan.asks),
            "adversary": list(plan.adversaries),
            "defense": [defense.name for defense in plan.parsed_defenses[1:]],
            **asdict(plan.settings),
            "shadow": plan.shadow,
            "hidden": list(plan.hidden),
            "device": plan.device,
        },
        data={
            "name": origin.name,
            "fingerprint": origin.fingerprint,
            **{name: fact for name, fact in facts.items() if fact is not None},
            "private": len(split.private),
            "public": len(split.public),
            "test": len(split.test),
            "blocks": {scene.game.name: int(scene.game.block.max()) + 1 for scene in stages},
            "model": {scene.game.name: repr(scene.task.model) for scene in stages},
            "parameters": {
                scene.game.name: fingerprint(scene.task.model.state_dict()) for scene in stages
            },
        },
        notes=tuple(notes),
        versions=versions(),
    )
