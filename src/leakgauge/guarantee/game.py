"""The per-attribute audit: release, score, count the errors, compare with what is promised."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leakgauge.core.checks import require
from leakgauge.core.types import Dataset, Params, Task
from leakgauge.gradients import MAX_BYTES, params_of
from leakgauge.guarantee.estimate import (
    epsilon_clopper_pearson,
    epsilon_gaussian_dp,
    largest_showable,
)
from leakgauge.guarantee.mechanism import DPSGD, Mechanism
from leakgauge.guarantee.pair import Pair
from leakgauge.guarantee.release import bench_of, scored
from leakgauge.guarantee.statistic import LikelihoodRatio, Statistic
from leakgauge.guarantee.theory import Theory, theory_of
from leakgauge.guarantee.threshold import (
    choose_threshold,
    epsilon_objective,
    errors_at,
    fewest_errors,
    threshold_in_sample,
)
from leakgauge.results.measurements import Estimate

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Result:
    """What an audit of one pair found.

    Attributes:
        canary: where the record came from.
        statistic: its name.
        trials: that were judged, half of them under each hypothesis; as many more chose the
            thresholds.
        batch: number of gradients in each release.
        delta: of every epsilon here.
        distance: ||clip(g_H0) - clip(g_H1)||.
        clip: what the mechanism claims.
        estimate: epsilon from FPR and FNR; its ``low`` holds for whatever the mechanism does.
        gaussian: epsilon of the Gaussian mechanism that the errors show.
        in_sample: the paper's, at the best threshold for the trials it is judged on: biased, and
            its interval knows nothing of that choice.
        largest_showable: the estimate if no trial had gone wrong.
        theory: what is promised.
        null: scores of the judged trials under H0, ``alternative`` under H1 ``[trials // 2]``.
        threshold: of ``estimate``.
    """

    canary: str
    statistic: str
    trials: int
    batch: int
    delta: float
    distance: float
    clip: float
    estimate: Estimate
    gaussian: Estimate
    in_sample: Estimate
    largest_showable: Estimate
    theory: Theory
    null: Floats
    alternative: Floats
    threshold: float

    @property
    def distance_over_clip(self) -> float:
        """From 0 to 2."""
        return self.distance / self.clip

    @property
    def saturated(self) -> bool:
        """Not one trial went wrong: more trials would show more."""
        return self.estimate.low >= self.largest_showable.low

    @property
    def violated(self) -> bool:
        """The mechanism does not keep what it claims for this pair (at 95 % confidence).

        ``gaussian`` decides: it bounds mu of any mechanism that claims to be Gaussian.
        """
        return self.gaussian.low > self.theory.pair_exact.value


def audit_pair(
    task: Task,
    params: Params | None,
    pair: Pair,
    mechanism: Mechanism,
    *,
    claimed: DPSGD | None = None,
    statistic: Statistic | None = None,
    trials: int = 5000,
    delta: float = 1e-5,
    others: Dataset | None = None,
    seed: int = 0,
    max_bytes: int = MAX_BYTES,
) -> Result:
    """Release the gradient of a record many times in both versions, and tell them apart.

    The auditor knows all but the attribute: the model, the record's other features and label, the
    other records of the batch, and the mechanism that is claimed.

    Args:
        task: the model and its loss.
        params: all trainable parameters by name; None takes the model's own.
        pair: the record and its attribute.
        mechanism: what is audited; any callable from per-example gradients to a released one.
        claimed: DP-SGD as the mechanism should be; None where it is a ``DPSGD`` itself.
        statistic: scores a release; None takes ``LikelihoodRatio``.
        trials: releases to judge, half of them under each hypothesis. As many more are made to
            choose the thresholds.
        delta: in (0, 1).
        others: the other records of the batch, which are known; None is a batch of one, as in
            the paper.
        seed: of the noise.
        max_bytes: of releases that are held at once.

    Raises:
        InputError: a mechanism that claims nothing, delta outside (0, 1), too few trials, or a
            model whose gradients of single records cannot be had.

    References:
        Li et al., CCS 2024, Definition 7.2.

    >>> from torch import nn
    >>> import torch
    >>> from leakgauge.guarantee.pair import Attribute
    >>> from leakgauge.core.types import Column
    >>> codes = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> sex = Attribute(Column("sex", "category", 1, 3, ("f", "m")), ("f", "m"), codes, among=2)
    >>> pair = Pair(torch.tensor([3.0, 0.0, 0.0]), torch.tensor(0), sex)
    >>> task = Task(nn.Linear(3, 2), nn.functional.cross_entropy)
    >>> found = audit_pair(task, None, pair, DPSGD(clip=2.0, noise=0.01), trials=100)
    >>> found.saturated, found.violated
    (True, False)
    """
    require(0 < delta < 1, f"delta is {delta:g}; expected a probability above 0 and below 1")
    claim = _claim(mechanism, claimed)
    most = largest_showable(trials, delta)
    score = LikelihoodRatio() if statistic is None else statistic
    bench = bench_of(task, params_of(task.model) if params is None else params, pair, others, claim)
    chosen, judged = scored(
        bench, mechanism, score, each=trials // 2, seed=seed, max_bytes=max_bytes
    )
    threshold = choose_threshold(*chosen, epsilon_objective(delta))
    middle = choose_threshold(*chosen, fewest_errors)
    best = threshold_in_sample(*judged, delta)
    return Result(
        canary=pair.origin,
        statistic=score.name,
        trials=2 * (trials // 2),
        batch=bench.size,
        delta=delta,
        distance=bench.distance,
        clip=claim.clip,
        estimate=epsilon_clopper_pearson(errors_at(*judged, threshold), delta),
        gaussian=epsilon_gaussian_dp(errors_at(*judged, middle), delta),
        in_sample=epsilon_clopper_pearson(errors_at(*judged, best), delta),
        largest_showable=most,
        theory=theory_of(
            claim,
            distance=bench.distance,
            delta=delta,
            attributes=pair.attribute.among,
            batch=bench.size,
        ),
        null=judged[0],
        alternative=judged[1],
        threshold=threshold,
    )


def _claim(mechanism: Mechanism, claimed: DPSGD | None) -> DPSGD:
    if claimed is None and isinstance(mechanism, DPSGD):
        return mechanism
    require(
        claimed is not None,
        f"{type(mechanism).__name__} does not say what it claims; pass claimed=DPSGD(clip, noise)",
    )
    assert claimed is not None
    return claimed
