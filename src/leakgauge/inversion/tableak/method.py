"""TabLeak as a method of ``leakgauge invert``."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.core.checks import require, require_count, require_positive
from leakgauge.core.types import Schema, Task
from leakgauge.gradients.probing import trainable
from leakgauge.inversion.methods import TABLE, TABLEAK, Method, Traits
from leakgauge.inversion.observed import AttackOptions, Knowledge, ObservedUpdates, Reconstruction
from leakgauge.inversion.search.checks import check_gradients
from leakgauge.inversion.search.distances import (
    UpdateDistance,
    distance_from,
    gradients_of,
)
from leakgauge.inversion.search.engine import draw_starts, repeats, search
from leakgauge.inversion.search.layer_weights import objective_of
from leakgauge.inversion.search.objective import Cosine, agreement, direction
from leakgauge.inversion.search.settings import SearchSettings
from leakgauge.inversion.tableak.cells import hardened, relaxed
from leakgauge.inversion.tableak.pooling import aligned, confidence_of, pooled

ITERATIONS = 1500
"""Iterations of the paper."""


@dataclass(frozen=True)
class TabLeak(Method):
    """Searches for rows of a table many times, and pools what the searches find.

    Each member of the ensemble begins at other random rows. Categories are a softmax and numbers a
    sigmoid within their bounds, so that each step is a row that a table could nearly have. The rows
    of all members are put into the order of the one with the smallest loss, and their medians are
    the rebuilt rows. How far the members agree on a cell is its confidence.

    The settings are those of the authors' code. Two things are ours: rows of members are matched
    only within a label, and closer rows first where equally many cells agree.

    Attributes:
        members: searches of the ensemble; 1 pools nothing. ``--restarts`` above 1 takes its place.
        lr: step size of Adam on signs.
        iterations: steps of each search; None takes ``ITERATIONS``.
        restarts: number of members where it is above 1.
        keep_best: whether a search ends at its point of smallest loss; the authors' ends at the
            last one.

    References:
        Vero et al., TabLeak: Tabular Data Leakage in Federated Learning, ICML 2023 (arXiv
        2210.01785).

    >>> TabLeak(iterations=20, restarts=5).settings.restarts
    5
    """

    traits: ClassVar[Traits] = Traits(
        does="searches for rows of a table many times, and pools what the searches find.",
        needs=TABLE,
        searches=True,
    )
    members: int = 30
    lr: float = 0.06
    iterations: int | None = None  # type: ignore[assignment]  # a number from __post_init__ on
    restarts: int = 1
    keep_best: bool = False

    def __post_init__(self) -> None:
        require_count(self.members, "members")
        require_positive(self.lr, "lr")
        require_count(self.restarts, "restarts")
        steps = ITERATIONS if self.iterations is None else self.iterations
        require_count(steps, "iterations")
        object.__setattr__(self, "iterations", steps)

    @property
    def settings(self) -> SearchSettings:
        """The settings of the members' searches."""
        return SearchSettings(
            objective=Cosine(),
            optimizer="signed-adam",
            lr=self.lr,
            iterations=self.iterations or ITERATIONS,
            restarts=self.restarts if self.restarts > 1 else self.members,
            schedule="constant",
            start="uniform",
            keep_best=self.keep_best,
        )

    def rebuild(
        self, task: Task, seen: ObservedUpdates, known: Knowledge, options: AttackOptions
    ) -> Reconstruction:
        """Return the pooled rows with a confidence for each cell; else as for ``Method``."""
        schema, labels = known.schema, known.labels
        require(schema is not None, f"{TABLEAK} needs a table: the columns of its records")
        assert schema is not None
        assert labels is not None
        params = trainable(task.model, seen.params)
        check_gradients(params, seen.grads)
        sent = {name: seen.grads[name].detach().to(leaf) for name, leaf in params.items()}
        update = gradients_of(task, params, known.steps if known.simulate else None)
        form = partial(relaxed, schema=schema, low=known.low, high=known.high)
        measure = objective_of(self.settings.objective, task.model)
        distance = distance_from(
            sent, update, measure, recorded=repeats(self.settings, len(labels))
        )
        like = next(iter(sent.values())).new_zeros(seen.shape)
        found = self._members(form, distance, labels, like, options)
        every = form(found.x[:, None] if found.restart_x is None else found.restart_x)
        x, confidence = _pool(every, found, schema)
        with torch.no_grad():
            ours = update(x, labels.to(x.device))
        return replace(
            found,
            x=x,
            snapshots=form(found.snapshots),
            restart_x=None,
            restart_labels=None,
            matched=agreement(ours, sent),
            aligned=direction(ours, sent),
            confidence=confidence,
            distance=lambda x, y: measure(update(x, y.to(x.device)), sent),
        )

    def _members(
        self,
        form: Callable[[Tensor], Tensor],
        distance: UpdateDistance,
        labels: Tensor,
        like: Tensor,
        options: AttackOptions,
    ) -> Reconstruction:
        """Return the searches of all members, in the variables of ``form``.

        Args:
            form: makes rows of variables ``[..., D]``.
            distance: distance of rows' updates from those that were sent.
            labels: labels ``[T, B]``.
            like: a batch ``[B, D]``, which gives shape, type and device.
            options: seed, progress and checkpoint.
        """
        settings = self.settings
        start = draw_starts(
            settings,
            tuple(like.shape),
            targets=len(labels),
            seed=options.seed,
            first_target=options.first_target,
            like=like,
        )
        return search(
            lambda z, y, rows: distance(form(z), y, rows),
            settings,
            start,
            seed=options.seed,
            labels=labels,
            first_target=options.first_target,
            snapshots=options.snapshots,
            progress=options.progress,
            checkpoint=options.checkpoint,
        )


def _pool(members: Tensor, found: Reconstruction, schema: Schema) -> tuple[Tensor, Tensor]:
    """Return pooled rows ``[T, B, D]`` and confidences ``[T, B, C]`` of members ``[T, R, B, D]``.

    Members whose loss is not finite are left out, unless no loss is.
    """
    rows, sure = [], []
    for target, own in enumerate(members):
        losses = found.restart_losses[target]
        finite = losses.isfinite()
        kept = own[finite] if bool(finite.any()) else own
        best = own[losses.nan_to_num(nan=torch.inf).argmin()]
        ordered = aligned(kept, best, found.labels[target], schema)
        rows.append(hardened(pooled(ordered, schema), schema))
        sure.append(confidence_of(ordered, schema))
    return torch.stack(rows), torch.stack(sure)
