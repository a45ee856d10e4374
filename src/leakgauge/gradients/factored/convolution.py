"""Gradients of a convolution as factors: inputs convolved with output gradients."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional, grad

from leakgauge.core.types import Grads
from leakgauge.gradients.factored.base import Factors

_CONVOLVE = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_OF_WEIGHT: dict[int, Any] = {1: grad.conv1d_weight, 2: grad.conv2d_weight, 3: grad.conv3d_weight}


@dataclass(frozen=True, eq=False)
class ConvolutionFactors(Factors):
    """Gradients of a convolution with zero padding.

    Attributes:
        weight: full name of the weight.
        bias: full name of the bias; None without one.
        kernel: shape of the weight ``(out, in / groups, *k)``.
        geometry: stride, padding, dilation and groups.
        x: inputs ``[n, in, *space]``.
        dy: gradients in the outputs ``[n, out, *space]``.
    """

    stored = ("x", "dy")

    weight: str
    bias: str | None
    kernel: tuple[int, ...]
    geometry: Mapping[str, Any]
    x: Tensor
    dy: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the weight's gradient."""
        return self.kernel[0], int(torch.Size(self.kernel[1:]).numel())

    def gradient(self) -> Grads:
        """Return the gradients by name, as one large convolution with a group per record."""
        n = len(self.x)
        made = _OF_WEIGHT[self.x.dim() - 2](
            self.x.flatten(0, 1)[None],
            (n * self.kernel[0], *self.kernel[1:]),
            self.dy.flatten(0, 1)[None],
            **{**self.geometry, "groups": n * self.geometry["groups"]},
        )
        grads = {self.weight: made.reshape(n, *self.kernel)}
        return grads if self.bias is None else {**grads, self.bias: self.dy.flatten(2).sum(2)}

    def gram(self) -> Tensor:
        """Return the inner products of the records' gradients ``[n, n]``.

        For few images, unfolding their patches is faster than a convolution of many groups.
        """
        if self.x.dim() != 4:
            return super().gram()
        count, groups = len(self.x), self.geometry["groups"]
        places = {key: self.geometry[key] for key in ("dilation", "padding", "stride")}
        patches = functional.unfold(self.x, self.kernel[2:], **places)
        patches = patches.reshape(count * groups, -1, patches.shape[2])
        dy = self.dy.reshape(count * groups, self.kernel[0] // groups, -1)
        weight = (dy @ patches.mT).reshape(count, -1)
        if self.bias is None:
            return weight @ weight.T
        bias = self.dy.flatten(2).sum(2)
        return weight @ weight.T + bias @ bias.T

    def project(self, kernels: Tensor) -> Tensor:
        """Return the weight's gradient times kernels ``[n, out, k]``, by convolving the inputs."""
        count, groups = len(kernels), self.geometry["groups"]
        filters = kernels.reshape(count, *self.kernel[1:]).repeat(groups, *[1] * (self.x.dim() - 1))
        passed = _CONVOLVE[self.x.dim() - 2](self.x, filters, **self.geometry)
        passed = passed.reshape(len(self.x), groups, count, -1)
        dy = self.dy.reshape(len(self.dy), groups, self.kernel[0] // groups, -1)
        return (dy @ passed.mT).flatten(1, 2)
