"""A target model, and the observations of attackers with different knowledge."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leakgauge.core.checks import InputError, require
from leakgauge.core.rng import stream
from leakgauge.core.types import Dataset, Params, Task
from leakgauge.data.split_members import MemberSplit
from leakgauge.gradients import params_of
from leakgauge.gradients.walk import walk
from leakgauge.membership.adversaries.adversary import (
    Labelled,
    MembershipKnowledge,
    Needs,
    ShadowRecords,
)
from leakgauge.membership.observation import Observed, last, observe
from leakgauge.membership.run.roles import RecordRoles
from leakgauge.membership.run.training import MembershipRecipe, Norms, measured_epochs
from leakgauge.membership.spec import QUESTION
from leakgauge.runs.parts import once_tensors
from leakgauge.runs.question import Progress
from leakgauge.runs.work import WorkFolder
from leakgauge.training import predict
from leakgauge.training.local import in_evaluation
from leakgauge.training.state import tensors_of, working_copy

FEWEST = 10
"""Smallest number of records for a shadow model."""

SIDES = ("fitting", "validation", "targets")

SHADOW_FITTING = 0.8
"""Share of a shadow model's records for fitting an attack; the others are for validation."""


@dataclass(frozen=True, eq=False)
class MemberRows:
    """Rows of members and of non-members."""

    members: Tensor
    others: Tensor

    @property
    def rows(self) -> Tensor:
        """The rows of members, then of the others."""
        return torch.cat([self.members, self.others])

    @property
    def member(self) -> NDArray[np.bool_]:
        """Whether each of ``rows`` is a member."""
        return np.arange(len(self.members) + len(self.others)) < len(self.members)


@dataclass(frozen=True, eq=False)
class TargetModel:
    """Snapshots of an attacked model, and the records around it.

    Attributes:
        snapshots: the model with the parameters of each snapshot, and its loss.
        data: all records.
        fitting: rows of known members and non-members.
        validation: rows of further known records, for choices.
        targets: rows of the target records.
        shadow: rows of the attacker's own records of the same kind.
        recipe: training of models on them.
        references: models trained on halves of the shadow records.
        norms: last-layer gradient norms of the targets by epoch of the training.
        views: shared observations of fitting, validation and target records by name; if empty,
            every attack computes its own.
    """

    snapshots: Sequence[Task]
    data: Dataset
    fitting: MemberRows
    validation: MemberRows
    targets: MemberRows
    shadow: Tensor
    recipe: MembershipRecipe
    references: Sequence[Task] = ()
    norms: Norms = field(default_factory=dict)
    views: Mapping[str, Observed] = field(default_factory=dict)

    @property
    def params(self) -> Params:
        """Parameters of the last snapshot."""
        return params_of(self.snapshots[-1].model)

    def known(self, needs: Needs) -> MembershipKnowledge:
        """Return the attacker's knowledge, with the observations that the attack needs."""
        return MembershipKnowledge(
            Labelled(self.side("fitting", needs), self.fitting.member),
            Labelled(self.side("validation", needs), self.validation.member),
            partial(shadow_of, self, needs),
        )

    def side(self, name: str, needs: Needs) -> Observed:
        """Return the observations of fitting, validation or target records."""
        if name not in self.views:
            return self.seen(getattr(self, name).rows, needs)
        return self.views[name].narrowed(
            layers=needs.layers, hidden=needs.hidden, references=needs.references
        )

    def viewed(self, needs: Sequence[Needs]) -> "TargetModel":
        """Return the model with shared observations that contain the needs of all attacks."""
        together = Needs(
            layers=_most([one.layers for one in needs]),
            hidden=_most([one.hidden for one in needs]),
            references=max(one.references for one in needs),
        )
        return replace(self, views={name: self.side(name, together) for name in SIDES})

    def seen(self, rows: Tensor, needs: Needs) -> Observed:
        """Return the observations of records."""
        references = self.references[: needs.references]
        return _observe(self.snapshots, self.data.rows(rows), needs, references)


def trained_target(
    data: Dataset,
    roles: RecordRoles,
    recipe: MembershipRecipe,
    references: int,
    folder: WorkFolder,
    progress: Progress,
) -> TargetModel:
    """Train a model on the members, and reference models on the attacker's records.

    The model is trained on each part of the members in order. The folder keeps trained models.

    Raises:
        InputError: training diverges.
    """
    split = roles.splits[0]
    shadow = split.shadow[: 2 * len(roles.members)]  # for shadow models of the target's size
    model = given_target((recipe.task,), data, replace(split, shadow=shadow), recipe)
    trained, norms = _attacked_models(model, roles.training, folder, progress)
    others = [
        _kept_model(model, reference_rows(model, number), f"reference {number}", folder)
        for number in range(references)
    ]
    snapshots = [with_params(recipe.task, one) for one in trained[-recipe.spec.snapshots :]]
    return replace(model, snapshots=snapshots, references=others, norms=norms)


def given_target(
    snapshots: Sequence[Task], data: Dataset, split: MemberSplit, recipe: MembershipRecipe
) -> TargetModel:
    """Return the target of a given model."""
    return TargetModel(
        snapshots=snapshots,
        data=data,
        fitting=MemberRows(split.known_members, split.known_non_members),
        validation=MemberRows(split.validation_members, split.validation_non_members),
        targets=MemberRows(split.target_members, split.target_non_members),
        shadow=split.shadow,
        recipe=recipe,
    )


