"""Models of a federation as seen by its attacker in each round (Nasr et al., section II-B)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from leakgauge.core.rng import derive
from leakgauge.core.types import Dataset, Params
from leakgauge.data.split_members import MemberSplit
from leakgauge.membership.adversaries.adversary import Needs
from leakgauge.membership.run.roles import ATTACKER, RecordRoles
from leakgauge.membership.run.target_model import TargetModel, given_target, with_params
from leakgauge.membership.run.training import MembershipRecipe
from leakgauge.membership.spec import (
    BOTH,
    GLOBAL,
    ISOLATE,
    LOCAL,
    PASSIVE,
    QUESTION,
    TARGETS_ALONE,
    MembershipSpec,
)
from leakgauge.runs.parts import once_tensors
from leakgauge.runs.question import Progress
from leakgauge.runs.work import WorkFolder
from leakgauge.training.catalog import parse_optimizer
from leakgauge.training.federation import Round, federation
from leakgauge.training.participant import Participant
from leakgauge.training.protocol import Protocol
from leakgauge.training.state import State
from leakgauge.training.strategies import GradientAscent, Isolate, Strategy, Together


def federated_targets(
    recipe: MembershipRecipe,
    data: Dataset,
    roles: RecordRoles,
    folder: WorkFolder,
    progress: Progress,
) -> list[TargetModel]:
    """Return a target model for each attacked participant, or one for all others together.

    Passive attacks share one federation; an active one has its own for each attacked participant.
    The folder keeps the observed models.

    Raises:
        InputError: training diverges.
    """
    spec, splits = recipe.spec, roles.splits
    shared = spec.strategy == PASSIVE
    seen: list[list[Params]] = []
    for number, split in enumerate(splits):
        if not (shared and seen):
            attacked = range(len(splits)) if shared else [number]
            strategy = _strategy(spec, data, split, number)
            seen += _observed(recipe, data, roles.training, strategy, attacked, folder, progress)
    return [_target(recipe, data, *one) for one in zip(splits, seen, strict=True)]


def _target(
    recipe: MembershipRecipe, data: Dataset, split: MemberSplit, seen: Sequence[Params]
) -> TargetModel:
    snapshots = [with_params(recipe.task, tensors) for tensors in seen]
    target = given_target(snapshots, data, split, recipe)
    norms = target.seen(target.targets.rows, Needs(layers=1)).log_norm.exp().cpu().numpy()
    rounds = recipe.spec.observed_rounds
    return replace(target, norms={str(when): norms[:, t] for t, when in enumerate(rounds)})


def _strategy(
    spec: MembershipSpec, data: Dataset, split: MemberSplit, participant: int
) -> Strategy:
    parts: list[Strategy] = []
    if spec.strategy in (ISOLATE, BOTH):
        parts.append(Isolate(participant))
    if spec.ascends:
        raised = data.rows(raised_rows(spec, split))
        by = ATTACKER if spec.attacker == LOCAL else None
        parts.append(GradientAscent(raised.x, raised.y, spec.ascent_rate, spec.ascent, by=by))
    return Together(parts)


def raised_rows(spec: MembershipSpec, split: MemberSplit) -> Tensor:
    """Return the rows of the records whose loss an ascent raises.

    They are the targets, as in section IV-E of Nasr et al., and by default also the records that an
    attack learns from: it would otherwise learn from records that behave differently.
    """
    if spec.raised == TARGETS_ALONE:
        return torch.cat([split.target_members, split.target_non_members])
    return torch.cat([split.members, split.non_members])


def _observed(
    recipe: MembershipRecipe,
    data: Dataset,
    held: Sequence[Tensor],
    strategy: Strategy,
    attacked: Sequence[int],
    folder: WorkFolder,
    progress: Progress,
) -> list[list[Params]]:
    """Return the tensors of each attacked participant in each observed round."""
    name = f"{recipe.defense.name}/federation {attacked[0]}"
    rounds, like = recipe.spec.observed_rounds, dict(recipe.task.model.state_dict())
    keys = [(one, when) for one in attacked for when in rounds]
    shape = {f"{one}/{when}/{leaf}": like[leaf] for one, when in keys for leaf in like}

    def train() -> Params:
        seen: dict[str, Tensor] = {}
        for current in _rounds(recipe, data, held, strategy):
            progress.step(f"{QUESTION}: {name}", current.number, recipe.spec.rounds)
            if current.number in rounds:
                for one in attacked:
                    uploads = recipe.spec.attacker == GLOBAL  # else averages that all receive
                    tensors = current.uploaded(one) if uploads else current.state.shared
                    seen |= {f"{one}/{current.number}/{leaf}": tensors[leaf] for leaf in like}
        return seen

    kept = once_tensors(folder, name, train, like=shape)
    return [
        [{leaf: kept[f"{one}/{when}/{leaf}"] for leaf in like} for when in rounds]
        for one in attacked
    ]


def _rounds(
    recipe: MembershipRecipe, data: Dataset, held: Sequence[Tensor], strategy: Strategy
) -> Iterator[Round]:
    spec, task = recipe.spec, recipe.task
    protocol = Protocol(
        rounds=spec.rounds,
        lr=spec.lr,
        optimizer=parse_optimizer(spec.optimizer, lr=spec.lr),
        epochs=spec.local_epochs,
        batch_size=spec.batch_size,
    )
    participants = [Participant(data.rows(rows), recipe.defense) for rows in held]
    seed, start = derive(spec.seed, QUESTION, "federation"), State.of(task.model)
    return federation(task, start, participants, protocol, strategy=strategy, seed=seed)
