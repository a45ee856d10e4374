"""Minimises the losses of independent rows of records, and keeps the best point of each."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from leakgauge.inversion.search.settings import Settings
from leakgauge.inversion.search.steppers import Loss, stepper
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.runs.work import digest_of

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
        seconds: that it took, also before a stop.
    """

    x: Tensor
    scores: Tensor | None
    loss: Tensor
    steps: Tensor
    losses: Tensor
    iterations: Tensor
    snapshot_steps: Tensor
    snapshots: Tensor
    seconds: float


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
    checkpoint: Checkpoint | None = None,
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
        checkpoint: keeps the whole state on the way; a killed search goes on from there, with
            equal results.
    """
    state = _State(loss, settings, x, scores, snapshots=snapshots)
    kept = _part(checkpoint, state)
    state.restore(kept.read())
    for at in range(state.next, settings.iterations):
        if not state.step(at, low, high):
            break
        if progress is not None:
            progress(at, state.losses)
        if kept.due:
            kept.keep(state.plain())
    kept.keep(state.plain())  # what follows this search need not wait for it again
    return state.end(loss)


class _State:
    """Everything that the next iteration needs."""

    def __init__(
        self, loss: Loss, settings: Settings, x: Tensor, scores: Tensor | None, *, snapshots: int
    ) -> None:
        self._settings = settings
        self.x, self.scores = (
            x.detach().clone(),
            None if scores is None else scores.detach().clone(),
        )
        self.losses = torch.full((len(x),), float("inf"), dtype=x.dtype, device=x.device)
        self.next, self._began = 0, time.perf_counter()
        self._moves = stepper(settings, loss, self.x, self.scores)
        self._best = _Best(self.x, self.scores)
        self._notes = _Notes(settings.iterations, snapshots)
        self._rest = _Rest(settings, len(x), x.device)

    def step(self, at: int, low: Tensor, high: Tensor) -> bool:
        """Make iteration ``at``; False where no row moves any more."""
        rows = self._rest.moving()
        if not len(rows):
            return False
        x, scores = self.x, self.scores
        before = x.clone(), None if scores is None else scores.clone()
        losses = self._moves.step(at, rows)
        if self._settings.boxed:
            x.clamp_(low, high)
        self.losses[rows] = losses[rows]
        self._best.offer(*before, losses)
        self._rest.update(at, self._best.loss)
        self._notes.take(at, before[0], self.losses)
        self.next = at + 1
        return True

    def end(self, loss: Loss) -> Descent:
        """Offer the last point, and return the result."""
        x, scores = self.x, self.scores
        rows = torch.arange(len(x), device=x.device)
        with torch.enable_grad():
            last = loss(x.clone(), scores, rows, 1.0).detach()
        self._best.offer(x, scores, last)
        self._notes.take(self._settings.iterations, x, last, final=True)
        kept = self._best if self._settings.keep_best else _Best(x, scores, last)
        return Descent(
            x=kept.x,
            scores=kept.scores,
            loss=kept.loss,
            iterations=self._rest.iterations,
            seconds=self._seconds,
            **self._notes.read(x),
        )

    @property
    def _seconds(self) -> float:
        return time.perf_counter() - self._began

    def plain(self) -> Any:
        """Return all of it as tensors and plain values."""
        return {
            "next": self.next,
            "seconds": self._seconds,
            "rows": [self.x, self.scores, self.losses],
            "moves": self._moves.state(),
            "best": self._best.state(),
            "notes": self._notes.state(),
            "rest": self._rest.state(),
        }

    def restore(self, plain: Any) -> None:
        """Take what ``plain`` returned; None changes nothing."""
        if plain is None:
            return
        self.next, self._began = plain["next"], self._began - plain["seconds"]
        _fill([self.x, self.scores, self.losses], plain["rows"])
        self._moves.restore(plain["moves"])
        self._best.restore(plain["best"])
        self._notes.restore(plain["notes"], self.x)
        self._rest.restore(plain["rest"])


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

    def state(self) -> Any:
        return [self.x, self.scores, self.loss]

    def restore(self, state: Any) -> None:
        _fill(self.state(), state)


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

    def state(self) -> Any:
        return [self._level, self._since, self._still, self.iterations]

    def restore(self, state: Any) -> None:
        _fill(self.state(), state)


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

    def state(self) -> Any:
        return [self._steps, self._losses, self._seen, self._snapshots]

    def restore(self, state: Any, like: Tensor) -> None:
        self._steps, losses, self._seen, noted = state
        self._losses, self._snapshots = (
            [one.to(like.device) for one in ones] for ones in (losses, noted)
        )

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


def _part(checkpoint: Checkpoint | None, state: _State) -> Checkpoint:
    """The checkpoint of a search that begins at these rows."""
    if checkpoint is None:
        return Checkpoint(None)
    begins = {"x": state.x, "scores": state.scores}
    known = {name: value for name, value in begins.items() if value is not None}
    return checkpoint.part("search", after=digest_of(known))


def _fill(own: list[Tensor | None], kept: list[Tensor | None]) -> None:
    for one, other in zip(own, kept, strict=True):
        if one is not None and other is not None:
            one.copy_(other)


def _along(rows: Tensor, value: Tensor) -> Tensor:
    return rows.view(-1, *[1] * (value.dim() - 1))
