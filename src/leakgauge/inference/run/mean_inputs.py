"""The panel's reading of a batch's mean input, from its gradients in all rounds."""

from collections.abc import Sequence

import torch

from leakgauge.core.knowledge import STATIC
from leakgauge.core.types import Params
from leakgauge.defenses import none
from leakgauge.inference.adversaries.quotients import QuotientReader
from leakgauge.inference.adversaries.round_means import (
    MOST_INPUTS,
    MOST_NUMBERS,
    linear_layer,
    means_posterior,
    public_records,
)
from leakgauge.inference.catalog import ROUND_MEANS
from leakgauge.inference.run.observing import sent_by_clients, shadow_of_round
from leakgauge.inference.run.readings import RunReading
from leakgauge.inference.run.stage import GameStage
from leakgauge.results.measurements import ACCUMULATED


def means_over_rounds(stage: GameStage, starts: Sequence[Params]) -> dict[str, RunReading]:
    """Return the reading of the mean inputs over all rounds, for the panel's sum.

    Empty under a defense, where the batch's gradient is no mean of its records'; without
    ``quotients`` in the panel, whose settings it takes; and for models whose first layer is not
    linear, or too large.

    Args:
        stage: game, trials and adversaries; each round has the same batches.
        starts: parameters at the start of each round.
    """
    readers = [one for one in stage.attacks if isinstance(one, QuotientReader)]
    names = linear_layer(starts[0])
    if names is None or stage.defense.name != none().name or not stage.compares:
        return {}
    units, inputs = starts[0][names[0]].shape
    if units * len(starts) > MOST_NUMBERS or inputs > MOST_INPUTS:
        return {}
    if not any(one.name in stage.panel for one in readers):
        return {}
    reader, (weight, bias) = readers[0], names
    shadows = [shadow_of_round(stage, at, params) for at, params in enumerate(starts, start=1)]
    known = public_records(shadows, weight, bias)
    means = known.reader(len(starts))
    total = torch.zeros(())
    for number, params in enumerate(starts, start=1):
        sent = sent_by_clients(stage, number, params, stage.trials, stage.defense)
        total = total + torch.cat([means(number, one[weight], one[bias]) for one in sent])
    posterior, held_out = means_posterior(
        shadows[-1],
        known,
        means,
        total.cpu().numpy(),
        stage.log_prior,
        batches=reader.batches,
        folds=reader.folds,
        inverse_penalty=reader.inverse_penalty,
    )
    return {f"{STATIC} {ROUND_MEANS}": RunReading(ACCUMULATED, posterior, held_out)}
