"""Scores the assignment of records between epochs against the truth."""

from collections.abc import Sequence

import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.inversion.epochs.plan import EpochPlan
from leakgauge.inversion.metrics.similarity import align_to_truth


def true_records(rough: Tensor, truth: Tensor, records: Tensor) -> Tensor:
    """Return the true record behind each rebuilt image of an epoch; for scoring only.

    Args:
        rough: rebuilt from the updates alone ``[U, B, ...]``.
        truth: the client's records ``[n, ...]``.
        records: which of them each update held, int64 ``[U, B]``.

    Returns:
        int64 ``[U * B]``; in each update the best one-to-one assignment.
    """
    named = []
    for images, members in zip(rough, records, strict=True):
        order = align_to_truth(images, truth[members])  # images[order[j]] is members[j]
        named.append(members[order.to(members.device).argsort()])
    return torch.cat(named)


def matching_accuracy(plan: EpochPlan, records: Sequence[Tensor]) -> Tensor:
    """Return the share of records that are assigned correctly in each later epoch, ``[E - 1]``.

    Args:
        plan: from ``match_epochs``.
        records: the true record of each rebuilt image, from ``true_records``, of each epoch
            ``[n]``.

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
