"""The local steps behind an update: an optimizer's rule and the rate of each step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from leakgauge.core.checks import require, require_positive
from leakgauge.core.numbers import MOST
from leakgauge.core.types import Params
from leakgauge.training.catalog import OPTIMIZERS, own_rate, parse_optimizer
from leakgauge.training.optimizers import PROXIMAL
from leakgauge.training.rules import Memory, SgdRule, UpdateRule, rule_of

GradientAt = Callable[[int, Params], Params]
"""``(step from 0, weights) -> gradient`` at these weights."""


@dataclass(frozen=True)
class Recipe:
    """The steps of a client between two updates.

    Attributes:
        rates: learning rate of each step.
        rule: rule of the optimizer, which begins each round without memory, as Flower's clients do.
        proximal: weight mu of FedProx's term in the loss, ``mu / 2 * |w - before|^2``.

    Raises:
        InputError: steps are missing, or a rate is not above 0.

    >>> Recipe((0.1, 0.1)).is_plain, len(Recipe((0.1, 0.1)))
    (True, 2)
    """

    rates: tuple[float, ...]
    rule: UpdateRule = field(default_factory=SgdRule)
    proximal: float = 0.0

    def __post_init__(self) -> None:
        require(len(self.rates) > 0, "local training has no steps; give the rate of each step")
        for rate in self.rates:
            require_positive(rate, "local learning rate")

    def __len__(self) -> int:
        return len(self.rates)

    @classmethod
    def named(
        cls,
        optimizer: str,
        *,
        steps: int,
        lr: float | None = None,
        rates: Sequence[float] = (),
        exactly: bool = True,
    ) -> "Recipe":
        """Return the steps of an optimizer that a text names.

        Args:
            optimizer: such as ``"sgd:momentum=0.9"``; see ``catalog.parse_optimizer``.
            steps: number of steps.
            lr: rate of every step, where neither the text nor ``rates`` name rates.
            rates: rate of each step, in place of ``lr``.
            exactly: whether an optimizer that cannot be simulated is refused; else its steps are
                taken for those of plain SGD.

        Raises:
            InputError: the optimizer cannot be simulated, rates are missing or too many, or the
                steps are more than ``MOST``.
        """
        own = own_rate(optimizer)
        base = lr if own is None else own
        require(
            bool(rates) or base is not None,
            "the local learning rate is missing; give lr, or the rate of each step",
        )
        require(
            not rates or len(rates) == steps,
            f"{len(rates)} rates came for {steps} local steps; give one for each step",
        )
        require(steps <= MOST, f"{steps:,} local steps of a client; expected at most {MOST:,}")
        every = tuple(map(float, rates)) or (float(base or 0.0),) * steps
        rule, proximal = _parts(optimizer)
        if rule is None:
            require(
                not exactly,
                f"no attack simulates steps of {optimizer!r}; name one of {', '.join(OPTIMIZERS)}, "
                "or leave out --simulate: the update is then taken for one gradient",
            )
            rule = SgdRule()
        return cls(every, rule, proximal)

    @property
    def is_plain(self) -> bool:
        """Whether the steps are plain SGD of one rate; a single step has no proximal term."""
        steps = self.rule == SgdRule() and len(set(self.rates)) == 1
        return steps and (not self.proximal or len(self) == 1)

    def change(self, params: Params, gradient: GradientAt) -> dict[str, Tensor]:
        """Return the weights after minus before all steps; differentiable where the gradient is.

        ``params`` are the weights before, ``[*p]`` or ``[N, *p]``.
        """
        total: dict[str, Tensor] = {}
        memory: Memory = {}
        for number, lr in enumerate(self.rates, start=1):
            now = {name: leaf + total[name] for name, leaf in params.items()} if total else params
            grads = gradient(number - 1, now)
            if self.proximal and total:
                grads = {n: leaf + self.proximal * total[n] for n, leaf in grads.items()}
            moved, memory = self.rule.step(number, now, grads, memory, lr)
            total = {name: total[name] + leaf for name, leaf in moved.items()} if total else moved
        return total

    def as_gradient(self, before: Params, change: Params) -> dict[str, Tensor]:
        """Return the constant gradient that makes this change.

        It is exact for one step of SGD with any momentum. After several steps it is a weighted
        mean of their gradients. After steps of Adam and similar it is not a gradient: it has the
        direction of the steps, with coordinates of about one size.

        Args:
            before: weights before, leaf ``[*p]``.
            change: after minus before, leaf ``[*p]`` or ``[N, *p]``.

        >>> one = Recipe((0.5,), SgdRule(weight_decay=0.1))
        >>> one.as_gradient({"w": torch.tensor(2.0)}, {"w": torch.tensor(-0.6)})["w"].item()
        1.0
        """
        if self.is_plain:
            scale = -1 / (self.rates[0] * len(self))
            return {name: leaf * scale for name, leaf in change.items()}
        keep, gain = self._response
        return {name: (leaf - (keep - 1) * before[name]) / gain for name, leaf in change.items()}

    @property
    def gain(self) -> float:
        """Change of a weight by a constant gradient of 1, below 0."""
        return self._response[1]

    @cached_property
    def _response(self) -> tuple[float, float]:
        return self.rule.response(self.rates, self.proximal)


def named_rule(optimizer: str) -> UpdateRule | None:
    """Return the rule of an optimizer that a text names; None if its rule is unknown.

    Raises:
        InputError: the text names no optimizer.

    >>> named_rule("sgd:momentum=0.9").momentum
    0.9
    """
    return _parts(optimizer)[0]


def _parts(optimizer: str) -> tuple[UpdateRule | None, float]:
    """Return the rule of a named optimizer, and the weight of its proximal term."""
    make = parse_optimizer(optimizer, lr=1.0)
    if make is None:
        return SgdRule(), 0.0
    made = make([torch.zeros(1, requires_grad=True)])
    return rule_of(made), float(made.param_groups[0].get(PROXIMAL, 0.0))
