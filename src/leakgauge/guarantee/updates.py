"""The audit of a filter on the updates of two neighbours that are furthest apart, without data."""

import torch

from leakgauge.core.checks import require_count
from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Grads
from leakgauge.gradients import MAX_BYTES
from leakgauge.guarantee.filter import FilterMechanism
from leakgauge.guarantee.game import AuditResult, audit_hypotheses
from leakgauge.guarantee.release import hypotheses_from
from leakgauge.privacy.promises import ADD, CLIENT, RECORD, Neighbours

ORIGIN = "updates"
"""Origin of a pair that no record made."""


def furthest_updates(mechanism: FilterMechanism, near: Neighbours, parameters: int) -> Grads:
    """Return the updates of two neighbours, as far apart as the filter lets them be ``[2, D]``.

    They point in opposite directions, at the largest norm that passes. An update that is added is
    zero before. A record that is added to a clipped update may turn it round.

    Args:
        mechanism: the filter; one without a clip gets updates of norm 1.
        near: unit of privacy and relation of neighbours.
        parameters: D, number of parameters of the update.

    >>> from leakgauge.guarantee.filter import filter_of
    >>> own = filter_of("fixed-clipping:norm=2")
    >>> pair = furthest_updates(own, Neighbours("client", "add"), 5)["updates"]
    >>> [round(float(torch.linalg.vector_norm(one)), 6) for one in pair]
    [0.0, 2.0]
    """
    require_count(parameters, "number of parameters")
    way = torch.randn(parameters, generator=torch_stream(0, ORIGIN), dtype=torch.float64)
    largest = way / torch.linalg.vector_norm(way) * (mechanism.largest_norm or 1.0)
    if mechanism.sparse:
        largest = way.sign() * mechanism.stated.settings.gamma
    turned = mechanism.unit == CLIENT and near.unit == RECORD
    start = torch.zeros_like(largest) if near.relation == ADD and not turned else -largest
    return {ORIGIN: torch.stack([start, largest])}


def audit_updates(
    mechanism: FilterMechanism,
    near: Neighbours,
    *,
    parameters: int = 100,
    trials: int = 2000,
    delta: float = 1e-5,
    releases: int = 1,
    confidence: float = 0.95,
    seed: int = 0,
) -> AuditResult:
    """Return what releases of the two neighbours that are furthest apart show of a filter.

    Args:
        mechanism: the filter.
        near: unit of privacy and relation of neighbours.
        parameters: D, number of parameters of an update. It does not matter for Gaussian noise.
        trials: releases to score, half of each neighbour; as many more choose the thresholds.
        delta: delta of all epsilons, in (0, 1).
        releases: number of releases of a training, over which promises are composed.
        confidence: two-sided confidence of the intervals of errors; see ``shown_by``.
        seed: seed of the noise.

    Raises:
        InputError: the trials are too few.

    >>> from leakgauge.guarantee.filter import filter_of
    >>> own = filter_of("local-dp:clip=1,sensitivity=1e-4,epsilon=10,delta=1e-5")
    >>> found = audit_updates(own, Neighbours("client", "add"), trials=200)
    >>> found.deciding.low > 10, found.violated
    (True, False)
    """
    versions = furthest_updates(mechanism, near, parameters)
    none = {name: leaf[:0] for name, leaf in versions.items()}
    return audit_hypotheses(
        hypotheses_from(versions, none, mechanism),
        mechanism,
        mechanism,
        mechanism.likelihood_ratio(),
        canary=ORIGIN,
        attributes=1,
        trials=trials,
        delta=delta,
        near=near,
        releases=releases,
        confidence=confidence,
        seed=seed,
        max_bytes=MAX_BYTES,
    )
