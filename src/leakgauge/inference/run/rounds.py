"""The attack on one round's gradients."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

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
from leakgauge.inference.run.observing import (
    by_block,
    candidates_of_trials,
    defense_of_round,
    sent_by_clients,
    shadows_of_round,
)
from leakgauge.inference.run.readings import RunReading
from leakgauge.inference.run.stage import GameStage, compares_candidates, with_candidates
from leakgauge.inference.words import FRESH
from leakgauge.results.measurements import ACCUMULATED

BATCHES = 2000
"""Held-out shadow batches, for an attack that does not say how many it fits on."""


@dataclass(frozen=True, eq=False)
class RoundResults:
    """Judgements of each adversary in one round, by its knowledge and name: ``"static forest"``.

    Attributes:
        log_posterior: ``[n, m]``.
        details: what was fitted.
        seconds: for fitting and for judging the trials.
        held_out: judgements of held-out shadow batches, where there are any.
    """

    log_posterior: Mapping[str, NDArray[np.float64]]
    details: Mapping[str, str]
    seconds: Mapping[str, float]
    held_out: Mapping[str, HeldOut] = field(default_factory=dict)


def attack_round(stage: GameStage, number: int, params: Params) -> RoundResults:
    """Fit every adversary at this round's parameters and let it judge the trials.

    The trials' gradients are made chunk by chunk and never held at once.
    """
    with one_thread():
        return _attack_round(stage, number, params)


def _attack_round(stage: GameStage, number: int, params: Params) -> RoundResults:
    defense = defense_of_round(stage, number, params)
    shadows = shadows_of_round(stage, number, params, defense)
    fitted: dict[str, Adversary | CandidateAdversary] = {}
    held_out, seconds = {}, {}
    for knowledge in stage.knowledge:
        for attack in stage.attacks:
            began, key = time.perf_counter(), f"{knowledge} {attack.name}"
            word = attack.name.partition(":")[0]  # The same draws, whatever its settings.
            rng = stream(stage.spec.seed, stage.game.name, "fit", word, number)
            adversary = attack.fit(shadows[knowledge], stage.log_prior, rng=rng)
            judged = _held_out(stage, attack, adversary, shadows[knowledge], rng)
            if judged is not None:
                held_out[key] = judged
            fitted[key] = adversary
            seconds[key] = time.perf_counter() - began
    log_posterior = _judged(stage, number, params, defense, fitted, seconds)
    details = {key: adversary.details for key, adversary in fitted.items()}
    return RoundResults(log_posterior, details, seconds, held_out)


def _held_out(
    stage: GameStage,
    attack: AnyAttack,
    adversary: Adversary | CandidateAdversary,
    shadow: Shadow,
    rng: np.random.Generator,
) -> HeldOut | None:
    """Judgements of held-out shadow batches, if the fit or the settings call for them."""
    at_hand = getattr(adversary, "held_out", None)
    if isinstance(attack, CandidateAttack) or isinstance(adversary, CandidateAdversary):
        # fresh rounds would pair batches of different users, where a trial keeps its own
        return None if stage.spec.batches == FRESH else at_hand
    if isinstance(at_hand, HeldOut) or not (stage.spec.stack or stage.compares):
        return at_hand
    batches = getattr(attack, "batches", BATCHES)
    return held_out_scores(attack, adversary, shadow, batches=batches, rng=rng)


def _judged(
    stage: GameStage,
    number: int,
    params: Params,
    defense: Defense,
    fitted: Mapping[str, Adversary | CandidateAdversary],
    seconds: dict[str, float],
) -> dict[str, NDArray[np.float64]]:
    spec, trials = stage.spec, stage.trials
    if spec.batches == FRESH:
        rng = stream(spec.seed, stage.game.name, "redraw", number)
        trials = stage.game.redraw(trials, rng=rng)
    trials = with_candidates(stage, trials)
    judged: dict[str, list[NDArray[np.float64]]] = {name: [] for name in fitted}
    matching = {attack.name for attack in stage.attacks if compares_candidates(attack)}
    order, done = by_block(trials), 0
    for grads in sent_by_clients(stage, number, params, trials, defense, order=order):
        chunk = order[done : done + len(next(iter(grads.values())))]
        done += len(chunk)
        held = (
            candidates_of_trials(stage, number, params, defense, trials, chunk) if matching else {}
        )
        for key, adversary in fitted.items():
            began = time.perf_counter()
            knowledge, name = key.split(" ", 1)
            if name in matching:
                assert isinstance(adversary, CandidateAdversary)
                judged[key].append(adversary.log_posterior(grads, held[knowledge]))
            else:
                assert not isinstance(adversary, CandidateAdversary)
                judged[key].append(adversary.log_posterior(grads))
            seconds[key] += time.perf_counter() - began
    back = order.argsort().cpu().numpy()
    return {name: np.concatenate(parts)[back] for name, parts in judged.items()}


def attack_jointly(
    stage: GameStage,
    starts: Sequence[Params],
    *,
    progress: Callable[[int], None] = lambda done: None,
) -> Mapping[str, RunReading]:
    """Return what the attacks that see all rounds side by side say of the trials.

    The gradients are made anew, the same ones as in the rounds: kept, they would fill a disk.

    Args:
        stage: what is played.
        starts: the parameters at the start of each round.
        progress: called with the number of rounds that were seen.

    Returns:
        Their judgements by knowledge and name, ``"static joint"``; empty where no such attack
        plays, or each round draws its batches anew.
    """
    attacks = [attack for attack in stage.attacks if isinstance(attack, Joint)]
    if not attacks or stage.spec.batches == FRESH or len(starts) < 2:
        return {}
    products: dict[tuple[str, str], Products] = {}
    shadows: Mapping[str, Shadow] = {}
    with one_thread():
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
