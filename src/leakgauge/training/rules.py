"""Steps of torch's optimizers as pure functions, which can be differentiated.

``torch.optim`` moves parameters in place and forgets how, so no attack can differentiate through
it. A rule here computes the same step from values to values, coordinate by coordinate, so leaves
may have further axes in front: ``[*p]`` or ``[N, *p]``.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from leakgauge.core.types import Params
from leakgauge.gradients.flattening import alike

Memory = Mapping[str, Params]
"""State of an optimizer between two steps, such as its momentum, by parameter name."""

Moved = tuple[dict[str, Tensor], Memory]
"""The change of the parameters by one step, and the memory for the next one."""


@dataclass(frozen=True)
class FirstStep:
    """A first step that moves each coordinate by ``rate * unit * G / (|G| + eps)``.

    Attributes:
        unit: largest step, in units of the rate.
        eps: gradient that makes half of it.
        coupled: weight decay that is a part of G: ``G = g + coupled * w``.
        decoupled: weight decay beside the step, by ``rate * decoupled * w``.
    """

    unit: float
    eps: float
    coupled: float = 0.0
    decoupled: float = 0.0


class UpdateRule(ABC):
    """A step of an optimizer.

    Attributes:
        linear: whether the change is a linear function of gradients and weights. Then a constant
            gradient follows from the change; else only its direction does.
    """

    linear: ClassVar[bool]

    @abstractmethod
    def step(self, number: int, params: Params, grads: Params, memory: Memory, lr: float) -> Moved:
        """Return the change of the parameters, and the memory for the next step.

        Args:
            number: number of the step, from 1.
            params: parameters before the step.
            grads: gradients at ``params``.
            memory: memory after the last step; empty for the first.
            lr: learning rate of this step.
        """

    def first_step(self) -> FirstStep | None:
        """Return how the first step depends on the gradient's size; None where it is linear."""
        return None

    def largest_step(self, number: int) -> float:
        """Return the largest possible step of a number, in units of the rate, without decay."""
        return math.inf

    def response(self, rates: Sequence[float], proximal: float = 0.0) -> tuple[float, float]:
        """Return ``keep, gain``: steps on a constant gradient g end at ``keep * w + gain * g``.

        For a rule that is not linear, g is 1 in every coordinate. Each step has one of the rates;
        ``proximal`` is the weight of FedProx's term.

        >>> SgdRule(momentum=0.5).response([0.1, 0.1])
        (1.0, -0.25)
        """
        keep = 1 + self._moved(1.0, 0.0, rates, proximal)
        return keep, self._moved(0.0, 1.0, rates, proximal)

    def _moved(self, weight: float, slope: float, rates: Sequence[float], proximal: float) -> float:
        start = torch.tensor(weight, dtype=torch.float64)
        total = torch.zeros_like(start)
        memory: Memory = {}
        for number, lr in enumerate(rates, start=1):
            grads = {"": slope + proximal * total}
            change, memory = self.step(number, {"": start + total}, grads, memory, lr)
            total = total + change[""]
        return round(float(total), 15)


@dataclass(frozen=True)
class SgdRule(UpdateRule):
    """A step of ``torch.optim.SGD``."""

    linear: ClassVar[bool] = True

    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    def step(self, number: int, params: Params, grads: Params, memory: Memory, lr: float) -> Moved:
        """Return the change and the momentum; see ``UpdateRule.step``."""
        grads = _decayed(params, grads, self.weight_decay)
        if not self.momentum:
            return {name: -lr * leaf for name, leaf in grads.items()}, {}
        kept = grads  # The first step takes the gradient whole, whatever the dampening.
        if number > 1:
            past, share = memory["momentum"], 1 - self.dampening
            kept = {name: self.momentum * past[name] + share * g for name, g in grads.items()}
        ahead = kept
        if self.nesterov:
            ahead = {name: leaf + self.momentum * kept[name] for name, leaf in grads.items()}
        return {name: -lr * leaf for name, leaf in ahead.items()}, {"momentum": kept}


