"""Assigns the records of a client to its updates in different epochs.

In every epoch a client shuffles the same n records into batches, one update each. Each update is
first inverted alone; then the rough images of different epochs are assigned to each other.
"""

from collections.abc import Callable, Sequence

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.functional import avg_pool2d

from leakgauge.core.checks import require, require_choice, require_count
from leakgauge.inversion.epochs.plan import EpochPlan

METHODS = ("greedy", "optimal")

_NOT_FINITE = "rough images hold values that are not finite; leave out updates that failed"

_Pairing = Callable[[Tensor], tuple[Tensor, Tensor]]


def match_epochs(
    images: Sequence[Tensor],
    labels: Sequence[Tensor],
    *,
    pool: int = 2,
    method: str = "greedy",
) -> EpochPlan:
    """Return the plan that assigns the rough images of every later epoch to those of the first.

    Args:
        images: of each epoch, rebuilt from its updates alone, ``[U, B, ...]``.
        labels: of these images, int64 ``[U, B]``.
        pool: as for ``match``.
        method: as for ``match``.

    Returns:
        The plan; its first epoch is 0, 1, 2, ... by definition.

    Raises:
        InputError: the epochs have different shapes, or as ``match``.

    References:
        Xu et al., AGIC, SRDS 2022, section IV-B.
    """
    require(
        len(images) == len(labels) > 0,
        f"images of {len(images)} epochs and labels of {len(labels)}; expected equal numbers",
    )
    shapes = {(tuple(x.shape), tuple(y.shape)) for x, y in zip(images, labels, strict=True)}
    require(
        len(shapes) == 1 and images[0].shape[:2] == labels[0].shape,
        f"images and labels of the epochs are {sorted(shapes)}; expected [U, B, ...] and [U, B], "
        "the same in each epoch",
    )
    first, first_labels = images[0].flatten(0, 1), labels[0].flatten()
    members = [torch.arange(len(first), device=first_labels.device)]
    for x, y in zip(images[1:], labels[1:], strict=True):
        order = match(first, x.flatten(0, 1), first_labels, y.flatten(), pool=pool, method=method)
        members.append(order.argsort().to(members[0].device))
    return EpochPlan(torch.stack(members).view(-1, *labels[0].shape))


def match(
    first: Tensor,
    other: Tensor,
    first_labels: Tensor,
    other_labels: Tensor,
    *,
    pool: int = 2,
    method: str = "greedy",
) -> Tensor:
    """Return each record's place in another epoch, by the squared distance of pooled images.

    Only images with the same label are compared. ``greedy``: one after the other, the images of the
    first epoch take the nearest image that is left. ``optimal``: the one-to-one assignment with the
    smallest sum. Inferred labels may differ between epochs; images whose label has no partner left
    are assigned to each other in the same way. The order of the greedy rule and the treatment of
    this remainder are our reading of the paper.

    Args:
        first: rough images of the first epoch ``[n, c, h, w]``; records without two axes of
            pixels need ``pool=1``.
        other: those of the other epoch, of the same shape.
        first_labels: int64 ``[n]``.
        other_labels: int64 ``[n]``.
        pool: side of the square of pixels that is averaged.
        method: ``"greedy"`` or ``"optimal"``.

    Returns:
        int64 ``[n]``, a permutation: ``other[order]`` stands beside ``first``.

    Raises:
        InputError: a shape does not fit, or the method is not known.

    References:
        Xu et al., AGIC, SRDS 2022, section IV-B.

    >>> x = torch.tensor([0.0, 1.0, 2.0]).view(3, 1, 1, 1).expand(3, 1, 2, 2)
    >>> match(x, x[[2, 0, 1]] + 0.1, torch.tensor([5, 5, 6]), torch.tensor([6, 5, 5]))
    tensor([1, 2, 0])
    """
    require_choice(method, "method of matching", METHODS)
    n = len(first)
    require(
        first.shape == other.shape and first_labels.shape == other_labels.shape == (n,),
        f"images of two epochs are {list(first.shape)} and {list(other.shape)} with labels "
        f"{list(first_labels.shape)} and {list(other_labels.shape)}; expected [n, ...] and [n]",
    )
    require(bool(torch.isfinite(first).all() & torch.isfinite(other).all()), _NOT_FINITE)
    distance = torch.cdist(_pooled(first, pool), _pooled(other, pool)).square().cpu()
    paired = _greedy if method == "greedy" else _optimal
    order = torch.full((n,), -1)
    for label in sorted(set(first_labels.tolist())):
        rows, columns = ((y.cpu() == label).nonzero()[:, 0] for y in (first_labels, other_labels))
        _fill(order, distance, rows, columns, paired)
    left = torch.ones(n, dtype=torch.bool).scatter_(0, order[order >= 0], False)
    _fill(order, distance, (order < 0).nonzero()[:, 0], left.nonzero()[:, 0], paired)
    return order.to(first_labels.device)


