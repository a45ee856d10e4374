"""Signs that a model was made to give records away, each with its limit.

The limits lie between models of honest trainings and those of ``inversion.servers``;
``benchmarks/guard.py`` measures both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median

import torch
from torch import Tensor, nn

from leakgauge.model_checks.observed import LinearSeen, ModelSeen

EQUAL_ROWS, SINGLE_UNITS, MUTED, REPLACED = (
    "equal rows",
    "units for single records",
    "muted records",
    "replaced layer",
)
ZERO_ROWS, CHANGED_LAYERS = "empty outputs", "other layers"
"""Names of the signs."""

LIMITS = {EQUAL_ROWS: 0.5, SINGLE_UNITS: 0.2, MUTED: 0.5, REPLACED: 0.5, ZERO_ROWS: 0.0}
"""Figure of each sign above which a model is refused."""

LEAST_BATCH = 32
"""Smallest batch in which units for single records are told from units that few records reach."""

MANY = 0.25
"""Share of a batch that more than a tenth of an honest layer's units in use see."""

SAME_DIRECTION = 0.99
"""Cosine from which two rows of weights are equal."""

LEAST_ROWS = 8
"""Smallest layer that is searched for equal rows."""

LOST = 0.3
"""Loss of a record, relative to that of a guess among all classes, that honest heads pass on."""

PASSED = 1e-3
"""Share of the largest gradient before the head, below which a record is muted."""

OTHERS = 20.0
"""Times that a replaced layer changes as much as the median of the others."""

LEAST_NUMBERS = 256
"""Smallest parameter whose change is compared."""


@dataclass(frozen=True)
class ModelSign:
    """One sign, measured.

    Attributes:
        name: its name.
        value: its figure; above ``limit`` the model is refused.
        limit: its limit.
        said: what was found, as a sentence.
    """

    name: str
    value: float
    limit: float
    said: str

    @property
    def refuses(self) -> bool:
        """Whether the model is refused for it."""
        return self.value > self.limit


def equal_rows(model: nn.Module) -> ModelSign:
    """Return the largest share of rows of a layer that have the direction of another row.

    Units that measure one number, each from another value on, sort the records into bins (Robbing
    the Fed). Rows of zeros do not count.
    """
    found, worst = 0.0, ""
    for name, part in model.named_modules():
        if not isinstance(part, nn.Linear | nn.Conv2d):
            continue
        rows = part.weight.detach().flatten(1)
        rows = rows[rows.norm(dim=1) > 0]
        if len(rows) < LEAST_ROWS or rows.shape[1] < 2:
            continue
        share = _with_equals(nn.functional.normalize(rows.float(), dim=1))
        if share > found:
            found, worst = share, name
    said = f"in {worst!r}, {found:.0%} of the rows of weights have the direction of another row"
    none = "no two rows of weights have one direction"
    return ModelSign(EQUAL_ROWS, found, LIMITS[EQUAL_ROWS], said if found else none)


def _with_equals(rows: Tensor) -> float:
    """Return the share of rows ``[n, d]`` of length 1 that lie along another one."""
    near = 0
    for at in range(0, len(rows), 1024):
        cosines = rows[at : at + 1024] @ rows.T
        cosines[torch.arange(len(cosines)), torch.arange(at, at + len(cosines))] = 0.0
        near += int((cosines.abs().amax(dim=1) > SAME_DIRECTION).sum())
    return near / len(rows)


def zero_rows(model: nn.Module, head: str) -> ModelSign:
    """Return the share of the head's rows that are all zero, where some are not."""
    layer = _linear(model, head)
    empty = float((layer.weight.detach().abs().amax(dim=1) == 0).float().mean())
    value = empty if empty < 1 else 0.0
    said = f"{value:.0%} of the outputs of {head!r} do not depend on the record, and the others do"
    return ModelSign(ZERO_ROWS, value, LIMITS[ZERO_ROWS], said)


def outputs_of(model: nn.Module, head: str) -> int:
    """Return the number of outputs of the last layer."""
    return _linear(model, head).out_features


def _linear(model: nn.Module, name: str) -> nn.Linear:
    layer = model.get_submodule(name)
    assert isinstance(layer, nn.Linear)
    return layer


