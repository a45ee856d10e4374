"""Recovers records from the gradient of a first linear layer by division.

A unit i of the layer has the gradients ``sum_r d_ri x_r`` (its weights) and ``sum_r d_ri`` (its
bias). Where a single record r reaches the unit, one divided by the other is x_r, whatever the loss
and the layers behind. After a ReLU a record reaches the units that it switches on.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.core.checks import require, require_count, require_positive
from leakgauge.core.precision import is_coarse, precision_of, relative_tolerance
from leakgauge.core.types import Grads, Params, Task
from leakgauge.data.decode import fits
from leakgauge.gradients.probing import explained, private, trainable
from leakgauge.gradients.walk import is_linear, uses
from leakgauge.inversion.methods import EXACT, TABLE, Method, Traits
from leakgauge.inversion.observed import AttackOptions, Knowledge, ObservedUpdates, Reconstruction

FLOOR = 1e-6
"""A bias gradient below this share of the largest is rounding, and is not divided by; for types
coarser than float32, the share is their precision."""

MOST_UNITS = 2000
"""Largest number of units that are compared with each other, by their bias gradients."""

FLAGS = 1e-3
"""Largest distance of a flag of a table's category from 0 or 1."""

TOLERANCE_OF_GRADIENTS, TOLERANCE_OF_CHANGES = 1e-4, 1e-2
"""Relative differences below which two candidates are one record; changes of weights are rounded
more coarsely than gradients."""


@dataclass(frozen=True)
class Division(Method):
    """Takes the best supported candidates, as many as there are records, and guesses the rest."""

    traits: ClassVar[Traits] = Traits(
        does="divides gradients of the first linear layer.", needs=TABLE, uses_labels=False
    )

    @property
    def described(self) -> str:
        """Its name: it has no settings."""
        return EXACT

    def rebuild(
        self, task: Task, seen: ObservedUpdates, known: Knowledge, options: AttackOptions
    ) -> Reconstruction:
        """Return the recovered records; arguments and errors as for ``Method``."""
        assert known.guess is not None
        began = time.perf_counter()
        targets = len(next(iter(seen.grads.values())))
        x = known.guess.expand(targets, *seen.shape).clone()
        check_reads_records(task, seen.params, x[0])
        for target in range(targets):
            candidates = divided(task, seen, known, target)
            x[target, : len(candidates)] = candidates
        return Reconstruction.direct(x, seconds=time.perf_counter() - began)


def divided(task: Task, seen: ObservedUpdates, known: Knowledge, target: int) -> Tensor:
    """Return the records of a table that division finds in one update ``[k, D]``, at most B.

    Args:
        task: its model begins with a linear layer that sees each record once.
        seen: updates of batches of B records.
        known: the table's columns, and the client's steps.
        target: number of the update.
    """
    assert known.schema is not None
    count = seen.shape[0]
    single_step = known.steps is None or known.steps.steps == 1
    flags = relative_tolerance(precision_of(seen.grads.values()), FLAGS)
    valid = functools.partial(fits, schema=known.schema, tolerance=flags)
    return recover_first_layer(
        task,
        seen.params,
        {name: leaf[target : target + 1] for name, leaf in seen.grads.items()},
        agree=1 if count > 1 else 2,
        tolerance=TOLERANCE_OF_GRADIENTS if single_step else TOLERANCE_OF_CHANGES,
        valid=valid if count > 1 else None,
    ).x[:count]


@dataclass(frozen=True, eq=False)
class Recovered:
    """Candidates for the records of one batch, the best supported first.

    Attributes:
        x: ``[k, D]``, inputs of the first layer, in the gradient's precision.
        support: how many units agree on each ``[k]``, int64.
    """

    x: Tensor
    support: Tensor


