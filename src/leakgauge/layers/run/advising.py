"""Advice: the fewest layers to protect, and the attacker that adapts to their protection."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from leakgauge.defenses import Defense
from leakgauge.gradients.walk import Layer
from leakgauge.inference.adversaries.calibration import HeldOut
from leakgauge.layers.catalog import ALL, HIDE
from leakgauge.layers.checking import defense_of
from leakgauge.layers.information import Floats, calibrate
from leakgauge.layers.metrics import AFTER, BEFORE
from leakgauge.layers.run.judging import LayerJudgement, best, stacked
from leakgauge.layers.run.measuring import scored
from leakgauge.layers.run.observing import AttackerView
from leakgauge.layers.spec import LayersSpec
from leakgauge.results.measurements import CellContext, Estimate, Measurement
from leakgauge.results.scores import ADVANTAGE, ScoredTrials, advantage, hits

Judgements = Mapping[str, LayerJudgement]
"""The best attack on each layer, by the layer's name."""

ONE_SIDED = 1.645
"""Standard errors from a figure to the upper end of its one-sided 95 % interval."""

CANDIDATES = 8
"""Layers tried at each step, the most exposed first, so that cost is linear in layers."""


@dataclass(frozen=True, eq=False)
class AdviceInputs:
    """Everything that the advice is computed from.

    Attributes:
        layers: layers of the network, in their order.
        view: the attacker's view without protection.
        singles: the best attack on each layer.
        whole: the attack on all layers that held-out batches favour.
        judge: runs every attack on some layers; its last argument names what the attack sees.
        view_under: returns the attacker's view of clients that use a defense.
    """

    layers: Sequence[Layer]
    view: AttackerView
    singles: Judgements
    whole: LayerJudgement
    judge: Callable[[AttackerView, Sequence[Layer], str], list[LayerJudgement]]
    view_under: Callable[[Defense], AttackerView]

    def best_under(self, defense: Defense) -> tuple[AttackerView, dict[str, LayerJudgement]]:
        """Return the view under a defense, and the best attack on each layer in it."""
        view = self.view_under(defense)
        return view, {one.name: best(self.judge(view, [one], one.name)) for one in self.layers}


@dataclass(frozen=True)
class ProtectedLayers:
    """The result of the search on held-out batches.

    Attributes:
        protect: names of the layers, in the order of the network.
        before: advantage of an attacker that sees all layers as they are.
        after: advantage of one that sees these layers behind their protection.
    """

    protect: tuple[str, ...]
    before: float
    after: float


@dataclass(frozen=True, eq=False)
class AdaptiveAttacker:
    """An attacker that adapts to the protection.

    Attributes:
        view: what it sees.
        strongest: its attack; None if it sees nothing any more.
    """

    view: AttackerView
    strongest: LayerJudgement | None

    @property
    def own(self) -> float:
        """Upper end of its advantage on its own batches."""
        return 0.0 if self.strongest is None else advantage_of(self.strongest)


def advised(spec: LayersSpec, inputs: AdviceInputs, cell: CellContext) -> Iterator[Measurement]:
    """Yield the advantage before and after the protection, with the layers to protect.

    The layers are found on the attacker's own batches. The advantage after the protection is that
    of new attacks on the private batches. They see the other layers alone (or all of them, some
    behind a defense that the attacks learn with), by single layers and jointly.
    """
    found, attacker = searched(spec, inputs)
    details = {
        "protect": spec.protect,
        "layers": "\n".join(found.protect),
        "under": f"{spec.under:g}",
        "advantage on the attacker's own batches": f"{max(found.after, attacker.own):.3f}",
    }
    before, guess = scored(spec, inputs.view, inputs.whole)[ADVANTAGE]
    name = inputs.whole.adversary
    yield cell.measurement(BEFORE, before, chance=guess, adversary=name, details=details)
    after, name = Estimate(0.0, 0.0, 0.0, len(inputs.view.trials)), ""
    if attacker.strongest is not None:
        after = scored(spec, attacker.view, attacker.strongest)[ADVANTAGE][0]
        name = attacker.strongest.adversary
    yield cell.measurement(AFTER, after, adversary=name, details=details)


def searched(spec: LayersSpec, inputs: AdviceInputs) -> tuple[ProtectedLayers, AdaptiveAttacker]:
    """Return the layers to protect, and the attacker that adapts to the protection.

    The search adds up the log-odds of attacks on single layers; an attack that sees the other
    layers at once may be stronger. While it is, on the attacker's own batches, more layers are
    protected: one more, then two more, then four, so that a deep network needs few fits, too.
    """
    protected: Judgements = {}
    if spec.protect != HIDE:
        every = "+".join(one.name for one in inputs.layers)
        protected = inputs.best_under(defense_of(every, spec))[1]
    least, more = 0, 1
    while True:
        found = search(inputs.singles, protected, under=spec.under, least=least)
        attacker = _adaptive(spec, inputs, found)
        if attacker.own <= spec.under or len(found.protect) == len(inputs.layers):
            return found, attacker
        least, more = len(found.protect) + more, 2 * more


