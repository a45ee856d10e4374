"""The jobs of the background process: the estimates of one checkpoint."""

import math
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from leakgauge.core.checks import require
from leakgauge.core.rng import derive
from leakgauge.core.types import Dataset, Task
from leakgauge.defenses.defense import Defense
from leakgauge.gradients.gradients import params_of
from leakgauge.report.facts import plain_interval
from leakgauge.tokens.estimation import estimate_information
from leakgauge.tokens.features import default_layers
from leakgauge.tokens.gathering import Gathering, checkpoint_parts
from leakgauge.tokens.linear_gaussian import cheap_information
from leakgauge.tokens.monitor.settings import (
    BOUND,
    ESTIMATOR,
    GAP,
    GAP_IN_SAMPLE,
    GAP_PLACEBO,
    IN_SAMPLE,
    LIMIT,
    LIMITED,
    LINEAR,
    LINEAR_PLACEBO,
    PLACEBO,
    TOKEN,
)
from leakgauge.tokens.settings import CriticSettings
from leakgauge.tokens.sources import Pairs, PairSplit, split_stream

FEWEST = 120
"""Smallest number of pairs of a stream for an estimate."""

SHARE = 20
"""Smallest number of groups that a stream must fill, which bounds the group size."""


@dataclass(frozen=True)
class StreamJob:
    """Estimates from pairs that were gathered while the model moved.

    Attributes:
        settings: settings of the estimate.
        seed: seed of all random draws.
        features: features of pairs ``[N, d]``, in the order of time.
        gradients: gradients of pairs by layer ``[N, p]``.
    """

    settings: CriticSettings
    seed: int
    features: np.ndarray
    gradients: Mapping[str, np.ndarray]

    def __call__(self) -> dict[str, Any]:
        """Return the figures by name, as plain values."""
        count = len(self.features)
        gradients = {name: torch.from_numpy(leaf) for name, leaf in self.gradients.items()}
        parts = split_stream(Pairs(torch.from_numpy(self.features), gradients))
        group = min(self.settings.group, max(2, count // SHARE))
        return figures(parts, replace(self.settings, group=group), self.seed) | {"pairs": count}


@dataclass(frozen=True)
class CheckpointJob:
    """Estimates from fresh batches of recent records, at the weights of one step.

    Attributes:
        settings: settings of the estimate.
        seed: seed of all random draws.
        task: pickled model and loss.
        state: weights and buffers by name.
        x: records ``[n, ...]``.
        y: targets ``[n, ...]``.
        batch_size: batch size of the loop.
        features: name of the module that outputs the data features.
        layers: names of the watched layers.
        width: largest number of kept values of each layer.
        defense: defense of the gradients.
    """

    settings: CriticSettings
    seed: int
    task: bytes
    state: Mapping[str, np.ndarray]
    x: np.ndarray
    y: np.ndarray
    batch_size: int
    features: str | None
    layers: tuple[str, ...] | None
    width: int
    defense: Defense | None

    def __call__(self) -> dict[str, Any]:
        """Return the figures by name, as plain values."""
        model, loss = pickle.loads(self.task)
        state = {name: torch.from_numpy(leaf) for name, leaf in self.state.items()}
        model.load_state_dict(state, strict=False)
        task = Task(model.eval(), loss)  # dropout would draw, and BatchNorm join the records
        data = Dataset(torch.from_numpy(self.x), torch.from_numpy(self.y), {})
        how = Gathering(
            layers=self.layers or default_layers(task, data.x[:2]),
            batch_size=self.batch_size,
            features=self.features,
            width=self.width,
            defense=self.defense,
        )
        parts = checkpoint_parts(task, params_of(model), data, how, seed=self.seed)
        return figures(parts, self.settings, self.seed) | {"records": len(self.x)}


EstimateJob = StreamJob | CheckpointJob


def figures(parts: PairSplit, settings: CriticSettings, seed: int) -> dict[str, Any]:
    """Return an estimate, the linear-Gaussian measure, and their placebos by name."""
    found = estimate_information(parts, settings, seed=derive(seed, "estimate"))
    placebo = estimate_information(parts, settings, seed=derive(seed, "placebo"), matched=False)
    require(
        all(math.isfinite(one.bound.value) for one in (found, placebo)),
        "the estimate is not finite; try another estimator",
    )
    linear = {
        name: cheap_information(parts.fitting, seed=derive(seed, "linear"), matched=matched)
        for name, matched in ((LINEAR, True), (LINEAR_PLACEBO, False))
    }
    return {
        BOUND: plain_interval(found.bound),
        IN_SAMPLE: found.in_sample,
        PLACEBO: plain_interval(placebo.bound),
        GAP: plain_interval(found.critic_gap),
        GAP_IN_SAMPLE: found.gap_in_sample,
        GAP_PLACEBO: plain_interval(placebo.critic_gap),
        **{name: plain_interval(one) for name, one in linear.items()},
        LIMIT: found.limit if math.isfinite(found.limit) else None,
        LIMITED: found.is_limited,
        "iterations": found.iterations,
        TOKEN: settings.token,
        ESTIMATOR: settings.estimator,
    }
