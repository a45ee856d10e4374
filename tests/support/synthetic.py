"""Data with known leakage: planted, or none."""

from dataclasses import replace

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from leakgauge.core.rng import stream, torch_stream
from leakgauge.core.types import Dataset, Task
from leakgauge.data import from_arrays, split_records
from leakgauge.defenses import Defense
from leakgauge.gradients import MAX_BYTES, params_of
from leakgauge.inference import Attack, Shadow
from leakgauge.inference.run import GameStage, make_stage
from leakgauge.inference.spec import InferenceSpec
from leakgauge.models import mlp


def records(
    shift: float, *, n: int = 1800, values: int = 2, users: int | None = None, seed: int = 0
) -> Dataset:
    """Return Gaussian features; the secret shifts the first by ``shift``, with 0 for no leak."""
    rng = stream(seed, "synthetic")
    secret = rng.integers(values, size=n)
    x = rng.normal(size=(n, 6))
    x[:, 0] += shift * secret
    y = (x[:, 1] + 0.5 * rng.normal(size=n) > 0).astype(np.int64)
    people = None if users is None else rng.integers(users, size=n)
    return from_arrays(x, y, {"s": secret}, users=people, dtype=torch.float64)


def small_task(data: Dataset, *, seed: int = 0) -> Task:
    model = mlp(data.x.shape[1], 2, hidden=(12,), generator=torch_stream(seed, "model"))
    return Task(model.to(data.x.dtype), cross_entropy)


def bench(shift: float, *, batch_size: int = 8, users: int | None = None, n: int = 400) -> Shadow:
    """Return the shadow of an adversary in the first round."""
    data = records(shift, n=n, users=users)
    task = small_task(data)
    return Shadow(task, params_of(task.model), data, "s", 2, batch_size, 2**28)


def small_stage(
    data: Dataset,
    *attacks: Attack,
    ask: str = "property",
    defense: Defense | None = None,
    max_bytes: int = MAX_BYTES,
    **settings,
) -> GameStage:
    chosen = InferenceSpec(secret="s", **{"batch_size": 8, "rounds": 2, "trials": 400, **settings})
    split = split_records(
        data.secrets["s"], users=data.users, shadow=600, rng=stream(chosen.seed, "split")
    )
    stage = make_stage(
        ask, small_task(data), data, split, attacks=attacks, spec=chosen, defense=defense
    )
    return replace(stage, max_bytes=max_bytes)
