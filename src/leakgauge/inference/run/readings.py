"""Readings of an adversary: single rounds and sums of them, and the one that shadow data favour."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from leakgauge.inference.adversaries.calibration import HeldOut
from leakgauge.inference.adversaries.stacking import (
    Stack,
    accumulate,
    accumulate_weighted,
    cross_weighted,
)
from leakgauge.inference.words import summed
from leakgauge.results.measurements import ACCUMULATED, STACKED, first_rounds
from leakgauge.results.scores import AUROC, Judged, figures

Floats = NDArray[np.float64]

MARGIN = 0.3
"""AUROC on held-out batches by which another reading must be better than the preferred one, where
there is a single disjoint shadow batch of each secret; with k it is divided by the root of k, as
such differences are by chance. The preferred one is a weighted sum: it holds what others hold.
"""

PENALTY = 0.3
"""Of the weights, likewise: divided by k. With 500 shadow records of each secret in batches of 16
it is that of ``Stack``."""


@dataclass(frozen=True)
class WeightingRules:
    """How readings are weighted and chosen.

    Attributes:
        log_prior: log P(a) ``[m]``.
        batches: number of disjoint shadow batches of the rarest secret, k.
    """

    log_prior: Floats
    batches: float

    @property
    def margin(self) -> float:
        """AUROC on held-out batches by which another reading must be better."""
        return MARGIN / math.sqrt(max(1.0, self.batches))

    @property
    def stack(self) -> Stack:
        """What fits the weights."""
        return Stack(PENALTY / max(1.0, self.batches))


@dataclass(frozen=True, eq=False)
class RunReading:
    """What an adversary says of the trials in one round, or over all of them.

    Attributes:
        when: the round, ``"first-5"``, ``"accumulated"`` or ``"stacked"``.
        log_posterior: of the trials ``[n, m]``.
        held_out: of held-out shadow batches, by secret; None where none were judged.
        details: what was used, in words.
        seconds: computing time.
    """

    when: int | str
    log_posterior: Floats
    held_out: HeldOut | None = None
    details: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @cached_property
    def auroc(self) -> float | None:
        """The AUROC on held-out shadow batches."""
        if self.held_out is None:
            return None
        secret = self.held_out.secret
        judged = Judged(secret, self.held_out.log_odds, np.zeros(len(secret), dtype=np.int64))
        return figures(judged)[AUROC]

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
        rounds: of one adversary.
        rules: how to weight them.
        weigh: whether all rounds judged held-out batches.
    """
    seconds = sum(one.seconds for one in rounds)
    posteriors = np.stack([one.log_posterior for one in rounds])
    held_out = None
    if weigh:
        each = held_out_of(rounds)
        held_out = HeldOut(np.sum([one.log_odds for one in each], axis=0), each[0].secret)
    plain = RunReading(
        ACCUMULATED, accumulate(posteriors, rules.log_prior), held_out, seconds=seconds
    )
    if not weigh:
        return [plain]
    text = "weights of the rounds: {}"
    return [replace(weighted(rounds, rules, STACKED, text), seconds=seconds), plain]


def of_first_rounds(rounds: Sequence[RunReading], rules: WeightingRules) -> list[RunReading]:
    """Return the plain sums of the first rounds, for the numbers of them that are reported.

    Args:
        rounds: of one adversary, from the first on.
        rules: how to weight them.
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
    groups: Sequence[int] = (),
) -> RunReading:
    """Return the weighted sum of readings; weights and judgement come from held-out batches.

    Args:
        parts: all with judgements of the same held-out batches.
        rules: how to weight them.
        when: of the sum.
        text: for the details, with a place for the weights.
        groups: number of the adversary of each part; empty for a single one.
    """
    held_out = held_out_of(parts)
    weights = rules.stack.fit(held_out, groups)
    posteriors = np.stack([one.log_posterior for one in parts])
    return RunReading(
        when,
        accumulate_weighted(posteriors, rules.log_prior, weights),
        cross_weighted(held_out, rules.stack, groups),
        {"accumulation": text.format(", ".join(f"{weight:.3g}" for weight in weights))},
    )


def held_out_of(readings: Sequence[RunReading]) -> list[HeldOut]:
    """Return the judgements of held-out batches; each reading has some."""
    return [one.held_out for one in readings if one.held_out is not None]


def chosen(readings: Sequence[RunReading], *, margin: float) -> RunReading | None:
    """Return the reading that held-out shadow data favour; None where none judged such data.

    Args:
        readings: the preferred one first.
        margin: AUROC by which another must be better.
    """
    able = [(one.auroc, one) for one in readings if one.auroc is not None]
    if not able:
        return None
    most, best = max(able, key=lambda pair: pair[0])
    least, preferred = able[0]
    return best if most > least + margin else preferred
