"""Sensitivity of a layer's gradients to the label, and to a property, of the records."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakgauge.core.checks import require, require_choice, require_count, require_known
from leakgauge.core.losses import is_cross_entropy
from leakgauge.core.types import Grads, Params, Task
from leakgauge.gradients.batching import slices
from leakgauge.gradients.factored.factors import Factoring
from leakgauge.gradients.gradients import MAX_BYTES, batch_gradients
from leakgauge.gradients.probing import explained, private, probe, trainable
from leakgauge.gradients.walk import walk
from leakgauge.layers.weights import VectorSizes, is_weight, size_of, spread, weights_of

NORMS: Mapping[str, float] = {"F": 2, "1": 1, "inf": math.inf}
"""Norms by name, with their p; all treat the Jacobian's entries as one vector."""


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Sensitivity of the gradient of a layer's weights, by record.

    Attributes:
        layer: name of the layer.
        size: number of weights, without biases.
        norms: norms of the Jacobian by ``"F"``, ``"1"`` and ``"inf"``, one per record ``[n]``,
            float64.
        range: largest minus smallest entry of each record's gradient ``[n]``, float64.

    >>> found = Sensitivity("fc", 4, {"F": torch.tensor([2.0, 6.0])}, torch.tensor([0.5, 0.0]))
    >>> found.estimate("F"), found.left_out, found.estimate("F", bounded=False)
    (2.0, 1, 2.0)
    """

    layer: str
    size: int
    norms: Mapping[str, Tensor]
    range: Tensor

    @property
    def left_out(self) -> int:
        """Number of records with a range of 0, which bounded figures leave out."""
        return int((self.range == 0).sum())

    def values(self, norm: str = "F", *, bounded: bool = True, normalised: bool = True) -> Tensor:
        """Return one figure per record ``[m]``; m is below n if some are left out.

        Args:
            norm: ``"F"``, ``"1"`` or ``"inf"``.
            bounded: whether the norm is divided by the record's range.
            normalised: whether it is divided by psi: the root of ``size`` for F, ``size`` for 1,
                and 1 for inf.

        Raises:
            InputError: the norm is unknown.
        """
        require_choice(norm, "norm", NORMS)
        found = self.norms[norm]
        if bounded:
            kept = self.range != 0
            found = found[kept] / self.range[kept]
        return found / self.size ** (1 / NORMS[norm]) if normalised else found

    def estimate(
        self, norm: str = "F", *, bounded: bool = True, normalised: bool = True, how: str = "mean"
    ) -> float:
        """Return the figure of the layer, by default that of Eq. 10; NaN without any record.

        If the model is sure of a record, its range goes to 0, while its Jacobian does not: the
        columns of the other classes stay large. A few such records dominate the bounded mean, and
        more so the better a model is trained. The bounded median is robust to them. Records with a
        range of 0 in floating point have no bounded figure: ``left_out`` counts them.

        Args:
            norm, bounded, normalised: as in ``values``.
            how: ``"mean"`` or ``"median"`` over the records.

        Raises:
            InputError: a word is unknown.
        """
        require_choice(how, "how", ("mean", "median"))
        found = self.values(norm, bounded=bounded, normalised=normalised)
        if len(found) == 0:
            return math.nan
        return float(found.mean() if how == "mean" else found.quantile(0.5))


def jacobian_sensitivity(
    task: Task,
    params: Params,
    x: Tensor,
    y: Tensor,
    *,
    layers: Sequence[str] | None = None,
    max_bytes: int = MAX_BYTES,
) -> dict[str, Sensitivity]:
    """Return the sensitivity of each layer's weight gradient to the label (Eq. 9 and 10).

    The gradient of the cross entropy is linear in the soft label. Its Jacobian has a column for
    each class c, the gradient of the loss with label c, so that no second derivative is needed.
    The cost grows with records times classes.

    Args:
        task: a classifier; its loss is the plain cross entropy.
        params: all trainable parameters by name, as from ``params_of``.
        x: records ``[n, ...]``.
        y: labels ``[n]``, int64; the range is that of the gradient with these labels.
        layers: names of the layers to return, as ``walk`` gives them; None for all.
        max_bytes: working memory of a chunk of records, estimated.

    Returns:
        Sensitivities by layer, in the order of ``layers``, else in the order in which layers run. A
        layer without a matrix (a normalisation) counts by its own parameters except biases; a layer
        with only biases is left out.

    Raises:
        InputError: the loss is another one, no layer has this name, or as
            ``per_example_gradients``.

    References:
        Mo et al., Layer-wise Characterization of Latent Information Leakage, 2021, section 4.3.

    >>> task = Task(torch.nn.Linear(3, 2))
    >>> x, y = torch.ones(5, 3), torch.zeros(5, dtype=torch.int64)
    >>> found = jacobian_sensitivity(task, dict(task.model.named_parameters()), x, y)[""]
    >>> found.size, list(found.norms["F"].shape)
    (6, [5])
    """
    require_count(max_bytes, "max_bytes")
    params = trainable(task.model, params)
    classes = _classes(task, params, x, y)
    factoring = Factoring.start(task, params, x, y, layers=layers)
    whole = sum(params[name][None].nbytes for one in factoring.rest for name in one.parameters)
    size = _records_at_once(task, params, x, y, whole, max_bytes)
    parts = [
        _of_records(factoring, params, x[rows], y[rows], classes) for rows in slices(len(x), size)
    ]
    return {
        name: _sensitivity(name, size_of(params, names), [part[name] for part in parts])
        for name, names in _weights(task, x, factoring.names).items()
    }


def direction_sensitivity(
    task: Task,
    params: Params,
    x: Tensor,
    y: Tensor,
    has_property: Tensor,
    *,
    layers: Sequence[str] | None = None,
    max_bytes: int = MAX_BYTES,
) -> dict[str, Sensitivity]:
    """Return the difference of each layer's mean weight gradient by a property.

    This is the step in the property's own direction: the mean gradient of the records with the
    property minus that of the others, in place of the Jacobian in the label. Its range is that of
    the mean gradient of all records.

    Args:
        task: the model and any loss.
        params: all trainable parameters by name, as from ``params_of``.
        x: records ``[n, ...]``.
        y: targets ``[n, ...]``.
        has_property: whether each record has it ``[n]``, bool.
        layers: names of the layers to return; None for all.
        max_bytes: working memory of a chunk of records, estimated.

    Returns:
        Sensitivities as from ``jacobian_sensitivity``, but with one entry in place of n.

    Raises:
        InputError: all records or none have the property, or no layer has this name.

    References:
        Mo et al., Layer-wise Characterization of Latent Information Leakage, 2021, section 6.3.
    """
    require_count(max_bytes, "max_bytes")
    require(
        has_property.dtype == torch.bool and has_property.shape == (len(x),),
        f"has_property is {list(has_property.shape)} {has_property.dtype}; "
        f"expected [{len(x)}] torch.bool",
    )
    count = int(has_property.sum())
    require(0 < count < len(x), f"{count} of {len(x)} records have the property; expected both")
    params = trainable(task.model, params)
    weights = _weights(task, x, layers)
    size = _records_at_once(task, params, x, y, 0, max_bytes)
    groups = (has_property, ~has_property)
    means = [_mean_gradient(task, params, x[rows], y[rows], size) for rows in groups]
    share = count / len(x)
    return {name: _direction(name, names, means, share) for name, names in weights.items()}


def _classes(task: Task, params: Params, x: Tensor, y: Tensor) -> int:
    """Return the number of classes of a classifier by cross entropy, or refuse the task."""
    require(len(x) > 0, "x is empty; expected x [n, ...] with n above 0")
    own = private(task, params)
    refusal = explained(f"{type(own.model).__name__} refuses inputs {list(x.shape)}")
    with torch.no_grad(), torch.random.fork_rng(enabled=own.model.training), refusal:
        outputs = own.outputs(x[:2])
    require(
        isinstance(outputs, Tensor),
        f"the model's outputs are {type(outputs).__name__}; this measure needs logits "
        "[n, classes]: return them alone",
    )
    shape = list(outputs.shape)
    require(outputs.dim() == 2, f"the model's outputs are {shape}; expected logits [n, classes]")
    require(
        is_cross_entropy(task.mean_loss, shape[1], like=outputs),
        "the loss is not the plain cross entropy of classes, whose Jacobian in the label this "
        'measure needs; use Task(model, "cross_entropy")',
    )
    require(
        y.shape == x.shape[:1] and not y.is_floating_point(),
        f"y is {list(y.shape)} {y.dtype}; expected classes [{len(x)}], int64",
    )
    low, high = int(y.min()), int(y.max())
    require(low >= 0 and high < shape[1], f"y has {low} to {high}; expected 0 to {shape[1] - 1}")
    return int(shape[1])


def _weights(task: Task, x: Tensor, layers: Sequence[str] | None) -> dict[str, list[str]]:
    """Return the weights' names by layer; layers without any are left out."""
    known = {one.name: [*filter(is_weight, one.parameters)] for one in walk(task, x)}
    for name in layers or ():
        require_known(name, known, f"the model has no layer {name!r} with parameters")
    return {name: known[name] for name in (known if layers is None else layers) if known[name]}