def _adaptive(spec: LayersSpec, inputs: AdviceInputs, found: ProtectedLayers) -> AdaptiveAttacker:
    """Return the attacker that adapts to the protection of some layers."""
    if not found.protect:
        return AdaptiveAttacker(inputs.view, inputs.whole)
    view, layers, singles = inputs.view, list(inputs.layers), inputs.singles
    if spec.protect == HIDE:
        layers = [one for one in layers if one.name not in found.protect]
    else:
        view, singles = inputs.best_under(defense_of("+".join(found.protect), spec))
    own = [singles[one.name] for one in layers]
    if len(layers) < 2:
        return AdaptiveAttacker(view, own[0] if own else None)
    return AdaptiveAttacker(view, on_all(inputs.judge(view, layers, ALL), own))


def on_all(joint: Sequence[LayerJudgement], singles: Sequence[LayerJudgement]) -> LayerJudgement:
    """Return the attack on several layers that held-out batches favour.

    Args:
        joint: attacks that see all these layers at once.
        singles: the best attack on each layer; their weighted sum is a candidate, too.
    """
    return best([*joint, stacked(singles, ALL)])


def search(
    exposed: Judgements, protected: Judgements, *, under: float, least: int = 0
) -> ProtectedLayers:
    """Return few layers such that their protection leaves an advantage below ``under``.

    Layers are added greedily: at each step the one of the eight most exposed that leaves the least.
    Then layers that are not needed any more are removed. The attacker adds up its attacks on single
    layers, or takes the best of them. The advantage counts as the upper end of its one-sided 95 %
    interval, as the attacker that verifies the advice may be stronger.

    Args:
        exposed: best attack on each layer without protection.
        protected: best attack behind the protection; a missing layer is not seen any more.
        under: largest advantage that may be left.
        least: smallest number of layers to protect, even if fewer are enough.
    """
    alone = {id(one): advantage_of(one) for one in (*exposed.values(), *protected.values())}

    def left(chosen: Collection[str]) -> float:
        """Return the larger advantage of the best attack and of the sum; 0 if nothing is seen."""
        seen = [(protected if name in chosen else exposed).get(name) for name in exposed]
        known = [one for one in seen if one is not None]
        sums = [advantage_of(stacked(known, ALL))] if len(known) > 1 else []
        return max([0.0, *(alone[id(one)] for one in known), *sums])

    chosen = _grown(sorted(exposed, key=lambda n: -alone[id(exposed[n])]), left, under, least)
    for name in [*chosen]:
        fewer = [one for one in chosen if one != name]
        if len(fewer) >= least and left(fewer) <= under:
            chosen = fewer
    ordered = tuple(name for name in exposed if name in chosen)
    return ProtectedLayers(ordered, left(()), left(ordered))


def _grown(
    names: Sequence[str], left: Callable[[Collection[str]], float], under: float, least: int
) -> list[str]:
    chosen: list[str] = []
    rest, lowest = [*names], left(())
    while (lowest > under or len(chosen) < least) and rest:
        lowest, name = min(
            ((left([*chosen, name]), name) for name in rest[:CANDIDATES]), key=lambda one: one[0]
        )
        chosen.append(name)
        rest.remove(name)
    return chosen


def advantage_of(one: LayerJudgement) -> float:
    """Return the upper end of the one-sided 95 % interval of an attack's advantage.

    It is computed on held-out batches, each half calibrated on the other; their secrets are
    balanced. The interval is over batches of the attacker's records, not over other records. An
    attack that is no better than guessing has an advantage of 0.
    """
    first, second = one.held_out
    right = np.concatenate([_hits(first, second), _hits(second, first)])
    guess = 1 / first.log_odds.shape[1]
    rate = float(right.mean())
    error = ONE_SIDED * float(np.sqrt(rate * (1 - rate) / len(right)))
    return advantage(min(1.0, rate + error), guess) if one.gain > 0 else 0.0


def _hits(scored: HeldOut, fitted: HeldOut) -> Floats:
    m = scored.log_odds.shape[1]
    log_posterior = calibrate(fitted)(scored.log_odds, np.full(m, -np.log(m)))
    return hits(ScoredTrials(scored.secret, log_posterior, np.arange(len(scored.secret))))
