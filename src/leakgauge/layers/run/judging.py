"""Runs attacks on single layers, chooses the best for each layer, and adds them up."""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leakgauge.core.rng import stream
from leakgauge.core.threads import one_thread
from leakgauge.inference.adversaries.calibration import HeldOut
from leakgauge.inference.adversaries.partial import PartialAttack
from leakgauge.inference.adversaries.stacking import Stack
from leakgauge.layers.catalog import QUESTION, VOTES
from leakgauge.layers.information import Floats, calibrate, gain, joined, softmax_over_votes
from leakgauge.layers.run.observing import AttackerView
from leakgauge.runs.parts import Kept

STACKED = "sum of layers"
"""Name of the attack that adds up the log-odds of attacks on single layers."""

HALVES = ("first", "second")
"""Names of the halves of the held-out batches in a folder."""


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
        if calibration != VOTES:
            return calibrate(joined(self.held_out))(self.trials, log_prior)
        share: Floats = np.exp(self.trials)  # attacks without votes return probabilities
        if self.trees is not None:  # undo the smoothing of a forest's votes
            share = ((self.trees + share.shape[1] / 2) * share - 0.5) / self.trees
        return softmax_over_votes(share)


def judge_layers(view: AttackerView, part: PartialAttack, layer: str, *, seed: int) -> Kept:
    """Fit an attack on a part of the gradients, and return its log-odds for ``decoded``."""
    values = len(view.log_prior)
    uniform = np.full(values, -np.log(values))
    rng = stream(seed, QUESTION, "fit", layer, part.name.partition(":")[0])
    arrays: dict[str, NDArray[Any]] = {}
    with one_thread():
        adversary = part.fit(view.shadow, uniform, rng=rng)
        for half, (seen, secret) in zip(HALVES, view.held_out, strict=True):
            arrays |= {half: adversary.log_posterior(seen), f"{half} secret": secret}
        arrays["trials"] = adversary.log_posterior(view.seen)
    trees = getattr(part.attack, "trees", None)
    return arrays, {"layer": layer, "adversary": part.name, "trees": trees}


def decoded(kept: Kept) -> LayerJudgement:
    """Return the attack whose log-odds ``judge_layers`` returned."""
    arrays, about = kept
    first, second = (HeldOut(arrays[half], arrays[f"{half} secret"]) for half in HALVES)
    return LayerJudgement(held_out=(first, second), trials=arrays["trials"], **about)


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
    weights = Stack().fit([joined(one.held_out) for one in judgements])
    trials = np.tensordot(weights, [one.trials for one in judgements], 1)
    halves = (_weighted(first, fit_on=second), _weighted(second, fit_on=first))
    return LayerJudgement(layer, STACKED, halves, trials)


def _weighted(held_out: Sequence[HeldOut], *, fit_on: Sequence[HeldOut]) -> HeldOut:
    sums = np.tensordot(Stack().fit(fit_on), [one.log_odds for one in held_out], 1)
    return HeldOut(sums, held_out[0].secret)
