"""Infers from a kept update the records that its client trained on."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize, special
from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.core.rng import derive, stream
from leakgauge.core.types import Task
from leakgauge.data.split_members import MemberSplit, split_known
from leakgauge.federation.run.preparing import FederationPrepared
from leakgauge.federation.spec import ATTACKS, MEMBERSHIP, NAME, OVER_ROUNDS
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

MEMBERS = 2500
"""Largest number of records of a client in an attack, and of unused records.

Of so many unused ones 1,000 are targets, as a TPR at 0.1 % false alarms needs; the cost is that of
forward passes over them for each update.
"""


@dataclass(frozen=True, eq=False)
class MembershipResult:
    """The chosen attack's log odds for the targets of one update.

    Attributes:
        member: whether each target is the client's ``[n]``; members first, and then as many others
            or more.
        log_odds: log odds of that ``[n]``.
        adversary: the attack, or ``SEVERAL`` and the weight of each.
        known: whether each validation record is the client's ``[v]``.
        validation: their log odds ``[v]``.
    """

    member: NDArray[np.bool_]
    log_odds: NDArray[np.float64]
    adversary: str
    known: NDArray[np.bool_]
    validation: NDArray[np.float64]

    def to_arrays(self) -> Kept:
        """Return the result as arrays and plain values."""
        arrays = {name: value for name, value in vars(self).items() if name != "adversary"}
        return arrays, {"adversary": self.adversary}

    def estimates(self, *, seed: int) -> dict[str, Estimate]:
        """Return the figures on equally many members and others, resampled over the records."""
        equal = 2 * int(self.member.sum())
        truth = self.member[:equal].astype(np.int64)
        judged = ScoredTrials(truth, log_posterior(self.log_odds[:equal]), np.arange(equal))
        return score(judged, majority=0.5, rng=stream(seed, NAME, MEMBERSHIP, "bootstrap"))


def infer_members(prepared: FederationPrepared, one: KeptUpdate) -> MembershipResult:
    """Return the attacks' result from the model before and after a client's training.

    An attacker knows some of the client's records and some that no client has; other records are
    its targets. Several attacks are summed with weights from validation records (``weigh``).

    Raises:
        InputError: the records are too few, or no attack could be run.
    """
    spec = prepared.spec
    split, seed = records_around(prepared, one.client)
    recipe = MembershipRecipe(prepared.task, MembershipSpec(seed=spec.seed))
    target = given_target(models_of(prepared, one), prepared.data, split, recipe)
    attacks: list[MembershipAttack] = [
        LOSS_ATTACKS[name] if name in LOSS_ATTACKS else parse_attack(name)
        for name in spec.adversary or ATTACKS
        if name not in OVER_ROUNDS
    ]
    target = target.viewed([attack.needs for attack in attacks])
    found, refused = {}, []
    for attack in attacks:
        try:
            scores = run_attack(attack, target, fitted_at=target, seed=seed)
        except InputError as error:
            refused.append(f"{attack.name}: {error}")
            continue
        found[attack.name] = scores.targets, scores.validation
    if not found:
        raise InputError("; ".join(refused))
    known = target.validation.member
    name, log_odds, validation = summed(found, known)
    return MembershipResult(target.targets.member, log_odds, name, known, validation)


def records_around(prepared: FederationPrepared, client: str) -> tuple[MemberSplit, int]:
    """Return the known, validation and target records around a client, and the seed of attacks.

    They are the same in every round. Beyond as many targets that no client has as the client has
    itself, all others are targets too: they show rare false alarms.
    """
    seed = derive(prepared.spec.seed, NAME, MEMBERSHIP, client)
    rng = stream(seed, "records")
    sides = [_some(rows, rng) for rows in (prepared.held[client], prepared.public)]
    split = split_known(*sides, rng=rng)
    left = sides[1][~torch.isin(sides[1], split.non_members)]
    targets = torch.cat([split.target_non_members, left])
    return replace(split, target_non_members=targets), seed


def models_of(prepared: FederationPrepared, one: KeptUpdate) -> list[Task]:
    """Return the model that a client received, and the one that it sent."""
    update = one.update(prepared.task.model, prepared.training)
    before = {**update.before, **update.held}
    after = {**before, **update.after(), **update.buffers}
    return [with_params(prepared.task, tensors) for tensors in (before, after)]


def summed(
    found: Mapping[str, tuple[Floats, Floats]], known: NDArray[np.bool_]
) -> tuple[str, Floats, Floats]:
    """Return the sum of attacks with weights from validation records, see ``weigh``.

    Args:
        found: scores of target records ``[n]`` and of validation records ``[v]`` by attack.
        known: whether each validation record is a member ``[v]``.

    Returns:
        The name of the sum, and its scores of the targets and of the validation records.
    """
    if len(found) == 1:
        ((name, (targets, validation)),) = found.items()
        return name, targets, validation
    targets, validation = (np.stack(each) for each in zip(*found.values(), strict=True))
    weights, middle = weigh(validation, known), _middle(validation, known)
    shares = weights * _spread(validation)[:, 0]
    each = zip(found, shares / shares.sum(), strict=True)
    name = f"{SEVERAL} {', '.join(f'{one} {share:.0%}' for one, share in each)}"
    return name, weights @ (targets - middle), weights @ (validation - middle)


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
    member, known = (arrays[name].astype(bool) for name in ("member", "known"))
    validation = arrays["validation"]
    return MembershipResult(member, arrays["log_odds"], about["adversary"], known, validation)


def _some(rows: Tensor, rng: np.random.Generator) -> Tensor:
    order = torch.from_numpy(rng.permutation(len(rows))[:MEMBERS])
    return rows[order.to(rows.device)]
