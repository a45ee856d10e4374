"""Advice: which layers to protect, and what an attacker is left with that meets the protection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leakgauge.defenses import Defense
from leakgauge.gradients.walk import Layer
from leakgauge.layers.checking import defense_of
from leakgauge.layers.metrics import AFTER, BEFORE
from leakgauge.layers.run.cell import Cell
from leakgauge.layers.run.hearing import Heard, best, stacked
from leakgauge.layers.run.measuring import scored
from leakgauge.layers.run.scene import Scene
from leakgauge.layers.run.searching import Found, advantage_of, search
from leakgauge.layers.words import ALL, HIDE
from leakgauge.results.measurements import Estimate, Measurement
from leakgauge.results.scores import ADVANTAGE

if TYPE_CHECKING:
    from leakgauge.layers.spec import LayersSpec

Hear = Callable[[Scene, Sequence[Layer], str], list[Heard]]
"""Lets every attack judge by the gradients of some layers; the last one names what it sees."""

Behind = Callable[[Defense], Scene]
"""Returns what is seen where clients use a defense."""


@dataclass(frozen=True, eq=False)
class Stand:
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
    scene: Scene
    singles: Mapping[str, Heard]
    whole: Heard
    hear: Hear
    behind: Behind


def advised(spec: LayersSpec, stand: Stand, cell: Cell) -> Iterator[Measurement]:
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
    before, guess = scored(spec, stand.scene, stand.whole)[ADVANTAGE]
    yield cell.measurement(
        BEFORE, before, chance=guess, adversary=stand.whole.adversary, details=details
    )
    after = Estimate(0.0, 0.0, 0.0, len(stand.scene.trials))
    if met.strongest is not None:
        after = scored(spec, met.scene, met.strongest)[ADVANTAGE][0]
    adversary = met.strongest.adversary if met.strongest else ""
    yield cell.measurement(AFTER, after, adversary=adversary, details=details)


@dataclass(frozen=True, eq=False)
class Met:
    """An attacker that meets the protection.

    Attributes:
        scene: what it sees.
        strongest: its attack; None where nothing is seen any more.
    """

    scene: Scene
    strongest: Heard | None

    @property
    def own(self) -> float:
        """What its advantage may be, by its own batches."""
        return 0.0 if self.strongest is None else advantage_of(self.strongest)


def searched(spec: LayersSpec, stand: Stand) -> tuple[Found, Met]:
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


def _shut(spec: LayersSpec, stand: Stand) -> dict[str, Heard]:
    """Return what attacks say of each layer behind the protection."""
    if spec.protect == HIDE:
        return {}
    scene = stand.behind(defense_of("+".join(one.name for one in stand.layers), spec))
    return {one.name: best(stand.hear(scene, [one], one.name)) for one in stand.layers}


def _met(spec: LayersSpec, stand: Stand, found: Found) -> Met:
    """Return the attacker that meets the protection of some layers."""
    if not found.protect:
        return Met(stand.scene, stand.whole)
    scene, left = stand.scene, list(stand.layers)
    if spec.protect == HIDE:
        left = [one for one in left if one.name not in found.protect]
        singles = [stand.singles[one.name] for one in left]
    else:
        scene = stand.behind(defense_of("+".join(found.protect), spec))
        singles = [best(stand.hear(scene, [one], one.name)) for one in left]
    if len(left) < 2:
        return Met(scene, singles[0] if left else None)
    return Met(scene, on_all(stand.hear(scene, left, ALL), singles))


def on_all(joint: Sequence[Heard], singles: Sequence[Heard]) -> Heard:
    """Return the attack on several layers that held-out batches favour.

    Args:
        joint: attacks that see all these layers at once.
        singles: the best attack on each of them, whose judgements are also added up.
    """
    return best([*joint, stacked(singles, ALL)])