def first_linear(model: nn.Module) -> tuple[str, str]:
    """Return the names of weight and bias of the first layer that has parameters.

    The first layer is the one that was registered first. Modules without parameters before it
    (``Flatten``) are skipped: the layer's inputs are recovered.

    Raises:
        InputError: that layer is not an ``nn.Linear`` with a bias.

    >>> first_linear(nn.Sequential(nn.Flatten(), nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    ('1.weight', '1.bias')
    """
    for name, part in model.named_modules():
        if not list(part.parameters(recurse=False)):
            continue
        linear = is_linear(part)
        what = f"{type(part).__name__}{' without a bias' if linear else ''}"
        require(
            linear and part.bias is not None,
            f"the first layer {name!r} is {what}; exact recovery expects an nn.Linear with a bias",
        )
        dot = f"{name}." if name else ""
        return f"{dot}weight", f"{dot}bias"
    require(False, f"{type(model).__name__} has no layer with parameters")
    raise AssertionError


def check_reads_records(task: Task, params: Params, x: Tensor) -> None:
    """Refuse a model whose first layer does not see each record once, as it is.

    Division recovers what enters the layer: a model that standardises its inputs, that calls the
    layer for several records or parts, or that uses its weights elsewhere shows other values. It is
    tried out.

    Args:
        task: its model begins with a linear layer.
        params: all trainable parameters by name.
        x: records ``[B, ...]`` of the right shape, not private ones.

    Raises:
        InputError: the layer gets anything but the records, runs more than once, or shares weights.
    """
    names = first_linear(task.model)
    name = names[0].rpartition(".")[0]
    own = private(task, trainable(task.model, params)).model.eval()
    given: list[Tensor] = []
    own.get_submodule(name).register_forward_pre_hook(lambda _, seen: given.append(seen[0]))
    # Records that differ in all their values show every change.
    tried = x + torch.arange(x.numel(), device=x.device).sin().to(x).reshape(x.shape)
    with torch.enable_grad(), explained(f"{type(own).__name__} refuses records {list(x.shape)}"):
        outputs = own(tried.clone())
    same = len(given) == 1 and given[0].shape == tried.flatten(1).shape
    require(
        same and torch.equal(given[0], tried.flatten(1)),
        f"the first layer {name!r} does not get each record once and as it is, so division gives "
        "other values; take another --method",
    )
    counted = uses(outputs, dict(own.named_parameters()))
    require(
        max(counted[one] for one in names) <= 1,
        f"the weights of the first layer {name!r} are used elsewhere, too, so its gradient is not "
        "of its inputs alone, and division gives other values; take another --method",
    )


