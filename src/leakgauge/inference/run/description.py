"""What a run is made of, in plain values for ``run.yaml`` and the report."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from leakgauge.data import Split, fingerprint
from leakgauge.gradients import params_of
from leakgauge.inference.run import Stage, versions
from leakgauge.inference.run.plan import Plan
from leakgauge.privacy.certificates import guarantees
from leakgauge.results.measurements import Run

PERSONS_SPLIT = (
    "the persons were split for user inference: 40 % are trained on, 40 % are the adversary's, "
    "20 % test; --shadow has no part in it"
)


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


UNTOLD = Origin()
"""Data of which nothing is known but the records."""


@dataclass(frozen=True, eq=False)
class Found:
    """What is known of the records before they are encoded."""

    label: str
    y: Tensor
    classes: Sequence[str]
    secrets: Mapping[str, Tensor]
    values: Mapping[str, tuple[str, ...]]
    users: Tensor | None
    columns: int
    notes: Sequence[str] = ()
    is_table: bool = False

    def facts(self, secret: str) -> dict[str, Any]:
        """How many, and of what; plain values for ``run.yaml``."""
        persons = None if self.users is None else len(torch.unique(self.users))
        facts: dict[str, Any] = {"records": len(self.y), "columns": self.columns}
        if secret in self.secrets:
            codes = self.secrets[secret]
            names = self.values.get(secret) or [str(v) for v in range(int(codes.max()) + 1)]
            counts = torch.bincount(codes.cpu(), minlength=len(names)).tolist()
            facts["secret_values"] = dict(zip(names, counts, strict=True))
        return facts if persons is None else {**facts, "persons": persons}


def describe(
    stages: Sequence[Stage], split: Split, found: Found, plan: Plan, origin: Origin
) -> Run:
    """All that is needed to repeat the run, and what its report says of its origin."""
    games = {scene.game.name: scene for scene in stages}
    return Run(
        command=origin.command,
        settings={
            "label": found.label,
            **origin.settings,
            "ask": list(plan.asks),
            "adversary": plan.adversary_names,
            "defense": [one.name for one in plan.parsed_defenses if one.name != "none"],
            **asdict(plan.settings),
            "shadow": plan.shadow,
            **({"hidden": list(plan.hidden)} if found.is_table else {}),
            "device": plan.device,
        },
        data={
            "name": origin.name,
            "fingerprint": origin.fingerprint,
            **found.facts(plan.settings.secret),
            "private": len(split.private),
            "public": len(split.public),
            "test": len(split.test),
            "games": {
                name: {"secret": scene.settings.secret, "values": list(scene.game.value_names)}
                for name, scene in games.items()
            },
            "blocks": {name: int(scene.game.block.max()) + 1 for name, scene in games.items()},
            "model": {name: repr(scene.task.model) for name, scene in games.items()},
            "parameters": {
                name: fingerprint(scene.task.model.state_dict()) for name, scene in games.items()
            },
        },
        notes=(
            *origin.notes,
            *found.notes,
            *([PERSONS_SPLIT] if plan.about_persons else []),
            *_notes(games.values()),
        ),
        versions=versions(),
        guarantees=_guarantees(stages),
    )


def _notes(scenes: Iterable[Stage]) -> list[str]:
    return [note for scene in scenes for note in scene.game.notes]


def _guarantees(stages: Sequence[Stage]) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for scene in stages:
        known.setdefault(scene.game.name, {})[scene.defense.name] = guarantees(
            scene.defense.release,
            batch_size=scene.settings.batch_size,
            records=len(scene.private),
            rounds=scene.settings.rounds,
            parameters=sum(leaf.numel() for leaf in params_of(scene.task.model).values()),
            classes=scene.game.values,
            majority=scene.majority,
        )
    return known
