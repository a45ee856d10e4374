"""The mean input of a batch to the first linear layer, from its gradients in several rounds.

For inputs ``X [B, D]`` and the loss's gradients ``d_r [B, H]`` at the layer's outputs in round r,
the gradient of the weight is ``d_r' X / B``. So for any numbers ``a [R, H]``, the sum over the
rounds of ``a_r`` times that gradient is a weighted mean of the inputs: record i has the weight
``sum_r a_r . d_ri``. With ``a`` so that this is 1 for every record, it is the plain mean. One round
cannot do that: with two classes the sign of ``d_ri`` depends on the label. Over the rounds the
model changes, so that differences of rounds have one sign.

``a`` has as many numbers as all rounds have units, often more than there are public records. It
needs no secrets, so it is fitted on made-up records too, whose gradients anyone who has the model
can compute.

Where the model's answer changes little over the rounds, the weights stay away from 1. There the
first round shows more: with ``M`` the inverse second moments of ``d_1``, and b the mean of the
batch's ``d_1``, record i has the weight ``b' M d_1i``, which is positive whatever its label, as two
records hardly overlap in this metric. A regression on public batches makes one estimate of both.
On a made table of ten numbers its relative error is .26; without the first round it is .30, and
without made-up records .50.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from leakgauge.core.rng import stream
from leakgauge.core.types import Dataset, Params
from leakgauge.gradients import params_of, per_example_gradients
from leakgauge.gradients.batching import slices
from leakgauge.gradients.probing import private
from leakgauge.inference.adversaries.adversary import with_prior
from leakgauge.inference.adversaries.calibration import (
    HeldOut,
    fit_slope,
    held_out_folds,
    two_sided,
)
from leakgauge.inference.adversaries.layer_inputs import (
    decorrelated,
    layer_with_bias,
    quotient,
    single_gradients,
)
from leakgauge.inference.adversaries.logistic import regression_of
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.results.statistics import Floats, Ints

RIDGES = (1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Ridges of the numbers ``a``, relative to the mean square of ``d``; public records choose."""

MOST_NUMBERS, MOST_INPUTS = 4096, 1024
"""Largest numbers of units over all rounds, and of inputs; a larger layer is not read: the system
of equations and the means of all trials would not fit into memory."""

MADE_UP, FEWEST_MADE_UP, MANY_NUMBERS = 24, 6, 1024
"""Made-up records for each public one, at most and at least. There are fewer where ``a`` has many
numbers, as the time grows with their square."""

AT_ONCE = 1 << 24
"""Gradients at single outputs that are in memory at once."""


def linear_layer(params: Params) -> tuple[str, str] | None:
    """Return the names of weight and bias of the first linear layer; None behind others.

    >>> linear_layer({"0.weight": torch.ones(3, 2), "0.bias": torch.ones(3)})
    ('0.weight', '0.bias')
    """
    names = layer_with_bias(params)
    first = next(iter(params))
    return names if names is not None and names[0] == first and params[first].dim() == 2 else None


@dataclass(frozen=True, eq=False)
class Moments:
    """First and second moments of gradients at the outputs.

    Attributes:
        first: sum of the gradients ``[R H]``.
        second: sum of their outer products ``[R H, R H]``.
    """

    first: Tensor
    second: Tensor

    @classmethod
    def of(cls, outputs: Tensor) -> "Moments":
        """Return the moments of gradients ``[n, R H]``."""
        return cls(outputs.sum(0), outputs.T @ outputs)

    def __add__(self, other: "Moments") -> "Moments":
        return Moments(self.first + other.first, self.second + other.second)

    def weights(self, ridges: Sequence[float]) -> list[Tensor]:
        """Return ``a [R H]`` for each ridge."""
        size = self.second.diagonal().mean()
        unit = torch.eye(len(self.second), dtype=self.second.dtype, device=self.second.device)
        found = []
        for ridge in ridges:
            factor, _ = torch.linalg.cholesky_ex(self.second + ridge * size * unit)
            found.append(torch.cholesky_solve(self.first[:, None], factor)[:, 0])
        return found


