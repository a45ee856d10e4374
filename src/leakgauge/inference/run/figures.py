"""Figures of one reading, of what needs no gradient, and of the trained model."""

from collections.abc import Iterator
from dataclasses import replace

from leakgauge.core.rng import stream
from leakgauge.core.types import Params
from leakgauge.inference.run.baselines import baselines
from leakgauge.inference.run.readings import Reading
from leakgauge.inference.run.stage import Stage
from leakgauge.results import scores
from leakgauge.results.information import information_lower_bound
from leakgauge.results.measurements import ACCUMULATED, Measurement, rounds_of
from leakgauge.training.utility import utility_of


def judged_of(stage: Stage, reading: Reading) -> scores.ScoredTrials:
    """Return a reading with the truth that it is judged by."""
    trials = stage.trials
    return scores.ScoredTrials(
        trials.secret.cpu().numpy(),
        reading.log_posterior,
        trials.block.cpu().numpy(),
        None if trials.users is None else trials.users.cpu().numpy(),
    )


def scored(stage: Stage, reading: Reading, base: Measurement) -> Iterator[Measurement]:
    """Yield every metric of one reading."""
    judged = judged_of(stage, reading)
    # the same resamples for every adversary and round, so that they can be compared
    rng = stream(stage.settings.seed, stage.game.name, "bootstrap")
    chance = scores.chance(judged.truth, stage.majority)
    for metric, estimate in scores.score(judged, majority=stage.majority, rng=rng).items():
        drawn = metric == scores.AUROC and rounds_of(reading.when) is None
        curve = scores.roc(judged) if drawn else None
        held_out = reading.auroc if metric == scores.AUROC else None
        yield replace(
            base,
            metric=metric,
            estimate=estimate,
            chance=chance[metric],
            curve=curve,
            held_out=held_out,
        )
    rng = stream(stage.settings.seed, stage.game.name, "bootstrap")
    told = information_lower_bound(judged, stage.log_prior, rng=rng)
    yield replace(base, metric=scores.INFORMATION, estimate=told, chance=0.0)


def of_baselines(stage: Stage, base: Measurement) -> Iterator[Measurement]:
    """What the labels and the features of a batch tell without its gradient."""
    for name, log_posterior in baselines(stage).items():
        judged = judged_of(stage, Reading(ACCUMULATED, log_posterior))
        rng = stream(stage.settings.seed, stage.game.name, "bootstrap")
        estimates = scores.score(judged, majority=stage.majority, rng=rng)
        yield replace(
            base,
            metric=name,
            round=stage.settings.rounds,
            estimate=estimates[scores.AUROC],
            chance=0.5,
        )


def of_model(stage: Stage, final: Params, base: Measurement) -> Iterator[Measurement]:
    """What the trained model is good for; nothing where its outputs do not match the labels."""
    rng = stream(stage.settings.seed, stage.game.name, "utility")
    found = utility_of(stage.task, final, stage.test, rng=rng, ranked=True)
    if found is None:
        return
    base = replace(base, round=stage.settings.rounds)
    yield replace(base, metric=found.metric, estimate=found.estimate, chance=found.chance)
    if found.auroc is not None:
        yield replace(base, metric=scores.TASK_AUROC, estimate=found.auroc, chance=0.5)
