"""Small models with members and others: untrained, or trained until they memorise members."""

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from leakgauge.core.types import Dataset, Task
from leakgauge.data.split_members import split_members
from leakgauge.membership.run.target_model import (
    TargetModel,
    given_target,
    reference_rows,
    with_params,
)
from leakgauge.membership.run.training import MembershipRecipe
from leakgauge.membership.spec import MembershipSpec
from leakgauge.models import mlp


def noise(count: int, *, seed: int, classes: int = 10, width: int = 20) -> Dataset:
    """Return records with random labels, which a model can only memorise."""
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.normal(size=(count, width)).astype(np.float32))
    return Dataset(x, torch.from_numpy(rng.integers(classes, size=count)))


def network(*, seed: int, classes: int = 10, width: int = 20) -> Task:
    generator = torch.Generator().manual_seed(seed)
    return Task(mlp(width, classes, hidden=(128, 64), generator=generator), nn.CrossEntropyLoss())


def world(*, count: int, seed: int, epochs: int, references: int = 0) -> TargetModel:
    """Return a model after some epochs on a quarter of the records; with 0, there are no members.

    With 0, the attacker's own models are trained for five epochs.
    """
    data, task = noise(count, seed=seed), network(seed=seed)
    split = split_members(count, rng=np.random.default_rng(seed))
    spec = MembershipSpec(data="none", rounds=epochs or 5, batch_size=16, lr=0.003, seed=seed)
    recipe = MembershipRecipe(task, spec)
    if epochs:
        task = with_params(task, recipe.last(data.rows(split.members), "target"))
    made = given_target((task,), data, split, recipe)
    trained = [
        with_params(task, recipe.last(data.rows(reference_rows(made, number)), f"{number}"))
        for number in range(references)
    ]
    return replace(made, references=trained)
