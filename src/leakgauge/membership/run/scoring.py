"""The scores of attacks and their measurements."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leakgauge.core.rng import stream
from leakgauge.core.types import Dataset, Task
from leakgauge.gradients import params_of
from leakgauge.membership.adversaries.adversary import Floats, log_posterior
from leakgauge.membership.metrics import MEMBERS_NORM, OTHERS_NORM, TPR_AT_01_FPR
from leakgauge.membership.run.training import Norms
from leakgauge.membership.spec import QUESTION
from leakgauge.results.few_errors import tpr_interval
from leakgauge.results.measurements import (
    HEADLINE,
    CellContext,
    Estimate,
    Measurement,
)
from leakgauge.results.roc import auroc, tpr_at_fpr
from leakgauge.results.scores import (
    ACCURACY,
    AUROC,
    TRAIN_ACCURACY,
    chance,
    each_value,
    roc,
    score,
    shows_rate,
)
from leakgauge.results.scores import ScoredTrials as Trials
from leakgauge.results.statistics import Ints, histogram_of, mean_estimate
from leakgauge.runs.parts import Kept
from leakgauge.training.utility import utility_of


@dataclass(frozen=True, eq=False)
class AttackScores:
    """The log odds that one attack assigned.

    Attributes:
        targets: log odds of membership of the targets ``[n]``, members first.
        validation: log odds of the validation records, for choosing among attacks.
        seconds: computing time in seconds.
        details: ``repr`` of the attack.
    """

    targets: Floats
    validation: Floats
    seconds: float
    details: str


def encoded(scores: Sequence[AttackScores]) -> Kept:
    """Return the scores for each participant as arrays and plain values."""
    arrays: dict[str, Floats] = {}
    about: dict[str, dict[str, Any]] = {}
    for number, one in enumerate(scores):
        arrays |= {f"targets {number}": one.targets, f"validation {number}": one.validation}
        about[str(number)] = {"seconds": one.seconds, "details": one.details}
    return arrays, about


def decoded(kept: Kept) -> list[AttackScores]:
    """Return the scores that ``encoded`` converted."""
    arrays, about = kept
    return [
        AttackScores(arrays[f"targets {number}"], arrays[f"validation {number}"], **one)
        for number, one in about.items()
    ]


BLOCKS = 500
"""Largest number of groups of targets that are resampled together."""

BINS = 50
BEYOND = 30.0
"""Largest size of log odds in a histogram."""

FEWEST_OF_CLASS = 20
"""Smallest number of targets of each kind for a separate figure of a class."""


@dataclass(frozen=True, eq=False)
class Targets:
    """The target records.

    Attributes:
        member: whether each is a member ``[n]``.
        label: code of its class ``[n]``; -1 without classes.
        block: block of records that are resampled together ``[n]``: a user's, or a few at random.
        classes: names of the classes.
        validation: whether each validation record is a member.
    """

    member: NDArray[np.bool_]
    label: Ints
    block: Ints
    classes: tuple[str, ...]
    validation: NDArray[np.bool_]


def blocks_of(count: int, users: Ints | None, *, rng: np.random.Generator) -> Ints:
    """Return the block of each of ``count`` records: its user, or a random block of equal size."""
    if users is not None:
        return np.unique(users, return_inverse=True)[1]
    return rng.permutation(np.arange(count) % min(BLOCKS, count))


def score_attack(
    context: CellContext, scores: AttackScores, targets: Targets
) -> Iterator[Measurement]:
    """Yield the measurements of an attack."""
    rng = stream(context.seed, QUESTION, "bootstrap")  # the same resamples for every attack
    trials = Trials(targets.member.astype(np.int64), log_posterior(scores.targets), targets.block)
    guess, inside = chance(trials.truth, 0.5), np.clip(scores.targets, -BEYOND, BEYOND)
    figures = score(trials, majority=0.5, rng=rng)
    if shows_rate(targets.member, 0.001):
        figures[TPR_AT_01_FPR] = tpr(targets, scores.targets, 0.001)
    guess[TPR_AT_01_FPR] = guessed_rate(trials.truth, 0.001)
    for metric, estimate in figures.items():
        one = context.measurement(metric, estimate, chance=guess[metric])
        one = replace(one, details={"adversary": scores.details}, seconds=scores.seconds)
        if metric == AUROC:
            one = replace(
                one,
                curve=roc(trials),
                held_out=float(auroc(targets.validation, scores.validation)),
                histogram=histogram_of(inside[~targets.member], inside[targets.member], BINS),
            )
        yield one
    yield from _by_class(context, scores, targets, rng)


def headline(measurements: Mapping[str, list[Measurement]]) -> list[Measurement]:
    """Return the figures of the best attack on validation records, as the headline.

    The measurements are those of one defense and knowledge, by attack.
    """

    def favoured(each: list[Measurement]) -> float:
        return next(one.held_out or 0.0 for one in each if one.metric == AUROC)

    best = max(measurements.values(), key=favoured)  # the first of equal ones
    return [replace(one, round=HEADLINE) for one in best]


def tpr(targets: Targets, log_odds: Floats, rate: float) -> Estimate:
    """Return the true positive rate at a false positive rate, with an interval."""
    value = float(tpr_at_fpr(targets.member, log_odds, rate))
    ends = tpr_interval(targets.member, log_odds, targets.block, rate)
    return Estimate(value, *ends, len(targets.member))


def _by_class(
    context: CellContext, scores: AttackScores, targets: Targets, rng: np.random.Generator
) -> Iterator[Measurement]:
    """Yield the AUROC of each class with enough targets (Figures 2 and 6 have curves)."""
    for code, name in enumerate(targets.classes):
        of_class = targets.label == code
        kinds = [int((of_class & kind).sum()) for kind in (targets.member, ~targets.member)]
        blocks = np.unique(targets.block[of_class])
        if min(kinds) < FEWEST_OF_CLASS or len(blocks) < 2:
            continue
        trials = Trials(
            targets.member[of_class].astype(np.int64),
            log_posterior(scores.targets[of_class]),
            targets.block[of_class],
        )
        estimate = each_value(trials, rng=rng)[1]
        yield context.measurement(f"{AUROC}: {name}", replace(estimate, n=sum(kinds)), chance=0.5)


def guessed_rate(truth: Ints, rate: float) -> float:
    """Return the mean true positive rate at a false positive rate without leakage."""
    negatives = int((truth == 0).sum())
    return (int(rate * negatives) + 1) / (negatives + 1)


def model_measurements(
    context: CellContext, task: Task, members: Dataset, others: Dataset
) -> Iterator[Measurement]:
    """Yield the utility of the model on records that it was not trained on, and on members."""
    rng = stream(context.seed, QUESTION, "utility")
    for data, renamed in ((others, {}), (members, {ACCURACY: TRAIN_ACCURACY})):
        found = utility_of(task, params_of(task.model), data, rng=rng)
        if found is None or (renamed and found.metric not in renamed):
            continue
        metric = renamed.get(found.metric, found.metric)
        yield context.measurement(metric, found.estimate, chance=found.chance)


def norm_measurements(
    context: CellContext, norms: Norms, member: NDArray[np.bool_]
) -> Iterator[Measurement]:
    """Yield the mean gradient norm of members and of others by epoch (the paper's Figure 3)."""
    for epoch, values in norms.items():
        for metric, kind in ((MEMBERS_NORM, member), (OTHERS_NORM, ~member)):
            estimate = mean_estimate(values[kind], bounds=(0.0, np.inf))
            yield context.measurement(metric, estimate, round=int(epoch))
