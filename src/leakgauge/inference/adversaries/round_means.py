"""The mean input of a batch to the first linear layer, from its gradients in several rounds.

For inputs ``X [B, D]`` and the loss's gradients ``d_r [B, H]`` at the layer's outputs in round r,
the gradient of the weight is ``d_r' X / B``. So for any numbers ``a [R, H]``, the sum over the
rounds of ``a_r`` times that gradient is a weighted mean of the inputs: record i has the weight
``sum_r a_r . d_ri``. With ``a`` so that this is 1 for every public record, it is the plain mean.
One round cannot do that: with two classes the sign of ``d_ri`` depends on the label. Over the
rounds the model changes, so that differences of rounds have one sign.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.types import Grads, Params
from leakgauge.inference.adversaries.adversary import with_prior
from leakgauge.inference.adversaries.calibration import (
    HeldOut,
    fit_slope,
    held_out_folds,
    log_loss,
    two_sided,
)
from leakgauge.inference.adversaries.layer_inputs import layer_with_bias, single_gradients
from leakgauge.inference.adversaries.logistic import regression_of
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.results.statistics import Floats, Ints

RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Ridges of the numbers ``a``, relative to the mean square of ``d``; held-out batches choose."""

MOST_NUMBERS, MOST_INPUTS = 4096, 1024
"""Largest numbers of units over all rounds, and of inputs; a larger layer is not read: the system
of equations and the means of all trials would not fit into memory."""


def linear_layer(params: Params) -> tuple[str, str] | None:
    """Return the names of weight and bias of the first linear layer; None behind others.

    >>> linear_layer({"0.weight": torch.ones(3, 2), "0.bias": torch.ones(3)})
    ('0.weight', '0.bias')
    """
    names = layer_with_bias(params)
    first = next(iter(params))
    return names if names is not None and names[0] == first and params[first].dim() == 2 else None


@dataclass(frozen=True, eq=False)
class PublicRecords:
    """What the gradients of single public records show of the layer.

    Attributes:
        inputs: inputs to the layer ``[m, D]``, float64; zeros where no gradient shows them.
        outputs: gradients at the outputs in all rounds ``[m, R H]``, float64.
    """

    inputs: Tensor
    outputs: Tensor

    def mean_weights(self) -> list[Tensor]:
        """Return ``a [R H]`` for each of ``RIDGES``."""
        moments = self.outputs.T @ self.outputs / len(self.outputs)
        size = moments.diagonal().mean()
        unit = torch.eye(len(moments), dtype=moments.dtype, device=moments.device)
        mean = self.outputs.mean(dim=0)
        return [torch.linalg.solve(moments + ridge * size * unit, mean) for ridge in RIDGES]


def public_records(shadows: Iterator[Shadow], weight: str, bias: str) -> PublicRecords:
    """Return the public records of a shadow for each round."""
    outputs, sums, squares = [], torch.zeros(()), torch.zeros(())
    for shadow in shadows:
        products, own = single_gradients(shadow, weight, bias)
        sums, squares = sums + products, squares + own.square().sum(1, keepdim=True)
        outputs.append(own)
    inputs = torch.where(squares > 0, sums / squares, 0.0)
    return PublicRecords(inputs, torch.cat(outputs, dim=1))


def weighted_gradients(grads: Grads, weight: str, numbers: list[Tensor]) -> Tensor:
    """Return a round's part of the means ``[ridges, n, D]`` of n gradients, leaf ``[n, *p]``."""
    return torch.einsum("kh,nhd->knd", torch.stack(numbers), grads[weight].double())


def means_posterior(
    shadow: Shadow,
    known: PublicRecords,
    numbers: list[Tensor],
    trials: Tensor,
    log_prior: Floats,
    *,
    batches: int,
    folds: int,
    inverse_penalty: float,
) -> tuple[Floats, HeldOut]:
    """Return log posteriors of the trials ``[N, m]``, and log-odds of held-out shadow batches.

    Args:
        shadow: public records and their secrets; no defense.
        known: what single gradients show of them.
        numbers: ``a [R H]`` for each ridge.
        trials: means of the trials' batches ``[ridges, N, D]``.
        log_prior: ``[m]``.
        batches: number of shadow batches to fit, and of held-out ones.
        folds: number of folds of the public records.
        inverse_penalty: scikit-learn's C.
    """
    # Without a defense the mean over a batch is that of its records' own parts.
    each = [((known.outputs @ a)[:, None] * known.inputs).cpu().numpy() for a in numbers]
    scores: list[list[Floats]] = [[] for _ in each]
    truth: list[Ints] = []
    for part in held_out_folds(shadow, folds=folds, batches=batches):
        _, rows, secret = shadow.only(part.rest).batches(batches)
        for found, values in zip(scores, each, strict=True):
            model = regression_of(values[part.rest[rows]].mean(1), secret, inverse_penalty)
            odds = model.decision_function(values[part.batches].mean(1))
            found.append(two_sided(odds))
        truth.append(part.secret)
    ways = [HeldOut(np.concatenate(found), np.concatenate(truth)) for found in scores]
    slopes = [fit_slope(one) for one in ways]
    losses = [log_loss(one, slope) for one, slope in zip(ways, slopes, strict=True)]
    best = int(np.argmin(losses))
    _, rows, secret = shadow.batches(batches)
    model = regression_of(each[best][rows].mean(1), secret, inverse_penalty)
    odds = two_sided(model.decision_function(trials[best].cpu().numpy()))
    return with_prior(slopes[best] * odds, log_prior), ways[best].scaled(slopes[best])
