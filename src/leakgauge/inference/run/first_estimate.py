"""A first figure, seconds after the start: one adversary, one round, some of the trials."""

from dataclasses import replace

import numpy as np

from leakgauge.core.rng import stream
from leakgauge.core.threads import one_thread
from leakgauge.gradients import params_of
from leakgauge.inference.adversaries.adversary import with_prior
from leakgauge.inference.adversaries.energies import Energies
from leakgauge.inference.games.trials import Trials
from leakgauge.inference.run.figures import with_truth
from leakgauge.inference.run.observing import defense_of_round, sent_by_clients, shadow_of_round
from leakgauge.inference.run.stage import COMPARED_GAMES, GameStage
from leakgauge.results import scores
from leakgauge.results.measurements import Estimate

BATCHES = 600
"""Number of shadow batches that the adversary learns from."""

TRIALS = 1000
"""Largest number of scored trials."""

WORTH = 20_000
"""Number of trials of all rounds from which on the figures take long enough to wait for."""


def worth_it(stage: GameStage) -> bool:
    """Return whether a stage can have a first figure, and takes many times as long."""
    batches_of_all = stage.spec.rounds * len(stage.trials)
    return stage.game.name in COMPARED_GAMES and batches_of_all >= WORTH


@one_thread()
def first_estimate(stage: GameStage) -> Estimate:
    """Return the AUROC of ``energies`` on the first round, before any training.

    The adversary is that of the run with fewer shadow batches, and is not calibrated. It knows no
    defense (static).

    Args:
        stage: the stage to run.
    """
    params, some = params_of(stage.task.model), _some(stage.trials)
    score = Energies(batches=BATCHES).regress(shadow_of_round(stage, 1, params))
    sent = sent_by_clients(stage, 1, params, some, defense_of_round(stage, 1, params))
    log_odds = np.concatenate([score(grads) for grads in sent])
    trials = with_truth(some, with_prior(log_odds, stage.log_prior))
    rng = stream(stage.spec.seed, stage.game.name, "bootstrap")
    return scores.score(trials, majority=stage.majority, rng=rng)[scores.AUROC]


def in_words(stage: GameStage, estimate: Estimate) -> str:
    """Return the line that a terminal shows."""
    ends = f"{estimate.low:.3f} to {estimate.high:.3f}"
    return (
        f"preliminary: {stage.name} inference, AUROC {estimate.value:.3f} ({ends}) by energies "
        f"alone, in round 1 of {stage.spec.rounds}; the figures follow"
    )


def _some(trials: Trials) -> Trials:
    """Return every k-th trial, so that at most ``TRIALS`` remain."""
    every = slice(None, None, -(-len(trials) // TRIALS))
    return replace(
        trials,
        secret=trials.secret[every],
        rows=trials.rows[every],
        block=trials.block[every],
        users=None if trials.users is None else trials.users[every],
        units=None if trials.units is None else trials.units[every],
        candidates=None,
    )
