"""The gradients of many records by layer, from one forward and one backward pass."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.core.checks import require_known
from leakgauge.core.precision import relative_tolerance
from leakgauge.core.reductions import summed_loss
from leakgauge.core.types import Grads, Params, Task
from leakgauge.gradients.factored.base import Factors, WholeGradients
from leakgauge.gradients.factored.products import LayerCalls, has_factors, layer_factors
from leakgauge.gradients.gradients import per_example_gradients
from leakgauge.gradients.probing import private, trainable
from leakgauge.gradients.vectorising import vectorisable_kernels
from leakgauge.gradients.walk import Layer, uses, walk

TOLERANCE = 1e-3
"""Largest relative error of factors that are accepted as the records' gradients.

It is far above rounding in float32, and far below the error of a layer that runs in another way.
Coarser types have ``relative_tolerance``.
"""


def factors(
    task: Task, params: Params, x: Tensor, y: Tensor, *, layers: Sequence[str] | None = None
) -> dict[str, Factors]:
    """Return the gradient of each record's loss by layer, as factors where it is a product.

    Linear layers (also ``Conv1D`` of transformers), convolutions and embeddings that run once give
    factors: one pass over all records yields their inputs and output gradients. Other layers give
    whole gradients, and so does a model with interacting records or with weights used outside of
    their modules. Two records and the graph of their pass decide which case holds.

    Args:
        task: the model and its loss; the module is not changed.
        params: all trainable parameters by name, as from ``params_of``.
        x: records ``[n, ...]``.
        y: targets ``[n, ...]``.
        layers: names of the layers to return, as ``walk`` gives them; None for all.

    Returns:
        Factors by layer, in the order of ``layers``, else in the order in which layers run.

    Raises:
        InputError: no layer has this name, or ``per_example_gradients`` refuses the task.

    References:
        Goodfellow, Efficient per-example gradient computations, 2015 (linear layers).

    >>> task = Task(torch.nn.Linear(3, 2))
    >>> x, y = torch.ones(5, 3), torch.zeros(5, dtype=torch.int64)
    >>> found = factors(task, dict(task.model.named_parameters()), x, y)[""]
    >>> type(found).__name__, list(found.gradient()["weight"].shape)
    ('LinearFactors', [5, 2, 3])
    """
    return Factoring.start(task, params, x, y, layers=layers)(params, x, y)


@dataclass(frozen=True, eq=False)
class Factoring:
    """The layers of a model that have factors, found once for many batches.

    Attributes:
        task: the model and its loss.
        products: layers with gradients that are products.
        rest: other layers; their gradients are computed in full.
        names: names of all these layers, in order.
    """

    task: Task
    products: Sequence[Layer]
    rest: Sequence[Layer]
    names: Sequence[str]

    @classmethod
    def start(
        cls,
        task: Task,
        params: Params,
        x: Tensor,
        y: Tensor,
        *,
        layers: Sequence[str] | None = None,
    ) -> "Factoring":
        """Try the layers on two records; the arguments are those of ``factors``."""
        params = trainable(task.model, params)
        known = {one.name: one for one in walk(task, x)}
        for name in layers or ():
            require_known(name, known, f"the model has no layer {name!r} with parameters")
        wanted = [known[name] for name in (known if layers is None else layers)]
        found = _products(task, params, x[:2], y[:2], wanted)
        exact = per_example_gradients(task, params, x[:2], y[:2])
        once = _read_once(task, params, x[:2], y[:2])
        proved = [
            one
            for one in wanted
            if once.issuperset(one.parameters)
            and one.name in found
            and _is_exact(found[one.name], exact)
        ]
        rest = [one for one in wanted if one not in proved]
        return cls(task, proved, rest, [one.name for one in wanted])

    def __call__(self, params: Params, x: Tensor, y: Tensor) -> dict[str, Factors]:
        """Return the gradients of records by layer."""
        params = trainable(self.task.model, params)
        found = _products(self.task, params, x, y, self.products) if self.products else {}
        if self.rest:
            found |= _whole(self.task, params, x, y, self.rest)
        return {name: found[name] for name in self.names}


def _products(
    task: Task, params: Params, x: Tensor, y: Tensor, layers: Sequence[Layer]
) -> dict[str, Factors]:
    """Return the factors of the layers that have some."""
    own, count = private(task, params), len(x)
    _freeze(own, layers)
    pair = own.paired(x)
    x, y = pair, y if len(pair) == count else torch.cat([y, y])
    modules = {one.name: own.model.get_submodule(one.name) for one in layers}
    caught = {
        one.name: LayerCalls.at(modules[one.name], one)
        for one in layers
        if has_factors(modules[one.name], one)
    }
    if not caught or len(x) == 0:
        return {}
    with torch.enable_grad(), vectorisable_kernels():
        total = summed_loss(own.mean_loss, own.outputs(x), y)
        once = {name: one for name, one in caught.items() if one.is_sound(len(x))}
        outputs = [one.outputs[0] for one in once.values()]
        slopes = torch.autograd.grad(total, outputs, materialize_grads=True) if once else ()
    made = {
        name: layer_factors(modules[name], one, dy)
        for (name, one), dy in zip(once.items(), slopes, strict=True)
    }
    kept = {name: one for name, one in made.items() if one is not None}
    return (
        {name: one.rows(slice(0, count)) for name, one in kept.items()} if count < len(x) else kept
    )


def _read_once(task: Task, params: Params, x: Tensor, y: Tensor) -> set[str]:
    """Return the parameters that no more than one operation of a pass reads.

    Two records may not show that a weight is used elsewhere, too: their units may be off there.
    """
    own = private(task, params)
    with torch.enable_grad(), vectorisable_kernels():
        loss = own.mean_loss(own.outputs(x), y)
    counted = uses(loss, dict(own.model.named_parameters()))
    return {name for name, count in counted.items() if count <= 1}


def _is_exact(found: Factors, exact: Grads) -> bool:
    """Return whether factors give the true gradients, up to rounding."""
    pairs = [(leaf, exact[name]) for name, leaf in found.gradient().items()]
    return all(
        bool((made - true).norm() <= relative_tolerance(true.dtype, TOLERANCE) * true.norm())
        for made, true in pairs
    )


def _whole(
    task: Task, params: Params, x: Tensor, y: Tensor, layers: Sequence[Layer]
) -> dict[str, Factors]:
    """Return the gradients of layers without factors, and compute no others."""
    own = private(task, params)
    wanted = _freeze(own, layers)
    grads = per_example_gradients(own, {name: params[name] for name in wanted}, x, y)
    return {
        one.name: WholeGradients({name: grads[name] for name in one.parameters}) for one in layers
    }


def _freeze(task: Task, layers: Sequence[Layer]) -> list[str]:
    """Freeze all parameters except those of the layers; return the names of these.

    A backward pass then ends at the first of these layers.
    """
    wanted = [name for one in layers for name in one.parameters]
    for name, leaf in task.model.named_parameters():
        leaf.requires_grad_(name in wanted)
    return wanted
