"""Infers from a kept update the records that its client trained on."""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.core.rng import derive, stream
from leakgauge.data.split_members import split_known
from leakgauge.federation.run.preparing import FederationPrepared
from leakgauge.federation.spec import ATTACKS, MEMBERSHIP, NAME
from leakgauge.integrations.kept_reading import KeptUpdate
from leakgauge.membership.adversaries.adversary import Floats, MembershipAttack, log_posterior
from leakgauge.membership.adversaries.thresholds import ScoreAttack
from leakgauge.membership.catalog import parse_attack
from leakgauge.membership.observation import Observed
from leakgauge.membership.run.answering import run_attack
from leakgauge.membership.run.target_model import given_target, with_params
from leakgauge.membership.run.training import MembershipRecipe
from leakgauge.membership.spec import MembershipSpec
from leakgauge.results.measurements import Estimate
from leakgauge.results.roc import auroc
from leakgauge.results.scores import ScoredTrials, score
from leakgauge.runs.parts import Kept


@dataclass(frozen=True)
class LossAfter(ScoreAttack):
    """A low loss after the training means member (Yeom et al., CSF 2018)."""

    name: ClassVar[str] = "loss-after"

    def score(self, records: Observed) -> Floats:
        """Return minus the log loss at the last snapshot ``[n]``."""
        return np.asarray(-records.log_loss[:, -1].numpy(), np.float64)


@dataclass(frozen=True)
class LossDrop(ScoreAttack):
    """A loss that falls far during the training means member; easy records fall little.

    The model before the round represents one that was trained without the client.
    """

    name: ClassVar[str] = "loss-drop"

    def score(self, records: Observed) -> Floats:
        """Return how far the log loss falls from the first to the last snapshot ``[n]``."""
        return np.asarray((records.log_loss[:, 0] - records.log_loss[:, -1]).numpy(), np.float64)


LOSS_ATTACKS: Mapping[str, Any] = {one.name: one for one in (LossAfter(), LossDrop())}
"""Attacks by name; they run in addition to those of the membership question."""

MEMBERS = 400
"""Largest number of records of a client in an attack, and of unused records."""


@dataclass(frozen=True, eq=False)
class MembershipResult:
    """The chosen attack's log odds for the targets of one update.

    Attributes:
        member: whether each target is the client's ``[n]``.
        log_odds: log odds of that ``[n]``.
        adversary: the attack with the best validation AUROC.
    """

    member: NDArray[np.bool_]
    log_odds: NDArray[np.float64]
    adversary: str

    def to_arrays(self) -> Kept:
        """Return the result as arrays and plain values."""
        return {"member": self.member, "log_odds": self.log_odds}, {"adversary": self.adversary}

    def estimates(self, *, seed: int) -> dict[str, Estimate]:
        """Return the figures, resampled over the records."""
        truth = self.member.astype(np.int64)
        judged = ScoredTrials(truth, log_posterior(self.log_odds), np.arange(len(truth)))
        return score(judged, majority=0.5, rng=stream(seed, NAME, MEMBERSHIP, "bootstrap"))


def infer_members(prepared: FederationPrepared, one: KeptUpdate) -> MembershipResult:
    """Return the best attack's result from the model before and after a client's training.

    An attacker knows some of the client's records and some that no client has; other records are
    its targets.

    Raises:
        InputError: the records are too few, or no attack could be run.
    """
    spec = prepared.spec
    seed = derive(spec.seed, NAME, MEMBERSHIP, one.client)  # the same targets in every round
    rng = stream(seed, "records")
    sides = [_some(rows, rng) for rows in (prepared.held[one.client], prepared.public)]
    split = split_known(*sides, rng=rng)
    update = one.update(prepared.task.model, prepared.training)
    before = {**update.before, **update.held}
    after = {**before, **update.after(), **update.buffers}
    snapshots = [with_params(prepared.task, tensors) for tensors in (before, after)]
    recipe = MembershipRecipe(prepared.task, MembershipSpec(seed=spec.seed))
    target = given_target(snapshots, prepared.data, split, recipe)
    attacks: list[MembershipAttack] = [
        LOSS_ATTACKS[name] if name in LOSS_ATTACKS else parse_attack(name)
        for name in spec.adversary or ATTACKS
    ]
    target = target.viewed([attack.needs for attack in attacks])
    found: list[tuple[float, MembershipResult]] = []
    refused = []
    for attack in attacks:
        try:
            scores = run_attack(attack, target, fitted_at=target, seed=seed)
        except InputError as error:
            refused.append(f"{attack.name}: {error}")
            continue
        favour = float(auroc(target.validation.member, scores.validation))
        result = MembershipResult(target.targets.member, scores.targets, attack.name)
        found.append((favour, result))
    if not found:
        raise InputError("; ".join(refused))
    return max(found, key=itemgetter(0))[1]  # the first of equal ones


def from_arrays(kept: Kept) -> MembershipResult:
    """Return the result from the values of ``to_arrays``."""
    arrays, about = kept
    return MembershipResult(arrays["member"].astype(bool), arrays["log_odds"], about["adversary"])


def _some(rows: Tensor, rng: np.random.Generator) -> Tensor:
    order = torch.from_numpy(rng.permutation(len(rows))[:MEMBERS])
    return rows[order.to(rows.device)]
