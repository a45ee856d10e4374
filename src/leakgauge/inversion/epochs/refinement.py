"""Refines by gradients the assignment of records to the updates of each epoch.

Where an update holds several records, its rough images are often mixtures, which cannot be assigned
well between epochs. A record's gradient still shows which update it is part of.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from leakgauge.core.types import Task
from leakgauge.gradients.flattening import flat_leaf
from leakgauge.inversion.double_backward.gradients import differentiable_gradients
from leakgauge.inversion.double_backward.products import squares
from leakgauge.inversion.epochs.epoch import Epoch, EpochPlan
from leakgauge.inversion.epochs.joint import check_labels, check_plan, joint_reconstruct
from leakgauge.inversion.observed import Reconstruction, SearchProgress
from leakgauge.inversion.search.layer_weights import objective_of
from leakgauge.inversion.search.objective import Cosine, Objective, cosine_distance, stretches
from leakgauge.inversion.search.settings import SearchSettings
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.runs.work import digest_of

_BLOCKS, _LENGTH = 12, 20
"""Number of short searches; each has 1 / 20 of the attack's iterations."""

_LEAST = 1e-9
"""Smallest decrease of the distance that is not rounding."""


def refine_assignment(
    task: Task,
    epochs: Sequence[Epoch],
    plan: EpochPlan,
    settings: SearchSettings,
    *,
    labels: Tensor,
    record: tuple[int, ...],
    low: Tensor,
    high: Tensor,
    seed: int,
    progress: SearchProgress | None = None,
    checkpoint: Checkpoint | None = None,
) -> EpochPlan:
    """Return a plan that is improved by joint searches, each without one epoch.

    This is ours, not the paper's, and so are the searches (``joint_reconstruct``). A search by a
    wrong plan gives records that agree with it, so the other epochs decide the plan of an epoch:
    after a short search without this epoch, its updates swap records, the best swap first, while
    that brings the mean gradients of their records nearer to the observed ones (by the attack's
    cosine, else the plain one). Every search continues from the best point of the previous one; in
    each turn one search uses all epochs. There are twelve searches (or one for each epoch, if
    there are more), each with a twentieth of the attack's iterations: three fifths in total. There
    is one start, for any number of restarts in the attack. The weight of a relative prior is that
    for all epochs, even if one is left out.

    The gradient of a batch is assumed to be the mean of its records' gradients: the model keeps
    records apart. The gradients of all n records are in memory together; if the model changes
    between the updates of an epoch, they are computed once for each update.

    Args:
        plan: initial plan, as from ``match_epochs``; its first epoch numbers the records and is
            kept.
        progress: see ``reconstruct``; called at each iteration, counted over all searches.
        checkpoint: see ``reconstruct``; covers all searches.

    The other arguments are as for ``joint_reconstruct``.

    Raises:
        InputError: see ``joint_reconstruct``.

    Returns:
        A plan of the same epochs; in later epochs, the order of records within an update has no
        meaning (``arrange`` gives it one).
    """
    check_plan(plan, epochs=epochs, weights=len(epochs))
    check_labels(plan, labels)
    if len(epochs) == 1 or len(plan.members[0]) == 1:
        return plan  # Only one plan is possible.
    how = replace(
        settings,
        iterations=max(1, settings.iterations // _LENGTH),
        restarts=1,
        schedule="constant",
        warmup=0,
        prior_first=1.0,
        rescale=False,
    )
    measure, everything = objective_of(settings.objective, task.model), list(range(len(epochs)))

    def joint(
        kept: list[int],
        plan: EpochPlan,
        how: SearchSettings,
        start: Tensor | None = None,
        done: int = 0,
        part: Checkpoint | None = None,
    ) -> Reconstruction:
        def report(at: int, loss: Tensor) -> None:
            if progress is not None:
                progress(done + at, loss)

        return joint_reconstruct(
            task,
            [epochs[epoch] for epoch in kept],
            EpochPlan(plan.members[kept]),
            how,
            labels=labels,
            record=record,
            low=low,
            high=high,
            seed=seed,
            start=start,
            progress=report,
            checkpoint=part,
        )

    if how.prior_relative and how.total_variation:
        # A multiple of the objective at noise: the start of later searches is not a measure of it.
        bare = replace(how, total_variation=0.0, iterations=1)
        begins = float(joint(everything, plan, bare).losses[0, 0])
        how = replace(how, prior_relative=False, total_variation=how.total_variation * begins)
    x, whole = None, checkpoint or Checkpoint(None)
    for block in range(max(_BLOCKS, len(epochs))):
        out = block % len(epochs)  # The first is never left out: 0 means none.
        kept = [epoch for epoch in everything if epoch != out or epoch == 0]
        part = whole.part(f"refine-{block:02d}", after=digest_of({"plan": plan.members}))
        x = joint(kept, plan, how, x, block * how.iterations, part).x
        if out:
            members = plan.members.clone()
            members[out] = swapped(task, epochs[out], members[out], x[0], labels, measure)
            plan = EpochPlan(members)
    return plan


def swapped(
    task: Task, epoch: Epoch, members: Tensor, x: Tensor, labels: Tensor, measure: Objective
) -> Tensor:
    """Return an assignment with records swapped between updates to bring gradients nearer.

    The best swap comes first. The distance of an update needs only inner products, so those of all
    pairs of records, and of records with updates, give the gain of each swap.

    Args:
        task: the model and its loss.
        epoch: updates that the server saw.
        members: assumed records of each update, ``[U, B]``.
        x: estimated records ``[n, ...]``.
        labels: labels of the records ``[n]``.
        measure: objective; unless it is a cosine distance of weighted vectors, the plain cosine
            replaces it.

    Returns:
        ``[U, B]``; the order within an update has no meaning.
    """
    among, with_seen, theirs = _products(task, epoch, x, labels, measure)
    update = (members.flatten().argsort() // members.shape[1]).to(x.device)
    kept, least = update.clone(), float("inf")
    while True:
        distance, one, other = _best_swap(update, among, with_seen, theirs)
        # Check the predicted gain: for records of very unequal gradients it can be rounding.
        # If a record is not finite, the distance is NaN, and no records are swapped.
        if not distance <= least - _LEAST:
            return kept.argsort(stable=True).view_as(members).to(members.device)
        kept, least = update.clone(), distance
        update[[one, other]] = update[[other, one]]


def _products(
    task: Task, epoch: Epoch, x: Tensor, labels: Tensor, measure: Objective
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the inner products that determine the distances, at the weights of each update.

    Returns:
        The inner products of all pairs of records for each update ``[U, n, n]``, those of records
        with updates ``[n, U]``, and the squared norms of the updates ``[U]``.
    """
    groups = [slice(None)] if epoch.one_model else [slice(u, u + 1) for u in range(len(epoch))]
    parts = [_at_one_model(task, epoch, group, x, labels, measure) for group in groups]
    among, with_seen, theirs = zip(*parts, strict=True)
    return torch.cat(among), torch.cat(with_seen, 1), torch.cat(theirs)


def _at_one_model(
    task: Task, epoch: Epoch, group: slice, x: Tensor, labels: Tensor, measure: Objective
) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``_products`` for a group of updates that started at the same weights."""
    params = {name: leaf[group][0] for name, leaf in epoch.params.items()}
    with torch.no_grad():
        own = differentiable_gradients(task, params, x[:, None], labels.to(x.device)[:, None])
    observed = {name: epoch.grads[name][group].to(leaf) for name, leaf in own.items()}
    weights = stretches(measure, observed) or stretches(Cosine(), observed) or {}
    flat, seen = ([flat_leaf(side[name]) for name in weights] for side in (own, observed))
    shares = torch.stack(list(weights.values()))
    among = torch.einsum("lu,lij->uij", shares.double(), _inner(flat, flat))
    with_seen = torch.einsum("lu,liu->iu", shares.double(), _inner(flat, seen))
    return among, with_seen, squares(seen, shares).double()


def _inner(ones: list[Tensor], others: list[Tensor]) -> Tensor:
    """Return inner products of rows ``[L, n, m]``, for L pairs of ``[n, D]`` and ``[m, D]``."""
    pairs = zip(ones, others, strict=True)
    return torch.stack([one @ other.T for one, other in pairs]).double()


def _best_swap(
    update: Tensor, among: Tensor, with_seen: Tensor, theirs: Tensor
) -> tuple[float, int, int]:
    """Return the sum of cosine distances, and the two records with the best swap.

    Both are in the same update if no swap should lower the sum. ``update`` is that of each record
    ``[n]``; the other arguments are the result of ``_products``.
    """
    held = one_hot(update, len(theirs)).to(among)
    with_sum = torch.einsum("uij,ju->iu", among, held)
    dot, ours = (held * with_seen).sum(0), (held * with_sum).sum(0)
    now = cosine_distance((dot, ours, theirs))
    # From here on [i, j] is about record i's update, with j in place of i.
    mine, records = update[:, None], torch.arange(len(update), device=update.device)
    sizes = among.diagonal(dim1=1, dim2=2)[update]
    without = ours[mine] - 2 * with_sum.gather(1, mine) + sizes.gather(1, records[:, None])
    gained = 2 * (with_sum[:, update].T - among[update, records]) + sizes
    then_dot = dot[mine] - with_seen.gather(1, mine) + with_seen[:, update].T
    then = cosine_distance((then_dot, without + gained, theirs[mine]))
    gain = (now[mine] - then) + (now[mine] - then).T
    gain = gain.masked_fill(mine == update, 0.0)
    best = int(gain.argmax())
    return float(now.sum()), best // len(update), best % len(update)
