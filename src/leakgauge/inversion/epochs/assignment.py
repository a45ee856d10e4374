"""Assigns the records of a client to its updates in different epochs, and scores the assignment.

In every epoch a client shuffles the same n records into batches, one update each. Each update is
first inverted alone; then the rough images of different epochs are assigned to each other.
"""

from collections.abc import Sequence

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.functional import avg_pool2d

from leakgauge.core.checks import require, require_choice, require_count
from leakgauge.inversion.epochs.epoch import EpochPlan
from leakgauge.inversion.metrics.similarity import align_to_truth

METHODS = ("greedy", "optimal")
"""Methods of assigning rough images: the paper's, and ours."""


def match_epochs(
    images: Sequence[Tensor],
    labels: Sequence[Tensor],
    *,
    pool: int = 2,
    method: str = "greedy",
    by_labels: bool = True,
) -> EpochPlan:
    """Return the plan that assigns the rough images of every later epoch to those of the first.

    ``greedy`` is the paper's: two images may be matched if the labels of their updates overlap; for
    updates of one record, this is the image's label. Consecutive epochs are matched, and their
    assignments composed.

    ``optimal`` is ours: images may be matched if they have the same label, and every epoch is
    matched to the first, since composed assignments add up their errors.

    Args:
        images: images of each epoch, rebuilt from its updates only, ``[U, B, ...]``.
        labels: labels of these images, int64 ``[U, B]``.
        pool: see ``match``.
        method: see ``match``; it also decides the filter by labels.
        by_labels: whether labels restrict the matches; False is for comparison.

    Returns:
        The plan; its first epoch is always 0, 1, 2, ...

    Raises:
        InputError: the epochs have different shapes; also see ``match``.

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
    papers = method == "greedy"
    share = _updates_share_a_label if papers else _images_share_a_label
    flat = [one.flatten(0, 1) for one in images]
    orders = [torch.arange(len(flat[0]))]
    for epoch in range(1, len(images)):
        earlier = epoch - 1 if papers else 0
        allowed = share(labels[earlier], labels[epoch]) if by_labels else None
        found = match(flat[earlier], flat[epoch], allowed=allowed, pool=pool, method=method)
        orders.append(found[orders[earlier]])
    members = torch.stack([order.argsort() for order in orders])
    return EpochPlan(members.view(-1, *labels[0].shape).to(labels[0].device))


def match(
    first: Tensor,
    other: Tensor,
    *,
    allowed: Tensor | None = None,
    pool: int = 2,
    method: str = "greedy",
) -> Tensor:
    """Return each record's place in another epoch, by the squared distance of pooled images.

    ``greedy``, the paper's, sorts all pairs by distance and matches each pair of free images in
    turn. ``optimal``, ours, is the one-to-one assignment with the smallest sum. The paper matches
    all images, and does not say how to match an image without a free partner of an allowed label:
    here such images are matched after all others, in the same way.

    Args:
        first: rough images of the first epoch ``[n, c, h, w]``; records without two axes of
            pixels need ``pool=1``.
        other: rough images of the other epoch, of the same shape.
        allowed: pairs that may be matched, bool ``[n, n]``; None allows all.
        pool: side and stride of the averaged squares, in pixels.
        method: ``"greedy"`` or ``"optimal"``.

    Returns:
        int64 ``[n]``, a permutation: ``other[order]`` corresponds to ``first``.

    Raises:
        InputError: a shape does not fit, or the method is unknown.

    References:
        Xu et al., AGIC, SRDS 2022, section IV-B; the pooling is that of section V-A.

    >>> x = torch.tensor([0.0, 1.0, 2.0]).view(3, 1, 1, 1).expand(3, 1, 2, 2)
    >>> match(x, x[[2, 0, 1]] + 0.1)
    tensor([1, 2, 0])
    """
    require_choice(method, "method of matching", METHODS)
    n = len(first)
    pairs = (n, n) if allowed is None else tuple(allowed.shape)
    require(
        first.shape == other.shape and pairs == (n, n),
        f"images of two epochs are {list(first.shape)} and {list(other.shape)} with pairs "
        f"{list(pairs)}; expected [n, ...] and [n, n]",
    )
    require(
        bool(torch.isfinite(first).all() & torch.isfinite(other).all()),
        "rough images hold values that are not finite; leave out updates that failed",
    )
    distance = torch.cdist(_pooled(first, pool), _pooled(other, pool)).square().cpu()
    if allowed is not None:
        # More than all others together, so that forbidden pairs come last.
        distance = distance + (1 + n * distance.max()) * ~allowed.cpu()
    if method == "greedy":
        return _greedy(distance)
    return torch.from_numpy(linear_sum_assignment(distance.numpy())[1])


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

    Use it for a plan without a meaningful order within updates. In each update of a later epoch,
    records are assigned to images of the same label with the smallest sum.

    Args:
        plan: plan of E epochs.
        x: records, rebuilt from all epochs ``[n, ...]``.
        labels: labels of the records ``[n]``.
        images: images of each epoch, rebuilt from its updates only, ``[U, B, ...]``.
        image_labels: labels of these images ``[U, B]``.
        pool: see ``match``.

    Raises:
        InputError: images and labels do not fit the plan's epochs; also see ``match``.
    """
    require(
        len(plan.members) == len(images) == len(image_labels),
        f"images of {len(images)} epochs and labels of {len(image_labels)} for a plan of "
        f"{len(plan.members)}; expected equal numbers",
    )
    epochs = [plan.members[0]]
    for members, rough, named in zip(plan.members[1:], images[1:], image_labels[1:], strict=True):
        orders = []
        for held, one, own in zip(members, rough, named, strict=True):
            allowed = _images_share_a_label(own, labels[held])
            orders.append(match(one, x[held], allowed=allowed, pool=pool, method="optimal"))
        epochs.append(members.gather(1, torch.stack(orders).to(members.device)))
    return EpochPlan(torch.stack(epochs))


