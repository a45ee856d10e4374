"""Validity of the mean gradient of several local steps as a single gradient.

A client that takes ``steps`` steps of SGD sends the sum of gradients at weights that change from
step to step. The one-batch approximation takes all of them at the first weights. It is exact for
one step, and worse the more the gradient changes. This module needs no private records.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.core.precision import precision_of, spacing
from leakgauge.core.types import Params, Task
from leakgauge.gradients import batch_gradients
from leakgauge.gradients.probing import GradientMethod
from leakgauge.training.local import repeatable

# The limits lie between figures on CIFAR-10 (slim net, PyTorch's initialisation, 4 and 8 local
# steps of 1, 4 and 8 records, pixels standardised or not, 4 draws each): the largest at rate 1e-3,
# where the approximated gradient is off by 0.02 to 0.04 of its norm (0.0225 nats; 0.087 on noise),
# and the smallest at 1e-2, where it is off by 0.07 to 0.20 (0.026 nats; 0.072).
DESCENT_LIMIT = 0.024  # nats
CHANGE_LIMIT = 0.08
ROUNDING_LIMIT = 0.1


@dataclass(frozen=True, eq=False)
class Validity:
    """Measures of the distance of an update from one gradient step.

    Attributes:
        drift: l2 norm of the change of the weights, over that of the weights before.
        layers: drift of each parameter; infinite where a parameter of zeros changed.
        descent: estimate of how far as many steps on one record lower its loss if its gradient
            stays constant, in nats: the change's squared norm over rate times steps, times the
            batch size, since records' gradients nearly cancel in a mean. A loss of a few nats
            cannot fall far while its gradient stays constant. None where the rate is not known.
        rounding: estimate of the relative error of the approximated gradient that results from
            the precision of the weights, as their digits show it: bfloat16 that was cast counts.
        gradient_change: l2 norm of the difference between the model's gradients after and
            before, over that before, on the inputs of ``gradient_change``; None without inputs.
        steps: local steps; the approximation is exact for one.
    """

    drift: float
    layers: Mapping[str, float]
    descent: float | None
    rounding: float
    gradient_change: float | None
    steps: int

    @classmethod
    def worst(cls, several: Sequence["Validity"]) -> "Validity":
        """Return the largest of each measure over updates with the same number of steps."""
        changes = [one.gradient_change for one in several if one.gradient_change is not None]
        descents = [one.descent for one in several if one.descent is not None]
        return cls(
            drift=max(one.drift for one in several),
            layers={name: max(one.layers[name] for one in several) for name in several[0].layers},
            descent=max(descents, default=None),
            rounding=max(one.rounding for one in several),
            gradient_change=max(changes, default=None),
            steps=several[0].steps,
        )

    def warnings(self, *, simulated: bool = False) -> tuple[str, ...]:
        """Return the approximations that fail, one sentence each.

        The change of the gradient decides if it was measured, else the descent.

        Args:
            simulated: whether the attack simulates each step instead of taking them for one.
        """
        sentences = []
        many = self.steps > 1 and not simulated
        moved = f"the weights drift by {self.drift:.2g} of their norm over {self.steps} steps"
        advice = "the one-batch approximation is not valid; simulate the local steps"
        if many and self.gradient_change is None and (self.descent or 0) > DESCENT_LIMIT:
            sentences.append(
                f"{moved}, enough to take about {self.descent:.2g} nats off a record's loss (limit "
                f"{DESCENT_LIMIT:g}): {advice}"
            )
        if many and (self.gradient_change or 0) > CHANGE_LIMIT:
            sentences.append(
                f"{moved}, and the gradient changes by {self.gradient_change:.2g} of its norm "
                f"(limit {CHANGE_LIMIT:g}): {advice}"
            )
        if self.rounding > ROUNDING_LIMIT:
            sentences.append(
                f"the change of the weights is near their rounding (relative error "
                f"{self.rounding:.2g}, limit {ROUNDING_LIMIT:g}): an attack on it shows less "
                "leakage than one on the gradient itself"
            )
        return tuple(sentences)


def measure(
    before: Params,
    change: Params,
    *,
    after: Params | None,
    lr: float | None,
    steps: int,
    batch_size: int,
    gradient_change: float | None,
) -> Validity:
    """Return the measures of a change of weights, leaf ``[*p]``; ``after``: weights as sent."""
    squared = {name: _square(leaf) for name, leaf in change.items()}
    weights = {name: _square(leaf) for name, leaf in before.items()}
    total = sum(squared.values())
    sent = before if after is None else after  # a client trains from what it received, as it is
    eps = torch.finfo(precision_of(sent.values())).eps
    return Validity(
        drift=_ratio(total, sum(weights.values())),
        layers={name: _ratio(value, weights[name]) for name, value in squared.items()},
        descent=None if lr is None else batch_size * total / (lr * steps),
        # A gradient changes no weights, so it is not rounded with them.
        rounding=_ratio(steps * sum(_rounding(leaf, eps) for leaf in before.values()), total)
        if total
        else 0.0,
        gradient_change=gradient_change,
        steps=steps,
    )


def gradient_change(task: Task, before: Params, after: Params, x: Tensor, y: Tensor) -> float:
    """Return the relative change of the gradient of a batch ``x [B, ...]``, ``y [B]``."""
    task = repeatable(task)
    # BatchNorm in training mode writes its buffers.
    method: GradientMethod = "loop" if task.model.training else "auto"
    first, last = (
        batch_gradients(task, params, x[None], y[None], method=method) for params in (before, after)
    )
    changed = sum(_square(last[name] - leaf) for name, leaf in first.items())
    return _ratio(changed, sum(_square(leaf) for leaf in first.values()))


def _square(leaf: Tensor) -> float:
    return float(leaf.double().square().sum())


def _rounding(leaf: Tensor, eps: float) -> float:
    """Return the squared norm of rounding errors, each uniform within half a spacing."""
    return float(spacing(leaf, eps).square().sum()) / 12


def _ratio(squared: float, reference: float) -> float:
    """Return the root of a ratio of squared norms; infinite for a positive one over 0."""
    if reference > 0:
        return math.sqrt(squared / reference)
    return math.inf if squared > 0 else 0.0
