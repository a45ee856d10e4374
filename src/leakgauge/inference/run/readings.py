"""Readings of an adversary: single rounds, sums of rounds, and the choice between them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from leakgauge.inference.adversaries.calibration import HeldOut
from leakgauge.inference.adversaries.stacking import (
    Stack,
    accumulate,
    accumulate_weighted,
    cross_weighted,
    pool,
)
from leakgauge.inference.catalog import shares_of
from leakgauge.inference.words import summed
from leakgauge.results.measurements import ACCUMULATED, STACKED, first_rounds
from leakgauge.results.scores import AUROC, ScoredTrials, figures
from leakgauge.results.statistics import Floats

MARGIN = 0.3
"""Required lead in held-out AUROC of another reading over the preferred one.

It holds for a single disjoint shadow batch of each secret; with k it is divided by the root of k,
as chance differences are. The preferred reading is a sum, which contains the others.
"""

PENALTY = 0.3
"""Penalty of the weights for a single disjoint shadow batch of each secret; with k divided by k.

With 500 shadow records of each secret in batches of 16 it equals the default of ``Stack``.
"""


@dataclass(frozen=True)
class WeightingRules:
    """Rules of weighting and choosing readings.

    Attributes:
        log_prior: log P(a) ``[m]``.
        batches: k, number of disjoint shadow batches of the rarest secret.
    """

    log_prior: Floats
    batches: float

    @property
    def margin(self) -> float:
        """Required lead in held-out AUROC of another reading over the preferred one."""
        return MARGIN / math.sqrt(max(1.0, self.batches))

    @property
    def stack(self) -> Stack:
        """Settings of the regression that fits the weights."""
        return Stack(PENALTY / max(1.0, self.batches))


@dataclass(frozen=True, eq=False)
class RunReading:
    """Posteriors of an adversary from one round, or from several.

    Attributes:
        when: number of the round, ``"first-5"``, ``"accumulated"`` or ``"stacked"``.
        log_posterior: log posteriors of the trials ``[n, m]``.
        held_out: log-odds of held-out shadow batches by secret, if any.
        details: settings and weights in words.
        seconds: computing time in seconds.
    """

    when: int | str
    log_posterior: Floats
    held_out: HeldOut | None = None
    details: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @cached_property
    def auroc(self) -> float | None:
        """AUROC on held-out shadow batches, if any."""
        if self.held_out is None:
            return None
        secret = self.held_out.secret
        trials = ScoredTrials(secret, self.held_out.log_odds, np.zeros(len(secret), dtype=np.int64))
        return figures(trials)[AUROC]

    @property
    def name(self) -> str:
        """The reading in words."""
        sums = {ACCUMULATED: "plain sum of the rounds", STACKED: "weighted sum of the rounds"}
        return sums.get(str(self.when), f"round {self.when} alone")


def over_rounds(
    rounds: Sequence[RunReading], rules: WeightingRules, *, weigh: bool
) -> list[RunReading]:
    """Return the sums of all rounds: weighted, if ``weigh``, and plain; the preferred one first.

    Args:
        rounds: single rounds of one adversary.
        rules: rules of the weights.
        weigh: whether all rounds have scores of held-out batches.
    """
    plain = plain_sum(rounds, rules, held_out=weigh)
    if not weigh:
        return [plain]
    text = "weights of the rounds: {}"
    return [replace(weighted(rounds, rules, STACKED, text), seconds=plain.seconds), plain]


def plain_sum(rounds: Sequence[RunReading], rules: WeightingRules, *, held_out: bool) -> RunReading:
    """Return the plain sum of all rounds.

    Args:
        rounds: single rounds of one adversary.
        rules: rules with the prior.
        held_out: whether all rounds have scores of held-out batches, to be summed as well.
    """
    posteriors = np.stack([one.log_posterior for one in rounds])
    total, kept = accumulate(posteriors, rules.log_prior), None
    if held_out:
        each = held_out_of(rounds)
        kept = HeldOut(np.sum([one.log_odds for one in each], axis=0), each[0].secret)
    return RunReading(ACCUMULATED, total, kept, seconds=sum(one.seconds for one in rounds))


def of_first_rounds(rounds: Sequence[RunReading], rules: WeightingRules) -> list[RunReading]:
    """Return the plain sums of the first rounds for the reported numbers of rounds.

    Args:
        rounds: single rounds of one adversary, from the first on.
        rules: rules with the prior.
    """
    posteriors = np.stack([one.log_posterior for one in rounds])
    return [
        RunReading(
            first_rounds(count),
            accumulate(posteriors[:count], rules.log_prior),
            seconds=sum(one.seconds for one in rounds[:count]),
        )
        for count in summed(len(rounds))
    ]


def weighted(
    parts: Sequence[RunReading],
    rules: WeightingRules,
    when: int | str,
    text: str,
) -> RunReading:
    """Return the weighted sum of rounds of one adversary, with weights from held-out batches.

    Args:
        parts: readings with scores of the same held-out batches.
        rules: rules of the weights.
        when: name of the sum.
        text: details with a placeholder for the weights.
    """
    held_out = held_out_of(parts)
    weights = rules.stack.fit(held_out)
    return _summed(parts, rules, when, text, weights, cross_weighted(held_out, rules.stack))


def pooled(
    parts: Mapping[str, RunReading], rules: WeightingRules, when: int | str, text: str
) -> RunReading:
    """Return the sum of the calibrated log-odds of several adversaries.

    Args:
        parts: reading of each adversary by name, with scores of the same held-out batches.
        rules: rules with the prior.
        when: name of the sum.
        text: details with a placeholder for the weights.
    """
    held_out = held_out_of([*parts.values()])
    weights = pool(held_out, shares_of([*parts]))
    sums = np.tensordot(weights, np.stack([one.log_odds for one in held_out]), 1)
    own = HeldOut(sums, held_out[0].secret)
    return _summed([*parts.values()], rules, when, text, weights, own)


def _summed(
    parts: Sequence[RunReading],
    rules: WeightingRules,
    when: int | str,
    text: str,
    weights: Floats,
    held_out: HeldOut,
) -> RunReading:
    posteriors = np.stack([one.log_posterior for one in parts])
    return RunReading(
        when,
        accumulate_weighted(posteriors, rules.log_prior, weights),
        held_out,
        {"accumulation": text.format(", ".join(f"{weight:.3g}" for weight in weights))},
    )


def held_out_of(readings: Sequence[RunReading]) -> list[HeldOut]:
    """Return the held-out log-odds of the readings."""
    return [one.held_out for one in readings if one.held_out is not None]


def chosen(readings: Sequence[RunReading], *, margin: float) -> RunReading | None:
    """Return the reading that held-out shadow data favour; None without such data.

    Args:
        readings: candidates, the preferred one first.
        margin: required lead in AUROC of any other reading.
    """
    able = [(one.auroc, one) for one in readings if one.auroc is not None]
    if not able:
        return None
    most, best = max(able, key=lambda pair: pair[0])
    least, preferred = able[0]
    return best if most > least + margin else preferred
