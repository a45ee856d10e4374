"""Runs attacks on single layers, chooses the best for each layer, and adds them up."""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leakgauge.core.rng import stream
from leakgauge.core.threads import one_thread
from leakgauge.inference.adversaries.calibration import HeldOut
from leakgauge.inference.adversaries.partial import PartialAttack
from leakgauge.inference.adversaries.stacking import Stack
from leakgauge.layers.catalog import QUESTION, VOTES
from leakgauge.layers.information import calibrate, gain, joined, softmax_over_votes
from leakgauge.layers.run.observing import AttackerView
from leakgauge.runs.parts import Kept

Floats = NDArray[np.float64]

STACKED = "sum of layers"
"""Name of the attack that adds up the log-odds of attacks on single layers."""


@dataclass(frozen=True, eq=False)
class LayerJudgement:
    """The log-odds of one attack for held-out batches and for the trials.

    Attributes:
        layer: name of what the attack sees.
        adversary: name of the attack.
        held_out: log-odds of the two halves, and the truth.
        trials: log-odds ``[n, m]`` of the trials under a uniform prior.
        trees: number of trees of a forest; None for any other attack.
    """

    layer: str
    adversary: str
    held_out: tuple[HeldOut, HeldOut]
    trials: Floats
    trees: int | None = None

    @functools.cached_property
    def gain(self) -> float:
        """Mean gain over guessing on held-out batches, in nats."""
        return gain(self.held_out)

    def posterior(self, log_prior: Floats, calibration: str) -> Floats:
        """Return the log posteriors of the trials ``[n, m]``."""
        if calibration == VOTES:
            return softmax_over_votes(self._share())
        return calibrate(joined(self.held_out))(self.trials, log_prior)

    def _share(self) -> Floats:
        """Return the shares of a forest's votes; other attacks return their probabilities."""
        probability: Floats = np.exp(self.trials)
        if self.trees is None:
            return probability
        values = probability.shape[1]  # undo the smoothing of a forest's votes
        share: Floats = ((self.trees + values / 2) * probability - 0.5) / self.trees
        return share


def judge_layers(
    view: AttackerView, part: PartialAttack, layer: str, *, seed: int
) -> LayerJudgement:
    """Fit an attack on a part of the gradients, and return its log-odds."""
    values = len(view.log_prior)
    uniform = np.full(values, -np.log(values))
    rng = stream(seed, QUESTION, "fit", layer, part.name.partition(":")[0])
    with one_thread():
        adversary = part.fit(view.shadow, uniform, rng=rng)
        first, second = (
            HeldOut(adversary.log_posterior(seen), secret) for seen, secret in view.held_out
        )
        trials = adversary.log_posterior(view.seen)
    return LayerJudgement(
        layer, part.name, (first, second), trials, getattr(part.attack, "trees", None)
    )


def best(judgements: Iterable[LayerJudgement]) -> LayerJudgement:
    """Return the attack that held-out batches favour; the first of equals.

    The V-information is an infimum over the family; the choice does not use the trials that report
    it.
    """
    return max(judgements, key=lambda one: one.gain)


def stacked(judgements: Sequence[LayerJudgement], layer: str) -> LayerJudgement:
    """Return the weighted sum of the log-odds of attacks on several layers, as one attack.

    Each half of the held-out batches is scored with weights fitted on the other half, and the
    trials with weights fitted on both, so no batch is scored with weights fitted on it.

    Args:
        judgements: one attack per layer.
        layer: name of what they see together.
    """
    first, second = ([one.held_out[half] for one in judgements] for half in (0, 1))
    halves = (_weighted(first, _weights(second)), _weighted(second, _weights(first)))
    trials = np.tensordot(
        _weights([*map(joined_of, judgements)]), [one.trials for one in judgements], 1
    )
    return LayerJudgement(layer, STACKED, halves, trials)


def joined_of(one: LayerJudgement) -> HeldOut:
    """Return all held-out batches of an attack."""
    return joined(one.held_out)


def _weights(held_out: Sequence[HeldOut]) -> Floats:
    return Stack().fit(held_out)


def _weighted(held_out: Sequence[HeldOut], weights: Floats) -> HeldOut:
    sums = np.tensordot(weights, [one.log_odds for one in held_out], 1)
    return HeldOut(sums, held_out[0].secret)


def encoded(one: LayerJudgement) -> Kept:
    """Return an attack's log-odds as arrays and plain values."""
    first, second = one.held_out
    arrays = {
        "trials": one.trials,
        "first": first.log_odds,
        "first secret": first.secret,
        "second": second.log_odds,
        "second secret": second.secret,
    }
    about = {"layer": one.layer, "adversary": one.adversary, "trees": one.trees}
    return arrays, about


def decoded(kept: Kept) -> LayerJudgement:
    """Return the attack that ``encoded`` encoded."""
    arrays, about = kept
    first, second = (
        HeldOut(arrays[half], arrays[f"{half} secret"]) for half in ("first", "second")
    )
    return LayerJudgement(
        about["layer"], about["adversary"], (first, second), arrays["trials"], about["trees"]
    )
