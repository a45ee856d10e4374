"""The inputs of a batch to a linear layer, as far as the layer's gradient shows them.

For inputs ``X [B, D]`` and the loss's gradients ``D [B, H]`` at the layer's outputs, the gradients
of weight and bias together are ``A = D' [X, 1] / B``. So the quotient of a row of the weight's
gradient by the bias's is a weighted mean of the batch's inputs, with weights of both signs.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.types import Grads, Params
from leakgauge.inference.adversaries.record_gradients import sent_alone
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.views import small_leaves

SHARES = (1e-3, 3e-2)
"""Squared singular values below these shares of their sum count less and less."""

RIDGE = 1e-3
"""Ridge on the second moments of the gradients at the outputs, relative to their mean."""

INPUT_RIDGE = 1e-2
"""Ridge on the covariance of the inputs, relative to the mean variance."""

MOST_WHITENED = 512
"""Inputs up to this number are whitened together; more of them each by its own deviation."""

MOST_INPUTS, MOST_OUTPUTS = 4096, 2048
"""Largest numbers of inputs and outputs of a layer that is read; a larger one is passed over."""

FEWEST_DIRECTIONS = 32
"""Directions of the outputs that a projection keeps, at least; else two for each record."""


def layer_with_bias(params: Params) -> tuple[str, str] | None:
    """Return the names of weight and bias of the first layer that is read; None without one.

    It has both, at most ``MOST_INPUTS`` weights for each output, and ``MOST_OUTPUTS`` outputs.

    >>> sorted(layer_with_bias({"0.weight": torch.ones(3, 2), "0.bias": torch.ones(3)}))
    ['0.bias', '0.weight']
    """
    for name, leaf in params.items():
        layer, _, kind = name.rpartition(".")
        bias = f"{layer}.bias" if layer else "bias"
        if kind == "weight" and leaf.dim() > 1 and bias in params and _is_read(leaf):
            return name, bias
    return None


def _is_read(weight: Tensor) -> bool:
    return len(weight) <= MOST_OUTPUTS and weight[0].numel() <= MOST_INPUTS


@dataclass(frozen=True, eq=False)
class LayerInputs:
    """Estimates of the mean input of a batch to a layer, and the small leaves of the gradient.

    The rows of A are made uncorrelated and of equal size over the public records, so that two
    records hardly overlap: ``A'A`` is then nearly a weighted sum of ``[x, 1]' [x, 1]``, and its
    last column a weighted mean of the inputs with positive weights, whatever the labels. It is the
    first estimate. The weights are squared gradients: a record that the model is sure of counts
    little.

    If a batch has fewer records than the layer has inputs, the others divide these weights away:
    for a small t, ``(A'A + t)^-1 A'A`` is nearly the projection on the span of the batch's inputs,
    whatever the weights. Its last column is the point between the batch's records that is nearest
    to the public mean, in units of the public covariance. A larger t leaves this point nearer to
    the weighted mean.

    Attributes:
        weight: name of the layer's weight ``[H, *D]``.
        bias: name of its bias ``[H]``.
        outputs: matrix ``[H, H]`` that makes the rows uncorrelated, largest directions first.
        kept: number of these directions that the projections use; 0 for no projection.
        centre: public mean of the inputs ``[D]``.
        inputs: matrix ``[D, D]`` that whitens the inputs, or a factor for each ``[D]``.
        shares: values of t, ascending, relative to the trace of ``A'A``.
    """

    weight: str
    bias: str
    outputs: Tensor
    kept: int
    centre: Tensor
    inputs: Tensor
    shares: tuple[float, ...] = SHARES

    def __call__(self, grads: Grads) -> Tensor:
        """Return features ``[n, k D + s]`` of gradients with leaves ``[n, *p]``, k 1 or 3.

        A gradient without any bias, as a defense may leave it, tells no mean input: 0.
        """
        bias, weight = grads[self.bias], grads[self.weight].flatten(2)
        scale = bias.abs().amax(dim=1)[:, None]
        divides = scale > 0
        scale = torch.where(divides, scale, 1.0)
        ones = (bias / scale) @ self.outputs
        found = [quotient(weight, bias, ones @ self.outputs.T)]
        if self.kept:
            rows = self.outputs[:, : self.kept].T @ weight / scale[:, :, None]
            found += self._projections(rows, ones[:, : self.kept])
        told = [torch.where(divides, one.to(bias.dtype), 0.0) for one in found]
        return torch.cat([*told, *small_leaves(grads)], dim=1)

    def _projections(self, rows: Tensor, ones: Tensor) -> list[Tensor]:
        """Return a last column ``[n, D]`` for each share, from the inner products of rows.

        Args:
            rows: uncorrelated rows of the weight's gradients ``[n, k, D]``; overwritten.
            ones: those of the bias ``[n, k]``.
        """
        rows -= ones[:, :, None] * self.centre
        rows = (rows @ self.inputs if self.inputs.dim() == 2 else rows * self.inputs).double()
        ones = ones.double()
        gram = torch.baddbmm(ones[:, :, None] * ones[:, None, :], rows, rows.mT)
        diagonal = gram.diagonal(dim1=1, dim2=2)
        size = diagonal.sum(1, keepdim=True).clamp_min(torch.finfo(gram.dtype).tiny)
        found, added = [], 0.0
        for share in self.shares:
            diagonal += (share - added) * size
            added = share
            factor, _ = torch.linalg.cholesky_ex(gram)
            solved = torch.cholesky_solve(ones[:, :, None], factor)[:, :, 0]
            found.append(quotient(rows, ones, solved))
        return found


def quotient(rows: Tensor, ones: Tensor, by: Tensor) -> Tensor:
    """Return ``by' rows / by' ones`` ``[n, D]``."""
    whole = (by * ones).sum(1, keepdim=True).clamp_min(torch.finfo(ones.dtype).tiny)
    return (by[:, None, :] @ rows)[:, 0] / whole


def layer_inputs(shadow: Shadow) -> LayerInputs | None:
    """Return the view for the parameters of a shadow; None for a model without such a layer.

    It learns from the gradients of the single public records, without their secrets.
    """
    names = layer_with_bias(shadow.params)
    if names is None:
        return None
    inputs, outputs = _of_records(shadow, *names)
    noise = shadow.batch_size * shadow.defense.noise_std**2
    count = max(FEWEST_DIRECTIONS, 2 * shadow.batch_size)
    centre = inputs.mean(dim=0)
    like = shadow.params[names[1]].detach()
    return LayerInputs(
        *names,
        outputs=decorrelated(outputs, noise).to(like),
        kept=count if shadow.batch_size <= inputs.shape[1] else 0,
        centre=centre.to(like),
        inputs=_whitening(inputs - centre).to(like),
    )


def single_gradients(shadow: Shadow, weight: str, bias: str) -> tuple[Tensor, Tensor]:
    """Return what the gradients of single records show of a layer, float64.

    The gradient of the weight is ``d x'``, and that of the bias d. Only their product is kept, as
    the weight's gradients of all records can be large.

    Returns:
        The inputs of each record times ``|d|^2``, ``[N, D]``, and d ``[N, H]``.
    """
    products, outputs = [], []
    for grads in sent_alone(shadow).gradients(np.arange(len(shadow.data))[:, None]):
        found: Mapping[str, Tensor] = {name: grads[name].double() for name in (weight, bias)}
        products.append(torch.einsum("nhd,nh->nd", found[weight].flatten(2), found[bias]))
        outputs.append(found[bias])
    return torch.cat(products), torch.cat(outputs)


def _of_records(shadow: Shadow, weight: str, bias: str) -> tuple[Tensor, Tensor]:
    """Return the records' inputs ``[N, D]`` and gradients at the outputs ``[N, H]``, float64."""
    products, outputs = single_gradients(shadow, weight, bias)
    square = outputs.square().sum(1, keepdim=True)
    return (products / square)[square[:, 0] > 0], outputs


def decorrelated(outputs: Tensor, noise: float) -> Tensor:
    """Return the matrix ``[H, H]`` that makes rows uncorrelated, largest directions first."""
    moments = outputs.T @ outputs / len(outputs)
    ridge = RIDGE * moments.trace() / len(moments) + noise
    values, vectors = torch.linalg.eigh(moments)
    scaled: Tensor = vectors / (values.clamp_min(0) + ridge).sqrt()
    return scaled.flip(1)


def _whitening(centred: Tensor) -> Tensor:
    """Return the matrix ``[D, D]`` that whitens inputs, or factors ``[D]`` if they are many."""
    if centred.shape[1] > MOST_WHITENED:
        variance = centred.square().mean(dim=0)
        factors: Tensor = (variance + INPUT_RIDGE * variance.mean()).rsqrt()
        return factors
    covariance = centred.T @ centred / len(centred)
    values, vectors = torch.linalg.eigh(covariance)
    ridge = INPUT_RIDGE * values.mean()
    whitening: Tensor = (vectors / (values.clamp_min(0) + ridge).sqrt()) @ vectors.T
    return whitening