def recover_first_layer(
    task: Task,
    params: Params,
    grads: Grads,
    *,
    agree: int = 2,
    tolerance: float = 1e-4,
    valid: Callable[[Tensor], Tensor] | None = None,
) -> Recovered:
    """Return candidates for the records of a batch, exact where units saw a single record.

    Every unit with a bias gradient gives a candidate. Those that agree with each other are joined
    by least squares, which weighs a unit by its squared bias gradient. One record is always
    recovered, up to rounding. One of several is recovered when at least ``agree`` units saw it
    alone. The result is empty where no units agree.

    Units that saw the same several records can agree on a mixture of them: with two classes and
    one hidden layer they always do, since all units then weigh the records alike; records of one
    label are weighed nearly alike by any network that is not trained. A mixture does not look like
    a record: ``valid`` decides (for tables ``decode.fits``). With it, ``agree=1`` also takes the
    candidate of a single unit.

    Args:
        task: its model begins with a linear layer that sees each record once.
        params: all trainable parameters by name, where the gradient was taken.
        grads: one gradient, leaf ``[1, *p]``; for an update, take ``as_gradient()``.
        agree: how many units must give the same candidate; all units, where these are fewer.
        tolerance: candidates agree that differ by no more than this in any coordinate, relative
            to the largest coordinate where that is above 1. A difference of float32 weights is
            rounded more coarsely than a gradient: at a local rate of 1e-4 it takes about 1e-2. A
            gradient coarser than float32 has that of its precision, if it is larger.
        valid: ``(candidates [k, D]) -> which can be records [k]``, bool.

    Raises:
        InputError: the first layer is not linear with a bias, its gradient does not fit, is not
            finite, or is zero for all biases.

    References:
        Phong et al., Privacy-Preserving Deep Learning via Additively Homomorphic Encryption, 2018
        (one record); Geiping et al., Inverting Gradients, 2020, proposition 3.1.

    >>> task = Task(nn.Linear(2, 2), nn.functional.cross_entropy)
    >>> bias = torch.tensor([[0.5, -0.5]])
    >>> grads = {"weight": bias[..., None] * torch.tensor([2.0, 6.0]), "bias": bias}
    >>> recovered = recover_first_layer(task, dict(task.model.named_parameters()), grads)
    >>> recovered.x.tolist(), recovered.support.tolist()
    ([[2.0, 6.0]], [2])
    """
    require_count(agree, "number of units that must agree")
    require_positive(tolerance, "tolerance")
    precision = precision_of([grads[name] for name in first_linear(task.model) if name in grads])
    weight, bias = first_gradients(task, params, grads)
    floor = FLOOR
    if is_coarse(precision):
        tolerance = relative_tolerance(precision, tolerance)
        floor = torch.finfo(precision).eps
    order = bias.abs().argsort(descending=True, stable=True)[:MOST_UNITS]
    order = order[bias[order].abs() > floor * bias.abs().max()]
    weight, bias = weight[order], bias[order]
    groups = _groups(weight / bias[:, None], tolerance)
    size = groups.sum(dim=1)
    groups = groups[size >= min(agree, len(bias))]
    square = groups * bias.square()
    x = square @ (weight / bias[:, None]) / square.sum(dim=1, keepdim=True)
    if valid is not None:
        kept = valid(x)
        x, groups = x[kept], groups[kept]
    support = groups.sum(dim=1)
    best = support.argsort(descending=True, stable=True)
    return Recovered(x[best].to(next(iter(grads.values())).dtype), support[best])


def share_recovered(candidates: Tensor, truth: Tensor, *, tolerance: float = 1e-3) -> float:
    """Return the share of true records that are among the candidates; for scoring only.

    Args:
        candidates: ``[k, D]``.
        truth: ``[B, D]``.
        tolerance: the largest difference of any coordinate.

    >>> share_recovered(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    0.5
    """
    if len(candidates) == 0:
        return 0.0
    gaps = torch.cdist(truth.double(), candidates.double(), p=float("inf"))
    return float((gaps.amin(dim=1) <= tolerance).double().mean())


def first_gradients(task: Task, params: Params, grads: Grads) -> tuple[Tensor, Tensor]:
    """Return gradients of the first layer's weight ``[H, D]`` and bias ``[H]``, float64."""
    names = first_linear(task.model)
    known = trainable(task.model, params)
    for name in names:
        require(name in grads, f"the gradient of {name!r}, the first layer, is missing")
        wanted = [1, *known[name].shape] if name in known else None
        require(
            list(grads[name].shape) == wanted,
            f"the gradient of {name!r} is {list(grads[name].shape)}; expected {wanted}: one "
            "update, its stack's axis first",
        )
        require(
            bool(grads[name].isfinite().all()),
            f"the gradient of {name!r} is not finite everywhere; check the update",
        )
    weight, bias = (grads[name][0].double() for name in names)
    require(
        bool(bias.any()),
        f"the gradient of {names[1]!r} is all zero, so no record reaches the first layer; "
        "check the update, or its defense",
    )
    return weight, bias


def _groups(candidates: Tensor, tolerance: float) -> Tensor:
    """Return which of m candidates ``[m, D]`` agree, ``[k, m]`` bool; each is in one group.

    The first candidate without a group forms one with all such candidates near it, and so on.
    """
    reach = tolerance * candidates.abs().amax(dim=1).clamp(min=1)
    near = torch.cdist(candidates, candidates, p=float("inf")) <= reach[:, None]
    free = torch.ones(len(candidates), dtype=torch.bool, device=candidates.device)
    groups = []
    for seed in range(len(candidates)):
        if free[seed]:
            groups.append(near[seed] & free)
            free &= ~near[seed]
    return torch.stack(groups)
