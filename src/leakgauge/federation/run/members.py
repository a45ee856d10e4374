"""Infers from a kept update the records that its client trained on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize, special
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

SEVERAL = "weighted sum:"
"""First word of the name of several attacks."""

PRIOR = 10
"""Number of validation records that equal weights of the attacks count as."""

MEMBERS = 400
"""Largest number of records of a client in an attack, and of unused records."""


@dataclass(frozen=True, eq=False)
class MembershipResult:
    """The chosen attack's log odds for the targets of one update.

    Attributes:
        member: whether each target is the client's ``[n]``.
        log_odds: log odds of that ``[n]``.
        adversary: the attack, or ``SEVERAL`` and the weight of each.
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
    """Return the attacks' result from the model before and after a client's training.

    An attacker knows some of the client's records and some that no client has; other records are
    its targets. Several attacks are summed with weights from validation records (``weigh``).

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
    names, found, refused = [], [], []
    for attack in attacks:
        try:
            scores = run_attack(attack, target, fitted_at=target, seed=seed)
        except InputError as error:
            refused.append(f"{attack.name}: {error}")
            continue
        names.append(attack.name)
        found.append(scores)
    if not found:
        raise InputError("; ".join(refused))
    name, log_odds = names[0], found[0].targets
    if len(found) > 1:
        validation = np.stack([one.validation for one in found])
        known = target.validation.member
        weights = weigh(validation, known)
        log_odds = weights @ (np.stack([one.targets for one in found]) - _middle(validation, known))
        shares = weights * _spread(validation)[:, 0]
        each = zip(names, shares / shares.sum(), strict=True)
        name = f"{SEVERAL} {', '.join(f'{one} {share:.0%}' for one, share in each)}"
    return MembershipResult(target.targets.member, log_odds, name)


def weigh(scores: Floats, member: NDArray[np.bool_]) -> Floats:
    """Return weights ``[M]`` of attacks whose weighted sum tells members, near equal ones.

    A logistic regression on standardised scores, with a penalty on deviations from equal weights
    that counts as ``PRIOR`` records. A few validation records do not choose among attacks: the one
    that happens to be best on them is often not the best on others.

    Args:
        scores: scores of validation records ``[M, n]``, higher for members.
        member: whether each is a member ``[n]``.
    """
    scaled = (scores - _middle(scores, member)) / _spread(scores)
    sign, n = np.where(member, 1.0, -1.0), len(member)
    share = np.where(member, 0.5 / member.sum(), 0.5 / (~member).sum())
    equal = np.full(len(scores), 1 / len(scores))

    def loss(weights: Floats) -> tuple[float, Floats]:
        apart, right = weights - equal, sign * (weights @ scaled)
        value = share @ np.logaddexp(0, -right) + PRIOR / n / 2 * apart @ apart
        slope = -scaled @ (share * sign * special.expit(-right)) + PRIOR / n * apart
        return float(value), slope

    bounds = [(0.0, None)] * len(scores)
    best = optimize.minimize(loss, equal, jac=True, method="L-BFGS-B", bounds=bounds)
    weights: Floats = best.x if best.x.any() else equal
    return weights / _spread(scores)[:, 0]


def _middle(scores: Floats, member: NDArray[np.bool_]) -> Floats:
    means = [scores[:, side].mean(axis=1, keepdims=True) for side in (member, ~member)]
    return np.asarray(sum(means) / 2)


def _spread(scores: Floats) -> Floats:
    spread = scores.std(axis=1, keepdims=True)
    return np.asarray(np.where(spread > 0, spread, 1.0))


def from_arrays(kept: Kept) -> MembershipResult:
    """Return the result from the values of ``to_arrays``."""
    arrays, about = kept
    return MembershipResult(arrays["member"].astype(bool), arrays["log_odds"], about["adversary"])


def _some(rows: Tensor, rng: np.random.Generator) -> Tensor:
    order = torch.from_numpy(rng.permutation(len(rows))[:MEMBERS])
    return rows[order.to(rows.device)]
