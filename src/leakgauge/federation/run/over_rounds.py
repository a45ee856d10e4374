"""Membership over all kept rounds of a client, also against the models of the other clients."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

from leakgauge.core.rng import stream
from leakgauge.core.types import Dataset, Task
from leakgauge.federation.metrics import AUROC_OVER, TPR_01_OVER, TPR_1_OVER
from leakgauge.federation.run.members import MembershipResult, models_of, records_around, summed
from leakgauge.federation.run.preparing import FederationPrepared
from leakgauge.federation.spec import (
    FEDMIA_COSINE,
    FEDMIA_LOSS,
    FEWEST_CLIENTS,
    MEMBERSHIP,
    NAME,
    OVER_ROUNDS,
)
from leakgauge.gradients import MAX_BYTES, iter_batch_gradients, params_of
from leakgauge.gradients.flattening import flatten
from leakgauge.integrations.kept_reading import KeptUpdate
from leakgauge.membership.adversaries.adversary import Floats, log_posterior
from leakgauge.membership.observation import observe
from leakgauge.membership.run.scoring import guessed_rate
from leakgauge.results.few_errors import tpr_interval
from leakgauge.results.measurements import Estimate
from leakgauge.results.roc import auroc, tpr_at_fpr
from leakgauge.results.scores import (
    AUROC,
    TPR_AT_1_FPR,
    ScoredTrials,
    chance,
    score,
    shows_rate,
)
from leakgauge.runs.parts import Kept

SUM = "sum of rounds"
"""Name of the sum of the attacks on single rounds."""

VARIANCE = 1e-8
"""Added to the variance over clients, as in the authors' code."""


@dataclass(frozen=True, eq=False)
class OverRounds:
    """Scores of the targets of one client over all rounds.

    Attributes:
        member: whether each target is the client's ``[n]``.
        scores: scores of the targets ``[n]`` by attack, higher for members.
        known: whether each validation record is the client's ``[v]``.
        validation: scores of the validation records ``[v]`` by attack.
    """

    member: NDArray[np.bool_]
    scores: Mapping[str, Floats]
    known: NDArray[np.bool_]
    validation: Mapping[str, Floats]

    def together(self) -> tuple[str, Floats, Floats]:
        """Return name and scores of the weighted sum of the attacks, see ``summed``."""
        each = {name: (self.scores[name], self.validation[name]) for name in self.scores}
        return summed(each, self.known)

    @property
    def held_out(self) -> float:
        """AUROC of the weighted sum on the validation records."""
        return float(auroc(self.known, self.together()[2]))

    def aurocs(self) -> dict[str, float]:
        """Return the AUROC of each attack alone on the targets."""
        return {name: float(auroc(self.member, one)) for name, one in self.scores.items()}

    def figures(self, *, seed: int) -> dict[str, tuple[Estimate, float]]:
        """Return the figures of the weighted sum with their values without leakage.

        A true positive rate is left out where the non-members show no false positive rate so small.
        """
        log_odds = self.together()[1]
        truth, block = self.member.astype(np.int64), np.arange(len(self.member))
        judged = ScoredTrials(truth, log_posterior(log_odds), block)
        found = score(judged, majority=0.5, rng=stream(seed, NAME, MEMBERSHIP, "bootstrap"))
        guess = chance(truth, 0.5)
        made = {AUROC_OVER: (found[AUROC], guess[AUROC])}
        if TPR_AT_1_FPR in found:
            made[TPR_1_OVER] = found[TPR_AT_1_FPR], guess[TPR_AT_1_FPR]
        if shows_rate(self.member, 0.001):
            value = float(tpr_at_fpr(self.member, log_odds, 0.001))
            ends = tpr_interval(self.member, log_odds, block, 0.001)
            rare = Estimate(value, *ends, len(truth))
            made[TPR_01_OVER] = rare, guessed_rate(truth, 0.001)
        return made


def attacks_over_rounds(prepared: FederationPrepared) -> list[str]:
    """Return the names of the attacks on all rounds; all of them unless the settings name some."""
    asked = prepared.spec.adversary
    return [name for name in OVER_ROUNDS if not asked or name in asked]


def rounds_with_others(prepared: FederationPrepared, client: str) -> list[list[KeptUpdate]]:
    """Return all updates of each attacked round in which enough clients took part, theirs first."""
    found = []
    for one in prepared.kept.updates:
        here = [each for each in prepared.whole.updates if each.number == one.number]
        if one.client == client and len(here) >= FEWEST_CLIENTS:
            found.append(sorted(here, key=lambda each: each.client != client))
    return found


def is_compared(prepared: FederationPrepared, client: str) -> bool:
    """Return whether attacks compare a client with others in some round."""
    return bool(attacks_over_rounds(prepared)) and bool(rounds_with_others(prepared, client))


