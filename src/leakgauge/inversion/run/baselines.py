"""Guesses of the records that use no gradient: what a reconstruction must beat.

An attacker has public records of the same kind, and the labels that its attack had. A guess from
these alone is scored as a reconstruction is: in the order that fits the truth best.
"""

import torch
from torch import Tensor

from leakgauge.inversion.metrics.lpips import Lpips
from leakgauge.inversion.run.rebuilt import Scores
from leakgauge.inversion.run.scenario import Scenario
from leakgauge.inversion.run.scoring import in_true_order, scores_of
from leakgauge.inversion.words import CLASS_MEAN, MEAN, NEAREST, PUBLIC

CHUNK = 64
"""True records that are compared with all public ones at once."""


def baselines_of(
    scenario: Scenario, truth: Tensor, labels: Tensor | None, lpips: Lpips | None
) -> dict[str, Scores]:
    """Return the scores of each guess, by its name; each score ``[N]``.

    Args:
        scenario: what is attacked, with its public records.
        truth: records of the updates ``[T, B, ...]``, for the scores alone.
        labels: that the attack had, ``[T, B]``; None where it had none, or numbers.
        lpips: scores images, too.
    """
    guesses = guesses_of(scenario, truth, labels)
    rows = truth.flatten(0, 1)
    return {name: scores_of(scenario, x, rows, lpips) for name, x in guesses.items()}


def guesses_of(scenario: Scenario, truth: Tensor, labels: Tensor | None) -> dict[str, Tensor]:
    """Return the guesses by name, in the order of the truth, ``[N, ...]``.

    ``NEAREST`` alone chooses by the truth: no attacker can, so it bounds what any choice of a
    public record reaches.
    """
    rows = truth.flatten(0, 1)
    guesses = {MEAN: scenario.guess.expand_as(rows)}
    public = scenario.public.x
    if len(public) == 0:
        return guesses
    if labels is not None and not labels.is_floating_point():
        means, typical = _by_class(scenario, labels)
        guesses[CLASS_MEAN] = in_true_order(means, truth)
        guesses[PUBLIC] = in_true_order(typical, truth)
    else:
        guesses[PUBLIC] = public[_nearest(public, scenario.guess[None])].expand_as(rows)
    guesses[NEAREST] = public[_nearest(public, rows)]
    return guesses


def _by_class(scenario: Scenario, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of each label's public records, and the one of them that is nearest to it.

    Both are ``[T, B, ...]``. A label without public records gets the mean of all.
    """
    public, mean, typical = scenario.public, {}, {}
    for label in torch.unique(labels).tolist():
        own = public.x[public.y == label]
        mean[label] = own.mean(0) if len(own) else scenario.guess
        typical[label] = (own if len(own) else public.x)[_nearest(own, mean[label][None])[0]]
    flat = labels.flatten().tolist()
    shape = (*labels.shape, *scenario.guess.shape)
    return tuple(  # type: ignore[return-value]
        torch.stack([of[label] for label in flat]).view(shape) for of in (mean, typical)
    )


def _nearest(public: Tensor, rows: Tensor) -> Tensor:
    """The position of the public record with the smallest squared distance to each row ``[n]``."""
    if len(public) == 0:
        return torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
    flat = public.flatten(1)
    found = [torch.cdist(part.flatten(1), flat).argmin(1) for part in torch.split(rows, CHUNK)]
    return torch.cat(found)