def arrange(
    plan: EpochPlan,
    x: Tensor,
    labels: Tensor,
    images: Sequence[Tensor],
    image_labels: Sequence[Tensor],
    *,
    pool: int = 2,
) -> EpochPlan:
    """Return the plan with the records of each update in the order of the update's rough images.

    For a plan whose order within an update means nothing. In each update of a later epoch, records
    and images are assigned to each other as by ``match``, with the smallest sum.

    Args:
        plan: of E epochs.
        x: the records, rebuilt from all of them ``[n, ...]``.
        labels: of the records ``[n]``.
        images: of each epoch, rebuilt from its updates alone, ``[U, B, ...]``.
        image_labels: of these images ``[U, B]``.
        pool: as for ``match``.

    Raises:
        InputError: images and labels are not of the plan's epochs; or as ``match``.
    """
    require(
        len(plan.members) == len(images) == len(image_labels),
        f"images of {len(images)} epochs and labels of {len(image_labels)} for a plan of "
        f"{len(plan.members)}; expected equal numbers",
    )
    epochs = [plan.members[0]]
    for members, rough, named in zip(plan.members[1:], images[1:], image_labels[1:], strict=True):
        orders = [
            match(one, x[held], own, labels[held], pool=pool, method="optimal")
            for held, one, own in zip(members, rough, named, strict=True)
        ]
        epochs.append(members.gather(1, torch.stack(orders).to(members.device)))
    return EpochPlan(torch.stack(epochs))


def _pooled(images: Tensor, pool: int) -> Tensor:
    """``[n, D]``, float64."""
    require_count(pool, "side of the pooled square, in pixels")
    require(
        pool == 1 or (images.dim() == 4 and min(images.shape[2:]) >= pool),
        f"records are {list(images.shape)}; pooling {pool} x {pool} needs [n, c, h, w] of at "
        "least that size, so use pool=1",
    )
    plain = images.detach().double()
    return (avg_pool2d(plain, pool) if pool > 1 else plain).flatten(1)


def _fill(order: Tensor, distance: Tensor, rows: Tensor, columns: Tensor, paired: _Pairing) -> None:
    """Assign ``rows`` to ``columns``; where their numbers differ, some stay without a partner."""
    some, others = paired(distance[rows][:, columns])
    order[rows[some]] = columns[others]


def _greedy(distance: Tensor) -> tuple[Tensor, Tensor]:
    distance = distance.clone()
    count = min(distance.shape)
    taken = torch.empty(count, dtype=torch.int64)
    for row in range(count):
        taken[row] = distance[row].argmin()
        distance[:, taken[row]] = torch.inf
    return torch.arange(count), taken


def _optimal(distance: Tensor) -> tuple[Tensor, Tensor]:
    rows, columns = linear_sum_assignment(distance.numpy())
    return torch.from_numpy(rows), torch.from_numpy(columns)
