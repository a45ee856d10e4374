"""What an attacker observes, knows and finds: the data that every method works on."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from leakgauge.core.types import Grads, Params, Schema
from leakgauge.defenses import Defense
from leakgauge.inversion.labels.inference import LabelMethod
from leakgauge.inversion.search.priors import BatchStatistics
from leakgauge.inversion.search.simulate import LocalSteps
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.training.update import Update

ROUNDING = 1e-6
"""Difference of two distances, relative to 1 or to the distance, that may be rounding alone: cosine
distances of gradients in float32 that are nearly equal lie up to 3e-7 below 0."""

SearchProgress = Callable[[int, Tensor], None]
"""``(iteration, loss [T])``: the smallest loss of each target's restarts, at this iteration."""


@dataclass(frozen=True, eq=False)
class ObservedUpdates:
    """The updates of T clients, as the server sees them.

    Attributes:
        params: parameters where every client started, leaf ``[*p]``.
        grads: updates on the scale of a gradient, leaf ``[T, *p]``.
        shape: shape of the records behind each update, ``(B, *record)``.
        updates: the same updates with all that clients sent; empty where only gradients are seen.
    """

    params: Params
    grads: Grads
    shape: tuple[int, ...]
    updates: tuple[Update, ...] = ()

    @cached_property
    def sent(self) -> Grads:
        """The updates on the scale on which a defense changed them, leaf ``[T, *p]``."""
        if not self.updates:
            return self.grads
        return {n: torch.stack([one.values[n] for one in self.updates]) for n in self.grads}


@dataclass(frozen=True, eq=False)
class Knowledge:
    """Attacker knowledge besides the updates and the model.

    Attributes:
        low: lowest values of a record, broadcast to it, in units of the model's input.
        high: highest values of a record, broadcast to it.
        labels: labels ``[T, B]``, granted or inferred; None where they are unknown.
        infer: how unknown labels are inferred; with ``"auto"``, a method that finds labels itself
            does so. None leaves them to the method in any case.
        like: public records ``[1, n, ...]`` that labels are counted with; None takes noise.
        defense: the client's defense, where the attacker knows it and adapts to it.
        steps: the client's training as the attacker assumes it; None where one gradient was sent.
        simulate: whether a search simulates ``steps``; else it takes an update for the gradient of
            one batch.
        unknown: parts of the training that are unknown: ``"rate"``, ``"optimizer"``.
        statistics: statistics of the batches in BatchNorm layers, where they are known.
        schema: columns of a table; None for other records.
        guess: record ``[...]`` that stands in for one that is not found: the mean of public ones.
    """

    low: Tensor
    high: Tensor
    labels: Tensor | None = None
    infer: LabelMethod | None = "auto"
    like: Tensor | None = None
    defense: Defense | None = None
    steps: LocalSteps | None = None
    simulate: bool = False
    unknown: tuple[str, ...] = ()
    statistics: BatchStatistics | None = None
    schema: Schema | None = None
    guess: Tensor | None = None

    def stand_in(self, record: tuple[int, ...]) -> Tensor:
        """Return the record of this shape that stands in for one that is not found."""
        guess = (self.low + self.high) / 2 if self.guess is None else self.guess
        return guess.expand(record)


@dataclass(frozen=True, eq=False)
class AttackOptions:
    """How one attack runs; nothing here is knowledge of the attacker.

    Attributes:
        seed: seed of all random numbers.
        first_target: number of the first target, so that targets in several calls draw as in one.
        snapshots: number of iterations at which the records are kept.
        progress: called at each iteration.
        checkpoint: keeps the state of a search on the way; a killed search continues from there,
            with equal results.
    """

    seed: int
    first_target: int = 0
    snapshots: int = 0
    progress: SearchProgress | None = None
    checkpoint: Checkpoint | None = None


