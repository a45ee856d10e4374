"""Reads gradients off the first step of optimizers that divide by the gradient's size.

From a state of zeros, Adam moves each coordinate by ``lr g / (|g| + eps)``, and RMSprop and Adagrad
move it alike. That is more than a sign: the difference from the full step shows the size of a
gradient until rounding hides it, at weights near 0.1 and a rate of 1e-3 for all below about 1e-3.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.core.precision import spacing
from leakgauge.core.types import Params
from leakgauge.training.recipe import Recipe
from leakgauge.training.rules import FirstStep

ARITHMETIC = 3
"""Relative error of a computed step, in units of the number format's epsilon: an optimizer rounds
about six times, each by at most half of it."""


@dataclass(frozen=True, eq=False)
class GradientBounds:
    """Lowest and highest gradient in each coordinate, leaf ``[*p]`` or ``[N, *p]``."""

    low: Mapping[str, Tensor]
    high: Mapping[str, Tensor]

    def nearest(self, grads: Params, margin: float = 0.0) -> dict[str, Tensor]:
        """Return the gradients within the bounds that are nearest to these, leaf ``[N, *p]``.

        A coordinate without an end is at least ``margin`` times the root mean square of the row's.
        """
        found = {}
        for name, leaf in grads.items():
            low, high = self.low[name], self.high[name]
            least = margin * leaf.flatten(1).square().mean(1).sqrt()
            least = least.view(-1, *[1] * (leaf.dim() - 1))
            low = torch.where(high.isposinf(), torch.maximum(low, least), low)
            high = torch.where(low.isneginf(), torch.minimum(high, -least), high)
            found[name] = leaf.clamp(low, high)
        return found


def first_step(recipe: Recipe) -> FirstStep | None:
    """Return how one first step depends on the gradient; None for any other training.

    >>> from leakgauge.training.rules import AdamRule, SgdRule
    >>> first_step(Recipe((0.1,), AdamRule()))
    FirstStep(unit=1.0, eps=1e-08, coupled=0.0, decoupled=0.0)
    >>> first_step(Recipe((0.1,), SgdRule())), first_step(Recipe((0.1, 0.1), AdamRule()))
    (None, None)
    """
    return recipe.rule.first_step() if len(recipe) == 1 else None


def gradient_bounds(
    recipe: Recipe, before: Params, change: Params, *, digits: float = 0.0
) -> GradientBounds:
    """Return the bounds of the gradient that made a change in one first step.

    They allow for the rounding of the weights, also where the change itself was sent. A coordinate
    that did not move had a gradient of 0, or one that rounding hides.

    Args:
        recipe: one step, for which ``first_step`` is known.
        before: weights before, leaf ``[*p]``.
        change: after minus before, leaf ``[*p]`` or ``[N, *p]``.
        digits: spacing of the weights, relative to them, where it is above that of their type.
    """
    step = first_step(recipe)
    assert step is not None
    (rate,) = recipe.rates
    low, high = {}, {}
    for name, leaf in change.items():
        weight, moved = before[name].double(), leaf.double()
        error = rounding(before[name], leaf, digits) / 2
        if step.decoupled:
            error = 2 * error  # the decay is rounded by itself
        error = error + ARITHMETIC * torch.finfo(leaf.dtype).eps * moved.abs()
        # What is left is -rate * unit * g / (|g| + eps), and ``eps`` is already in units of g.
        share = -(moved + rate * step.decoupled * weight) / (rate * step.unit)
        share = share.clamp(-1, 1)  # beyond by rounding; no bound may be infinite on both sides
        error = error / (rate * step.unit)
        decay = step.coupled * weight
        low[name] = (_size(share - error, step.eps) - decay).to(leaf.dtype)
        high[name] = (_size(share + error, step.eps) - decay).to(leaf.dtype)
    return GradientBounds(low, high)


def _size(share: Tensor, eps: float) -> Tensor:
    """Return g where ``g / (|g| + eps)`` is known; without end from 1 on."""
    rest = 1 - share.abs()
    return torch.where(rest > 0, eps * share / rest.clamp(min=1e-300), share.sign() * torch.inf)


def rounding(before: Tensor, change: Tensor, digits: float = 0.0) -> Tensor:
    """Return the spacing of the number format at the larger of the weights before and after.

    ``digits`` is as in ``gradient_bounds``.
    """
    largest = torch.maximum(before.double().abs(), (before + change).double().abs())
    return spacing(largest, max(digits, torch.finfo(before.dtype).eps))