def infer_over_rounds(
    prepared: FederationPrepared, client: str, single: Sequence[MembershipResult]
) -> OverRounds:
    """Return the scores of a client's targets over all rounds.

    ``fedmia-loss`` and ``fedmia-cosine`` take the other clients of a round as models that were not
    trained on a record (Zhu et al.). In each round, a number of the record is measured at every
    client: minus the loss of its uploaded model, or the cosine between the record's gradient at the
    received model and the client's change of weights, with the sign of a step down the loss. The
    others' mean and variance give a Gaussian, and the probability that it lies below the client's
    number is the score of the round.

    The authors' code averages over the rounds both the probabilities and their logarithms; here it
    is the probabilities. As in that code, the variance is that of the other clients alone, without
    a correction for their number, plus 1e-8. On outputs, the code measures a margin of logits; here
    it is the loss itself.

    Args:
        prepared: the kept updates and the auditor's records.
        client: name of the client.
        single: results of the attacks on its single rounds.

    References:
        Zhu et al., "FedMIA: An Effective Membership Inference Attack Exploiting 'All for One'
        Principle in Federated Learning", CVPR 2025, arXiv 2402.06289.
    """
    first = single[0]
    scores = {SUM: np.mean([one.log_odds for one in single], axis=0)}
    validation = {SUM: np.mean([one.validation for one in single], axis=0)}
    rounds, names = rounds_with_others(prepared, client), attacks_over_rounds(prepared)
    if rounds and names:
        split, _ = records_around(prepared, client)
        parts = (split.target_members, split.target_non_members)
        held_out = (split.validation_members, split.validation_non_members)
        rows = torch.cat([*parts, *held_out])
        each = [_measured(prepared, here, rows, names) for here in rounds]
        for name in names:
            found = against_others([one[name] for one in each])
            scores[name], validation[name] = np.split(found, [len(first.member)])
    return OverRounds(first.member, scores, first.known, validation)


def against_others(rounds: Sequence[Floats]) -> Floats:
    """Return the score of each record ``[n]`` from measurements ``[clients, n]`` of each round.

    The first client is the attacked one. The score is ``-log(1 - p)``, with p the mean probability
    of the rounds: it ranks as p does, and does not round to 1 where p does.

    >>> against_others([np.array([[2.0, 0.0], [0.0, 0.0], [2.0, 1.0]])]).round(3).tolist()
    [1.841, 0.173]
    """
    tails = []
    for measured in rounds:
        own, others = measured[0], measured[1:]
        spread = np.sqrt(others.var(axis=0) + VARIANCE)
        tails.append(scipy.stats.norm.logsf(own, others.mean(axis=0), spread))
    return np.asarray(np.log(len(tails)) - special.logsumexp(tails, axis=0))


def _measured(
    prepared: FederationPrepared, here: Sequence[KeptUpdate], rows: Tensor, names: Sequence[str]
) -> dict[str, Floats]:
    """Return the measurements of records in one round ``[clients, n]``, by attack."""
    data = prepared.data.rows(rows.to(prepared.data.y.device))
    models = [models_of(prepared, one) for one in here]
    found = {}
    if FEDMIA_LOSS in names:
        seen = observe([after for _, after in models], data)
        found[FEDMIA_LOSS] = -seen.log_loss.exp().T.cpu().numpy()
    if FEDMIA_COSINE in names:
        found[FEDMIA_COSINE] = np.empty((len(here), len(rows)))
        for together in _by_received(here):
            same = [models[at] for at in together]
            found[FEDMIA_COSINE][together] = cosines(same[0][0], data, [two for _, two in same])
    return found


def _by_received(here: Sequence[KeptUpdate]) -> Iterator[list[int]]:
    """Yield positions of the updates of clients that received the same model."""
    for received in dict.fromkeys(one.files[0][1] for one in here):
        yield [at for at, one in enumerate(here) if one.files[0][1] == received]


def cosines(received: Task, data: Dataset, sent: Sequence[Task]) -> Floats:
    """Return the cosine of each record's gradient with the way of each client ``[clients, n]``.

    Args:
        received: the model before the training, where gradients are taken.
        data: the records.
        sent: the model of each client after it.
    """
    before = params_of(received.model)
    after = [params_of(one.model) for one in sent]
    ways = [{name: (leaf - one[name])[None] for name, leaf in before.items()} for one in after]
    unit = _unit(torch.cat([flatten(one) for one in ways]).double())
    rows = torch.arange(len(data), device=data.y.device)[:, None]
    parts = [
        unit @ _unit(flatten(grads).double()).T
        for _, grads in iter_batch_gradients(
            received, before, data.x, data.y, rows, max_bytes=MAX_BYTES
        )
    ]
    return np.asarray(torch.cat(parts, dim=1).cpu().numpy())


def _unit(vectors: Tensor) -> Tensor:
    """Return vectors ``[k, d]`` of length 1; a vector of zeros stays."""
    norm = vectors.norm(dim=1, keepdim=True)
    return vectors / torch.where(norm > 0, norm, 1.0)


def to_arrays(found: OverRounds) -> Kept:
    """Return the result as arrays and plain values."""
    parts = {"scores": found.scores, "validation": found.validation}
    arrays = {f"{part} {name}": one for part, each in parts.items() for name, one in each.items()}
    return {"member": found.member, "known": found.known, **arrays}, {"names": list(found.scores)}


def from_arrays(kept: Kept) -> OverRounds:
    """Return the result from the values of ``to_arrays``."""
    arrays, about = kept
    scores, validation = (
        {name: arrays[f"{part} {name}"] for name in about["names"]}
        for part in ("scores", "validation")
    )
    member, known = (arrays[name].astype(bool) for name in ("member", "known"))
    return OverRounds(member, scores, known, validation)
