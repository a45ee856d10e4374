"""The gradients of a round: those of the shadow, of the clients and of candidate batches."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch

from leakgauge.core.knowledge import ADAPTIVE, STATIC
from leakgauge.core.rng import derive, stream, torch_stream
from leakgauge.core.types import Grads, Params
from leakgauge.defenses import Defense, none
from leakgauge.inference.adversaries.adversary import Candidates
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.sharing import Shared, joined
from leakgauge.inference.adversaries.views import FlattenView, View
from leakgauge.inference.games.trials import Trials
from leakgauge.inference.run.stage import GameStage
from leakgauge.inference.words import FRESH
from leakgauge.training.observation import sent_gradients

LEARN_BATCHES = 1000
"""Maximum number of public batches that a defender learns from in each round."""


def shadows_of_round(
    stage: GameStage, number: int, params: Params, defense: Defense
) -> Mapping[str, Shadow]:
    """Return the adversary's shadow by its knowledge: static and adaptive.

    The attacks share the observed features.
    """
    clean = shadow_of_round(stage, number, params)
    room = clean.max_bytes if len(stage.attacks) > 1 else 0
    shadows = {STATIC: clean, ADAPTIVE: replace(clean, defense=defense)}
    return {
        knowledge: shadow.sharing(Shared(_views(stage, shadow), max_bytes=room))
        for knowledge, shadow in shadows.items()
    }


def _views(stage: GameStage, shadow: Shadow) -> Iterator[View]:
    """Yield the views of all attacks; some are made for the parameters of the round."""
    for attack in stage.attacks:
        make = getattr(attack, "view_on", None)
        view = getattr(attack, "view", None) if make is None else make(shadow)
        if view is not None:
            yield view


def defense_of_round(stage: GameStage, number: int, params: Params) -> Defense:
    """Return the defense of this round, which may be learned on public gradients."""
    if stage.defense.learn is None:
        return stage.defense
    return stage.learned.of_round(number, params, lambda: _learned(stage, number, params))


def shadow_of_round(stage: GameStage, number: int, params: Params) -> Shadow:
    """Return the public records at the parameters of a round, without a defense."""
    spec = stage.spec
    drawn = number if spec.batches == FRESH else 0  # 0: the same batches in every round
    return stage.game.shadow(
        stage.task,
        params,
        stage.in_round(stage.public, "adversary", number),
        max_bytes=stage.max_bytes,
        noise_seed=derive(spec.seed, stage.name, "shadow noise", number),
        held_out_seed=derive(spec.seed, stage.game.name, "held out", drawn),
        draw_seed=derive(spec.seed, stage.game.name, "shadow batches", number),
    )


def _learned(stage: GameStage, number: int, params: Params) -> Defense:
    shadow = shadow_of_round(stage, number, params)
    size = sum(leaf.numel() for leaf in params.values())
    batches = max(50, min(LEARN_BATCHES, stage.max_bytes // (8 * size)))
    rng = stream(stage.spec.seed, stage.name, "learn", number)
    features, secret = shadow.observe(batches, view=FlattenView(), rng=rng)
    device = next(iter(params.values())).device
    seen = (torch.from_numpy(array).to(device) for array in (features, secret))
    generator = torch_stream(stage.spec.seed, stage.name, "learn", number)
    return stage.defense.learned(*seen, classes=shadow.values, generator=generator)


def sent_by_clients(
    stage: GameStage,
    number: int,
    params: Params,
    trials: Trials,
    defense: Defense,
    *,
    order: torch.Tensor | None = None,
) -> Iterator[Grads]:
    """Yield the gradients of the trials as an observer of a round receives them, chunk by chunk.

    Args:
        stage: game, trials and adversaries.
        number: number of the round.
        params: parameters of the round.
        trials: trials with the batches to send.
        defense: defense of the round.
        order: positions of the trials ``[n]`` in the order of the output; None for their own order.
            The noise of a trial does not depend on it.
    """
    spec = stage.spec
    return sent_gradients(
        stage.task,
        params,
        stage.in_round(trials.pool, "client", number),
        trials.rows,
        defense=defense,
        noise_seed=derive(spec.seed, stage.name, "noise", number),
        max_bytes=stage.max_bytes,
        secret=stage.game.known_to_defender(trials),
        only=order,
    )


def by_block(trials: Trials) -> torch.Tensor:
    """Return the positions of the trials ``[n]`` grouped by block.

    Trials of a block share its records, so a chunk of neighbours needs the gradients of few records
    and computes each of them once.
    """
    return trials.block.argsort(stable=True)


def candidates_of_trials(
    stage: GameStage,
    number: int,
    params: Params,
    defense: Defense,
    trials: Trials,
    chunk: torch.Tensor,
) -> dict[str, Candidates]:
    """Return the candidates' gradients of the trials ``chunk`` for each knowledge."""
    candidates = trials.candidates
    assert candidates is not None
    used, index = torch.unique(candidates.index[chunk], return_inverse=True)
    found = {}
    for knowledge in stage.knowledge:
        chunks = sent_gradients(
            stage.task,
            params,
            stage.in_round(candidates.pool, "candidates", number),
            candidates.rows,
            defense=none() if knowledge == STATIC else defense.without_noise(),
            noise_seed=derive(stage.spec.seed, stage.name, "candidate noise", number),
            max_bytes=stage.max_bytes,
            secret=candidates.secret,
            only=used,
        )
        found[knowledge] = Candidates(joined(list(chunks)), index)
    return found
