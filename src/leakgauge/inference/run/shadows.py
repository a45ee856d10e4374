"""What the adversary learns from in a round, and the defense of the round."""

from collections.abc import Mapping
from dataclasses import replace

import torch

from leakgauge.core.knowledge import ADAPTIVE, STATIC
from leakgauge.core.rng import derive, stream, torch_stream
from leakgauge.core.types import Params
from leakgauge.defenses import Defense
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.sharing import Shared
from leakgauge.inference.adversaries.views import Flat
from leakgauge.inference.run.stage import Stage
from leakgauge.inference.settings import FRESH

LEARN_BATCHES = 1000
"""Public batches that a defender learns from in each round, if they fit into memory."""


def shadows_of_round(
    stage: Stage, number: int, params: Params, defense: Defense
) -> Mapping[str, Shadow]:
    """Return what the adversary learns from, by its knowledge: static and adaptive.

    The attacks share what they observe of it.
    """
    clean = shadow_of_round(stage, number, params)
    asked = (getattr(attack, "view", None) for attack in stage.attacks)
    views = [view for view in asked if view is not None]
    return {
        knowledge: replace(clean, defense=known).sharing(
            Shared(views, max_bytes=clean.max_bytes if len(stage.attacks) > 1 else 0)
        )
        for knowledge, known in ((STATIC, clean.defense), (ADAPTIVE, defense))
    }


def defense_of_round(stage: Stage, number: int, params: Params) -> Defense:
    """Return the defense of this round; some learn on public gradients at its parameters."""
    if stage.defense.learn is None:
        return stage.defense
    return stage.learned.of_round(number, params, lambda: _learned(stage, number, params))


def shadow_of_round(stage: Stage, number: int, params: Params) -> Shadow:
    """Return the public records at the parameters of a round, without a defense."""
    settings = stage.settings
    drawn = number if settings.batches == FRESH else 0  # The same batches in every round, or not.
    shadow = stage.game.shadow(
        stage.task,
        params,
        stage.in_round(stage.public, "adversary", number),
        max_bytes=settings.max_bytes,
        noise_seed=derive(settings.seed, stage.name, "shadow noise", number),
        held_out_seed=derive(settings.seed, stage.game.name, "held out", drawn),
    )
    return replace(
        shadow, draw_seed=derive(settings.seed, stage.game.name, "shadow batches", number)
    )


def _learned(stage: Stage, number: int, params: Params) -> Defense:
    shadow = shadow_of_round(stage, number, params)
    size = sum(leaf.numel() for leaf in params.values())
    batches = max(50, min(LEARN_BATCHES, stage.settings.max_bytes // (8 * size)))
    rng = stream(stage.settings.seed, stage.name, "learn", number)
    features, secret = shadow.observe(batches, view=Flat(), rng=rng)
    device = next(iter(params.values())).device
    return stage.defense.learned(
        torch.from_numpy(features).to(device),
        torch.from_numpy(secret).to(device),
        classes=shadow.values,
        generator=torch_stream(stage.settings.seed, stage.name, "learn", number),
    )