def _attacked_models(
    model: TargetModel, training: Sequence[Tensor], folder: WorkFolder, progress: Progress
) -> tuple[Sequence[Params], Norms]:
    """Return the model's tensors after each part of the training, and gradient norms by epoch."""
    recipe, name = model.recipe, model.recipe.defense.name
    params: Params = tensors_of(recipe.task)
    found: dict[str, NDArray[np.float64]] = {}
    like = {f"{part}/{leaf}": params[leaf] for part in range(len(training)) for leaf in params}
    kept, norms = folder.tensors(f"{name}/model", like=like), folder.arrays(f"{name}/norms")
    if kept is None or norms is None:
        kept = {}
        for number, rows in enumerate(training):
            params = _trained_on(model, params, rows, number, len(training), found, progress)
            kept |= {f"{number}/{leaf}": value for leaf, value in params.items()}
        folder.keep_arrays(f"{name}/norms", found, {})
        folder.keep_tensors(f"{name}/model", kept)
        norms = found, {}
    each = [{leaf: kept[f"{part}/{leaf}"] for leaf in params} for part in range(len(training))]
    return each, norms[0]


def _trained_on(
    model: TargetModel,
    params: Params,
    rows: Tensor,
    part: int,
    parts: int,
    norms: dict[str, NDArray[np.float64]],
    progress: Progress,
) -> Params:
    """Return the model's tensors after a part of the training, and add its norms to ``norms``."""
    recipe, epochs, best = model.recipe, model.recipe.spec.rounds, -1.0
    role = "target" if part == 0 else f"target {part}"
    trained = recipe.epochs(model.data.rows(rows), role, start=params)
    for number, after in enumerate(trained, part * epochs + 1):
        found = _right(model, after) if recipe.spec.best_epoch else 0.0
        if found > best or not recipe.spec.best_epoch:
            best, params = found, after
        if number in measured_epochs(parts * epochs):
            norms[str(number)] = _norms_at(model, after)
        progress.step(f"{QUESTION}: training, {recipe.defense.name}", number, parts * epochs)
    return params


def _right(model: TargetModel, params: Params) -> float:
    """Return the share of validation non-members whose class the model predicts."""
    data = model.data.rows(model.validation.others)
    said = predict(with_params(model.recipe.task, params), {}, data)
    if said is None or data.y.ndim != 1 or data.y.is_floating_point():
        raise InputError("best_epoch needs labels that are classes; leave it out")
    return float((said == data.y).double().mean())


def _norms_at(model: TargetModel, params: Params) -> NDArray[np.float64]:
    snapshot = with_params(model.recipe.task, params)
    seen = replace(model, snapshots=(snapshot,)).seen(model.targets.rows, Needs(layers=1))
    return np.asarray(seen.log_norm[:, 0].exp().cpu().numpy(), np.float64)


def _kept_model(model: TargetModel, rows: Tensor, role: str, folder: WorkFolder) -> Task:
    recipe, name = model.recipe, f"{model.recipe.defense.name}/{role}"
    like = tensors_of(recipe.task)
    train = partial(recipe.last, model.data.rows(rows), role)
    return with_params(recipe.task, once_tensors(folder, name, train, like=like))


def shadow_of(model: TargetModel, needs: Needs) -> ShadowRecords:
    """Train a shadow model on half of the attacker's records, and return the observations at it."""
    require(
        len(model.shadow) >= FEWEST,
        f"there are {len(model.shadow)} records to train a shadow model on; a CHECKPOINT, a "
        "federation and fine-tuning have none",
    )
    order = _shuffled(model, "shadow")
    half = len(order) // 2
    recipe = model.recipe
    shadow = with_params(recipe.task, recipe.last(model.data.rows(order[:half]), "shadow model"))
    cut = round(SHADOW_FITTING * half)
    parts = []
    for part in (slice(0, cut), slice(cut, half)):
        sides = MemberRows(order[:half][part], order[half : 2 * half][part])
        seen = _observe([shadow] * len(model.snapshots), model.data.rows(sides.rows), needs, [])
        parts.append(Labelled(seen, sides.member))
    return ShadowRecords(*parts)


def reference_rows(model: TargetModel, number: int) -> Tensor:
    """Return the training records of a reference model: half of the shadow records."""
    order = _shuffled(model, "reference", number)
    return order[: len(order) // 2]


def with_params(task: Task, tensors: Params) -> Task:
    """Return the task on a copy of its model with these parameters and buffers, in eval mode."""
    return working_copy(in_evaluation(task), tensors)[0]


def layers_of(task: Task, data: Dataset) -> list[str]:
    """Return the names of the layers with parameters, in the order in which they run."""
    return [one.name for one in walk(task, data.x[:2]) if one.parameters]


def _observe(
    snapshots: Sequence[Task], data: Dataset, needs: Needs, references: Sequence[Task]
) -> Observed:
    layers = layers_of(snapshots[0], data)
    return observe(
        snapshots,
        data,
        layers=last(layers, needs.layers),
        hidden=last(layers[:-1], needs.hidden),
        references=references,
    )


def _most(counts: Sequence[int]) -> int:
    """Return the largest count; -1, which means all, is larger than any."""
    return -1 if -1 in counts else max(counts)


def _shuffled(model: TargetModel, *names: str | int) -> Tensor:
    order = stream(model.recipe.spec.seed, *names).permutation(len(model.shadow))
    return model.shadow[torch.from_numpy(order).to(model.shadow.device)]
