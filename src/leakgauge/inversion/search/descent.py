"""Minimises the losses of independent rows of records, and keeps the best point of each."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.inversion.search.settings import Settings
from leakgauge.inversion.search.steppers import Loss, stepper

CURVE_POINTS = 200
"""Points of a loss curve, at most."""


@dataclass(frozen=True, eq=False)
class Descent:
    """The result of minimising the losses of N rows.

    Attributes:
        x: records ``[N, B, ...]``.
        scores: of the labels ``[N, B, classes]``, or None where labels are known.
        loss: ``[N]``, of what is in ``x``; infinite where it never was finite.
        steps: iterations at which the loss was noted, ``[k]``, k up to 200.
        losses: on the way, ``[N, k]``; a row that stopped keeps its last one.
        iterations: of each row, ``[N]``.
        snapshot_steps: iterations at which the records were noted, ``[s]``.
        snapshots: ``[N, s, B, ...]``.
    """

    x: Tensor
    scores: Tensor | None
    loss: Tensor
    steps: Tensor
    losses: Tensor
    iterations: Tensor
    snapshot_steps: Tensor
    snapshots: Tensor


def descend(
    loss: Loss,
    settings: Settings,
    x: Tensor,
    scores: Tensor | None,
    *,
    low: Tensor,
    high: Tensor,
    snapshots: int = 0,
    progress: Callable[[int, Tensor], None] | None = None,
) -> Descent:
    """Minimise from ``x [N, B, ...]`` and ``scores [N, B, classes]``; neither is changed.

    Args:
        loss: of rows, as ``steppers.Loss``; a row's loss depends on that row alone.
        settings: optimiser, schedule, box and early stop.
        x: where the records start.
        scores: where the labels' scores start, or None.
        low: lowest values of a record, broadcast to it; used where ``settings.boxed``.
        high: highest values of a record, likewise.
        snapshots: number of iterations at which the records are kept.
        progress: called with the iteration and the losses ``[N]`` of all rows.
    """
    x, scores = x.detach().clone(), None if scores is None else scores.detach().clone()
    moves = stepper(settings, loss, x, scores)
    best = _Best(x, scores)
    notes = _Notes(settings.iterations, snapshots)
    rest = _Rest(settings, len(x), x.device)
    current = torch.full((len(x),), float("inf"), dtype=x.dtype, device=x.device)
    for at in range(settings.iterations):
        rows = rest.moving()
        if not len(rows):
            break
        before = x.clone(), None if scores is None else scores.clone()
        losses = moves.step(at, rows)
        if settings.boxed:
            x.clamp_(low, high)
        current[rows] = losses[rows]
        best.offer(*before, losses)
        rest.update(at, best.loss)
        notes.take(at, before[0], current)
        if progress is not None:
            progress(at, current)
    rows = torch.arange(len(x), device=x.device)
    with torch.enable_grad():
        last = loss(x.clone(), scores, rows, 1.0).detach()
    best.offer(x, scores, last)
    notes.take(settings.iterations, x, last, final=True)
    kept = best if settings.keep_best else _Best(x, scores, last)
    return Descent(
        x=kept.x, scores=kept.scores, loss=kept.loss, iterations=rest.iterations, **notes.read(x)
    )


class _Best:
    """The point of smallest loss of each row."""

    def __init__(self, x: Tensor, scores: Tensor | None, loss: Tensor | None = None) -> None:
        self.x, self.scores = x.clone(), None if scores is None else scores.clone()
        self.loss = torch.full_like(x.flatten(1)[:, 0], float("inf")) if loss is None else loss

    def offer(self, x: Tensor, scores: Tensor | None, loss: Tensor) -> None:
        better = loss < self.loss  # Never where the loss is not a number.
        self.loss = torch.where(better, loss, self.loss)
        self.x = torch.where(_along(better, x), x, self.x)
        if scores is not None and self.scores is not None:
            self.scores = torch.where(_along(better, scores), scores, self.scores)


class _Rest:
    """The rows that still move, and the iterations of each."""

    def __init__(self, settings: Settings, rows: int, device: torch.device) -> None:
        self._patience, self._tolerance = settings.patience, settings.tolerance
        self._level = torch.full((rows,), float("inf"), device=device, dtype=torch.float64)
        self._since = torch.zeros(rows, dtype=torch.int64, device=device)
        self._still = torch.zeros(rows, dtype=torch.bool, device=device)
        self._all = torch.arange(rows, device=device)
        self.iterations = torch.zeros(rows, dtype=torch.int64, device=device)

    def moving(self) -> Tensor:
        return self._all if self._patience is None else torch.nonzero(~self._still).flatten()

    def update(self, at: int, loss: Tensor) -> None:
        self.iterations[~self._still] = at + 1
        if self._patience is None:
            return
        # Written as a product: a level of infinity is not to give infinity - infinity.
        fallen = loss < self._level * (1 - self._tolerance)
        self._level = torch.where(fallen, loss.double(), self._level)
        self._since = torch.where(fallen, at, self._since)
        self._still |= at - self._since >= self._patience


class _Notes:
    """The losses and records at evenly spaced iterations, the first and the last among them."""

    def __init__(self, iterations: int, snapshots: int) -> None:
        self._at = set(_spread(iterations, CURVE_POINTS))
        self._snapshot_at = set(_spread(iterations, snapshots))
        self._steps: list[int] = []
        self._losses: list[Tensor] = []
        self._seen: list[int] = []
        self._snapshots: list[Tensor] = []

    def take(self, at: int, x: Tensor, losses: Tensor, *, final: bool = False) -> None:
        if at in self._at or final:
            self._steps.append(at)
            self._losses.append(losses.clone())
        if at in self._snapshot_at or (final and self._snapshot_at):
            self._seen.append(at)
            self._snapshots.append(x.clone())

    def read(self, x: Tensor) -> dict[str, Tensor]:
        snapshots = torch.stack(self._snapshots, 1) if self._seen else x[:, None][:, :0]
        return {
            "steps": torch.tensor(self._steps),
            "losses": torch.stack(self._losses, 1),
            "snapshot_steps": torch.tensor(self._seen, dtype=torch.int64),
            "snapshots": snapshots,
        }


def _spread(last: int, points: int) -> list[int]:
    """Up to ``points`` whole numbers from 0 to ``last``, evenly."""
    if points < 2:
        return [last] * points
    return sorted({round(last * at / (points - 1)) for at in range(points)})


def _along(rows: Tensor, value: Tensor) -> Tensor:
    return rows.view(-1, *[1] * (value.dim() - 1))