def single_units(seen: Sequence[ModelSeen]) -> ModelSign:
    """Return the largest share of a layer's units that a single record of a batch reaches.

    Units that no record reaches do not count; shares are means over the batches. Trap weights and
    quantile biases make such units alone. Large steps of an honest training leave such units, too,
    next to some that many records reach; a layer with those does not count.
    """
    by_layer: dict[str, list[float]] = {}
    for one in seen:
        for layer in one.layers:
            if layer.name != one.head:
                by_layer.setdefault(layer.name, []).append(_single_share(layer))
    means = {name: mean(shares) for name, shares in by_layer.items()}
    worst = max(means, key=lambda name: means[name], default="")
    value = means.get(worst, 0.0)
    said = f"in {worst!r}, a single record of a batch reaches {value:.0%} of the units in use"
    return ModelSign(
        SINGLE_UNITS, value, LIMITS[SINGLE_UNITS], said if worst else "no hidden layer"
    )


def _single_share(layer: LinearSeen) -> float:
    reached = (layer.slopes != 0).sum(dim=0)
    used = reached[reached > 0]
    if not len(used) or float(used.float().quantile(0.9)) > MANY * len(layer.slopes):
        return 0.0
    return float((used == 1).float().mean())


def muted(model: nn.Module, seen: Sequence[ModelSeen]) -> ModelSign:
    """Return the share of records with a loss whose gradient does not pass the head.

    An honest head passes back the gradient of a record that it does not classify well. One that
    was made to isolate records (Fishing for User Data) passes those of few. The measure is relative
    to the head's weights and to the gradient at its output.
    """
    shares = [_muted_share(model, one) for one in seen]
    value = mean(shares)
    said = f"{value:.0%} of the records have a loss, and no gradient before the last layer"
    return ModelSign(MUTED, value, LIMITS[MUTED], said)


def _muted_share(model: nn.Module, one: ModelSeen) -> float:
    head = next(layer for layer in one.layers if layer.name == one.head)
    weights = _linear(model, one.head).weight.detach()
    at_output = head.slopes.norm(dim=1) * weights.norm()
    passed = head.before / at_output.clamp(min=torch.finfo(at_output.dtype).tiny)
    guess = torch.tensor(float(max(len(weights), 2))).log()
    is_lost = one.losses > LOST * guess
    return float((is_lost & (passed < PASSED * passed.amax())).float().mean())


def replaced(params: Mapping[str, Tensor], previous: Mapping[str, Tensor]) -> ModelSign:
    """Return the largest change of a parameter since the last round, where the others stayed.

    A change is relative to the parameter's norm before. It is 0 unless the parameter changed at
    least ``OTHERS`` times as much as the median of the others: in a training, all change.
    """
    changes = {
        name: _change(leaf, previous[name])
        for name, leaf in params.items()
        if leaf.numel() >= LEAST_NUMBERS and name in previous and leaf.shape == previous[name].shape
    }
    value, worst = 0.0, ""
    for name, change in changes.items():
        others = [one for other, one in changes.items() if other != name]
        if len(others) > 1 and change > max(value, OTHERS * median(others)):
            value, worst = change, name
    said = f"{worst!r} changed by {value:.0%} of its size since the last round, others hardly"
    return ModelSign(REPLACED, value, LIMITS[REPLACED], said if worst else "no layer changed alone")


def _change(now: Tensor, before: Tensor) -> float:
    smallest = torch.finfo(torch.float32).tiny
    now, before = now.detach().float(), before.detach().float()
    return float((now - before).norm() / before.norm().clamp(min=smallest))


def other_layers(params: Mapping[str, Tensor], previous: Mapping[str, Tensor]) -> ModelSign:
    """Return the number of parameters that appeared, disappeared, or changed their shape."""
    shapes, known = (
        {name: tuple(leaf.shape) for name, leaf in leaves.items()} for leaves in (params, previous)
    )
    changed = sorted(
        name for name in shapes.keys() | known.keys() if shapes.get(name) != known.get(name)
    )
    shown = ", ".join(changed[:3])
    said = f"{len(changed)} parameters differ in name or shape from the last round: {shown}"
    return ModelSign(
        CHANGED_LAYERS, len(changed), 0.0, said if changed else "the layers are the same"
    )
