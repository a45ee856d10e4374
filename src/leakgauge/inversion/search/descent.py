"""Minimises the losses of independent rows of records, and keeps the best point of each."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from leakgauge.gradients.flattening import alike
from leakgauge.inversion.search.settings import SearchSettings, factor
from leakgauge.runs.checkpoint import Checkpoint, restore_optimizer
from leakgauge.runs.work import digest_of

Cost = Callable[[Tensor, Tensor | None, Tensor, float], Tensor]
"""``(x [n, B, ...], label scores [n, B, classes] or None, rows [n], share of the iterations done)
-> loss [n]``."""

CURVE_POINTS = 200
"""Points of a loss curve, at most."""


@dataclass(frozen=True, eq=False)
class Descent:
    """The result of minimising the losses of N rows.

    Attributes:
        x: records ``[N, B, ...]``.
        scores: scores of the labels ``[N, B, classes]``; None where labels are known.
        loss: loss of ``x``, ``[N]``; infinite where it never was finite.
        losses: losses ``[N, k]`` noted at ``steps [k]``; a row that stopped keeps its last one.
        iterations: iterations of each row, ``[N]``.
        snapshots: records ``[N, s, B, ...]`` noted at ``snapshot_steps [s]``.
        seconds: time of the search, also before a kill.
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
    loss: Cost,
    settings: SearchSettings,
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
        loss: loss of rows; that of a row depends on this row alone.
        settings: optimiser, schedule, box and early stop.
        x: start of the records.
        scores: start of the labels' scores, or None.
        low: lowest values of a record, broadcast to it; used where ``settings.boxed``.
        high: highest values of a record, broadcast to it.
        snapshots: number of noted points of the records.
        progress: called with the iteration and the losses ``[N]`` of all rows.
        checkpoint: keeps the state; a killed search continues from there, with equal results.
    """
    state = _State(loss, settings, x, scores, snapshots)
    begins = {"x": state.x} if state.scores is None else {"x": state.x, "scores": state.scores}
    kept = (checkpoint or Checkpoint(None)).part("search", after=digest_of(begins))
    state.resume(kept.read())
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
        self, loss: Cost, settings: SearchSettings, x: Tensor, scores: Tensor | None, snapshots: int
    ) -> None:
        self._settings, self.x = settings, x.detach().clone()
        self.scores = None if scores is None else scores.detach().clone()
        self.losses = _infinite(x)
        self.next, self._began = 0, time.perf_counter()
        moves = _Newton if settings.optimizer == "lbfgs" else _FirstOrder
        self._moves = moves(settings, loss, self.x, self.scores)
        self._best = _Best(self.x, self.scores)
        self._notes = _Notes(settings.iterations, snapshots, x.device)
        self._rest = _Rest(settings, len(x), x.device)
        named = ("moves", self._moves), ("best", self._best), ("notes", self._notes)
        self._parts = dict[str, Any]((*named, ("rest", self._rest)))

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

    def end(self, loss: Cost) -> Descent:
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
            seconds=time.perf_counter() - self._began,
            **self._notes.read(x),
        )

    def plain(self) -> Any:
        """Return all of it as tensors and plain values."""
        return {
            "next": self.next,
            "seconds": time.perf_counter() - self._began,
            "rows": [self.x, self.scores, self.losses],
            **{name: part.state() for name, part in self._parts.items()},
        }

    def resume(self, plain: Any) -> None:
        """Take what ``plain`` returned; None changes nothing."""
        if plain is None:
            return
        self.next, self._began = plain["next"], self._began - plain["seconds"]
        _fill([self.x, self.scores, self.losses], plain["rows"])
        for name, part in self._parts.items():
            part.restore(plain[name])


class _Best:
    """The point of smallest loss of each row."""

    def __init__(self, x: Tensor, scores: Tensor | None, loss: Tensor | None = None) -> None:
        self.x, self.scores = x.clone(), None if scores is None else scores.clone()
        self.loss = _infinite(x) if loss is None else loss

    def offer(self, x: Tensor, scores: Tensor | None, loss: Tensor) -> None:
        better = loss < self.loss  # Never where the loss is not a number.
        self.loss = torch.where(better, loss, self.loss)
        self.x = torch.where(alike(better, x), x, self.x)
        if scores is not None and self.scores is not None:
            self.scores = torch.where(alike(better, scores), scores, self.scores)

    def state(self) -> list[Tensor | None]:
        return [self.x, self.scores, self.loss]

    def restore(self, state: Any) -> None:
        _fill(self.state(), state)


class _Rest:
    """The rows that still move, and the iterations of each."""

    def __init__(self, settings: SearchSettings, rows: int, device: torch.device) -> None:
        self._patience, self._tolerance = settings.patience, settings.tolerance
        self._level = torch.full((rows,), float("inf"), device=device, dtype=torch.float64)
        self._since = torch.zeros(rows, dtype=torch.int64, device=device)
        self._still = torch.zeros(rows, dtype=torch.bool, device=device)
        self._all = torch.arange(rows, device=device)
        self.iterations = torch.zeros(rows, dtype=torch.int64, device=device)

    def moving(self) -> Tensor:
        """Return the rows that move; while all do, the same tensor each time."""
        if self._patience is None:
            return self._all
        left = torch.nonzero(~self._still).flatten()
        return self._all if len(left) == len(self._all) else left

    def update(self, at: int, loss: Tensor) -> None:
        self.iterations = torch.where(self._still, self.iterations, at + 1)
        if self._patience is None:
            return
        # Written as a product: a level of infinity is not to give infinity - infinity.
        fallen = loss < self._level * (1 - self._tolerance)
        self._level = torch.where(fallen, loss.double(), self._level)
        self._since = torch.where(fallen, at, self._since)
        self._still |= at - self._since >= self._patience

    def state(self) -> list[Tensor | None]:
        return [self._level, self._since, self._still, self.iterations]

    def restore(self, state: Any) -> None:
        _fill(self.state(), state)


class _Notes:
    """The losses and records at evenly spaced iterations, the first and the last among them."""

    def __init__(self, iterations: int, snapshots: int, device: torch.device) -> None:
        self._device = device
        self._due = [set(_spread(iterations, points)) for points in (CURVE_POINTS, snapshots)]
        self._at: list[list[int]] = [[], []]
        self._noted: list[list[Tensor]] = [[], []]

    def take(self, at: int, x: Tensor, losses: Tensor, *, final: bool = False) -> None:
        for kind, value in enumerate((losses, x)):
            if at in self._due[kind] or (final and self._due[kind]):
                self._at[kind].append(at)
                self._noted[kind].append(value.clone())

    def state(self) -> Any:
        return [self._at[0], self._noted[0], self._at[1], self._noted[1]]

    def restore(self, state: Any) -> None:
        self._at = [state[0], state[2]]
        self._noted = [[one.to(self._device) for one in ones] for ones in (state[1], state[3])]

    def read(self, x: Tensor) -> dict[str, Tensor]:
        losses, noted = self._noted
        return {
            "steps": torch.tensor(self._at[0]),
            "losses": torch.stack(losses, 1),
            "snapshot_steps": torch.tensor(self._at[1], dtype=torch.int64),
            "snapshots": torch.stack(noted, 1) if noted else x[:, None][:, :0],
        }


def _spread(last: int, points: int) -> list[int]:
    """Up to ``points`` whole numbers from 0 to ``last``, evenly."""
    if points < 2:
        return [last] * points
    return sorted({round(last * at / (points - 1)) for at in range(points)})


class _FirstOrder:
    """Adam, all rows in one tensor: it works number by number, so rows stay apart."""

    def __init__(self, how: SearchSettings, loss: Cost, x: Tensor, scores: Tensor | None) -> None:
        self._how, self._loss, self._x = how, loss, x
        self._changed = [x] if scores is None else [x, scores]
        self._adam = torch.optim.Adam(self._changed, lr=how.lr)

    def step(self, at: int, rows: Tensor) -> Tensor:
        how = self._how
        every = len(rows) == len(self._x)
        leaves = [(v.detach() if every else v[rows]).requires_grad_() for v in self._changed]
        current = self._loss(leaves[0], (*leaves[1:], None)[0], rows, at / how.iterations)
        slopes = torch.autograd.grad(current.sum(), leaves)
        still = None if every else [value.clone() for value in self._changed]
        for value, slope in zip(self._changed, slopes, strict=True):
            slope = torch.nan_to_num(slope, nan=0.0, posinf=0.0, neginf=0.0)
            slope = slope.sign() if how.optimizer == "signed-adam" else slope
            value.grad = slope if every else torch.zeros_like(value).index_copy_(0, rows, slope)
        rate = how.lr * factor(how.schedule, at, how.iterations, warmup=how.warmup)
        self._adam.param_groups[0]["lr"] = rate
        self._adam.step()
        if still is not None:  # Adam's momentum would change rows that must stay.
            for value, before in zip(self._changed, still, strict=True):
                before[rows] = value[rows]
                value.copy_(before)
        losses = current.detach()
        return losses if every else _infinite(self._x).index_copy_(0, rows, losses)

    def state(self) -> Any:
        return self._adam.state_dict()["state"]

    def restore(self, state: Any) -> None:
        restore_optimizer(self._adam, state)


class _Newton:
    """L-BFGS, an optimiser for each row: one for several would couple their steps."""

    def __init__(self, how: SearchSettings, loss: Cost, x: Tensor, scores: Tensor | None) -> None:
        self._how, self._loss, self._x = how, loss, x
        self._changed = [x] if scores is None else [x, scores]
        rows = range(len(x))
        self._numbers = torch.arange(len(x), device=x.device).chunk(len(x))
        self._rows = [[one[row : row + 1].clone() for one in self._changed] for row in rows]
        self._optimizers = [self._fresh(leaves) for leaves in self._rows]

    def _fresh(self, leaves: list[Tensor]) -> torch.optim.LBFGS:
        return torch.optim.LBFGS(leaves, lr=self._how.lr, max_iter=self._how.inner)

    def step(self, at: int, rows: Tensor) -> Tensor:
        losses = _infinite(self._x)
        for row in rows.tolist():
            losses[row] = self._minimise(row, at / self._how.iterations)
        return losses

    def state(self) -> Any:
        return [one.state_dict()["state"] for one in self._optimizers]

    def restore(self, state: Any) -> None:
        for one, own in zip(self._optimizers, state, strict=True):
            restore_optimizer(one, own)

    def _minimise(self, row: int, done: float) -> float:
        leaves = self._rows[row]
        for leaf, whole in zip(leaves, self._changed, strict=True):
            leaf.copy_(whole[row : row + 1])  # The box may have changed it.
        at = self._numbers[row]

        def closure() -> Tensor:
            with torch.enable_grad():
                given = [leaf.detach().requires_grad_() for leaf in leaves]
                current = self._loss(given[0], (*given[1:], None)[0], at, done).sum()
            slopes = torch.autograd.grad(current, given)
            for leaf, slope in zip(leaves, slopes, strict=True):
                leaf.grad = slope
            return current.detach()

        before = float(self._optimizers[row].step(closure))  # type: ignore[no-untyped-call]
        if all(bool(leaf.isfinite().all()) for leaf in leaves):
            for leaf, whole in zip(leaves, self._changed, strict=True):
                whole[row : row + 1] = leaf
        else:  # It ran off to infinity: discard the step and the estimate of the curvature.
            self._optimizers[row] = self._fresh(leaves)
        return before


def _infinite(x: Tensor) -> Tensor:
    return torch.full_like(x.flatten(1)[:, 0], float("inf"))


def _fill(own: list[Tensor | None], kept: list[Tensor | None]) -> None:
    for one, other in zip(own, kept, strict=True):
        if one is not None and other is not None:
            one.copy_(other)
