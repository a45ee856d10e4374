"""Measures one checkpoint: information, placebo, cheap measure, accuracy."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Self

import torch

from leakgauge.core.checks import InputError
from leakgauge.core.rng import derive, stream, torch_stream
from leakgauge.core.threads import one_thread
from leakgauge.core.types import Dataset, Params, Task
from leakgauge.results.measurements import Estimate
from leakgauge.results.metrics import NONE_SEEN
from leakgauge.runs.records import IN_TRAINING_MODE
from leakgauge.tokens.estimation import estimate_information
from leakgauge.tokens.gathering import Gathering, checkpoint_parts, fewest_records
from leakgauge.tokens.linear_gaussian import cheap_information
from leakgauge.tokens.metrics import (
    CHEAP,
    CHEAP_PLACEBO,
    GAP,
    GAP_IN_SAMPLE,
    GAP_PLACEBO,
    IN_SAMPLE,
    INFORMATION,
    MATCHED,
    MISMATCHED,
    PLACEBO,
    of_critic,
    of_model,
)
from leakgauge.tokens.planting import planter, unseen_below
from leakgauge.tokens.run.preparing import TokensPrepared, defense_of
from leakgauge.tokens.run.streaming import pairs_of
from leakgauge.tokens.run.training import ModelCheckpoint
from leakgauge.tokens.settings import PAIRS_OF_PAPER, PAPER, CriticSettings, settings_of
from leakgauge.tokens.sources import FixedPairs, PairSplit, split_stream
from leakgauge.tokens.spec import TimelineSpec
from leakgauge.tokens.words import (
    IN_EVALUATION,
    PLANTED,
    QUESTION,
    SMALLEST_SEEN,
    STREAM,
    STREAM_TO_CHECKPOINT,
)
from leakgauge.training.utility import utility_of

IN_NATS = (INFORMATION, PLACEBO, IN_SAMPLE)
"""Figures with the limit of their estimator."""

ROOM = 1.5
"""Factor of the needed records for whole users, as their parts have no exact sizes."""


@dataclass(frozen=True)
class CheckpointFigure:
    """One figure of a checkpoint, as a worker returns it.

    Attributes:
        metric: name of the metric.
        estimate: value and interval.
        chance: value without a leak.
        adversary: token and estimator; empty without them.
        details: details by name.
        most: largest value that the figure's definition allows, in nats; None without one.
    """

    metric: str
    estimate: Estimate
    chance: float = 0.0
    adversary: str = ""
    details: dict[str, str] = field(default_factory=dict)
    most: float | None = None

    def plain(self) -> dict[str, Any]:
        """Return the figure as plain values, for ``of_plain``."""
        return {**vars(self), "estimate": vars(self.estimate)}

    @classmethod
    def of_plain(cls, values: dict[str, Any]) -> Self:
        """Return the figure that ``plain`` encoded."""
        return cls(**{**values, "estimate": Estimate(**values["estimate"])})


def measured(prepared: TokensPrepared, at: ModelCheckpoint) -> dict[str, Any]:
    """Return the figures of one checkpoint, and the missing ones, as plain values.

    It depends only on its arguments, so it may run in any process.
    """
    with one_thread():
        task, params = at.task(prepared.task)
        figures = [*_of_model(prepared, task, params)]
        missing = []
        try:
            figures += _of_pairs(prepared, at, task, params)
        except InputError as error:
            missing.append(f"sub-epoch {at.step}: {error}")
    return {"figures": [one.plain() for one in figures], "missing": missing}


def _of_model(prepared: TokensPrepared, task: Task, params: Params) -> Iterator[CheckpointFigure]:
    rng = stream(prepared.spec.seed, QUESTION, "utility")
    found = utility_of(task, params, prepared.rows(prepared.test), rng=rng)
    if found is not None:
        yield CheckpointFigure(of_model(found.metric), found.estimate, found.chance)


def _of_pairs(
    prepared: TokensPrepared, at: ModelCheckpoint, task: Task, params: Params
) -> Iterator[CheckpointFigure]:
    spec = prepared.spec
    parts = _parts(prepared, at, task, params)
    if parts is None:
        return
    modes = prepared.run.data.get(IN_TRAINING_MODE)
    assumed = {IN_EVALUATION: modes} if modes and spec.pairs != STREAM else {}
    seed = derive(spec.seed, QUESTION, "cheap")
    for name, matched in ((CHEAP, True), (CHEAP_PLACEBO, False)):
        yield CheckpointFigure(name, cheap_information(parts.fitting, seed=seed, matched=matched))
    for token, method in product(spec.token, spec.estimator):
        own, settings = _of_critic(parts, at, spec, token, method)
        for one in _figures(spec, own, settings, token, method):
            yield replace(one, details=one.details | assumed)


def _of_critic(
    parts: PairSplit, at: ModelCheckpoint, spec: TimelineSpec, token: str, method: str
) -> tuple[PairSplit, CriticSettings]:
    """Return the pairs and the settings of one token and one estimator."""
    given = {"critic": spec.critic, "scale": spec.scale}
    settings = settings_of(token, method, iterations=spec.critic_iterations, **given)
    if spec.pairs == STREAM_TO_CHECKPOINT:
        parts = _taught_by_the_stream(parts, at, spec, method)
        if method == PAPER:
            settings = CriticSettings.paper(token, pairs=len(pairs_of(at.pairs)))
    elif method == PAPER:
        parts = _paper_pairs(parts, spec)
    return parts, _fitting(parts, settings)


def smallest_planted(
    prepared: TokensPrepared,
    at: ModelCheckpoint,
    *,
    token: str,
    method: str,
    ends: Callable[[Estimate], Estimate],
) -> dict[str, Any]:
    """Return the smallest planted leak that a critic sees at one checkpoint, as a detail.

    The pairs are those of the checkpoint, with gradients of other data; see ``planting``.

    Args:
        prepared: the run.
        at: the checkpoint.
        token: token of the critic.
        method: its estimator.
        ends: widens an interval as that of the run's figure.
    """
    spec = prepared.spec
    with one_thread():
        parts = _parts(prepared, at, *at.task(prepared.task))
        assert parts is not None
        parts, settings = _of_critic(parts, at, spec, token, method)
        seed = derive(spec.seed, QUESTION, "planted", token, method)
        plant = planter(parts, seed=seed)

        def sees(nats: float) -> bool:
            found = estimate_information(plant(nats), settings, seed=seed, device=spec.device)
            return ends(found.bound).low > 0

        least = unseen_below(sees, (*PLANTED, math.inf))
    return {SMALLEST_SEEN: f"{least:g}" if math.isfinite(least) else NONE_SEEN}


def _parts(
    prepared: TokensPrepared, at: ModelCheckpoint, task: Task, params: Params
) -> PairSplit | None:
    spec = prepared.spec
    if spec.pairs == STREAM:
        return split_stream(pairs_of(at.pairs)) if at.pairs else None
    seed = derive(spec.seed, QUESTION, "pairs")
    return checkpoint_parts(
        task, params, private_records(prepared), gathering(prepared, at), seed=seed
    )


def gathering(prepared: TokensPrepared, at: ModelCheckpoint) -> Gathering:
    """Return the settings of the pairs at a checkpoint."""
    spec = prepared.spec
    return Gathering(
        layers=prepared.layers,
        batch_size=spec.batch_size,
        features=prepared.features,
        width=spec.width,
        defense=defense_of(spec, at.defense),
    )


def private_records(prepared: TokensPrepared) -> Dataset:
    """Return the private records for pairs, the same at every checkpoint."""
    spec = prepared.spec
    need = fewest_records(spec.batch_size)
    if prepared.data.users is not None:
        need = round(ROOM * need)
    drawn = stream(spec.seed, QUESTION, "records").permutation(len(prepared.private))
    kept = torch.from_numpy(drawn[: max(spec.records, need)])
    return prepared.rows(prepared.private[kept.sort().values])


def _paper_pairs(parts: PairSplit, spec: TimelineSpec) -> PairSplit:
    """Return the parts with the paper's 200 batches to fit on; the others stay held out."""
    generator = torch_stream(spec.seed, QUESTION, "paper's pairs")
    few = parts.fitting.draw(PAIRS_OF_PAPER, generator)
    return PairSplit(FixedPairs(few), parts.stopping, parts.reporting)