def _records_at_once(
    task: Task, params: Params, x: Tensor, y: Tensor, whole: int, max_bytes: int
) -> int:
    """Return how many records fit into memory with activations, slopes, copies and gradients."""
    kept = probe(task, params, x, y, method="auto").bytes_per_record
    return max(1, max_bytes // max(1, 3 * kept + whole))


def _of_records(
    factoring: Factoring, params: Params, x: Tensor, y: Tensor, classes: int
) -> dict[str, VectorSizes]:
    """Return the norms of the Jacobians by layer, with ranges at the true labels."""
    found: dict[str, VectorSizes] = {}
    for label in range(classes):
        for name, one in factoring(params, x, torch.full_like(y, label)).items():
            weights = weights_of(one)
            if weights is not None:
                column = spread(weights)
                column = replace(column, range=torch.where(y == label, column.range, 0.0))
                found[name] = found[name].concatenated(column) if name in found else column
    return found


def _sensitivity(layer: str, size: int, parts: Iterable[VectorSizes]) -> Sensitivity:
    found = VectorSizes.joined(parts)
    norms = {"F": found.squares.cpu().sqrt(), "1": found.absolute.cpu(), "inf": found.largest.cpu()}
    return Sensitivity(layer, size, norms, found.range.cpu())


def _mean_gradient(
    task: Task, params: Params, x: Tensor, y: Tensor, size: int
) -> dict[str, Tensor]:
    """Return the gradient of the mean loss of all records, leaf ``[*p]``, float64."""
    total = {name: torch.zeros_like(leaf, dtype=torch.float64) for name, leaf in params.items()}
    for rows in slices(len(x), size):
        grads = batch_gradients(task, params, x[rows][None], y[rows][None])
        for name, leaf in grads.items():
            total[name] += leaf[0].double() * (len(x[rows]) / len(x))
    return total


def _direction(
    layer: str, names: Sequence[str], means: Sequence[Grads], share: float
) -> Sensitivity:
    """Return the figures of a layer; ``means`` are those of records with the property, without."""
    having, others = (torch.cat([grads[name].flatten() for name in names]) for grads in means)
    found = VectorSizes.of((having - others)[None])
    ends = VectorSizes.of((share * having + (1 - share) * others)[None])
    return _sensitivity(layer, having.numel(), [replace(found, range=ends.range)])