@dataclass(frozen=True, eq=False)
class PublicRecords:
    """What the gradients of single public records show of the layer.

    Attributes:
        inputs: inputs to the layer ``[m, D]``, float64; zeros where no gradient shows them.
        outputs: gradients at the outputs in all rounds ``[m, R H]``, float64.
        made_up: the same of made-up records, as moments.
    """

    inputs: Tensor
    outputs: Tensor
    made_up: Moments

    def reader(self, rounds: int) -> "MeanReader":
        """Return the reader, with the ridge that is best for records it was not fitted on."""
        halves = self.outputs[::2], self.outputs[1::2]
        errors = torch.zeros(len(RIDGES), dtype=torch.float64)
        for fitted, others in (halves, halves[::-1]):
            found = (self.made_up + Moments.of(fitted)).weights(RIDGES)
            errors += torch.stack([(others @ a - 1).square().sum() for a in found]).cpu()
        best = RIDGES[int(errors.argmin())]
        (numbers,) = (self.made_up + Moments.of(self.outputs)).weights([best])
        first = decorrelated(self.outputs[:, : len(numbers) // rounds], noise=0.0)
        return MeanReader(numbers.view(rounds, -1), first @ first.T)


@dataclass(frozen=True, eq=False)
class MeanReader:
    """Two estimates of the mean input of a batch.

    Attributes:
        numbers: ``a [R, H]``.
        metric: ``M [H, H]``.
    """

    numbers: Tensor
    metric: Tensor

    def __call__(self, number: int, weight: Tensor, bias: Tensor) -> Tensor:
        """Return what a round adds to both estimates ``[n, 2 D]``.

        Args:
            number: number of the round, from 1 on; the second estimate is that of the first round.
            weight: gradients of the weight ``[n, H, D]``.
            bias: gradients of the bias ``[n, H]``.
        """
        weight, bias = weight.double(), bias.double()
        found = torch.einsum("h,nhd->nd", self.numbers[number - 1], weight)
        if number > 1:
            return torch.cat([found, torch.zeros_like(found)], dim=1)
        return torch.cat([found, quotient(weight, bias, bias @ self.metric)], dim=1)

    def of_records(self, known: PublicRecords, rows: Ints) -> Floats:
        """Return both estimates ``[n, 2 D]`` for batches of public records ``[n, B]``.

        Without a defense the gradient of a batch is the mean of its records'.
        """
        weights = known.outputs @ self.numbers.flatten()
        firsts = known.outputs[:, : len(self.metric)]
        found = []
        most = max(1, AT_ONCE // (rows.shape[1] * firsts.shape[1]))
        for part in torch.split(torch.from_numpy(rows).to(weights.device), most):
            inputs, first = known.inputs[part], firsts[part]
            shares = (first @ (first.mean(1) @ self.metric)[:, :, None])[:, :, 0]
            second = quotient(inputs, torch.ones_like(shares), shares)
            found.append(torch.cat([(weights[part][:, :, None] * inputs).mean(1), second], dim=1))
        return torch.cat(found).cpu().numpy()


def public_records(shadows: Sequence[Shadow], weight: str, bias: str) -> PublicRecords:
    """Return the public records of a shadow for each round."""
    outputs, sums, squares = [], torch.zeros(()), torch.zeros(())
    for shadow in shadows:
        products, own = single_gradients(shadow, weight, bias)
        sums, squares = sums + products, squares + own.square().sum(1, keepdim=True)
        outputs.append(own)
    inputs, seen = torch.where(squares > 0, sums / squares, 0.0), torch.cat(outputs, dim=1)
    return PublicRecords(inputs, seen, moments_of_made_up(shadows, bias))


def moments_of_made_up(shadows: Sequence[Shadow], bias: str) -> Moments:
    """Return the moments over several made-up records for each public one."""
    data, seed = shadows[0].data, shadows[0].draw_seed
    numbers = len(shadows) * shadows[0].params[bias].numel()
    count = min(MADE_UP, max(FEWEST_MADE_UP, MADE_UP * MANY_NUMBERS // numbers))
    sets = [made_up(data, rng=stream(seed, "made-up records", at)) for at in range(count)]
    found = []
    for part in slices(count, max(1, AT_ONCE // (numbers * len(data)))):
        x, y = (torch.cat([getattr(one, of) for one in sets[part]]) for of in ("x", "y"))
        each = [output_gradients(shadow, bias, x, y) for shadow in shadows]
        found.append(Moments.of(torch.cat(each, dim=1)))
    return sum(found[1:], start=found[0])


def output_gradients(shadow: Shadow, bias: str, x: Tensor, y: Tensor) -> Tensor:
    """Return the gradients of records at the layer's outputs ``[n, H]``, float64.

    They are those of its bias. All other parameters are fixed, so that nothing else is computed.
    """
    task = private(shadow.task, shadow.params)
    for name, value in task.model.named_parameters():
        value.requires_grad_(name == bias)
    own = params_of(task.model)
    return per_example_gradients(task, own, x, y, max_bytes=shadow.max_bytes)[bias].double()


def made_up(data: Dataset, *, rng: np.random.Generator) -> Dataset:
    """Return as many records, whose inputs mix two records each, with the label of a third."""
    one, label = (torch.from_numpy(rng.permutation(len(data))).to(data.y.device) for _ in range(2))
    own = torch.from_numpy(rng.random(tuple(data.x.shape)) < 0.5).to(data.x.device)
    return replace(data, x=torch.where(own, data.x, data.x[one]), y=data.y[label])


def means_posterior(
    shadow: Shadow,
    known: PublicRecords,
    reader: MeanReader,
    trials: Floats,
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
        reader: estimates the mean input of a batch.
        trials: both estimates of the trials' batches ``[N, 2 D]``.
        log_prior: ``[m]``.
        batches: number of shadow batches to fit, and of held-out ones.
        folds: number of folds of the public records.
        inverse_penalty: scikit-learn's C.
    """

    def fitted(rows: Ints, secret: Ints) -> Any:
        """Return a classifier of the mean that a regression makes of both estimates."""
        both, inputs = reader.of_records(known, rows), known.inputs.cpu().numpy()
        ridge = make_pipeline(StandardScaler(), Ridge()).fit(both, inputs[rows].mean(1))

        def mean(seen: Floats) -> Floats:
            found: Floats = ridge.predict(seen)  # without an axis for a single input
            return found.reshape(len(seen), -1)

        model = regression_of(mean(both), secret, inverse_penalty)
        return lambda seen: two_sided(model.decision_function(mean(seen)))

    scores: list[Floats] = []
    truth: list[Ints] = []
    for part in held_out_folds(shadow, folds=folds, batches=batches):
        _, rows, secret = shadow.only(part.rest).batches(batches)
        scores.append(fitted(part.rest[rows], secret)(reader.of_records(known, part.batches)))
        truth.append(part.secret)
    held_out = HeldOut(np.concatenate(scores), np.concatenate(truth))
    slope = fit_slope(held_out)
    _, rows, secret = shadow.batches(batches)
    odds = fitted(rows, secret)(trials)
    return with_prior(slope * odds, log_prior), held_out.scaled(slope)
