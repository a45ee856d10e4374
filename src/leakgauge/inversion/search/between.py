"""Compares the gradients of a guess with bounds that an update shows, in place of values."""

from dataclasses import dataclass, field

from torch import Tensor

from leakgauge.core.types import Grads, Params
from leakgauge.inversion.search.objective import Objective
from leakgauge.training.first_step import GradientBounds, gradient_bounds
from leakgauge.training.recipe import Recipe

MARGIN = 0.1
"""Smallest size of a gradient of which only the sign is known, relative to its layer's. Two batches
of CIFAR-10 and a small network: 16.1 and 16.2 dB in place of 15.9 and 14.9 after Adagrad's step,
19.6 and 19.2 in place of 20.8 and 19.4 after Adam's."""


@dataclass(frozen=True, eq=False)
class Between:
    """The distance of a gradient from the nearest one within the bounds of ``gradient_bounds``.

    It is near 0 for the true records, whose gradient is within. A gradient above the bounds has no
    effect where rounding hides all but its sign. The nearest gradient is constant in the slope.

    Attributes:
        objective: compares the two.
        recipe: one step of Adam or its like.
        before: weights before it, leaf ``[*p]``.
        digits: spacing of the weights, as in ``gradient_bounds``.
    """

    objective: Objective
    recipe: Recipe
    before: Params
    digits: float = 0.0
    _last: list[tuple[Grads, GradientBounds]] = field(default_factory=list, repr=False)

    def __call__(self, guess: Grads, observed: Grads) -> Tensor:
        """Return the distance of each row, ``[N]``; ``observed`` is as of ``as_gradient``."""
        return self.objective(guess, self.nearest(guess, observed))

    def nearest(self, guess: Grads, observed: Grads) -> Grads:
        """Return the nearest gradients within the bounds, leaf ``[N, *p]``."""
        bounds = self._bounds(observed)
        return bounds.nearest({name: guess[name].detach() for name in observed}, MARGIN)

    def _bounds(self, observed: Grads) -> GradientBounds:
        """Return the bounds; a search compares with the same update at each of its iterations."""
        if self._last and self._last[0][0] is observed:
            return self._last[0][1]
        keep, gain = self.recipe.rule.response(self.recipe.rates)
        change = {
            name: gain * leaf + (keep - 1) * self.before[name] for name, leaf in observed.items()
        }
        found = gradient_bounds(self.recipe, self.before, change, digits=self.digits)
        self._last[:] = [(observed, found)]
        return found
