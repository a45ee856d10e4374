"""The controls of a guarantee: releases that never see the record, and releases without noise."""

from dataclasses import replace

import torch

from leakgauge.core.types import Grads
from leakgauge.guarantee.run.preparing import GuaranteePrepared
from leakgauge.guarantee.spec import RANDOM
from leakgauge.runs.assessment import Controls, Variant

TRIALS = 1000
"""Releases of a control, at most."""


def noise_alone(grads: Grads, generator: torch.Generator) -> Grads:
    """Return noise that does not depend on any record: neighbours are equal."""
    return {
        name: torch.randn(leaf.shape[1:], generator=generator, dtype=leaf.dtype)
        for name, leaf in grads.items()
    }


def no_noise(grads: Grads, generator: torch.Generator) -> Grads:
    """Return the gradient itself, which reveals the version of the record."""
    return {name: leaf.mean(dim=0) for name, leaf in grads.items()}


def controls(prepared: GuaranteePrepared) -> Controls:
    """Return both controls, on a random record, which needs no search."""
    spec, source = prepared.spec, prepared.source
    cheap = replace(
        spec, trials=min(TRIALS, spec.trials), canary=RANDOM, domain=None, server_noise=None
    )
    noisy, bare = (
        replace(cheap, mechanism=f"{__name__}:{one.__name__}") for one in (noise_alone, no_noise)
    )
    same = (
        "the mechanism releases noise that never saw the (random) record, so neighbours are equal"
    )
    plain = "the mechanism releases the gradient of a random record without clip and noise"
    return Controls(Variant(noisy, source, same), Variant(bare, source, plain))
