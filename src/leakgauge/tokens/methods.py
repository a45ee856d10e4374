"""How the timeline estimates information, by the names that users type; imports no torch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from leakgauge.tokens.settings import Settings
from leakgauge.tokens.words import ESTIMATORS, INFONCE, MINE, NWJ

if TYPE_CHECKING:
    from leakgauge.tokens.spec import TimelineSpec

PAPER = "paper"
"""MINE as the paper has it: a critic learns on 200 batches, and is judged on them, too."""

METHODS = (*ESTIMATORS, PAPER)
"""How the information is estimated."""

BOUNDS = (INFONCE, NWJ, MINE, PAPER)
"""Whose held-out value is a lower bound in the mean."""

PAIRS_OF_PAPER = 200
"""Batches that the paper takes at a checkpoint (section 4.2.1)."""


def settings_of(spec: TimelineSpec, token: str, method: str) -> Settings:
    """Return how a critic learns.

    Args:
        spec: of the run.
        token: one of ``TOKENS``.
        method: one of ``METHODS``.
    """
    if method == PAPER:
        return Settings.paper(token, pairs=PAIRS_OF_PAPER)
    plain = Settings(estimator=method, token=token)
    return replace(plain, critic=spec.critic, scale=spec.scale, iterations=spec.critic_iterations)