def _taught_by_the_stream(
    parts: PairSplit, at: ModelCheckpoint, spec: TimelineSpec, method: str
) -> PairSplit:
    """Return the parts with the pairs of the whole training to fit on.

    The paper: 'during the training process of the monitored model, the trainer continuously
    collects data-gradient pairs to train the MINE network'; then, at checkpoints, 'we extract 200
    batches of data from the training set', and 'using the trained MINE network, we estimate the
    mutual information'. It shuffles gradients over all pairs, so neighbours here come from any two
    steps. Its method reports on 200 batches at the checkpoint, of records that the training saw.
    The other methods report on the checkpoint's held-out records, whose batches the training saw
    too.

    References:
        Privacy Tokens, sections 3.3 and 4.2.1.
    """
    rng = torch_stream(spec.seed, QUESTION, "order of the stream's pairs")
    kept = pairs_of(at.pairs)
    stream = FixedPairs(FixedPairs(kept).draw(len(kept), rng))  # in a random order
    if method != PAPER:
        return PairSplit(stream, parts.stopping, parts.reporting)
    rng = torch_stream(spec.seed, QUESTION, "pairs to evaluate")
    drawn = parts.fitting.draw(PAIRS_OF_PAPER, rng)
    return PairSplit(stream, parts.stopping, FixedPairs(drawn))


def _fitting(parts: PairSplit, settings: CriticSettings) -> CriticSettings:
    """Return settings with groups that are small enough for a stream's held-out pairs."""
    if not isinstance(parts.reporting, FixedPairs):
        return settings
    return replace(settings, group=max(2, min(settings.group, len(parts.reporting.pairs) // 4)))


def _figures(
    spec: TimelineSpec, parts: PairSplit, settings: CriticSettings, token: str, method: str
) -> Iterator[CheckpointFigure]:
    seed = derive(spec.seed, QUESTION, "critic", token, method)
    found = estimate_information(parts, settings, seed=seed, device=spec.device)
    placebo = estimate_information(parts, settings, seed=seed, matched=False, device=spec.device)
    details = {
        "token": token,
        "estimator": method,
        "limit, nats": f"{found.limit:.4g}" if math.isfinite(found.limit) else "none",
        "limited by its sample": "yes" if found.is_limited else "no",
        "iterations of the critic": str(found.iterations),
        "iterations allowed": str(settings.iterations),
    }
    single = {IN_SAMPLE: found.in_sample, GAP_IN_SAMPLE: found.gap_in_sample}
    estimates = {
        INFORMATION: found.bound,
        GAP: found.critic_gap,
        MATCHED: found.matched,
        MISMATCHED: found.mismatched,
        **{name: Estimate(one, one, one, found.bound.n) for name, one in single.items()},
        PLACEBO: placebo.bound,
        GAP_PLACEBO: placebo.critic_gap,
    }
    for name, one in estimates.items():
        if all(map(math.isfinite, (one.value, one.low, one.high))):
            metric = of_critic(name, token, method)
            most = found.limit if name in IN_NATS and math.isfinite(found.limit) else None
            yield CheckpointFigure(metric, one, 0.0, f"{token}, {method}", details, most)
