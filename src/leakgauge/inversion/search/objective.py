"""Distances of the gradients of a guess from the observed gradients.

An objective takes two stacks of gradients, leaf ``[N, *p]``, and returns one number for each row,
``[N]``, small where they agree. It is differentiable, finite also where a layer's gradient is all
zeros, and rows are independent.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor

from leakgauge.core.checks import InputError, nearest, require, require_choice
from leakgauge.core.types import Grads
from leakgauge.gradients.flattening import alike, flat_leaf, norms
from leakgauge.gradients.walk import by_layer
from leakgauge.inversion.double_backward.products import products, squares

Objective = Callable[[Grads, Grads], Tensor]
"""``(guess, observed) -> [N]``; leaf ``[N, *p]`` of both."""

SCALES = tuple(1.05**step for step in sorted(range(-28, 29), key=abs))
"""FactoredGradient that ``rescaled`` tries: a quarter to four, the nearest to 1 first."""

PRESENT = torch.finfo(torch.float32).tiny
"""Square above which a gradient is not zero."""

HALF, FLAT = 0.5, 0.2
"""Smallest relative change of the gradient, over that of the records, with which it shows their
contrast; it is measured at half the contrast. Seen on networks of two convolutions: 0.02 with
BatchNorm in training mode, which takes the contrast away, and 0.9 or more without it."""

Form = Literal["vector", "layers"]

Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class SquaredError:
    """The squared distance of the gradients, summed over the parameters (DLG).

    Attributes:
        layers: names of the parameters that are compared; None compares all.

    References:
        Zhu et al., Deep Leakage from Gradients, NeurIPS 2019.

    >>> guess, observed = {"w": torch.tensor([[3.0, 4.0]])}, {"w": torch.zeros(1, 2)}
    >>> SquaredError()(guess, observed)
    tensor([25.])
    """

    layers: tuple[str, ...] | None = None

    def __call__(self, guess: Grads, observed: Grads) -> Tensor:
        """Return the distance of each row, ``[N]``, in squared units of the gradient."""
        pairs = _pairs(guess, observed, self.layers).values()
        return torch.stack([flat_leaf(one - other).square().sum(1) for one, other in pairs]).sum(0)


@dataclass(frozen=True)
class Cosine:
    """1 - the cosine of the gradients, all parameters taken as one vector.

    Attributes:
        layers: names of the parameters that are compared; None compares all.

    References:
        Geiping et al., Inverting Gradients, NeurIPS 2020, Eq. 4.

    >>> guess, observed = {"w": torch.tensor([[0.0, 2.0]])}, {"w": torch.tensor([[3.0, 0.0]])}
    >>> Cosine()(guess, observed)
    tensor([1.])
    """

    layers: tuple[str, ...] | None = None

    def __call__(self, guess: Grads, observed: Grads) -> Tensor:
        """Return the distance of each row, ``[N]``, from 0 to 2."""
        pairs = _pairs(guess, observed, self.layers)
        return cosine_distance(_sums(pairs, dict.fromkeys(pairs, _ones(observed))))


@dataclass(frozen=True, eq=False)
class LayerWeighted:
    """The cosine distance of the gradients, layer i stretched by the root of its weight.

    ``1 - sum_i a_i <g_i, h_i> / sqrt(sum_i a_i |g_i|^2) / sqrt(sum_i a_i |h_i|^2)``, with
    ``a_i = weights_i z_i``. The modifier is ``z_i = 1 / (1 - p_i)`` where ``modified`` has it, and
    1 elsewhere; p_i is the share of zeros in what was observed, for each target by itself. Eq. 8
    has no value for a layer without any other number (p_i = 1): z_i is 1 there.

    ``form="layers"`` is ours, not the paper's: ``sum_i a_i (1 - cos(g_i, h_i))``, where a layer is
    all parameters of one module. The sum is not divided by the weights, so a prior weighs less
    against it.

    Attributes:
        weights: weights by parameter name, 0 or more; see ``LayerWeights``. With
            ``form="layers"`` a layer weighs as its first parameter does.
        layers: names of the parameters that are compared; None compares all.
        form: ``"vector"``, the paper's, or ``"layers"``.
        modified: parameters by name of another, with the zeros that count for its modifier.

    Raises:
        InputError: a weight is negative or not finite, or all of them are 0; an unknown form.

    References:
        Xu et al., AGIC, SRDS 2022, Eq. 6 and Eq. 8.

    >>> guess = {"a.weight": torch.tensor([[1.0]]), "b.weight": torch.tensor([[1.0]])}
    >>> observed = {"a.weight": torch.tensor([[1.0]]), "b.weight": torch.tensor([[-1.0]])}
    >>> weights = {"a.weight": 3.0, "b.weight": 1.0}
    >>> LayerWeighted(weights)(guess, observed)
    tensor([0.5000])
    >>> LayerWeighted(weights, form="layers")(guess, observed)
    tensor([2.])
    """

    weights: Mapping[str, float]
    layers: tuple[str, ...] | None = None
    form: Form = "vector"
    modified: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_choice(self.form, "form of the layer-weighted cosine", get_args(Form))
        for name, weight in self.weights.items():
            require(
                0 <= weight < float("inf"),
                f"the weight of {name!r} is {weight:g}; expected a number from 0",
            )
        require(
            any(weight > 0 for weight in self.weights.values()),
            "all layers weigh 0; give one of them a weight above 0",
        )

    def __call__(self, guess: Grads, observed: Grads) -> Tensor:
        """Return the distance of each row, ``[N]``, from 0 to 2 (twice the sum of the weights)."""
        pairs = _pairs(guess, observed, self.layers)
        stretches = self.stretches(observed)
        if self.form == "vector":
            return cosine_distance(_sums(pairs, stretches))
        terms, ones = [], dict.fromkeys(pairs, _ones(observed))
        for names in by_layer(pairs).values():
            sums = _sums({name: pairs[name] for name in names}, ones)
            terms.append(stretches[names[0]] * cosine_distance(sums))
        return torch.stack(terms).sum(0)

    def stretches(self, observed: Grads) -> dict[str, Tensor]:
        """Return a_i of each parameter that is compared, ``[N]``, one for each target.

        Raises:
            InputError: a parameter has no weight or no gradient.
        """
        compared = _compared(list(observed), self.layers)
        _check_held(compared, self.weights, "weight")
        one = _ones(observed)
        found: dict[tuple[str, ...], Tensor] = {}
        for group in {self.modified[name] for name in compared if name in self.modified}:
            _check_held(group, observed, "gradient")
            found[group] = zero_modifier([observed[name] for name in group])
        return {
            name: self.weights[name] * found.get(self.modified.get(name, ()), one)
            for name in compared
        }


def zero_modifier(stacks: Sequence[Tensor]) -> Tensor:
    """Return 1 / (1 - p) of each row ``[N]``, with p the share of zeros in its numbers.

    Args:
        stacks: the gradients of a layer's parameters, each ``[N, *p]``.

    Returns:
        1 also for a row of zeros, where Eq. 8 divides by 0.

    References:
        Xu et al., AGIC, SRDS 2022, section IV-C, "ReLU modifier".

    >>> zero_modifier([torch.tensor([[3.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]])])
    tensor([2., 1.])
    """
    # Row by row: with an axis, torch's count is ten times slower.
    rows = [torch.stack([row.count_nonzero() for row in stack]) for stack in stacks]
    left = torch.stack(rows).sum(0).to(stacks[0].dtype)
    numbers = sum(stack[0].numel() for stack in stacks)
    return torch.where(left > 0, numbers / left.clamp(min=1), 1.0)


def _ones(observed: Grads) -> Tensor:
    """Return 1 for each target ``[N]``, of the gradients' type and device."""
    stack = next(iter(observed.values()))
    return stack.new_ones(len(stack))


