"""Measures of layers without an attack: size, sensitivity, kernel estimates."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import scipy
import torch
from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.core.threads import one_thread
from leakgauge.core.types import Dataset, Params
from leakgauge.gradients.walk import Layer
from leakgauge.layers.catalog import QUESTION
from leakgauge.layers.kernel_information import information_bounds
from leakgauge.layers.metrics import DIRECTIONS, KERNEL, KERNEL_SHARE, SIZE, of_layer
from leakgauge.layers.representations import Outputs
from leakgauge.layers.run.measuring import facts_of
from leakgauge.layers.run.preparing import LayersPrepared
from leakgauge.layers.sensitivity import Sensitivity, direction_sensitivity, jacobian_sensitivity
from leakgauge.results.measurements import CellContext, Estimate, Measurement
from leakgauge.results.statistics import mean_estimate

Measure = Callable[[LayersPrepared, Params, CellContext], Iterator[Measurement]]
"""Takes the prepared run, the parameters and the cell."""

NAMES = {"f": "F", "1": "1", "inf": "inf"}
"""Norms of ``layers.sensitivity`` by their part of a metric's name."""


def described(
    prepared: LayersPrepared, params: Params, cell: CellContext
) -> tuple[list[Measurement], list[str]]:
    """Return the measurements, and the reason for each part that could not be measured."""
    spec = prepared.spec
    made: list[Measurement] = []
    missing: list[str] = []
    observed = list(prepared.layers) if spec.kernel_records else []
    records = _records(prepared, spec.kernel_records)
    outputs = Outputs(prepared.task, params, records.x, [layer.name for layer in observed])
    parts: dict[str, Measure] = {"size": _sizes, "sensitivity": _sensitivities}
    for layer in observed:
        parts[f"kernel estimate of {layer.name!r}"] = partial(_kernel, layer, outputs)
    if spec.direction:
        parts["direction"] = _directions
    for name, part in parts.items():
        try:
            with one_thread():
                made += list(part(prepared, params, cell))
        except InputError as error:
            missing.append(f"{name}: {error}")
    return made, missing


def _records(prepared: LayersPrepared, count: int) -> Dataset:
    rows = prepared.sides.private
    order = stream(prepared.spec.seed, QUESTION, "records").permutation(len(rows))[:count]
    return prepared.rows(rows[torch.from_numpy(order)])


def _sizes(prepared: LayersPrepared, params: Params, cell: CellContext) -> Iterator[Measurement]:
    for layer in prepared.layers:
        size = float(sum(params[name].numel() for name in layer.parameters))
        estimate = Estimate(size, size, size, 1)
        yield cell.measurement(of_layer(SIZE, layer.name), estimate, details=facts_of(layer))


def _sensitivities(
    prepared: LayersPrepared, params: Params, cell: CellContext
) -> Iterator[Measurement]:
    data = _records(prepared, prepared.spec.records)
    names = [layer.name for layer in prepared.layers]
    found = jacobian_sensitivity(prepared.task, params, data.x, data.y, layers=names)
    for layer in prepared.layers:
        if layer.name in found:
            yield from _sensitivities_of(layer, found[layer.name], cell)


def _sensitivities_of(layer: Layer, one: Sensitivity, cell: CellContext) -> Iterator[Measurement]:
    """Yield the printed (Eq. 10), raw, and size-normalised mean, and the printed median."""
    details = {**facts_of(layer), "records whose range is 0, left out": str(one.left_out)}
    for word, norm in NAMES.items():
        values = {
            "printed": one.values(norm),
            "raw": one.values(norm, bounded=False, normalised=False),
            "mean": one.values(norm, bounded=False),
        }
        estimates = {
            kind: mean_estimate(each.cpu().numpy(), bounds=(0.0, np.inf))
            for kind, each in values.items()
            if len(each)
        }
        if "printed" in estimates:
            estimates["median"] = _median(values["printed"])
        for kind, estimate in estimates.items():
            name = of_layer(f"sensitivity_{kind}_{word}", layer.name)
            yield cell.measurement(name, estimate, details=details)


def _median(values: Tensor) -> Estimate:
    """Return the median with the interval of order statistics."""
    n = len(values)
    ordered = np.sort(values.cpu().numpy())
    low = int(scipy.stats.binom.ppf(0.025, n, 0.5))
    return Estimate(float(np.median(ordered)), float(ordered[low]), float(ordered[n - 1 - low]), n)


def _directions(
    prepared: LayersPrepared, params: Params, cell: CellContext
) -> Iterator[Measurement]:
    data = _records(prepared, max(prepared.spec.records, 1000))
    codes = data.secrets[prepared.secret]
    names = [layer.name for layer in prepared.layers]
    # a secret with several values: the last one against all others
    having = codes == int(codes.max())
    found = direction_sensitivity(prepared.task, params, data.x, data.y, having, layers=names)
    for layer in (one for one in prepared.layers if one.name in found):
        for metric, norm in zip(DIRECTIONS, NAMES.values(), strict=True):
            value = found[layer.name].estimate(norm)
            estimate = Estimate(value, value, value, len(data))
            yield cell.measurement(of_layer(metric, layer.name), estimate, details=facts_of(layer))


def _kernel(
    layer: Layer, outputs: Outputs, prepared: LayersPrepared, _: Params, cell: CellContext
) -> Iterator[Measurement]:
    """Yield the bounds of I(X; T) as the ends of one figure; its value is the upper bound."""
    found = information_bounds(outputs.of(layer.name), sigma2=prepared.spec.sigma2)
    for metric, (low, high) in ((KERNEL, (found.lower, found.upper)), (KERNEL_SHARE, found.shares)):
        estimate = Estimate(high, low, high, found.n)
        yield cell.measurement(of_layer(metric, layer.name), estimate, details=facts_of(layer))
