"""The smallest set of layers to protect: found greedily on the attacker's own batches."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from leakgauge.inference.adversaries.calibration import HeldOut
from leakgauge.layers.calibration import Floats, calibrate
from leakgauge.layers.run.hearing import Heard, stacked
from leakgauge.layers.words import ALL
from leakgauge.results.scores import ScoredTrials, advantage, hits

Open = Mapping[str, Heard]
"""What the best attack on each layer says, by the layer's name."""

Shut = Mapping[str, Heard]
"""The same of layers behind the protection; without those of which nothing is seen any more."""

ONE_SIDED = 1.645
"""Standard errors from a figure to the upper end of its one-sided 95 % interval."""

CANDIDATES = 8
"""Layers that are tried at each step, those that leak most alone, so cost is linear in layers."""


@dataclass(frozen=True)
class Found:
    """What the search finds on held-out batches.

    Attributes:
        protect: names of the layers, in the order of the network.
        before: the advantage of an attacker that sees all layers as they are.
        after: that of one that sees these layers behind their protection.
    """

    protect: tuple[str, ...]
    before: float
    after: float


def search(opened: Open, shut: Shut, *, under: float, least: int = 0) -> Found:
    """Return few layers whose protection leaves an attacker less than an advantage of ``under``.

    Layers are added greedily, each time the one of the eight most exposed that leaves the least;
    then those that are not needed any more are taken out. The attacker adds up what its attacks on
    single layers say, or takes the best of them. The advantage counts as the upper end of its
    one-sided 95 % interval, as the attacker that verifies the advice may be stronger.

    Args:
        opened: what attacks say of each layer.
        shut: what they say of it behind its protection; without a layer of which nothing is seen.
        under: the advantage that may be left.
        least: layers to protect even where fewer are enough; all, where there are not so many.
    """
    alone = {id(one): advantage_of(one) for one in (*opened.values(), *shut.values())}

    def left(protected: Collection[str]) -> float:
        """The larger of the advantages of the best attack and of the sum; 0 of nothing."""
        seen = [(shut if name in protected else opened).get(name) for name in opened]
        heard = [one for one in seen if one is not None]
        sums = [advantage_of(stacked(heard, ALL))] if len(heard) > 1 else []
        return max([0.0, *(alone[id(one)] for one in heard), *sums])

    exposed = sorted(opened, key=lambda name: -alone[id(opened[name])])
    protected = _grown(exposed, left, under, least)
    for name in [*protected]:
        fewer = [one for one in protected if one != name]
        if len(fewer) >= least and left(fewer) <= under:
            protected = fewer
    ordered = tuple(name for name in opened if name in protected)
    return Found(ordered, left(()), left(ordered))


def _grown(
    names: Sequence[str], left: Callable[[Collection[str]], float], under: float, least: int
) -> list[str]:
    protected: list[str] = []
    rest, lowest = [*names], left(())
    while (lowest > under or len(protected) < least) and rest:
        tried = [(left([*protected, name]), name) for name in rest[:CANDIDATES]]
        lowest, name = min(tried, key=lambda one: one[0])
        protected.append(name)
        rest.remove(name)
    return protected


def advantage_of(one: Heard) -> float:
    """Return what the advantage may be: the upper end of its one-sided 95 % interval.

    It is that on held-out batches, each half calibrated on the other; their secrets are balanced.
    The interval is over batches of the attacker's records, not over other records. An attack that
    is no better than guessing has an advantage of 0.
    """
    first, second = one.held_out
    right = np.concatenate([_hits(first, second), _hits(second, first)])
    guess = 1 / first.log_odds.shape[1]
    rate = float(right.mean())
    error = ONE_SIDED * float(np.sqrt(rate * (1 - rate) / len(right)))
    return advantage(min(1.0, rate + error), guess) if one.gain > 0 else 0.0


def _hits(judged: HeldOut, fitted: HeldOut) -> Floats:
    m = judged.log_odds.shape[1]
    log_posterior = calibrate(fitted)(judged.log_odds, np.full(m, -np.log(m)))
    return hits(ScoredTrials(judged.secret, log_posterior, np.arange(len(judged.secret))))
