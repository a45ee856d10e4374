"""AGIC's joint reconstruction (Eq. 5): each record from the updates that were matched for it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.types import Task
from leakgauge.inversion.epochs.epoch import Epoch, EpochPlan
from leakgauge.inversion.epochs.joint import check_plan
from leakgauge.inversion.observed import Reconstruction, SearchProgress
from leakgauge.inversion.search.engine import draw_starts, search
from leakgauge.inversion.search.layer_weights import objective_of
from leakgauge.inversion.search.objective import rescaled
from leakgauge.inversion.search.settings import SearchSettings
from leakgauge.inversion.words import LATER_EPOCHS
from leakgauge.runs.checkpoint import Checkpoint


def per_sample_reconstruct(
    task: Task,
    epochs: Sequence[Epoch],
    plan: EpochPlan,
    settings: SearchSettings,
    *,
    labels: Sequence[Tensor],
    record: tuple[int, ...],
    low: Tensor,
    high: Tensor,
    seed: int,
    weights: Sequence[float] | None = None,
    start: Tensor | None = None,
    snapshots: int = 0,
    progress: SearchProgress | None = None,
    checkpoint: Checkpoint | None = None,
) -> Reconstruction:
    """Return each of n records, rebuilt from the one update of each epoch that is matched for it.

    This is the paper's rule. For each record c, a separate search minimises
    ``sum_e gamma_e (1 - cos(g_e(X_e), g_e))`` over one dummy batch ``X_e`` for each epoch. The
    batches share only record c: all their other records are free, and are discarded. So an update
    of B records is used B times, and the work is B times that of ``joint_reconstruct``.

    The paper writes the cosine of whole gradients. The distance here is that of ``settings``, for
    AGIC the cosine with layer weights (Eq. 6), and its total variation is added as in Eq. 2, over
    all records of a search, including the free ones, as in a search by one update. The paper does
    not give the labels of a dummy batch: here they are those inferred, or known, for that update.
    If ``settings`` rescale records (ours), the update of the first epoch decides the factor.

    Args:
        labels: labels of the updates of each epoch, int64 ``[U, B]``, in the plan's order.
        weights: weights gamma_e; None takes the paper's: 1 for the first epoch, 0.1 for later ones.
        start: start ``[n, 1 + E (B - 1), *record]`` of the first restart: the record, then the
            free records of each epoch. None draws it.

    The other arguments are as for ``joint_reconstruct``.

    Raises:
        InputError: plan, epochs, labels and weights differ in epochs or updates; also
            see ``search``.

    Returns:
        n targets of one record each, ``x [n, 1, ...]``, in the plan's numbering.

    References:
        Xu et al., AGIC, SRDS 2022, section IV-B, Eq. 5; section V-A for gamma.
    """
    later = [LATER_EPOCHS] * (len(epochs) - 1)
    gammas = [1.0, *later] if weights is None else list(weights)
    check_plan(plan, epochs=epochs, weights=len(gammas))
    _check_labels(plan, labels)
    epochs, dealt = [one.like_params() for one in epochs], _Dealt.of(plan, labels)
    measure = objective_of(settings.objective, task.model)

    def objective(x: Tensor, y: Tensor, targets: Tensor) -> Tensor:
        total = x.new_zeros(len(x))
        for number, (gamma, epoch) in enumerate(zip(gammas, epochs, strict=True)):
            held, updates = dealt.batches(x, number), dealt.updates[number][targets]
            grads = epoch.gradients(task, held, dealt.labels[number][targets], updates)
            total = total + gamma * measure(grads, epoch.seen(updates))
        return total

    like = next(iter(epochs[0].params.values()))
    shape, count = (dealt.records, *record), plan.records
    begin = draw_starts(settings, shape, targets=count, seed=seed, like=like, start=start)
    found = search(
        objective,
        settings,
        begin,
        labels=dealt.all_labels,
        held=plan.members.shape[2],
        seed=seed,
        low=low,
        high=high,
        snapshots=snapshots,
        progress=progress,
        checkpoint=checkpoint,
    )
    if settings.rescale:
        updates = dealt.updates[0]
        scaled = rescaled(
            dealt.batches(found.x, 0),
            lambda x: epochs[0].gradients(task, x, dealt.labels[0], updates),
            epochs[0].seen(updates),
            (low, high) if settings.boxed else None,
        )
        found = replace(found, x=scaled)
    return replace(
        found, x=found.x[:, :1], labels=found.labels[:, :1], snapshots=found.snapshots[:, :, :1]
    )


@dataclass(frozen=True, eq=False)
class _Dealt:
    """The dummy batches of n searches: one record that all epochs share, then the free ones.

    Attributes:
        updates: for each epoch, the update that each record is matched to, ``[n]``.
        labels: for each epoch, labels of each record's dummy batch, ``[n, B]``.
    """

    updates: list[Tensor]
    labels: list[Tensor]

    @classmethod
    def of(cls, plan: EpochPlan, labels: Sequence[Tensor]) -> "_Dealt":
        """Deal the records according to a plan, with labels ``[U, B]`` of each epoch."""
        size = plan.members.shape[2]
        updates, own = [], []
        for epoch, of_updates in enumerate(labels):
            place = plan.order(epoch).to(of_updates.device)
            update, position = place // size, place % size
            # The record's label comes first; the order of the others has no meaning.
            first = torch.arange(size, device=place.device).expand(len(place), -1)
            order = torch.where(first == position[:, None], -1, first).argsort(dim=1, stable=True)
            updates.append(update)
            own.append(of_updates[update].gather(1, order))
        return cls(updates, own)

    @property
    def records(self) -> int:
        """Number of records in one search, ``1 + E (B - 1)``."""
        return 1 + sum(one.shape[1] - 1 for one in self.labels)

    @property
    def all_labels(self) -> Tensor:
        """Labels ``[n, records]`` of the searches, the common record's from the first epoch."""
        return torch.cat([self.labels[0][:, :1], *(one[:, 1:] for one in self.labels)], dim=1)

    def batches(self, x: Tensor, epoch: int) -> Tensor:
        """Return an epoch's dummy batches ``[k, B, ...]`` among records ``[k, records, ...]``."""
        free = self.labels[epoch].shape[1] - 1
        begin = 1 + epoch * free
        return torch.cat([x[:, :1], x[:, begin : begin + free]], dim=1)


def _check_labels(plan: EpochPlan, labels: Sequence[Tensor]) -> None:
    epochs, *updates = plan.members.shape
    came = [list(one.shape) for one in labels]
    require(
        came == [updates] * epochs,
        f"labels of the epochs are {came}; expected {updates}, one for each record of each update, "
        f"for each of {epochs} epochs",
    )
