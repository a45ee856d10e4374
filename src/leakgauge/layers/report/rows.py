"""Measurements of a run by layer, for the report and ``--json``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leakgauge.layers.metrics import AFTER, BEFORE, CORRELATION, INFORMATION, PARTIAL, SIZE
from leakgauge.results.measurements import HEADLINE, Estimate, Measurement
from leakgauge.results.scores import AUROC

PRINTED = "sensitivity_printed_f"
"""The sensitivity of the paper's Figure 2."""


@dataclass(frozen=True)
class LayerRow:
    """The figures of one layer.

    Attributes:
        name: name of the layer.
        kind: linear, convolution, ...
        order: position in the network, from 0.
        figures: figures by metric; attack figures are those of the chosen attack.
        adversary: the chosen attack.
        each: figures of every attack, by its name and metric.
    """

    name: str
    kind: str
    order: int
    figures: Mapping[str, Measurement]
    adversary: str
    each: Mapping[str, Mapping[str, Measurement]]

    @property
    def size(self) -> int:
        """Number of parameters."""
        return round(self.figures[SIZE].estimate.value) if SIZE in self.figures else 0

    def estimate(self, metric: str) -> Estimate | None:
        """Return a figure; None if it was not measured."""
        return self.figures[metric].estimate if metric in self.figures else None


@dataclass(frozen=True)
class Advice:
    """Layers to protect, and the advantage that remains.

    Attributes:
        protect: "hide", or a defense.
        layers: layers to protect; empty for none.
        under: largest advantage that may be left.
        before: advantage on private batches without protection.
        after: advantage of an attack that does not see these layers, or sees them defended.
        adversary: name of that attack; empty if it sees nothing.
    """

    protect: str
    layers: tuple[str, ...]
    under: float
    before: Estimate
    after: Estimate
    adversary: str

    @property
    def holds(self) -> bool:
        """Whether the advantage of the verifying attack is small enough."""
        return self.after.value <= self.under


def layer_rows(measurements: Sequence[Measurement]) -> list[LayerRow]:
    """Return the figures by layer, in the order in which layers run."""
    found: dict[str, dict[str, Measurement]] = {}
    each: dict[str, dict[str, dict[str, Measurement]]] = {}
    for one in measurements:
        if "layer" not in one.details:
            continue
        name, metric = one.details["layer"], one.metric.partition(": ")[0]
        if not one.adversary or one.round == HEADLINE:
            found.setdefault(name, {})[metric] = one
        else:
            each.setdefault(name, {}).setdefault(one.adversary, {})[metric] = one
    rows = []
    for name, own in found.items():
        details = next(iter(own.values())).details
        chosen = own[AUROC].adversary if AUROC in own else ""
        kind, order, shown = details["kind"], int(details["order"]), name or "model"
        rows.append(LayerRow(shown, kind, order, own, chosen, each.get(name, {})))
    return sorted(rows, key=lambda row: row.order)


def whole(measurements: Sequence[Measurement]) -> Measurement | None:
    """Return the AUROC of the attack that sees all layers."""
    return next((m for m in measurements if m.metric == AUROC and m.round == HEADLINE), None)


def most_exposed(rows: Sequence[LayerRow]) -> LayerRow | None:
    """Return the layer with most usable information in its gradients."""
    known = [row for row in rows if row.estimate(INFORMATION) is not None]
    return max(known, key=lambda row: row.figures[INFORMATION].estimate.value, default=None)


def advice_of(measurements: Sequence[Measurement]) -> Advice | None:
    """Return the advice; None without one."""
    named = {one.metric: one for one in measurements if one.metric in (BEFORE, AFTER)}
    if len(named) < 2:
        return None
    details = named[AFTER].details
    return Advice(
        details["protect"],
        tuple(name for name in details["layers"].split("\n") if name),
        float(details["under"]),
        named[BEFORE].estimate,
        named[AFTER].estimate,
        named[AFTER].adversary,
    )


def correlation_rows(
    measurements: Sequence[Measurement],
) -> list[tuple[str, Measurement, Measurement | None]]:
    """Return the correlation of each measure with the AUROC, plain and given the layer's size."""
    found = {
        kind: {
            one.metric.removeprefix(f"{kind}_"): one
            for one in measurements
            if one.metric.startswith(f"{kind}_")
        }
        for kind in (CORRELATION, PARTIAL)
    }
    return [(name, one, found[PARTIAL].get(name)) for name, one in found[CORRELATION].items()]
