"""How an attacker who can run a defense compares: the defended gradient of a guess."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.core.types import Grads
from leakgauge.core.user_code import one_line
from leakgauge.gradients.vectorising import REFUSALS

FAILURES: tuple[type[Exception], ...] = (*REFUSALS, ArithmeticError, LookupError)
"""What a user's transform may raise on gradients that it was not written for."""

_TRIED = 5  # gradients whose distances are compared


@dataclass(frozen=True)
class DefendedGuess:
    """Applies a transform without its randomness to the guess, and compares the result.

    This is the attack on a transform that anybody can compute, such as other signs, another order
    or an offset that are the same for all. Where it has no slope, as rounding, the search goes as
    if the transform were the identity (a straight-through estimate); the comparison is the same.

    Attributes:
        objective: compares the defended guess with the update.
        centre: the transform without its randomness, as ``Transform.centre``.
        name: name of the transform, for messages.
        slope: whether the transform has a slope to follow.

    References:
        Athalye, Carlini and Wagner, Obfuscated Gradients Give a False Sense of Security, ICML 2018,
        section 4.1, for transforms without a slope.

    Raises:
        InputError: the transform fails on gradients that a search differentiates.
    """

    objective: Callable[[Grads, Grads], Tensor]
    centre: Callable[[Grads], Grads]
    name: str
    slope: bool = True

    def __call__(self, guess: Grads, sent: Grads) -> Tensor:
        """Return the distance of each row ``[N]``."""
        try:
            defended = self._defended({name: guess[name].clone() for name in sent})
        except FAILURES as error:
            raise InputError(
                f"{self.name} cannot be applied to the gradient of a guess: {one_line(error)}; "
                "attack it with static knowledge, or define Transform.adapt"
            ) from error
        return self.objective(defended, sent)

    def _defended(self, guess: dict[str, Tensor]) -> Grads:
        if self.slope:
            return self.centre(guess)
        with torch.no_grad():
            found = self.centre({name: leaf.clone() for name, leaf in guess.items()})
        return {name: leaf + (found[name] - leaf).detach() for name, leaf in guess.items()}


def slope_of(centre: Callable[[Grads], Grads]) -> bool | None:
    """Return whether a transform without its randomness has a slope; None if it cannot be computed.

    It is tried on the gradients of a small layer. Rounding and signs have no slope.

    >>> slope_of(lambda grads: {name: -leaf for name, leaf in grads.items()})
    True
    >>> slope_of(lambda grads: {name: leaf.sign() for name, leaf in grads.items()})
    False
    """
    tried = {name: leaf.requires_grad_() for name, leaf in _of_small_layer(2).items()}
    try:
        with torch.enable_grad():
            found = centre({name: leaf.clone() for name, leaf in tried.items()})
            if any(found[name].shape != leaf.shape for name, leaf in tried.items()):
                return None
            whole = torch.stack([found[name].square().sum() for name in tried]).sum()
            if not whole.requires_grad:
                return False
            slopes = torch.autograd.grad(whole, list(tried.values()), allow_unused=True)
    except FAILURES:  # it needs randomness, other names, or an order that this has not
        return None
    return any(one is not None and bool(one.any()) for one in slopes)


def moves_alike(transform: Callable[[Grads, Sequence[torch.Generator]], Grads]) -> bool:
    """Return whether a transform only moves, turns or scales all gradients alike, without noise.

    It is tried on the gradients of a small layer: distances between them stay as they are, up to
    one factor. Signs, orders and offsets that are the same for all do this, and hide nothing from
    who knows them.

    >>> moves_alike(lambda grads, rngs: {name: 0.5 - leaf for name, leaf in grads.items()})
    True
    >>> moves_alike(lambda grads, rngs: {name: leaf.sign() for name, leaf in grads.items()})
    False
    """
    tried = _of_small_layer(_TRIED)

    def moved(first_seed: int) -> Tensor:
        rngs = [torch.Generator().manual_seed(first_seed + row) for row in range(_TRIED)]
        found = transform({name: leaf.clone() for name, leaf in tried.items()}, rngs)
        return torch.cat([found[name].flatten(1) for name in tried], dim=1)

    try:
        found, again = moved(0), moved(_TRIED)
    except FAILURES:
        return False
    before = torch.pdist(torch.cat([leaf.flatten(1) for leaf in tried.values()], dim=1))
    ratio = torch.pdist(found) / before
    same = found.shape == again.shape and torch.equal(found, again)
    return same and bool(ratio.min() > 0) and bool(ratio.max() <= (1 + 1e-4) * ratio.min())


def _of_small_layer(rows: int) -> dict[str, Tensor]:
    """Return random gradients of a small layer, leaves ``[rows, *p]``."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"0.weight": (rows, 3, 4), "0.bias": (rows, 3)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
