"""Figures of one reading, of the baselines, of the trained model and of the user most at risk."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from leakgauge.core.checks import require
from leakgauge.core.rng import stream
from leakgauge.core.types import Params
from leakgauge.inference.games.trials import Trials
from leakgauge.inference.metrics import BEYOND
from leakgauge.inference.run.readings import RunReading
from leakgauge.inference.run.stage import GameStage
from leakgauge.inference.words import FRESH
from leakgauge.results import scores
from leakgauge.results.information import information_lower_bound
from leakgauge.results.measurements import (
    CellContext,
    Estimate,
    Measurement,
    rounds_of,
)
from leakgauge.results.overlap import Overlap
from leakgauge.results.paired import auroc_difference
from leakgauge.results.scores import ScoredTrials, hits
from leakgauge.results.statistics import Floats, Ints, clopper_pearson
from leakgauge.training.utility import utility_of


def scored_trials(stage: GameStage, reading: RunReading) -> ScoredTrials:
    """Return a reading together with the truth."""
    return with_truth(stage.trials, reading.log_posterior)


def with_truth(trials: Trials, log_posterior: Floats) -> ScoredTrials:
    """Return log-posteriors ``[n, m]`` of trials together with the truth and what trials share."""
    users = None if trials.users is None else trials.users.cpu().numpy()
    truth, block = trials.secret.cpu().numpy(), trials.block.cpu().numpy()
    overlap = None
    if trials.units is not None:  # of users, the value is where the user stands among candidates
        overlap = Overlap.of(trials.units.cpu().numpy(), truth if users is None else None)
    return ScoredTrials(truth, log_posterior, block, users, overlap)


def scored(stage: GameStage, reading: RunReading, base: CellContext) -> Iterator[Measurement]:
    """Yield every metric of one reading."""
    trials = scored_trials(stage, reading)
    # the same resamples for every adversary and round make figures comparable
    rng = stream(stage.spec.seed, stage.game.name, "bootstrap")
    chance = scores.chance(trials.truth, stage.majority)
    for metric, estimate in scores.score(trials, majority=stage.majority, rng=rng).items():
        one = base.measurement(metric, estimate, chance=chance[metric])
        if metric == scores.AUROC:
            curve = scores.roc(trials) if rounds_of(reading.when) is None else None
            one = replace(one, curve=curve, held_out=reading.auroc)
        yield one
    rng = stream(stage.spec.seed, stage.game.name, "bootstrap")
    drawn_from = np.log(np.asarray(stage.game.prior))  # not the adversary's estimate of it
    information = information_lower_bound(trials, drawn_from, rng=rng)
    yield base.measurement(scores.INFORMATION, information)


def baseline_figures(
    stage: GameStage, alone: Mapping[str, Floats], base: CellContext
) -> Iterator[Measurement]:
    """Yield the AUROC of the labels and of the features of a batch, without its gradient.

    Args:
        stage: game and trials.
        alone: log posteriors ``[n, m]`` of the baselines by metric.
        base: where the figures belong.
    """
    for name, log_posterior in alone.items():
        trials = with_truth(stage.trials, log_posterior)
        rng = stream(stage.spec.seed, stage.game.name, "bootstrap")
        estimates = scores.score(trials, majority=stage.majority, rng=rng)
        yield base.measurement(name, estimates[scores.AUROC], chance=0.5, round=stage.spec.rounds)


def beyond_figures(
    stage: GameStage, reading: RunReading, alone: Mapping[str, Floats], base: CellContext
) -> Iterator[Measurement]:
    """Yield how much the AUROC of a reading exceeds that of each baseline on the same trials."""
    if stage.spec.batches == FRESH and stage.spec.rounds > 1:
        return  # the baselines see the batches of the first round only
    trials = scored_trials(stage, reading)
    for name, log_posterior in alone.items():
        rng = stream(stage.spec.seed, stage.game.name, "bootstrap")
        found = auroc_difference(trials, with_truth(stage.trials, log_posterior), rng=rng)
        yield base.measurement(BEYOND[name], found, chance=0.0)


def utility_figures(stage: GameStage, final: Params, base: CellContext) -> Iterator[Measurement]:
    """Yield the utility of the trained model, unless its outputs do not match the labels."""
    rng = stream(stage.spec.seed, stage.game.name, "utility")
    found = utility_of(stage.task, final, stage.test, rng=rng, ranked=True)
    if found is None:
        return
    base = replace(base, round=stage.spec.rounds)
    yield base.measurement(found.metric, found.estimate, chance=found.chance)
    if found.auroc is not None:
        yield base.measurement(scores.TASK_AUROC, found.auroc, chance=0.5)


FEWEST = 20
"""Minimum number of trials of a user: half select the user, the other half are scored."""


@dataclass(frozen=True)
class MostAtRisk:
    """The user most at risk.

    Attributes:
        user: code of the user.
        success: share of this user's batches that the adversary attributes to the user.
        of: number of compared users.
    """

    user: int
    success: Estimate
    of: int


def most_at_risk(trials: ScoredTrials, user: Ints) -> MostAtRisk | None:
    """Return the user whose batches are recognised most often; None with fewer than two users.

    The highest of many rates is high by chance. So one half of each user's trials selects the user,
    and the other half gives the figure, with an exact binomial interval: given the user, trials are
    independent draws of a batch.

    Args:
        trials: scored trials of user inference.
        user: user ``[n]`` of each trial's batch.

    Raises:
        InputError: the numbers of users and of trials differ.

    >>> truth = np.zeros(80, dtype=np.int64)
    >>> user = truth + np.arange(80) % 2
    >>> named = np.stack([user == 1, user != 1], axis=1)  # user 1 always, user 0 never
    >>> worst = most_at_risk(ScoredTrials(truth, np.log(named * 0.8 + 0.1), truth), user)
    >>> worst.user, worst.success.value, round(worst.success.low, 3), worst.success.n
    (1, 1.0, 0.832, 20)
    """
    require(
        len(user) == len(trials.truth),
        f"{len(user)} users for {len(trials.truth)} trials; expected one for each",
    )
    right = hits(trials)
    of_user = {int(one): right[user == one] for one in np.unique(user)}
    able = {one: each for one, each in of_user.items() if len(each) >= FEWEST}
    if len(able) < 2:
        return None
    chosen = max(able, key=lambda one: float(able[one][::2].mean()))
    return MostAtRisk(chosen, _share(able[chosen][1::2]), len(able))


def _share(right: np.ndarray) -> Estimate:
    n = len(right)
    wrong = n - int(right.sum())  # a tie counts as wrong
    low, high = clopper_pearson(wrong, n)
    return Estimate(1 - wrong / n, 1 - high, 1 - low, n)
