"""Advice: which layers to protect, and what an attacker is left with that meets the protection."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leakgauge.defenses import Defense
from leakgauge.gradients.walk import Layer
from leakgauge.inference.adversaries.calibration import HeldOut
from leakgauge.layers.catalog import ALL, HIDE
from leakgauge.layers.checking import defense_of
from leakgauge.layers.information import Floats, calibrate
from leakgauge.layers.metrics import AFTER, BEFORE
from leakgauge.layers.run.judging import LayerJudgement, best, stacked
from leakgauge.layers.run.measuring import LayerCell, scored
from leakgauge.layers.run.observing import AttackerView
from leakgauge.results.measurements import Estimate, Measurement
from leakgauge.results.scores import ADVANTAGE, Judged, advantage, hits

if TYPE_CHECKING:
    from leakgauge.layers.spec import LayersSpec

Open = Mapping[str, LayerJudgement]
"""What the best attack on each layer says, by the layer's name."""

Shut = Mapping[str, LayerJudgement]
"""The same of layers behind the protection; without those of which nothing is seen any more."""

ONE_SIDED = 1.645
"""Standard errors from a figure to the upper end of its one-sided 95 % interval."""

CANDIDATES = 8
"""Layers that are tried at each step, those that leak most alone, so cost is linear in layers."""


@dataclass(frozen=True)
class ProtectedLayers:
    """What the search finds on held-out batches.

    Attributes:
        protect: names of the layers, in the order of the network.
        before: the advantage of an attacker that sees all layers as they are.
        after: that of one that sees these layers behind their protection.
    """

    protect: tuple[str, ...]
    before: float
    after: float


def search(opened: Open, shut: Shut, *, under: float, least: int = 0) -> ProtectedLayers:
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
        judgements = [one for one in seen if one is not None]
        sums = [advantage_of(stacked(judgements, ALL))] if len(judgements) > 1 else []
        return max([0.0, *(alone[id(one)] for one in judgements), *sums])

    exposed = sorted(opened, key=lambda name: -alone[id(opened[name])])
    protected = _grown(exposed, left, under, least)
    for name in [*protected]:
        fewer = [one for one in protected if one != name]
        if len(fewer) >= least and left(fewer) <= under:
            protected = fewer
    ordered = tuple(name for name in opened if name in protected)
    return ProtectedLayers(ordered, left(()), left(ordered))


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


def advantage_of(one: LayerJudgement) -> float:
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
    return hits(Judged(judged.secret, log_posterior, np.arange(len(judged.secret))))


Hear = Callable[[AttackerView, Sequence[Layer], str], list[LayerJudgement]]
"""Lets every attack judge by the gradients of some layers; the last one names what it sees."""

Behind = Callable[[Defense], AttackerView]
"""Returns what is seen where clients use a defense."""


@dataclass(frozen=True, eq=False)
class AdviceInputs:
    """What is known before the advice.

    Attributes:
        layers: of the network, in their order.
        scene: without protection.
        singles: the best attack on each layer.
        whole: the attack on all of them that held-out batches favour.
        hear: lets attacks judge.
        behind: makes what is seen under a defense.
    """

    layers: Sequence[Layer]
    view: AttackerView
    singles: Mapping[str, LayerJudgement]
    whole: LayerJudgement
    judge_layers: Hear
    behind: Behind


def advised(spec: LayersSpec, stand: AdviceInputs, cell: LayerCell) -> Iterator[Measurement]:
    """Yield the advantage before the protection and after it, with the layers that it names.

    The layers are found on the attacker's own batches. What is left is the advantage of new
    attacks on the private batches, which see the other layers alone (or all of them, some behind
    a defense that the attacks learn with), by single layers and jointly.
    """
    found, met = searched(spec, stand)
    details = {
        "protect": spec.protect,
        "layers": "\n".join(found.protect),
        "under": f"{spec.under:g}",
        "advantage on the attacker's own batches": f"{max(found.after, met.own):.3f}",
    }
    before, guess = scored(spec, stand.view, stand.whole)[ADVANTAGE]
    yield cell.measurement(
        BEFORE, before, chance=guess, adversary=stand.whole.adversary, details=details
    )
    after = Estimate(0.0, 0.0, 0.0, len(stand.view.trials))
    if met.strongest is not None:
        after = scored(spec, met.view, met.strongest)[ADVANTAGE][0]
    adversary = met.strongest.adversary if met.strongest else ""
    yield cell.measurement(AFTER, after, adversary=adversary, details=details)


@dataclass(frozen=True, eq=False)
class AdaptiveAttacker:
    """An attacker that meets the protection.

    Attributes:
        scene: what it sees.
        strongest: its attack; None where nothing is seen any more.
    """

    view: AttackerView
    strongest: LayerJudgement | None

    @property
    def own(self) -> float:
        """What its advantage may be, by its own batches."""
        return 0.0 if self.strongest is None else advantage_of(self.strongest)


def searched(spec: LayersSpec, stand: AdviceInputs) -> tuple[ProtectedLayers, AdaptiveAttacker]:
    """Return the layers to protect, and the attacker that meets the protection.

    The search adds up what attacks on single layers say; an attack that sees the other layers at
    once may be stronger. While it is on the attacker's own batches, more layers are protected: one
    more, then two more, then four, so few attacks are fitted for a deep network, too.
    """
    shut, least, more = _shut(spec, stand), 0, 1
    while True:
        found = search(stand.singles, shut, under=spec.under, least=least)
        met = _met(spec, stand, found)
        if met.own <= spec.under or len(found.protect) == len(stand.layers):
            return found, met
        least, more = len(found.protect) + more, 2 * more


def _shut(spec: LayersSpec, stand: AdviceInputs) -> dict[str, LayerJudgement]:
    """Return what attacks say of each layer behind the protection."""
    if spec.protect == HIDE:
        return {}
    view = stand.behind(defense_of("+".join(one.name for one in stand.layers), spec))
    return {one.name: best(stand.judge_layers(view, [one], one.name)) for one in stand.layers}


def _met(spec: LayersSpec, stand: AdviceInputs, found: ProtectedLayers) -> AdaptiveAttacker:
    """Return the attacker that meets the protection of some layers."""
    if not found.protect:
        return AdaptiveAttacker(stand.view, stand.whole)
    view, left = stand.view, list(stand.layers)
    if spec.protect == HIDE:
        left = [one for one in left if one.name not in found.protect]
        singles = [stand.singles[one.name] for one in left]
    else:
        view = stand.behind(defense_of("+".join(found.protect), spec))
        singles = [best(stand.judge_layers(view, [one], one.name)) for one in left]
    if len(left) < 2:
        return AdaptiveAttacker(view, singles[0] if left else None)
    return AdaptiveAttacker(view, on_all(stand.judge_layers(view, left, ALL), singles))


def on_all(joint: Sequence[LayerJudgement], singles: Sequence[LayerJudgement]) -> LayerJudgement:
    """Return the attack on several layers that held-out batches favour.

    Args:
        joint: attacks that see all these layers at once.
        singles: the best attack on each of them, whose judgements are also added up.
    """
    return best([*joint, stacked(singles, ALL)])
