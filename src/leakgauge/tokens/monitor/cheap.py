"""The cheap measure of a step: how alike the gradients of records and their inputs are."""

from collections.abc import Sequence

import torch
from torch import Tensor

from leakgauge.core.rng import derive
from leakgauge.gradients.factored.base import Factors
from leakgauge.gradients.flattening import flat_leaf
from leakgauge.tokens.alignment import alignment, gradient_kernel, linear_kernel
from leakgauge.tokens.monitor.defending import Defending
from leakgauge.tokens.monitor.inputs import raw
from leakgauge.tokens.sketch import Sketch

FEWEST = 4
"""Records that the measure needs."""

WIDTH = 8192
"""Numbers that are kept of each parameter's defended gradient; shorter ones are exact."""


def cheap_measure(
    x: Tensor,
    found: Sequence[Factors],
    defending: Defending | None = None,
    *,
    step: int = 0,
    seed: int = 0,
) -> float | None:
    """Return the alignment of the records' gradients with their inputs; None if not finite.

    Args:
        x: inputs of the records ``[n, ...]``.
        found: gradients of the same records, by layer.
        defending: applies a defense to each record's gradient.
        step: of the training; the defense's noise depends on it.
        seed: of the sketches.
    """
    with torch.no_grad():
        if defending is None:
            of_gradients = gradient_kernel(found)
        else:
            rows = _defended(found, defending, len(x), step, seed)
            of_gradients = rows @ rows.T
        if not of_gradients.isfinite().all():
            return None
        return alignment(of_gradients, linear_kernel(raw(x).to(of_gradients.device)))


def _defended(
    found: Sequence[Factors], defending: Defending, count: int, step: int, seed: int
) -> Tensor:
    """Return what is kept of the records' defended gradients ``[n, d]``."""
    sketches: dict[str, Sketch] = {}
    kept = []
    wanted = [name for one in found for name in one.rows(slice(0, 1)).gradient()]
    for grads in defending.records(found, count, step):
        leaves = []
        for name in wanted:
            flat = flat_leaf(grads[name])
            if name not in sketches:
                own = derive(seed, "cheap", name)
                sketches[name] = Sketch(flat.shape[1], width=WIDTH, seed=own)
            leaves.append(sketches[name](flat))
        kept.append(torch.cat(leaves, dim=1))
    return torch.cat(kept)