@dataclass(frozen=True)
class NormalisedRule(UpdateRule):
    """A rule that divides each coordinate by a size of its past gradients.

    ``softness`` is for simulations alone: it adds, to the square that each coordinate is divided
    by, its square times the mean square of the row ``[N, *p]``.
    """

    linear: ClassVar[bool] = False
    softness: float = field(default=0.0, kw_only=True)
    weight_decay: float = field(default=0.0, kw_only=True)

    def response(self, rates: Sequence[float], proximal: float = 0.0) -> tuple[float, float]:
        """Return the response without a decay that is part of the gradient; see ``UpdateRule``."""
        if getattr(self, "decoupled", False) or not self.weight_decay:
            return super().response(rates, proximal)
        return replace(self, weight_decay=0.0).response(rates, proximal)

    def _size(self, square: Tensor) -> Tensor:
        if not self.softness:
            return root(square)
        return root(square + self.softness**2 * alike(square.flatten(1).mean(1), square))


@dataclass(frozen=True)
class AdamRule(NormalisedRule):
    """A step of ``torch.optim.Adam``; ``decoupled`` is that of ``torch.optim.AdamW``."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    amsgrad: bool = False
    decoupled: bool = False

    def first_step(self) -> FirstStep:
        """Return the step ``G / (|G| + eps)``; see ``UpdateRule.first_step``."""
        coupled, decoupled = (
            (0.0, self.weight_decay) if self.decoupled else (self.weight_decay, 0.0)
        )
        return FirstStep(1.0, self.eps, coupled, decoupled)

    def largest_step(self, number: int) -> float:
        """Return the bound by Cauchy's inequality over all gradients; see ``UpdateRule``."""
        first, second = 1 - self.beta1**number, 1 - self.beta2**number
        terms = (
            ((1 - self.beta1) * self.beta1**past / first) ** 2
            / ((1 - self.beta2) * self.beta2**past / second)
            for past in range(number)
        )
        return math.sqrt(sum(terms))

    def step(self, number: int, params: Params, grads: Params, memory: Memory, lr: float) -> Moved:
        """Return the change and both means; see ``UpdateRule.step``."""
        grads = _decayed(params, grads, 0.0 if self.decoupled else self.weight_decay)
        mean = _averaged(memory.get("mean"), grads, self.beta1)
        square = _averaged(memory.get("square"), _squared(grads), self.beta2)
        kept, largest = {"mean": mean, "square": square}, square
        if self.amsgrad:
            most = memory.get("most", square)
            largest = {name: torch.maximum(most[name], leaf) for name, leaf in square.items()}
            kept["most"] = largest
        first, second = 1 - self.beta1**number, 1 - self.beta2**number
        change = {
            name: -lr / first * leaf / (self._size(largest[name] / second) + self.eps)
            for name, leaf in mean.items()
        }
        if self.decoupled and self.weight_decay:
            shrunk = lr * self.weight_decay
            change = {name: leaf - shrunk * params[name] for name, leaf in change.items()}
        return change, kept


@dataclass(frozen=True)
class RmspropRule(NormalisedRule):
    """A step of ``torch.optim.RMSprop``."""

    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0
    centered: bool = False

    def first_step(self) -> FirstStep:
        """Return the step ``G / (b |G| + eps)`` with a small b; see ``UpdateRule.first_step``."""
        size = math.sqrt((1 - self.alpha) * (self.alpha if self.centered else 1.0))
        return FirstStep(1 / size, self.eps / size, self.weight_decay)

    def step(self, number: int, params: Params, grads: Params, memory: Memory, lr: float) -> Moved:
        """Return the change and the means; see ``UpdateRule.step``."""
        grads = _decayed(params, grads, self.weight_decay)
        square = _averaged(memory.get("square"), _squared(grads), self.alpha)
        kept, spread = {"square": square}, square
        if self.centered:
            mean = kept["mean"] = _averaged(memory.get("mean"), grads, self.alpha)
            spread = {name: leaf - mean[name].square() for name, leaf in square.items()}
        ahead = {name: leaf / (self._size(spread[name]) + self.eps) for name, leaf in grads.items()}
        if self.momentum:
            past = memory.get("momentum")
            ahead = kept["momentum"] = {
                name: leaf if past is None else self.momentum * past[name] + leaf
                for name, leaf in ahead.items()
            }
        return {name: -lr * leaf for name, leaf in ahead.items()}, kept


