"""Attribute inference with auxiliary knowledge phi(x): all other features of the batch are known.

The adversary of Li et al. (CCS 2024, section 3.2) may know phi(x). Here phi(x) is the batch without
its attribute: each value of the attribute gives one candidate batch, and the adversary computes its
gradient. Without a defense the gradient of the true candidate equals the observed one.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.checks import require_count
from leakgauge.core.types import Dataset, Grads
from leakgauge.data.counterfactual import column_of, with_own_values, with_value
from leakgauge.gradients.flattening import flat_leaf
from leakgauge.inference.adversaries.adversary import (
    CandidateAdversary,
    CandidateAttack,
    Candidates,
    with_prior,
)
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.games.trials import CandidateBatches, Trials
from leakgauge.results.statistics import Floats, Ints

ROUNDING = 1e-6
"""Relative difference below which two gradients are equal up to float32 rounding."""


def attribute_candidates(
    trials: Trials, secret: str, values: int | None = None
) -> CandidateBatches:
    """Return the batch of each trial m times, once with each value of the attribute.

    Args:
        trials: batches, and the pool with its schema.
        secret: the attribute.
        values: m, number of values; None for that of the schema.

    Raises:
        InputError: ``with_value`` refuses the attribute.
    """
    column_of(trials.pool, secret)
    assert trials.pool.schema is not None
    m = len(trials.pool.schema.secrets[secret]) if values is None else values
    n, size = trials.rows.shape
    value = torch.arange(m, device=trials.rows.device)
    rows = trials.rows[:, None] + len(trials.pool) * value[:, None]  # [n, m, B]
    index = torch.arange(n * m, device=value.device).reshape(n, m)
    pool = _joined([with_value(trials.pool, secret, one) for one in range(m)])
    return CandidateBatches(pool, rows.reshape(n * m, size), index, value.repeat(n))


@dataclass(frozen=True)
class Matching(CandidateAttack):
    """The likelihood of white noise between the observed gradient and that of each candidate.

    ``log P(g | a) = -|g - g_a|^2 / (2 s^2)``, where s is the standard deviation of the Gaussian
    noise in the shadow's defense. Without such noise, s measures how two gradients of one shadow
    batch differ by other randomness of the defense (random masks, for example). It is at
    least the rounding error, so that candidates with equal gradients share the posterior and every
    log posterior is finite.

    If a number was cut into ranges, a candidate holds a typical value of its range; s then also
    measures how far the gradients of shadow batches are from those of such candidates.

    The candidates' gradients pass the defense without its Gaussian noise. This attack does not
    account for the noise of VIB's codes, which is in the model; it is then overconfident.

    Attributes:
        batches: number of shadow batches from which s is estimated without Gaussian noise.
    """

    batches: int = 200
    name: ClassVar[str] = "matching"

    def __post_init__(self) -> None:
        require_count(self.batches, "number of shadow batches")

    def fit(
        self, shadow: Shadow, log_prior: Floats, *, rng: np.random.Generator
    ) -> "FittedMatching":
        """Estimate the noise unless the defense states it."""
        rows, _ = shadow.draw(self.batches, rng=rng)
        clean = replace(shadow, defense=shadow.defense.without_noise())
        norms = [squared_distances(grads) for grads in clean.gradients(rows)]
        variance, mean_square = shadow.defense.noise_std**2, float(np.concatenate(norms).mean())
        if variance == 0:
            other = replace(clean, noise_seed=int(rng.integers(2**62)))
            variance = _variance(clean, other, rows)
        typical = with_own_values(shadow.data, shadow.secret)
        if typical is not shadow.data:
            variance += _variance(clean, replace(clean, data=typical), rows)
        tiny = float(np.finfo(np.float32).tiny)  # every shadow gradient is zero
        return FittedMatching(
            self, max(variance, ROUNDING**2 * mean_square, tiny) ** 0.5, log_prior
        )


@dataclass(frozen=True, eq=False)
class FittedMatching(CandidateAdversary):
    """A fitted ``Matching``.

    Attributes:
        settings: the attack.
        std: s, standard deviation of a coordinate.
        log_prior: ``[m]``.
    """

    settings: Matching
    std: float
    log_prior: Floats

    @property
    def details(self) -> str:
        """The settings and s, in one line."""
        return f"{self.settings!r}, noise {self.std:.3g}"

    def log_posterior(self, seen: Grads, candidates: Candidates) -> Floats:
        """Return log posteriors ``[n, m]`` for gradients with leaves ``[n, *p]``."""
        columns = [
            squared_distances(seen, {name: leaf[batch] for name, leaf in candidates.grads.items()})
            for batch in candidates.index.T
        ]
        return with_prior(-np.stack(columns, axis=1) / (2 * self.std**2), self.log_prior)


def squared_distances(one: Grads, other: Grads | None = None) -> Floats:
    """Return squared distances ``[n]`` of gradients with leaves ``[n, *p]``, by default from 0."""
    total: Tensor | float = 0.0
    for name, leaf in one.items():
        gap = leaf.double() if other is None else leaf.double() - other[name].double()
        total = total + flat_leaf(gap).square().sum(dim=1)
    return torch.as_tensor(total).cpu().numpy()


def _variance(shadow: Shadow, other: Shadow, rows: Ints) -> float:
    """Return the mean squared difference of a coordinate between the gradients of two shadows."""
    pairs = zip(shadow.gradients(rows), other.gradients(rows), strict=True)
    gaps = np.concatenate([squared_distances(one, same) for one, same in pairs])
    return float(gaps.mean()) / sum(leaf.numel() for leaf in shadow.params.values())


def _joined(parts: list[Dataset]) -> Dataset:
    first = parts[0]
    secrets = {name: torch.cat([part.secrets[name] for part in parts]) for name in first.secrets}
    users = None if first.users is None else first.users.repeat(len(parts))
    x, y = torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts])
    return replace(first, x=x, y=y, secrets=secrets, users=users)
