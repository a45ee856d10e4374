"""The jobs of the background process: the estimates of one checkpoint."""

import math
import pickle
from collections.abc import Callable, Mapping, Sequence
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
from leakgauge.results.measurements import Estimate
from leakgauge.tokens.estimation import Information, estimate_information
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
    LINEAR_UNSEEN,
    PLACEBO,
    TOKEN,
    UNSEEN,
)
from leakgauge.tokens.planting import planter, unseen_below
from leakgauge.tokens.report.wording import smallest
from leakgauge.tokens.settings import CriticSettings
from leakgauge.tokens.sources import Pairs, PairSplit, split_stream

FEWEST = 120
"""Smallest number of pairs of a stream for an estimate."""

LEVELS = (0.1, 0.3, 1.0)
"""Planted leaks in nats, if an estimate finds nothing; two of them are tried."""

LINEAR_LEVELS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""The same for the linear-Gaussian measure, which takes no time."""

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
        batches: records ``[n, ...]`` and their targets ``[n, ...]``, oldest first.
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
    batches: Sequence[tuple[np.ndarray, np.ndarray]]
    batch_size: int
    features: str | None
    layers: tuple[str, ...] | None
    width: int
    defense: Defense | None

    def built(self) -> Task:
        """Return the model at the weights of the step, and its loss."""
        model, loss = pickle.loads(self.task)
        state = {name: torch.from_numpy(leaf) for name, leaf in self.state.items()}
        model.load_state_dict(state, strict=False)
        return Task(model.eval(), loss)  # dropout would draw, and BatchNorm join the records

    def records(self) -> tuple[np.ndarray, np.ndarray]:
        """Return all records and their targets."""
        x, y = (np.concatenate(parts) for parts in zip(*self.batches, strict=True))
        return x, y

    def __call__(self) -> dict[str, Any]:
        """Return the figures by name, as plain values."""
        task = self.built()
        x, y = self.records()
        kept = distinct(x)
        data = Dataset(torch.from_numpy(x[kept]), torch.from_numpy(y[kept]), {})
        how = Gathering(
            layers=self.layers or default_layers(task, data.x[:2]),
            batch_size=self.batch_size,
            features=self.features,
            width=self.width,
            defense=self.defense,
        )
        parts = checkpoint_parts(task, params_of(task.model), data, how, seed=self.seed)
        return figures(parts, self.settings, self.seed) | {"records": len(data)}


def distinct(x: np.ndarray) -> list[int]:
    """Return the places of the first of equal records, so that no record is in two parts.

    A loop over few records sees each of them again in the next epoch.

    >>> distinct(np.array([[1, 2], [3, 4], [1, 2]]))
    [0, 1]
    """
    places: dict[bytes, int] = {}
    for place, record in enumerate(x):
        places.setdefault(record.tobytes(), place)
    return list(places.values())


def figures(parts: PairSplit, settings: CriticSettings, seed: int) -> dict[str, Any]:
    """Return an estimate, the linear-Gaussian measure, and their placebos by name.

    A figure whose interval reaches 0 comes with the leak below which it could have seen nothing.
    """
    found = estimate_information(parts, settings, seed=derive(seed, "estimate"))
    placebo = estimate_information(parts, settings, seed=derive(seed, "placebo"), matched=False)
    require(
        all(math.isfinite(one.bound.value) for one in (found, placebo)),
        "the estimate is not finite; try another estimator",
    )
    return {
        BOUND: plain_interval(found.bound),
        **_unseen(found, parts, settings, seed),
        IN_SAMPLE: found.in_sample,
        PLACEBO: plain_interval(placebo.bound),
        GAP: plain_interval(found.critic_gap),
        GAP_IN_SAMPLE: found.gap_in_sample,
        GAP_PLACEBO: plain_interval(placebo.critic_gap),
        **_linear(parts, seed),
        LIMIT: found.limit if math.isfinite(found.limit) else None,
        LIMITED: found.is_limited,
        "iterations": found.iterations,
        TOKEN: settings.token,
        ESTIMATOR: settings.estimator,
    }


def _unseen(
    found: Information, parts: PairSplit, settings: CriticSettings, seed: int
) -> dict[str, float]:
    """Return the leak below which the estimate could have seen nothing; empty if it sees one."""
    if found.bound.low > 0:
        return {}
    own = derive(seed, "planted")
    plant = planter(parts, seed=own)

    def sees(nats: float) -> bool:
        return estimate_information(plant(nats), settings, seed=own).bound.low > 0

    return {UNSEEN: _level(found.bound, sees, LEVELS)}


def _linear(parts: PairSplit, seed: int) -> dict[str, Any]:
    """Return the linear-Gaussian measure, its placebo, and what it could have seen."""
    own = derive(seed, "linear")
    found = cheap_information(parts.fitting, seed=own)
    placebo = cheap_information(parts.fitting, seed=own, matched=False)

    figures: dict[str, Any] = {
        LINEAR: plain_interval(found),
        LINEAR_PLACEBO: plain_interval(placebo),
    }
    if found.low > 0:
        return figures
    plant = planter(parts, seed=own)

    def sees(nats: float) -> bool:
        return cheap_information(plant(nats).fitting, seed=own).low > 0

    return figures | {LINEAR_UNSEEN: _level(found, sees, LINEAR_LEVELS)}


def _level(found: Estimate, sees: Callable[[float], bool], levels: Sequence[float]) -> float:
    """Return the leak below which an estimate could have seen nothing, in nats.

    A leak must exceed what the estimate's own interval allows, and be seen if it is planted.
    """
    least = max(smallest(found), levels[0])
    return unseen_below(sees, [least, *(one for one in levels if one > least)])
