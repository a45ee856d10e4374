"""How much each layer weighs when gradients are compared: AGIC's weights, and ours."""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar, get_args

from torch import nn

from leakgauge.core.checks import require_choice, require_positive
from leakgauge.core.types import Task
from leakgauge.gradients.walk import CONVOLUTION, NORMALISATION, Layer, walk
from leakgauge.inversion.search.objective import Form, LayerWeighted, Objective

T = TypeVar("T")

WEIGHT_FUNCTIONS: Mapping[str, Callable[[int, int], float]] = MappingProxyType(
    {
        "constant": lambda i, count: 0.0,
        "linear": lambda i, count: i,
        "logarithmic": lambda i, count: math.log(i),
        # e^i up to the factor that a takes up, which does not overflow.
        "exponential": lambda i, count: math.exp(i - count),
    }
)
"""Table I's functions f of a convolution's number i, of 1 to N: a weight is a f(i) + b."""


@dataclass(frozen=True)
class LayerWeights:
    """AGIC's weights: they grow over the convolutions.

    Convolution i of N, in the order in which the model registers them, has the linear weight
    ``l_i = 1 + (beta - 1) / (N - 1) (i - 1)`` (Eq. 7). It weighs ``l_i / (1 - p_i)``, with p_i the
    share of zeros in its received gradient, and every fully connected layer the mean of the l_i
    (Eq. 8). Shortcuts count as convolutions: a ResNet20-4 has 19 in its main path and two 1 x 1
    shortcuts, the paper's N = 21.

    Table I has other functions in place of the linear one: ``a f(i) + b`` through (1, 1) and
    (N, beta), with ``beta`` 2 for those that rise and 0.5 for those that fall.

    Choices where the paper is silent. Its gradient is made of convolutions and fully connected
    layers only: normalisation parameters are taken for a part of the layer that they follow, and
    weigh as it does, but their zeros do not count; before the first layer they weigh 1. A layer of
    any other kind weighs as a fully connected one. A network with fewer than two convolutions
    weighs all layers equally. The paper has the modifier "if ReLU is used"; other activations
    leave no zeros to count. Zeros of a defense count as well, unless the attacker knows of it
    (``adapted_settings``).

    Attributes:
        function: one of ``WEIGHT_FUNCTIONS``.
        beta: weight of the last convolution; the paper has 50 for untrained networks and 2 for
            trained ones.
        relu: whether to divide by 1 - p_i, the paper's ReLU modifier.

    Raises:
        InputError: an unknown function, or a weight that is not above 0.

    References:
        Xu et al., AGIC, SRDS 2022, section IV-C, Eq. 7, Eq. 8 and Table I.

    >>> model = nn.Sequential(
    ...     nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, bias=False), nn.Flatten(), nn.Linear(16, 2)
    ... )
    >>> LayerWeights(beta=3.0).of(model)
    {'0.weight': 1.0, '0.bias': 1.0, '1.weight': 3.0, '3.weight': 2.0, '3.bias': 2.0}
    """

    function: str = "linear"
    beta: float = 50.0
    relu: bool = True

    def __post_init__(self) -> None:
        require_choice(self.function, "function of the layer weights", WEIGHT_FUNCTIONS)
        require_positive(self.beta, "weight of the last convolution (beta)")

    def of(self, model: nn.Module) -> dict[str, float]:
        """Return the weight of each trainable parameter of ``model`` by name, without modifier."""
        count = sum(one.kind == CONVOLUTION for one in walk(Task(model)))
        own = [self._at(i, count) for i in range(1, count + 1)]
        mean, coming = sum(own) / count if count else 1.0, iter(own)
        return _carried(model, lambda one: next(coming) if one.kind == CONVOLUTION else mean, 1.0)

    def objective(self, model: nn.Module) -> LayerWeighted:
        """Return the layer-weighted cosine with these weights."""
        return LayerWeighted(self.of(model), modified=_convolutions(model) if self.relu else {})

    def _at(self, i: int, count: int) -> float:
        first, here, last = (WEIGHT_FUNCTIONS[self.function](at, count) for at in (1, i, count))
        return 1 + (self.beta - 1) * (here - first) / (last - first) if last != first else 1.0


@dataclass(frozen=True)
class DepthWeights:
    """Our weights: they grow over all layers, also the fully connected ones.

    Layer l of L, in the order in which the model registers them, weighs
    ``1 + (maximum - 1) (l - 1) / (L - 1)``. Normalisation parameters weigh as the
    layer that they follow.

    Attributes:
        maximum: weight of the last layer; the first weighs 1. The default was chosen on training
            images of CIFAR-10; from 10 to 100 it moved the result by less than 1 dB.
        form: form of the objective, as for ``LayerWeighted``.

    Raises:
        InputError: a weight that is not above 0, or an unknown form.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> DepthWeights(maximum=10.0).of(model)
    {'0.weight': 1.0, '0.bias': 1.0, '2.weight': 10.0, '2.bias': 10.0}
    """

    maximum: float = 30.0
    form: Form = "vector"

    def __post_init__(self) -> None:
        require_positive(self.maximum, "weight of the last layer")
        require_choice(self.form, "form of the layer-weighted cosine", get_args(Form))

    def of(self, model: nn.Module) -> dict[str, float]:
        """Return the weight of each trainable parameter of ``model`` by name."""
        last = sum(one.kind != NORMALISATION for one in walk(Task(model))) - 1
        depths, rise = itertools.count(), self.maximum - 1
        return _carried(model, lambda _: 1 + rise * next(depths) / max(last, 1), 1.0)

    def objective(self, model: nn.Module) -> LayerWeighted:
        """Return the layer-weighted cosine with these weights."""
        return LayerWeighted(self.of(model), form=self.form)


Weights = LayerWeights | DepthWeights
"""Weights that are worked out for the model that is attacked."""


def _carried(model: nn.Module, value_of: Callable[[Layer], T], first: T) -> dict[str, T]:
    """Return a value by parameter; normalisations have that of the layer before, or ``first``."""
    value, values = first, dict[str, T]()
    for one in walk(Task(model)):
        value = value if one.kind == NORMALISATION else value_of(one)
        values |= dict.fromkeys(one.parameters, value)
    return values


def _convolutions(model: nn.Module) -> dict[str, tuple[str, ...]]:
    """Return the parameters of the convolution that each parameter belongs to, by name."""
    none: tuple[str, ...] = ()
    found = _carried(model, lambda one: one.parameters if one.kind == CONVOLUTION else none, none)
    return {name: own for name, own in found.items() if own}


def objective_of(chosen: Objective | Weights, model: nn.Module) -> Objective:
    """Return the objective for this model: layer weights are worked out for its layers."""
    return chosen.objective(model) if isinstance(chosen, Weights) else chosen
