"""The rounds of a stage: training, and an attack on each round's gradients."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from leakgauge.core.checks import InputError
from leakgauge.core.knowledge import ADAPTIVE, STATIC
from leakgauge.core.rng import derive, stream, torch_stream
from leakgauge.core.threads import one_thread
from leakgauge.core.types import Grads, Params
from leakgauge.defenses import Defense, none
from leakgauge.gradients import params_of
from leakgauge.inference import (
    Adversary,
    AnyAttack,
    CandidateAdversary,
    CandidateAttack,
    Shadow,
    Trials,
)
from leakgauge.inference.adversaries.calibration import HeldOut
from leakgauge.inference.adversaries.stacking import judge_held_out
from leakgauge.inference.adversaries.views import Flat
from leakgauge.inference.games.candidates import CandidateBatches, Candidates
from leakgauge.inference.run.stage import Stage, judges_candidates, told
from leakgauge.inference.spec import FRESH
from leakgauge.training import train_epoch
from leakgauge.training.observation import sent_gradients

LEARN_BATCHES = 1000
"""Public batches that a defender learns from in each round, if they fit into memory."""


@dataclass(frozen=True, eq=False)
class Played:
    """What each adversary said of one round, by its knowledge and name: ``"static forest"``.

    Attributes:
        log_posterior: ``[n, m]``.
        details: what was fitted.
        seconds: for fitting and for judging the trials.
        held_out: what it said of held-out shadow batches, where it judged any.
    """

    log_posterior: Mapping[str, NDArray[np.float64]]
    details: Mapping[str, str]
    seconds: Mapping[str, float]
    held_out: Mapping[str, HeldOut] = field(default_factory=dict)


def trajectory(scene: Stage, *, after: int = 0, params: Params | None = None) -> Iterator[Params]:
    """The parameters at the start of each round, then those at the end of the last.

    Args:
        scene: what is trained.
        after: rounds that are trained already; the iterator goes on behind them.
        params: the parameters after these; the model's own if None.
    """
    settings = scene.settings
    current = params_of(scene.task.model) if params is None else dict(params)
    if after == 0 and params is None:
        yield current
    for number in range(after + 1, settings.rounds + 1):
        with one_thread():
            current = train_epoch(
                scene.task,
                current,
                scene.in_round(scene.private, "client", number),
                lr=settings.lr,
                batch_size=settings.batch_size,
                rng=stream(settings.seed, scene.game.name, "train", number),
                defense=defense_of_round(scene, number, current),
                noise_seed=derive(settings.seed, scene.name, "train noise", number),
            )
        if not all(bool(torch.isfinite(leaf).all()) for leaf in current.values()):
            defended = scene.defense.name != "none"
            weaker = f", or weaken the defense {scene.defense.name!r}" if defended else ""
            raise InputError(
                f"training diverged in round {number} (parameters are not finite); lower the "
                f"learning rate, now {settings.lr:g}{weaker}"
            )
        yield current


def play_round(scene: Stage, number: int, params: Params) -> Played:
    """Fit every adversary at this round's parameters and let it judge the trials.

    The trials' gradients are made chunk by chunk and never held at once.
    """
    with one_thread():
        return _play_round(scene, number, params)


def _play_round(scene: Stage, number: int, params: Params) -> Played:
    defense = defense_of_round(scene, number, params)
    bench = benches(scene, number, params, defense)
    fitted: dict[str, Adversary | CandidateAdversary] = {}
    held_out, seconds = {}, {}
    for knowledge in scene.knowledge:
        for attack in scene.attacks:
            began, key = time.perf_counter(), f"{knowledge} {attack.name}"
            word = attack.name.partition(":")[0]  # The same draws, whatever its settings.
            rng = stream(scene.settings.seed, scene.game.name, "fit", word, number)
            adversary = attack.fit(bench[knowledge], scene.log_prior, rng=rng)
            told = _held_out(scene, attack, adversary, bench[knowledge], rng)
            if told is not None:
                held_out[key] = told
            fitted[key] = adversary
            seconds[key] = time.perf_counter() - began
    said = _judged(scene, number, params, defense, fitted, seconds)
    details = {key: adversary.details for key, adversary in fitted.items()}
    return Played(said, details, seconds, held_out)


def benches(scene: Stage, number: int, params: Params, defense: Defense) -> Mapping[str, Shadow]:
    """The adversary's bench by its knowledge, static and adaptive."""
    clean = _bench(scene, number, params)
    return {STATIC: clean, ADAPTIVE: replace(clean, defense=defense)}


def _held_out(
    scene: Stage,
    attack: AnyAttack,
    adversary: Adversary | CandidateAdversary,
    bench: Shadow,
    rng: np.random.Generator,
) -> HeldOut | None:
    """What it says of held-out shadow batches, where it says so anyway or is asked to."""
    at_hand = getattr(adversary, "held_out", None)
    if isinstance(attack, CandidateAttack) or isinstance(adversary, CandidateAdversary):
        # fresh rounds would pair batches of different persons, where a trial keeps its own
        return None if scene.settings.batches == FRESH else at_hand
    if isinstance(at_hand, HeldOut) or not scene.settings.stack:
        return at_hand
    return judge_held_out(attack, adversary, bench, rng=rng)


