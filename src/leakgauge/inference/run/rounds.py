"""Attacks on the gradients of one round, and of all rounds at once."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from leakgauge.core.rng import stream
from leakgauge.core.threads import one_thread
from leakgauge.core.types import Params
from leakgauge.defenses import Defense
from leakgauge.inference.adversaries.adversary import (
    Adversary,
    AnyAttack,
    CandidateAdversary,
    CandidateAttack,
)
from leakgauge.inference.adversaries.calibration import HeldOut
from leakgauge.inference.adversaries.joint import (
    Joint,
    Products,
    joint_posterior,
    products_of_round,
)
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.stacking import held_out_scores
from leakgauge.inference.run.mean_inputs import means_over_rounds
from leakgauge.inference.run.observing import (
    by_block,
    candidates_of_trials,
    defense_of_round,
    sent_by_clients,
    shadows_of_round,
)
from leakgauge.inference.run.readings import RunReading
from leakgauge.inference.run.stage import GameStage, with_candidates
from leakgauge.inference.words import FRESH
from leakgauge.results.measurements import ACCUMULATED
from leakgauge.results.statistics import Floats

BATCHES = 2000
"""Number of held-out shadow batches for an attack without ``batches``."""


@dataclass(frozen=True, eq=False)
class RoundResults:
    """Results of each adversary in one round, by its knowledge and name: ``"static forest"``.

    Attributes:
        log_posterior: log posteriors of the trials ``[n, m]``.
        details: settings and fitted values in words.
        seconds: time to fit and to score the trials, in seconds.
        held_out: log-odds of held-out shadow batches, if any.
    """

    log_posterior: Mapping[str, Floats]
    details: Mapping[str, str]
    seconds: Mapping[str, float]
    held_out: Mapping[str, HeldOut] = field(default_factory=dict)


@one_thread()
def attack_round(stage: GameStage, number: int, params: Params) -> RoundResults:
    """Fit every adversary at the parameters of a round, and return its posteriors of the trials.

    The gradients of the trials are computed chunk by chunk and never held at once.
    """
    defense = defense_of_round(stage, number, params)
    shadows = shadows_of_round(stage, number, params, defense)
    fitted: dict[str, Adversary | CandidateAdversary] = {}
    held_out, seconds = {}, {}
    for knowledge in stage.knowledge:
        for attack in stage.attacks:
            began, key = time.perf_counter(), f"{knowledge} {attack.name}"
            word = attack.name.partition(":")[0]  # the same draws for all settings
            rng = stream(stage.spec.seed, stage.game.name, "fit", word, number)
            adversary = attack.fit(shadows[knowledge], stage.log_prior, rng=rng)
            known = _held_out(stage, attack, adversary, shadows[knowledge], rng)
            if known is not None:
                held_out[key] = known
            fitted[key] = adversary
            seconds[key] = time.perf_counter() - began
    log_posterior = _posteriors(stage, number, params, defense, fitted, seconds)
    details = {key: adversary.details for key, adversary in fitted.items()}
    return RoundResults(log_posterior, details, seconds, held_out)


def _held_out(
    stage: GameStage,
    attack: AnyAttack,
    adversary: Adversary | CandidateAdversary,
    shadow: Shadow,
    rng: np.random.Generator,
) -> HeldOut | None:
    """Return scores of held-out shadow batches, if the fit or the settings need them."""
    known = getattr(adversary, "held_out", None)
    if isinstance(attack, CandidateAttack) or isinstance(adversary, CandidateAdversary):
        # fresh rounds would pair batches of different users
        return None if stage.spec.batches == FRESH else known
    if isinstance(known, HeldOut) or not (stage.spec.stack or stage.compares):
        return known
    batches = getattr(attack, "batches", BATCHES)
    return held_out_scores(attack, adversary, shadow, batches=batches, rng=rng)


def _posteriors(
    stage: GameStage,
    number: int,
    params: Params,
    defense: Defense,
    fitted: Mapping[str, Adversary | CandidateAdversary],
    seconds: dict[str, float],
) -> dict[str, Floats]:
    spec, trials = stage.spec, stage.trials
    if spec.batches == FRESH:
        rng = stream(spec.seed, stage.game.name, "redraw", number)
        trials = stage.game.redraw(trials, rng=rng)
    trials = with_candidates(stage, trials)
    found: dict[str, list[Floats]] = {name: [] for name in fitted}
    compared = any(isinstance(one, CandidateAdversary) for one in fitted.values())
    order, done = by_block(trials), 0
    for grads in sent_by_clients(stage, number, params, trials, defense, order=order):
        chunk = order[done : done + len(next(iter(grads.values())))]
        done += len(chunk)
        held = {}
        if compared:
            held = candidates_of_trials(stage, number, params, defense, trials, chunk)
        for key, adversary in fitted.items():
            began = time.perf_counter()
            if isinstance(adversary, CandidateAdversary):
                candidates = held[key.partition(" ")[0]]
                found[key].append(adversary.log_posterior(grads, candidates))
            else:
                found[key].append(adversary.log_posterior(grads))
            seconds[key] += time.perf_counter() - began
    back = order.argsort().cpu().numpy()
    return {name: np.concatenate(parts)[back] for name, parts in found.items()}


@one_thread()
def attack_jointly(
    stage: GameStage,
    starts: Sequence[Params],
    *,
    progress: Callable[[int], None] = lambda done: None,
) -> Mapping[str, RunReading]:
    """Return the readings of the attacks on all rounds at once.

    The gradients of the rounds are computed again, since all of them would fill a disk.

    Args:
        stage: game, trials and adversaries.
        starts: parameters at the start of each round.
        progress: called with the number of processed rounds.

    Returns:
        Readings by knowledge and name, ``"static joint"``; empty without such an attack, or if each
        round draws new batches.
    """
    if stage.spec.batches == FRESH or len(starts) < 2:
        return {}
    return {**_joint(stage, starts, progress), **means_over_rounds(stage, starts)}


def _joint(
    stage: GameStage, starts: Sequence[Params], progress: Callable[[int], None]
) -> dict[str, RunReading]:
    attacks = [attack for attack in stage.attacks if isinstance(attack, Joint)]
    if not attacks:
        return {}
    products: dict[tuple[str, str], Products] = {}
    shadows: Mapping[str, Shadow] = {}
    for number, params in enumerate(starts, start=1):
        defense = defense_of_round(stage, number, params)
        shadows = shadows_of_round(stage, number, params, defense)
        shadows = {knowledge: shadows[knowledge] for knowledge in stage.knowledge}
        for attack in attacks:
            sent = sent_by_clients(stage, number, params, stage.trials, defense)
            for knowledge, new in products_of_round(attack, shadows, sent).items():
                key = knowledge, attack.name
                products[key] = products[key] + new if key in products else new
        progress(number)
    return {
        f"{knowledge} {attack.name}": RunReading(
            ACCUMULATED,
            *joint_posterior(attack, shadow, products[knowledge, attack.name], stage.log_prior),
        )
        for attack in attacks
        for knowledge, shadow in shadows.items()
    }
