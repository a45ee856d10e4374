"""How an attacker who can run a defense compares: the defended gradient of a guess."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.core.types import Grads
from leakgauge.core.user_code import one_line
from leakgauge.gradients.probing import REFUSALS

FAILURES: tuple[type[Exception], ...] = (*REFUSALS, ArithmeticError, LookupError)
"""What a user's transform may raise on gradients that it was not written for."""


@dataclass(frozen=True)
class DefendedGuess:
    """Applies a transform without its randomness to the guess, and compares the result.

    This is the attack on a transform that anybody can compute and that has a slope, such as other
    signs, another order or an offset that are the same for all.

    Attributes:
        objective: compares the defended guess with the update.
        centre: the transform without its randomness, as ``Transform.centre``.
        name: name of the transform, for messages.

    Raises:
        InputError: the transform fails on gradients that a search differentiates.
    """

    objective: Callable[[Grads, Grads], Tensor]
    centre: Callable[[Grads], Grads]
    name: str

    def __call__(self, guess: Grads, sent: Grads) -> Tensor:
        """Return the distance of each row ``[N]``."""
        try:
            defended = self.centre({name: guess[name].clone() for name in sent})
        except FAILURES as error:
            raise InputError(
                f"{self.name} cannot be applied to the gradient of a guess: {one_line(error)}; "
                "attack it with static knowledge, or define Transform.adapt"
            ) from error
        return self.objective(defended, sent)


def has_slope(centre: Callable[[Grads], Grads]) -> bool:
    """Return whether a transform without its randomness works on gradients, and has a slope.

    It is tried on the gradients of a small layer. Rounding and signs have no slope.

    >>> has_slope(lambda grads: {name: -leaf for name, leaf in grads.items()})
    True
    >>> has_slope(lambda grads: {name: leaf.sign() for name, leaf in grads.items()})
    False
    """
    generator = torch.Generator().manual_seed(0)
    shapes = {"0.weight": (2, 3, 4), "0.bias": (2, 3)}
    tried = {
        name: torch.randn(shape, generator=generator).requires_grad_()
        for name, shape in shapes.items()
    }
    try:
        with torch.enable_grad():
            found = centre({name: leaf.clone() for name, leaf in tried.items()})
            whole = torch.stack([found[name].square().sum() for name in tried]).sum()
            slopes = torch.autograd.grad(whole, list(tried.values()), allow_unused=True)
    except FAILURES:  # it needs randomness, other names, or an order that this has not
        return False
    same = all(found[name].shape == leaf.shape for name, leaf in tried.items())
    return same and any(one is not None and bool(one.any()) for one in slopes)