def _pooled(images: Tensor, pool: int) -> Tensor:
    """Return pooled images ``[n, D]``, float64."""
    require_count(pool, "side of the pooled square, in pixels")
    require(
        pool == 1 or (images.dim() == 4 and min(images.shape[2:]) >= pool),
        f"records are {list(images.shape)}; pooling {pool} x {pool} needs [n, c, h, w] of at "
        "least that size, so use pool=1",
    )
    plain = images.detach().double()
    return (avg_pool2d(plain, pool) if pool > 1 else plain).flatten(1)


def _updates_share_a_label(first: Tensor, other: Tensor) -> Tensor:
    """Return which pairs of images come from updates with a common label, bool ``[n, n]``."""
    shared = (first[:, None, :, None] == other[None, :, None, :]).flatten(2).any(2)
    return shared.repeat_interleave(first.shape[1], 0).repeat_interleave(other.shape[1], 1)


def _images_share_a_label(first: Tensor, other: Tensor) -> Tensor:
    """Return which pairs of images have the same label, bool ``[n, n]``."""
    return first.flatten()[:, None] == other.flatten()


def _greedy(distance: Tensor) -> Tensor:
    n = len(distance)
    order: dict[int, int] = {}
    taken = [False] * n
    for pair in distance.flatten().argsort(stable=True).tolist():
        row, column = divmod(pair, n)
        if row not in order and not taken[column]:
            order[row], taken[column] = column, True
    return torch.tensor([order[row] for row in range(n)], dtype=torch.int64)


def true_records(rough: Tensor, truth: Tensor, records: Tensor) -> Tensor:
    """Return the true record behind each rebuilt image of an epoch; for scoring only.

    Args:
        rough: images rebuilt from the updates only ``[U, B, ...]``.
        truth: the client's records ``[n, ...]``.
        records: indices of the records in each update, int64 ``[U, B]``.

    Returns:
        int64 ``[U * B]``, by the best one-to-one assignment in each update.
    """
    named = []
    for images, members in zip(rough, records, strict=True):
        order = align_to_truth(images, truth[members])  # images[order[j]] is members[j]
        named.append(members[order.to(members.device).argsort()])
    return torch.cat(named)


def matching_accuracy(plan: EpochPlan, records: Sequence[Tensor]) -> Tensor:
    """Return the share of records that are assigned correctly in each later epoch, ``[E - 1]``.

    Args:
        plan: result of ``match_epochs``.
        records: for each epoch, true record of each rebuilt image, from ``true_records``, ``[n]``.

    >>> plan = EpochPlan(torch.tensor([[[0], [1]], [[1], [0]], [[0], [1]]]))
    >>> matching_accuracy(plan, [torch.tensor(one) for one in ([7, 9], [9, 7], [9, 7])])
    tensor([1., 0.])
    """
    epochs = len(plan.members)
    require(
        len(records) == epochs > 1,
        f"true records of {len(records)} epochs for a plan of {epochs}; expected equal numbers, "
        "2 or more",
    )
    assigned = [records[epoch][plan.order(epoch)] for epoch in range(1, epochs)]
    return torch.stack([(one == records[0]).float().mean() for one in assigned])