def stretches(objective: Objective, observed: Grads) -> dict[str, Tensor] | None:
    """Return the weights by parameter of a cosine distance of weighted vectors, each ``[N]``.

    Such an objective is ``cosine_distance`` of weighted sums; None for any other objective.

    Args:
        objective: the distance.
        observed: gradients of N targets, which may decide the weights.

    Raises:
        InputError: a parameter that it compares is not in ``observed``, or has no weight.

    >>> observed = {"w": torch.ones(2, 3)}
    >>> stretches(Cosine(), observed), stretches(SquaredError(), observed)
    ({'w': tensor([1., 1.])}, None)
    """
    if type(objective) is Cosine:
        return dict.fromkeys(_compared(list(observed), objective.layers), _ones(observed))
    if type(objective) is LayerWeighted and objective.form == "vector":
        return objective.stretches(observed)
    return None


def against(objective: Objective, observed: Grads) -> Callable[[Grads], Tensor]:
    """Return the distance from ``observed`` as a function of the guess.

    The weights and the norms of a cosine distance depend on what was observed alone, so they are
    computed once and not at each step of a search.

    >>> observed = {"w": torch.tensor([[3.0, 0.0]])}
    >>> against(Cosine(), observed)({"w": torch.tensor([[0.0, 2.0]])})
    tensor([1.])
    """
    known = stretches(objective, observed)
    if known is None:
        return lambda guess: objective(guess, observed)
    theirs, weights = [observed[name] for name in known], torch.stack(list(known.values()))
    size = squares(theirs, weights)

    def distance(guess: Grads) -> Tensor:
        _check_held(known, guess, "gradient")
        sums = products([guess[name] for name in known], theirs, weights)
        return cosine_distance((*sums, size))

    return distance


