"""Settings of a search: its objective, optimiser, schedule and priors."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from types import MappingProxyType
from typing import Literal, get_args

from leakgauge.core.checks import require, require_choice, require_count, require_positive
from leakgauge.inversion.search.layer_weights import Weights
from leakgauge.inversion.search.objective import Objective, SquaredError

Optimizer = Literal["lbfgs", "adam", "signed-adam"]
Start = Literal["normal", "uniform", "zeros"]
Slope = Literal["exact", "difference"]


def step_down(done: float) -> float:
    """Return a factor that falls to a tenth after 3/8, 5/8 and 7/8 of the iterations.

    As in Geiping et al., Inverting Gradients, NeurIPS 2020.

    >>> [round(step_down(done), 4) for done in (0.0, 0.4, 0.7, 0.9)]
    [1.0, 0.1, 0.01, 0.001]
    """
    return 0.1 ** sum(done >= share for share in (3 / 8, 5 / 8, 7 / 8))


def cosine(done: float) -> float:
    """Return half a cosine, from 1 down to 0 (Loshchilov and Hutter, SGDR, ICLR 2017).

    >>> [round(cosine(done), 2) for done in (0.0, 0.5, 1.0)]
    [1.0, 0.5, 0.0]
    """
    return (1 + math.cos(math.pi * done)) / 2


SCHEDULES: Mapping[str, Callable[[float], float]] = MappingProxyType(
    {"constant": lambda done: 1.0, "step-down": step_down, "cosine": cosine}
)
"""Functions by name: share of the iterations done, from 0 to 1, -> factor on the step size."""


def factor(schedule: str, iteration: int, iterations: int, *, warmup: int = 0) -> float:
    """Return the factor on the step size at ``iteration``, from 0; it rises over ``warmup`` ones.

    >>> [factor("constant", at, 4, warmup=2) for at in range(4)]
    [0.5, 1.0, 1.0, 1.0]
    """
    rise = min(1.0, (iteration + 1) / warmup) if warmup else 1.0
    return rise * SCHEDULES[schedule](iteration / iterations)


def fading(first: float, done: float) -> float:
    """Return ``first`` at the beginning, falling evenly in its logarithm to 1 at half the way.

    >>> [round(fading(100, done), 2) for done in (0.0, 0.25, 0.5, 1.0)]
    [100.0, 10.0, 1.0, 1.0]
    """
    return float(first ** max(0.0, 1 - 2 * done))


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a search for records; presets are in ``presets.PRESETS``.

    Attributes:
        objective: compares the gradients; ``LayerWeights`` (AGIC's) and ``DepthWeights`` (ours)
            give the layer-weighted cosine of the model that is attacked.
        optimizer: ``"lbfgs"`` (each target by itself), ``"adam"``, or ``"signed-adam"``, Adam on
            the sign of the gradient.
        lr: step size, in units of the records (of the model's input).
        iterations: steps of the optimiser; one of L-BFGS has up to ``inner`` evaluations.
        inner: evaluations in a step of L-BFGS; the other optimisers have one.
        restarts: starts for each target; the one of smallest loss is kept.
        schedule: schedule of ``lr``, one of ``SCHEDULES``; ``warmup`` iterations lead up to it.
        total_variation: weight of ``priors.total_variation``, which is added to the objective.
        prior_per_record: whether that weight is of each record of a batch, and not of their mean:
            priors of independent records multiply.
        prior_relative: whether that weight is a multiple of the objective where a target's search
            begins (the mean over its restarts). Networks differ by a factor of ten in how far the
            gradients of any two images of one class are apart, and the best weight with them.
        prior_first: what that weight is multiplied by at first; it fades to 1 over half the
            iterations (``schedule.fading``). Smooth at first, the records find their coarse shape
            before noise that hardly changes the gradients stays in them. A relative weight never
            falls below ``prior_first * total_variation`` times the present objective: where
            gradients do not come to agree, the records stay smooth.
        batch_norm: weight of ``BatchStatistics.prior``, where the attacker knows statistics of the
            batches in BatchNorm layers.
        boxed: whether each step ends between the lowest and highest value that a record can have.
        joint_labels: whether unknown labels are searched for together with the records.
        keep_best: return the point of smallest loss on the way, not the last one.
        start: ``"normal"`` or ``"uniform"`` (between -1 and 1) noise, or ``"zeros"``.
        rescale: whether a target's records are multiplied, at the end, by the number that brings
            their gradient nearest to the observed one. A network without biases that is sure
            of its answer gives gradients of the same direction for records of any contrast: a
            cosine then knows nothing of it, and the total variation takes it away.
        slope: ``"exact"``, or ``"difference"``: the objective's slope by a difference of two plain
            gradients, off by some thousandths, for a third less work; see ``difference``. Where
            local steps or epochs are simulated it is exact in any case.
        patience: a target whose loss has not fallen by ``tolerance`` of itself for so many
            iterations stays where it is; None continues to the end.

    Raises:
        InputError: a name is unknown, or a number out of its range.
    """

    objective: Objective | Weights = field(default_factory=SquaredError)
    optimizer: Optimizer = "signed-adam"
    lr: float = 0.1
    iterations: int = 4800
    inner: int = 20
    restarts: int = 1
    schedule: str = "step-down"
    warmup: int = 0
    total_variation: float = 0.0
    prior_per_record: bool = False
    prior_relative: bool = False
    prior_first: float = 1.0
    batch_norm: float = 0.01
    boxed: bool = False
    joint_labels: bool = False
    keep_best: bool = True
    start: Start = "normal"
    rescale: bool = False
    slope: Slope = "exact"
    patience: int | None = None
    tolerance: float = 1e-4

    def __post_init__(self) -> None:
        require_choice(self.optimizer, "optimizer", get_args(Optimizer))
        require_choice(self.schedule, "schedule", SCHEDULES)
        require_choice(self.start, "start", get_args(Start))
        require_choice(self.slope, "slope", get_args(Slope))
        require(
            self.slope == "exact" or not (self.joint_labels or self.optimizer == "lbfgs"),
            "a slope by difference is too rough for L-BFGS, and not of labels; set slope=exact",
        )
        for name in ("iterations", "inner", "restarts"):
            require_count(getattr(self, name), f"number of {name}")
        if self.patience is not None:
            require_count(self.patience, "patience")
        require_positive(self.lr, "lr")
        require(
            isfinite(self.prior_first) and self.prior_first >= 1,
            f"prior first is {self.prior_first:g}; expected a number from 1: with less at first, "
            "the first losses would be the smallest",
        )
        for name in ("warmup", "total_variation", "batch_norm", "tolerance"):
            value = getattr(self, name)
            require(
                value >= 0 and isfinite(value),
                f"{name.replace('_', ' ')} is {value:g}; expected a number from 0",
            )
        require(
            self.optimizer != "lbfgs" or (self.schedule == "constant" and self.warmup == 0),
            'L-BFGS chooses its own steps; set schedule="constant" and warmup=0',
        )
