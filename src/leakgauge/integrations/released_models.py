"""Audits the models that a federation released, without any other message."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from leakgauge.core.checks import require, require_count, require_positive
from leakgauge.integrations.kept_reading import KeptRounds
from leakgauge.privacy.conformance import FAILS_BY_CHANCE, conformance_of
from leakgauge.privacy.dp_audit import DpAudit
from leakgauge.privacy.planted_clients import (
    Planted,
    PlantedScores,
    audit_planted,
    claim_of_clients,
)
from leakgauge.privacy.profile import Profile
from leakgauge.results.statistics import Floats

Model = Mapping[str, Any]
"""Arrays, tensors or Flower's arrays by name."""

UNSEEN = (
    "noise by layer, clipping and shares of clients (only released models are read)",
    "whether each planted client was in each round, which is assumed",
)


def audit_models(
    models: Sequence[Model],
    planted: Planted,
    *,
    noise_multiplier: float,
    clip: float | Sequence[float],
    clients: int,
    delta: float,
    first: int = 1,
    confidence: float = 0.99,
    claim: Profile | None = None,
) -> DpAudit:
    """Return what planted clients show in released models.

    What honest clients send stays in the scores, and counts as noise. So the bound is smaller than
    that of ``CanaryAudit``, most where a model has few parameters.

    Args:
        models: models in the order of rounds, the first one before round ``first``.
        planted: planted clients, as ``CanaryClients(...).planted``.
        noise_multiplier: stated noise of the sum of the updates, in clips.
        clip: norm to which updates are clipped, or one for each round.
        clients: number of clients of a round.
        delta: delta of the reported epsilons; in (0, 1).
        first: number of the round after the first model.
        confidence: probability that a true claim is not refuted.
        claim: claim for a client that is in all rounds; None for that of the stated noise.

    Raises:
        InputError: there are fewer than two models, their arrays differ, or the number of clips is
            not that of the rounds.

    >>> zeros = {"weight": np.zeros(100)}
    >>> noisy = {"weight": np.random.default_rng(0).normal(0, 0.1, 100)}
    >>> settings = {"noise_multiplier": 1.0, "clip": 1.0, "clients": 10, "delta": 1e-5}
    >>> audit_models([zeros, noisy], Planted((True,)), **settings).flagged
    False
    """
    require(len(models) > 1, f"{len(models)} released models; expected two or more")
    require_positive(noise_multiplier, "noise multiplier")
    require_count(clients, "number of clients")
    clips = _clips(clip, len(models) - 1)
    names, scores = names_of(models[0]), PlantedScores()
    flats = pairwise([flat(one, names) for one in models])
    for at, (before, after) in enumerate(flats):
        moved = (after - before) * clients / clips[at]
        directions = planted.directions(first + at, len(moved))
        scores.add(moved, directions, np.array(planted.members), noise=noise_multiplier)
    found = claim or claim_of_clients(1 / noise_multiplier, scores.rounds, delta)
    significance = FAILS_BY_CHANCE * (1 - confidence)
    checked = conformance_of([scores.check()], significance, UNSEEN)
    return audit_planted(scores, found, confidence=confidence, conformance=checked)


def _clips(clip: float | Sequence[float], rounds: int) -> list[float]:
    found = [float(clip)] * rounds if isinstance(clip, int | float) else list(clip)
    require(len(found) == rounds, f"{len(found)} clips for {rounds} rounds; expected one for each")
    for one in found:
        require_positive(one, "clip")
    return found


def models_of(kept: KeptRounds, last: Model) -> list[Model]:
    """Return the models that a server sent in the kept rounds, and the last one.

    Args:
        kept: kept updates of successive rounds, of one client or of several.
        last: model after the last kept round, which no client received in a kept one.

    Raises:
        InputError: a round is missing.
    """
    rounds = kept.rounds
    require(
        rounds == list(range(rounds[0], rounds[-1] + 1)),
        f"updates are kept of the rounds {', '.join(map(str, rounds))}; expected successive ones",
    )
    found = [kept.only(rounds=[number]).updates[0].tensors()[0] for number in rounds]
    return [*found, last]


def names_of(model: Model) -> list[str]:
    """Return the names of the arrays of floats, in alphabetical order.

    >>> names_of({"b": np.zeros(2), "a": np.zeros(3), "count": np.zeros(1, int)})
    ['a', 'b']
    """
    return sorted(name for name, one in model.items() if _array(one).dtype.kind == "f")


def flat(model: Model, names: Sequence[str]) -> Floats:
    """Return arrays of a model as one vector ``[size]``.

    Raises:
        InputError: the model lacks an array.
    """
    missing = [name for name in names if name not in model]
    require(not missing, f"a model has no array {', '.join(map(repr, missing[:3]))}")
    return np.concatenate([_array(model[name]).ravel().astype(float) for name in names])


def _array(value: Any) -> Any:
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)
