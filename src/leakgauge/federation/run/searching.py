"""The search for records: the method, and the number of its starts."""

import math

import torch
from torch import Tensor

from leakgauge.core.copying import copy_of
from leakgauge.core.types import Task
from leakgauge.federation.spec import STARTS, FederationSpec
from leakgauge.gradients.vectorising import REFUSALS
from leakgauge.gradients.watching import OperationWatcher
from leakgauge.inversion.methods import Method, method_of
from leakgauge.inversion.scoring import are_large, are_pictures

PASSES = 6
"""Cost of an iteration in forward passes: its gradient, and the gradient of that."""

AFFORDABLE = 1e12
"""Largest cost of one start, over all updates, at which a search has several starts by default, in
operations of a forward pass: a few minutes on one core."""


def method(spec: FederationSpec, x: Tensor) -> Method:
    """Return the attack on updates of records ``x [n, ...]``."""
    return method_of(
        spec.method,
        iterations=spec.iterations,
        restarts=spec.restarts or 1,
        are_images=are_pictures(x),
        large=are_large(x),
    )


def starts_of(spec: FederationSpec, task: Task, x: Tensor, records: int) -> int:
    """Return the number of starts of each search: the named one, or what the work allows.

    Args:
        spec: settings.
        task: the clients' model.
        x: records ``[n, ...]`` of the right shape.
        records: records in all steps that one start computes at each iteration, over all updates.
    """
    chosen = method(spec, x)
    if spec.restarts is not None or not chosen.traits.searches:
        return spec.restarts or 1
    work = records * chosen.iterations * PASSES * operations(task, x)
    return STARTS if work <= AFFORDABLE else 1


def operations(task: Task, x: Tensor) -> float:
    """Return the operations of a forward pass of one record; infinite where the model fails."""
    own, rows = copy_of(task.model), x[:2].clone()
    try:
        with OperationWatcher() as counted, torch.no_grad(), torch.random.fork_rng():
            own(rows)
    except REFUSALS:
        return math.inf
    return float(counted.flops) / len(rows)
