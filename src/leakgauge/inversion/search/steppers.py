"""One step of the search for all rows; rows are independent."""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from leakgauge.inversion.search.schedule import factor
from leakgauge.inversion.search.settings import Settings
from leakgauge.runs.checkpoint import restore_optimizer

Loss = Callable[[Tensor, Tensor | None, Tensor, float], Tensor]
"""``(x [n, B, ...], label scores [n, B, classes] or None, rows [n], share of the iterations done)
-> loss [n]``."""


class Stepper(Protocol):
    """Changes the rows in place."""

    def step(self, at: int, rows: Tensor) -> Tensor:
        """Make the step of iteration ``at``, from 0, and return the losses ``[N]`` before it.

        Only ``rows`` (int64) change; the others' losses are infinite.
        """

    def state(self) -> Any:
        """Return what the next step needs besides the rows: tensors and plain values."""

    def restore(self, state: Any) -> None:
        """Take what ``state`` returned, so that the next step is as it would have been."""


def stepper(settings: Settings, loss: Loss, x: Tensor, scores: Tensor | None) -> Stepper:
    """Return the optimiser of ``settings`` on ``x [N, B, ...]`` and ``scores [N, B, classes]``."""
    if settings.optimizer == "lbfgs":
        return _Newton(settings, loss, x, scores)
    return _First(settings, loss, x, scores)


class _First:
    """Adam, all rows in one tensor: it works number by number, so rows stay apart."""

    def __init__(self, settings: Settings, loss: Loss, x: Tensor, scores: Tensor | None) -> None:
        self._settings, self._loss, self._x, self._scores = settings, loss, x, scores
        self._changed = [x] if scores is None else [x, scores]
        self._adam = torch.optim.Adam(self._changed, lr=settings.lr)

    def step(self, at: int, rows: Tensor) -> Tensor:
        how = self._settings
        x, scores = self._x[rows], None if self._scores is None else self._scores[rows]
        leaves = [value.requires_grad_() for value in (x, scores) if value is not None]
        current = self._loss(x, scores, rows, at / how.iterations)
        slopes = torch.autograd.grad(current.sum(), leaves)
        still = [value.clone() for value in self._changed] if len(rows) < len(self._x) else None
        for value, slope in zip(self._changed, slopes, strict=True):
            slope = torch.nan_to_num(slope, nan=0.0, posinf=0.0, neginf=0.0)
            value.grad = torch.zeros_like(value)
            value.grad[rows] = slope.sign() if how.optimizer == "signed-adam" else slope
        rate = how.lr * factor(how.schedule, at, how.iterations, warmup=how.warmup)
        self._adam.param_groups[0]["lr"] = rate
        self._adam.step()
        if still is not None:  # Adam's momentum would change rows that must stay.
            for value, before in zip(self._changed, still, strict=True):
                before[rows] = value[rows]
                value.copy_(before)
        losses = torch.full_like(self._x.flatten(1)[:, 0], float("inf"))
        losses[rows] = current.detach()
        return losses

    def state(self) -> Any:
        return self._adam.state_dict()["state"]

    def restore(self, state: Any) -> None:
        restore_optimizer(self._adam, state)


class _Newton:
    """L-BFGS, an optimiser for each row: one for several would couple their steps."""

    def __init__(self, settings: Settings, loss: Loss, x: Tensor, scores: Tensor | None) -> None:
        self._loss, self._x, self._scores = loss, x, scores
        self._rows = [
            [value[row : row + 1].clone() for value in (x, scores) if value is not None]
            for row in range(len(x))
        ]
        self._settings = settings
        self._optimizers = [self._fresh(leaves) for leaves in self._rows]

    def _fresh(self, leaves: list[Tensor]) -> torch.optim.LBFGS:
        return torch.optim.LBFGS(leaves, lr=self._settings.lr, max_iter=self._settings.inner)

    def step(self, at: int, rows: Tensor) -> Tensor:
        losses = torch.full_like(self._x.flatten(1)[:, 0], float("inf"))
        for row in rows.tolist():
            losses[row] = self._minimise(row, at / self._settings.iterations)
        return losses

    def state(self) -> Any:
        return [one.state_dict()["state"] for one in self._optimizers]

    def restore(self, state: Any) -> None:
        for one, own in zip(self._optimizers, state, strict=True):
            restore_optimizer(one, own)

    def _minimise(self, row: int, done: float) -> float:
        leaves = self._rows[row]
        targets = (self._x,) if self._scores is None else (self._x, self._scores)
        for leaf, whole in zip(leaves, targets, strict=True):
            leaf.copy_(whole[row : row + 1])  # The box may have changed it.
        at = torch.tensor([row], device=self._x.device)

        def closure() -> Tensor:
            with torch.enable_grad():
                given = [leaf.detach().requires_grad_() for leaf in leaves]
                second = given[1] if len(given) > 1 else None
                current = self._loss(given[0], second, at, done).sum()
            slopes = torch.autograd.grad(current, given)
            for leaf, slope in zip(leaves, slopes, strict=True):
                leaf.grad = slope
            return current.detach()

        before = float(self._optimizers[row].step(closure))  # type: ignore[no-untyped-call]
        if not all(bool(leaf.isfinite().all()) for leaf in leaves):
            # It ran off to infinity: discard the step and the estimate of the curvature.
            self._optimizers[row] = self._fresh(leaves)
            return before
        for leaf, whole in zip(leaves, targets, strict=True):
            whole[row : row + 1] = leaf
        return before
