"""Lets attacks on single layers judge the batches, and takes the best one of each layer."""

from __future__ import annotations

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
from leakgauge.layers.calibration import calibrate, gain, joined
from leakgauge.layers.information import softmax_over_votes
from leakgauge.layers.run.scene import Scene
from leakgauge.layers.words import QUESTION, VOTES
from leakgauge.runs.stages import Kept

Floats = NDArray[np.float64]

STACKED = "sum of layers"
"""The attack that adds up what attacks on single layers say."""


@dataclass(frozen=True, eq=False)
class Heard:
    """What one attack says of held-out batches and of the trials.

    Attributes:
        layer: what it sees.
        adversary: its name.
        held_out: log-odds of the two halves, and the truth.
        trials: log-odds ``[n, m]`` of the trials under a uniform prior.
        trees: of a forest, whose votes the paper takes for logits; None for any other attack.
    """

    layer: str
    adversary: str
    held_out: tuple[HeldOut, HeldOut]
    trials: Floats
    trees: int | None = None

    @functools.cached_property
    def gain(self) -> float:
        """How much better than guessing it judges held-out batches, in nats."""
        return gain(self.held_out)

    def posterior(self, log_prior: Floats, calibration: str) -> Floats:
        """Return its log posteriors of the trials ``[n, m]``."""
        if calibration == VOTES:
            return softmax_over_votes(self._share())
        return calibrate(joined(self.held_out))(self.trials, log_prior)

    def _share(self) -> Floats:
        """Return the shares of the votes; of an attack without votes, its probabilities."""
        probability: Floats = np.exp(self.trials)
        if self.trees is None:
            return probability
        values = probability.shape[1]  # a forest's votes are smoothed, which is undone here
        share: Floats = ((self.trees + values / 2) * probability - 0.5) / self.trees
        return share


def hear(scene: Scene, part: PartialAttack, layer: str, *, seed: int) -> Heard:
    """Fit an attack on a part of the gradients, and let it judge."""
    values = len(scene.log_prior)
    uniform = np.full(values, -np.log(values))
    rng = stream(seed, QUESTION, "fit", layer, part.name.partition(":")[0])
    with one_thread():
        adversary = part.fit(scene.shadow, uniform, rng=rng)
        first, second = (
            HeldOut(adversary.log_posterior(seen), secret) for seen, secret in scene.held_out
        )
        trials = adversary.log_posterior(scene.seen)
    return Heard(layer, part.name, (first, second), trials, getattr(part.attack, "trees", None))


def best(heard: Iterable[Heard]) -> Heard:
    """Return the attack that held-out batches favour; the first of equals.

    The V-information is an infimum over the family; the trials that report it have no part in the
    choice.
    """
    return max(heard, key=lambda one: one.gain)


def stacked(heard: Sequence[Heard], layer: str) -> Heard:
    """Return the weighted sum of what attacks on several layers say, as one attack.

    The weights are fitted on one half of the held-out batches to judge the other half, and on
    both to judge the trials, so no batch is judged with weights that it had a part in.

    Args:
        heard: one attack a layer.
        layer: the name of what they see together.
    """
    first, second = ([one.held_out[half] for one in heard] for half in (0, 1))
    halves = (_weighted(first, _weights(second)), _weighted(second, _weights(first)))
    trials = np.tensordot(_weights([*map(joined_of, heard)]), [one.trials for one in heard], 1)
    return Heard(layer, STACKED, halves, trials)


def joined_of(one: Heard) -> HeldOut:
    """Return all held-out batches of an attack."""
    return joined(one.held_out)


def _weights(held_out: Sequence[HeldOut]) -> Floats:
    return Stack().fit(held_out)


def _weighted(held_out: Sequence[HeldOut], weights: Floats) -> HeldOut:
    sums = np.tensordot(weights, [one.log_odds for one in held_out], 1)
    return HeldOut(sums, held_out[0].secret)


def encoded(one: Heard) -> Kept:
    """Return what an attack says as arrays and plain values."""
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


def decoded(kept: Kept) -> Heard:
    """Return what an attack says from what ``encoded`` made of it."""
    arrays, about = kept
    first, second = (
        HeldOut(arrays[half], arrays[f"{half} secret"]) for half in ("first", "second")
    )
    return Heard(
        about["layer"], about["adversary"], (first, second), arrays["trials"], about["trees"]
    )