@dataclass(frozen=True)
class AdagradRule(NormalisedRule):
    """A step of ``torch.optim.Adagrad``."""

    lr_decay: float = 0.0
    eps: float = 1e-10
    initial_accumulator_value: float = 0.0

    def first_step(self) -> FirstStep | None:
        """Return the step of an accumulator of 0; see ``UpdateRule.first_step``."""
        if self.initial_accumulator_value:
            return None
        return FirstStep(1.0, self.eps, self.weight_decay)

    def largest_step(self, number: int) -> float:
        """Return 1: the accumulator holds the square of the gradient; see ``UpdateRule``."""
        return 1.0

    def step(self, number: int, params: Params, grads: Params, memory: Memory, lr: float) -> Moved:
        """Return the change and the sums of squares; see ``UpdateRule.step``."""
        grads = _decayed(params, grads, self.weight_decay)
        past = memory.get("sum")
        total = {
            name: leaf.square() + (self.initial_accumulator_value if past is None else past[name])
            for name, leaf in grads.items()
        }
        rate, eps = lr / (1 + (number - 1) * self.lr_decay), self.eps
        change = {
            name: -rate * leaf / (self._size(total[name]) + eps) for name, leaf in grads.items()
        }
        return change, {"sum": total}


def root(value: Tensor) -> Tensor:
    """Return the square root, with a slope of 0 where the value is 0.

    The slope of a plain root is infinite there, and every dead ReLU gives such gradients of 0.
    """
    above = value > 0
    return torch.where(above, value, 1.0).sqrt() * above


def _decayed(params: Params, grads: Params, decay: float) -> Params:
    if not decay:
        return grads
    return {name: leaf + decay * params[name] for name, leaf in grads.items()}


def _squared(grads: Params) -> dict[str, Tensor]:
    return {name: leaf.square() for name, leaf in grads.items()}


def _averaged(past: Params | None, values: Params, beta: float) -> dict[str, Tensor]:
    """Return the running means, which begin at 0."""
    if past is None:
        return {name: (1 - beta) * leaf for name, leaf in values.items()}
    return {name: beta * past[name] + (1 - beta) * leaf for name, leaf in values.items()}


def _adam(group: Mapping[str, Any], *, decoupled: bool) -> UpdateRule:
    beta1, beta2 = map(float, group["betas"])
    decay, largest = float(group["weight_decay"]), bool(group["amsgrad"])
    decoupled = decoupled or bool(group.get("decoupled_weight_decay"))
    eps = float(group["eps"])
    return AdamRule(beta1, beta2, eps, largest, decoupled, weight_decay=decay)


def _taken(rule: type[Any]) -> Callable[[Mapping[str, Any]], UpdateRule]:
    """Return a function from an optimizer's settings to the rule with fields of the same names."""
    names = [one.name for one in fields(rule) if one.name != "softness"]
    return lambda group: rule(**{name: group[name] for name in names})


_RULES: Mapping[type[torch.optim.Optimizer], Callable[[Mapping[str, Any]], UpdateRule]] = {
    torch.optim.SGD: _taken(SgdRule),
    torch.optim.Adam: lambda group: _adam(group, decoupled=False),
    torch.optim.AdamW: lambda group: _adam(group, decoupled=True),
    torch.optim.RMSprop: _taken(RmspropRule),
    torch.optim.Adagrad: _taken(AdagradRule),
}


def rule_of(optimizer: torch.optim.Optimizer) -> UpdateRule | None:
    """Return the rule of an optimizer of ``torch.optim``; None if its rule is unknown.

    A rule has one group of parameters and does not maximize.

    >>> weight = torch.zeros(1, requires_grad=True)
    >>> rule_of(torch.optim.SGD([weight], lr=0.1, momentum=0.9))
    SgdRule(momentum=0.9, dampening=0, weight_decay=0, nesterov=False)
    """
    make, groups = _RULES.get(type(optimizer)), optimizer.param_groups
    if make is None or len(groups) != 1 or groups[0].get("maximize"):
        return None
    return make(groups[0])