@dataclass(frozen=True, eq=False)
class RecoveredInputs:
    """The inputs to a layer that were recovered, where these are not the records themselves.

    Attributes:
        layer: name of the layer's module.
        x: inputs of the records of each of T targets that were found ``[k, D]``, float64, in any
            order.
        certified: whether the gradient of the layer and of all behind it equals the received one
            to rounding, under the found labels, as 0 or 1 ``[T]``.
        of: returns the inputs to the layer ``[n, D]`` for records ``[n, ...]``; for scoring only.
    """

    layer: str
    x: tuple[Tensor, ...]
    certified: Tensor
    of: Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """The records rebuilt for each of T targets.

    Attributes:
        x: records ``[T, B, ...]``, in units of the model's input, in any order.
        labels: labels ``[T, B]`` int64, as given or as inferred.
        loss: objective and priors of ``x``, ``[T]`` (before it was rescaled, where the settings ask
            for that); 0 for a method without a search.
        steps: iterations at which the loss was noted, ``[k]``.
        losses: losses of the kept restart, ``[T, k]``.
        restart_losses: losses of all restarts, ``[T, R]``; the smallest is kept.
        restart_x: records of all restarts ``[T, R, B, ...]``; None for a single one.
        restart_labels: their labels ``[T, R, B]``; None likewise.
        iterations: iterations of the kept restart, ``[T]``.
        stopped_early: whether its loss stopped falling before the end, ``[T]``.
        seconds_per_iteration: time of an iteration of all targets together, in seconds.
        snapshot_steps: iterations at which the records were noted, ``[s]``.
        snapshots: records of the kept restart at these iterations, ``[T, s, B, ...]``.
        notes: reasons why records are missing, one sentence each.
        matched: ``objective.agreement`` of the update of ``x`` and the one that was sent ``[T]``;
            None without a search. It is 1 where the search reproduces the update.
        aligned: ``objective.direction`` of both ``[T]``; None likewise. It is 1 where the search
            reproduces a multiple of the update, such as of a clipped one.
        certified: whether the gradient of the records equals the received one to rounding ``[T]``,
            as 0 or 1; None for a method that does not compute it.
        label_residual: distance of counted labels from whole numbers ``[T]``, in records; None
            where labels were not counted.
        confidence: how sure the method is of each cell of a table, ``[T, B, C]`` from 0 to 1 for
            its C columns; None for a method that does not say.
        layer: what was recovered in place of records; ``x`` holds guesses then. None for a method
            that rebuilds records.
        distance: returns how far the updates of records ``[T, B, ...]`` with labels ``[T, B]`` are
            from those that were sent, by the objective of the search without priors ``[T]``; for
            scoring only. None without a search.
        stopped: whether a method without such a search was stopped for an update, because it sees
            nothing there, as 0 or 1 ``[T]``; None for others.
    """

    x: Tensor
    labels: Tensor
    loss: Tensor
    steps: Tensor
    losses: Tensor
    restart_losses: Tensor
    iterations: Tensor
    stopped_early: Tensor
    seconds_per_iteration: float
    snapshot_steps: Tensor
    snapshots: Tensor
    notes: tuple[str, ...] = ()
    matched: Tensor | None = None
    aligned: Tensor | None = None
    label_residual: Tensor | None = None
    certified: Tensor | None = None
    restart_x: Tensor | None = None
    restart_labels: Tensor | None = None
    confidence: Tensor | None = None
    layer: RecoveredInputs | None = None
    distance: Callable[[Tensor, Tensor], Tensor] | None = None
    stopped: Tensor | None = None

    def fell_short(self, x: Tensor, y: Tensor) -> Tensor | None:
        """Return for each update whether its search fell short, as 0 or 1 ``[T]``.

        It did where the true records lie nearer to the update than the rebuilt ones, by its own
        objective: whoever searches better finds them. Where they do not, the objective prefers
        other records, and a longer search would not help. For scoring only.

        Args:
            x: true records ``[T, B, ...]``.
            y: their labels ``[T, B]``.

        Returns:
            ``stopped`` for a method without a search.
        """
        if self.distance is None:
            return self.stopped
        with torch.no_grad():
            true, found = (self.distance(*one) for one in ((x, y), (self.x, self.labels)))
        return (true + ROUNDING * (1 + true) < found).double().cpu()

    @classmethod
    def direct(
        cls,
        x: Tensor,
        labels: Tensor | None = None,
        *,
        seconds: float = 0.0,
        notes: tuple[str, ...] = (),
        certified: Tensor | None = None,
        layer: RecoveredInputs | None = None,
    ) -> "Reconstruction":
        """Return records that were found without a search.

        Args:
            x: records ``[T, B, ...]``.
            labels: labels ``[T, B]``; None where the method has none.
            seconds: time that it took.
            notes: reasons why records are missing.
            certified: as for the class.
            layer: as for the class.

        >>> Reconstruction.direct(torch.zeros(2, 1, 3)).labels.tolist()
        [[0], [0]]
        """
        zeros = torch.zeros(len(x), dtype=torch.int64)
        return cls(
            x=x,
            labels=torch.zeros(x.shape[:2], dtype=torch.int64) if labels is None else labels,
            loss=torch.zeros(len(x)),
            steps=zeros[:0],
            losses=torch.zeros(len(x), 0),
            restart_losses=torch.zeros(len(x), 1),
            iterations=zeros,
            stopped_early=zeros.bool(),
            seconds_per_iteration=seconds,
            snapshot_steps=zeros[:0],
            snapshots=x[:, None][:, :0],
            notes=notes,
            certified=certified,
            layer=layer,
        )