def _bench(scene: Stage, number: int, params: Params) -> Shadow:
    settings = scene.settings
    drawn = number if settings.batches == FRESH else 0  # The same batches in every round, or not.
    return scene.game.shadow(
        scene.task,
        params,
        scene.in_round(scene.public, "adversary", number),
        max_bytes=settings.max_bytes,
        noise_seed=derive(settings.seed, scene.name, "shadow noise", number),
        held_out_seed=derive(settings.seed, scene.game.name, "held out", drawn),
    )


def defense_of_round(scene: Stage, number: int, params: Params) -> Defense:
    """The defense of this round: some learn on public gradients at its parameters."""
    if scene.defense.learn is None:
        return scene.defense
    return scene.learned.of_round(number, params, lambda: _learned(scene, number, params))


def _learned(scene: Stage, number: int, params: Params) -> Defense:
    bench = _bench(scene, number, params)
    size = sum(leaf.numel() for leaf in params.values())
    batches = max(50, min(LEARN_BATCHES, scene.settings.max_bytes // (8 * size)))
    rng = stream(scene.settings.seed, scene.name, "learn", number)
    features, secret = bench.observe(batches, view=Flat(), rng=rng)
    device = next(iter(params.values())).device
    return scene.defense.learned(
        torch.from_numpy(features).to(device),
        torch.from_numpy(secret).to(device),
        classes=bench.values,
        generator=torch_stream(scene.settings.seed, scene.name, "learn", number),
    )


def _judged(
    scene: Stage,
    number: int,
    params: Params,
    defense: Defense,
    fitted: Mapping[str, Adversary | CandidateAdversary],
    seconds: dict[str, float],
) -> dict[str, NDArray[np.float64]]:
    settings, trials = scene.settings, scene.trials
    if settings.batches == FRESH:
        rng = stream(settings.seed, scene.game.name, "redraw", number)
        trials = scene.game.redraw(trials, rng=rng)
    trials = told(scene, trials)
    said: dict[str, list[NDArray[np.float64]]] = {name: [] for name in fitted}
    matching = {attack.name for attack in scene.attacks if judges_candidates(attack)}
    done = 0
    for grads in sent_by_clients(scene, number, params, trials, defense):
        chunk = slice(done, done + len(next(iter(grads.values()))))
        done = chunk.stop
        held = _candidates(scene, number, params, defense, trials, chunk) if matching else {}
        for key, adversary in fitted.items():
            began = time.perf_counter()
            knowledge, name = key.split(" ", 1)
            if name in matching:
                assert isinstance(adversary, CandidateAdversary)
                said[key].append(adversary.log_posterior(grads, held[knowledge]))
            else:
                assert not isinstance(adversary, CandidateAdversary)
                said[key].append(adversary.log_posterior(grads))
            seconds[key] += time.perf_counter() - began
    return {name: np.concatenate(parts) for name, parts in said.items()}


def sent_by_clients(
    scene: Stage, number: int, params: Params, trials: Trials, defense: Defense
) -> Iterator[Grads]:
    """The gradients of the trials as they are seen in a round, chunk by chunk in order."""
    settings = scene.settings
    return sent_gradients(
        scene.task,
        params,
        scene.in_round(trials.pool, "client", number),
        trials.rows,
        defense=defense,
        noise_seed=derive(settings.seed, scene.name, "noise", number),
        max_bytes=settings.max_bytes,
        secret=scene.game.known_to_defender(trials),
    )


def _candidates(
    scene: Stage, number: int, params: Params, defense: Defense, trials: Trials, chunk: slice
) -> dict[str, Candidates]:
    """The gradients of the candidates of some trials, as each knowledge makes them."""
    told = trials.candidates
    assert told is not None
    used, index = torch.unique(told.index[chunk], return_inverse=True)
    return {
        knowledge: Candidates(
            _sent_by_adversary(
                scene,
                number,
                params,
                told,
                used,
                none() if knowledge == STATIC else defense.without_noise(),
            ),
            index,
        )
        for knowledge in scene.knowledge
    }


def _sent_by_adversary(
    scene: Stage,
    number: int,
    params: Params,
    told: CandidateBatches,
    used: torch.Tensor,
    defense: Defense,
) -> Grads:
    chunks = list(
        sent_gradients(
            scene.task,
            params,
            scene.in_round(told.pool, "candidates", number),
            told.rows,
            defense=defense,
            noise_seed=derive(scene.settings.seed, scene.name, "candidate noise", number),
            max_bytes=scene.settings.max_bytes,
            secret=told.secret,
            only=used,
        )
    )
    return {name: torch.cat([chunk[name] for chunk in chunks]) for name in chunks[0]}
