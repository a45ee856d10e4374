"""Plays one attempt: clients send, the attacker rebuilds, and the records are scored."""

import functools
import time

from torch import Tensor

from leakgauge.core.types import Grads
from leakgauge.data.decode import fits
from leakgauge.inversion.exact import recover_first_layer
from leakgauge.inversion.labels.inference import label_accuracy
from leakgauge.inversion.metrics.lpips import Lpips
from leakgauge.inversion.metrics.table import LABEL_ACCURACY
from leakgauge.inversion.run.attempt import Attempt
from leakgauge.inversion.run.baselines import baselines_of
from leakgauge.inversion.run.labelling import dealing_warnings
from leakgauge.inversion.run.over_epochs import rebuild_over_epochs
from leakgauge.inversion.run.rebuilt import Rebuilt
from leakgauge.inversion.run.scenario import Scenario
from leakgauge.inversion.run.scoring import (
    SNAPSHOTS,
    chance_of,
    curves_of,
    in_true_order,
    in_units_of_scores,
    scores_of,
)
from leakgauge.inversion.run.updates import attack_updates, in_updates
from leakgauge.inversion.search.attack import assumptions
from leakgauge.inversion.search.targets import Progress
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.training.sending import send

TOLERANCE_OF_GRADIENTS, TOLERANCE_OF_CHANGES = 1e-4, 1e-2
"""Relative differences below which two candidates are one record; changes of weights are rounder
than gradients."""


def rebuild(
    scenario: Scenario,
    attempt: Attempt,
    *,
    lpips: Lpips | None = None,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
) -> Rebuilt:
    """Return what one attempt rebuilds; the truth is used for the scores alone.

    Args:
        scenario: what is attacked.
        attempt: how.
        lpips: scores images, too.
        progress: called at each iteration.
        checkpoint: keeps the states of its searches on the way.

    Raises:
        InputError: the attack cannot be played on this model, or adapts to no such defense.
    """
    if attempt.is_exact:
        return _rebuild_exactly(scenario, attempt)
    play = rebuild_over_epochs if attempt.spec.epochs > 1 else _rebuild_by_search
    return play(scenario, attempt, lpips, progress, checkpoint)


def _rebuild_by_search(
    scenario: Scenario,
    attempt: Attempt,
    lpips: Lpips | None,
    progress: Progress | None,
    checkpoint: Checkpoint | None,
) -> Rebuilt:
    x, y = (in_updates(values, attempt.client) for values in (scenario.x, scenario.y))
    sent, search, known = attack_updates(
        scenario,
        attempt,
        scenario.params,
        x,
        y,
        seed=attempt.spec.seed,
        snapshots=SNAPSHOTS,
        progress=progress,
        checkpoint=checkpoint,
    )
    rows, spec = in_true_order(search.x, x), attempt.spec
    scores = scores_of(scenario, rows, scenario.x, lpips)
    dealt = dealing_warnings(spec.labels, attempt.settings, simulate=spec.simulate)
    assumed = assumptions(scenario.task, attempt.client, known)
    return Rebuilt(
        in_units_of_scores(scenario, rows),
        in_units_of_scores(scenario, scenario.x),
        {**scores, **_of_labels(search.labels, y)},
        curves_of(scenario, search, x),
        search.seconds_per_iteration,
        (*sent.warnings(simulated=spec.simulate), *dealt, *assumed),
        chance=chance_of(scenario),
        baselines=baselines_of(scenario, x, search.labels, lpips),
    )


def _of_labels(guess: Tensor, truth: Tensor) -> dict[str, Tensor]:
    """The share of correct labels; nothing of numbers, which are always known."""
    known = truth.is_floating_point()
    return {} if known else {LABEL_ACCURACY: label_accuracy(guess, truth)}


def _rebuild_exactly(scenario: Scenario, attempt: Attempt) -> Rebuilt:
    """Take the best supported candidates, as many as there are records; guess the rest."""
    x, y = (in_updates(values, attempt.client) for values in (scenario.x, scenario.y))
    began = time.perf_counter()
    sent = send(scenario.task, scenario.params, x, y, attempt.client, seed=attempt.spec.seed)
    rebuilt = scenario.guess.expand_as(x).clone()
    for target in range(len(x)):
        grads = {name: leaf[target : target + 1] for name, leaf in sent.grads.items()}
        candidates = _candidates(scenario, attempt, grads)
        rebuilt[target, : len(candidates)] = candidates
    rows = in_true_order(rebuilt, x)
    scores = scores_of(scenario, rows, scenario.x, None)
    seconds = time.perf_counter() - began
    return Rebuilt(
        rows,
        scenario.x,
        scores,
        {},
        seconds,
        sent.warnings(),
        chance=chance_of(scenario),
        baselines=baselines_of(scenario, x, None, None),
    )


def _candidates(scenario: Scenario, attempt: Attempt, grads: Grads) -> Tensor:
    """The recovered records of one update, ``[k, ...]``, at most as many as it has."""
    assert scenario.schema is not None
    client = attempt.client
    several = client.records > 1
    single_step = client.local_steps == 1
    recovered = recover_first_layer(
        scenario.task,
        scenario.params,
        grads,
        agree=1 if several else 2,
        tolerance=TOLERANCE_OF_GRADIENTS if single_step else TOLERANCE_OF_CHANGES,
        valid=functools.partial(fits, schema=scenario.schema) if several else None,
    )
    return recovered.x[: client.records]