def agreement(guess: Grads, observed: Grads) -> Tensor:
    """Return how well a guess reproduces what was observed, ``[N]`` from 0 to 1.

    ``sqrt(1 - |guess - observed|^2 / |observed|^2)``, and 0 below. It is the cosine where the guess
    has the best size, and less for any other: a wrong optimizer often gives the right direction
    with a wrong size.

    >>> guess, observed = {"w": torch.tensor([[3.0, 4.0]])}, {"w": torch.tensor([[6.0, 8.0]])}
    >>> agreement(observed, observed), agreement(guess, observed)
    (tensor([1.]), tensor([0.8660]))
    """
    size = SquaredError()({n: torch.zeros_like(leaf) for n, leaf in observed.items()}, observed)
    apart = SquaredError()({name: guess[name] for name in observed}, observed)
    return (1 - apart / size.clamp(min=torch.finfo(size.dtype).tiny)).clamp(min=0).sqrt()


def direction(guess: Grads, observed: Grads) -> Tensor:
    """Return the ``agreement`` of the best multiple of a guess, ``[N]``: the cosine, or 0."""
    cosine = 1 - Cosine()({name: guess[name] for name in observed}, observed)
    return cosine.clamp(0, 1) * (norms(observed) > 0)


def rescaled(
    x: Tensor, gradients: Callable[[Tensor], Grads], seen: Grads, limits: Pair | None
) -> Tensor:
    """Return records ``[T, B, ...]`` times the factor of ``SCALES`` with the nearest gradient.

    The squared error decides: the cosine of the search may not depend on that factor. Where the
    smallest or largest factor is best, the observed gradient has the size of no such records (a
    defense clipped it, say), and they stay as they are. They also do where gradients hardly depend
    on that factor (``FLAT``), such as those through BatchNorm in training mode: the nearest one is
    then arbitrary.

    ``gradients`` maps records to gradients, leaf ``[T, *p]``, which are compared with ``seen``;
    ``limits`` are the lowest and highest values of a record.
    """
    best, error = x, torch.full_like(x.flatten(1)[:, 0], float("inf"))
    inside = torch.ones_like(error, dtype=torch.bool)
    with torch.no_grad():
        for number, scale in enumerate(SCALES):
            tried = scale * x if limits is None else (scale * x).clamp(*(v.to(x) for v in limits))
            distance = SquaredError()(gradients(tried), seen)
            better = distance < error
            error = torch.where(better, distance, error)
            inside = torch.where(better, number < len(SCALES) - 2, inside)
            best = torch.where(alike(better, x), tried, best)
        shown = _shows_contrast(gradients(x), gradients(HALF * x))
    return torch.where(alike(inside & shown, x), best, x)


def _shows_contrast(whole: Grads, half: Grads) -> Tensor:
    """Return for each row whether its gradient depends on the contrast of the records, ``[N]``."""
    moved = SquaredError()(half, whole)
    size = SquaredError()(whole, {name: torch.zeros_like(leaf) for name, leaf in whole.items()})
    return moved >= (FLAT * (1 - HALF)) ** 2 * size


def _sums(
    pairs: Mapping[str, Pair], weights: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the weighted inner product and the weighted squared norms, each ``[N]``."""
    guess, observed = zip(*pairs.values(), strict=True)
    of_each = torch.stack([weights[name] for name in pairs])
    return *products(guess, observed, of_each), squares(observed, of_each)


def cosine_distance(sums: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Return 1 - cosine, ``[N]``, from the inner product and both squared norms.

    It is 0 where the observed gradient is zero, and 1 where the guess's is; flat in both cases.
    """
    dot, ours, theirs = sums
    # In float64: the derivative of the root of a small float32 would be infinite.
    cosine = dot.double() * _inverse_root(ours.double()) * _inverse_root(theirs.double())
    return ((1 - cosine) * _present(theirs)).to(dot.dtype)


def _inverse_root(squares: Tensor) -> Tensor:
    """Return ``squares ** -0.5``; for squares of 0 it is 0, with a gradient of 0."""
    present = _present(squares)
    return torch.where(present, squares, 1.0).rsqrt() * present


def _present(squares: Tensor) -> Tensor:
    return squares > PRESENT


def _pairs(guess: Grads, observed: Grads, layers: tuple[str, ...] | None) -> dict[str, Pair]:
    """Return both sides of each parameter that is compared."""
    names = _compared(list(observed), layers)
    _check_held(names, guess, "gradient")
    return {name: (guess[name], observed[name]) for name in names}


def _compared(names: list[str], layers: tuple[str, ...] | None) -> list[str]:
    """Return those of ``names`` that are compared."""
    compared = names if layers is None else list(layers)
    require(bool(compared), "no layer is compared; name one, or leave layers at None")
    _check_held(compared, dict.fromkeys(names), "gradient")
    return compared


def _check_held(names: Iterable[str], held: Mapping[str, object], what: str) -> None:
    """Refuse a missing name; the message is made only then, since this runs at every step."""
    missing = [name for name in names if name not in held]
    if missing:
        raise InputError(f"parameter {missing[0]!r} has no {what}{nearest(missing[0], held)}")
