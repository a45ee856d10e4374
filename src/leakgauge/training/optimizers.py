"""Optimizers of ``torch.optim`` that move the model of an audit, from epoch to epoch."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from leakgauge.core.checks import InputError, require
from leakgauge.core.registry import Choice
from leakgauge.core.user_code import first_line

Leaves = Iterable[Tensor]

LR = 0.01

Make = Callable[[Leaves], torch.optim.Optimizer]
"""Maps parameters to their optimizer."""


def sgd(
    params: Leaves,
    *,
    lr: float = LR,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    proximal_mu: float = 0.0,
) -> torch.optim.Optimizer:
    """Return SGD with momentum; for ``proximal_mu`` of all optimizers see ``with_proximal``."""
    _require_share(momentum, "momentum")
    _require_share(dampening, "dampening")
    made = torch.optim.SGD(params, lr, momentum, dampening, weight_decay, nesterov)
    return with_proximal(made, proximal_mu)


def adam(
    params: Leaves,
    *,
    lr: float = LR,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    amsgrad: bool = False,
    proximal_mu: float = 0.0,
) -> torch.optim.Optimizer:
    """Return Adam; the weight decay is added to the gradient."""
    made = torch.optim.Adam(params, lr, (beta1, beta2), eps, weight_decay, amsgrad)
    return with_proximal(made, proximal_mu)


def adamw(
    params: Leaves,
    *,
    lr: float = LR,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    amsgrad: bool = False,
    proximal_mu: float = 0.0,
) -> torch.optim.Optimizer:
    """Return AdamW; the weight decay shrinks the parameters themselves."""
    made = torch.optim.AdamW(params, lr, (beta1, beta2), eps, weight_decay, amsgrad)
    return with_proximal(made, proximal_mu)


def rmsprop(
    params: Leaves,
    *,
    lr: float = LR,
    alpha: float = 0.99,
    eps: float = 1e-8,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    proximal_mu: float = 0.0,
) -> torch.optim.Optimizer:
    """Return RMSprop."""
    _require_share(momentum, "momentum")
    _require_share(alpha, "alpha")
    made = torch.optim.RMSprop(params, lr, alpha, eps, weight_decay, momentum)
    return with_proximal(made, proximal_mu)


def adagrad(
    params: Leaves,
    *,
    lr: float = LR,
    lr_decay: float = 0.0,
    eps: float = 1e-10,
    weight_decay: float = 0.0,
    proximal_mu: float = 0.0,
) -> torch.optim.Optimizer:
    """Return Adagrad."""
    made = torch.optim.Adagrad(params, lr=lr, lr_decay=lr_decay, eps=eps, weight_decay=weight_decay)
    return with_proximal(made, proximal_mu)


PROXIMAL = "proximal_mu"
"""The setting of FedProx's term, and its key in a group of parameters."""


def with_proximal(optimizer: torch.optim.Optimizer, mu: float) -> torch.optim.Optimizer:
    """Return the optimizer of a loss with FedProx's term, ``mu / 2 * |w - start|^2``.

    The start are the weights when the optimizer is made: those that the server sent.

    Args:
        optimizer: it gets the term in its gradients.
        mu: weight of the term, 0 or more.

    Raises:
        InputError: the weight is below 0.

    References:
        Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020, Eq. 2.
    """
    require(mu >= 0, f"{PROXIMAL} of the optimizer is {mu:g}; expected a number of 0 or more")
    if not mu:
        return optimizer
    leaves = [leaf for group in optimizer.param_groups for leaf in group["params"]]
    starts = [leaf.detach().clone() for leaf in leaves]
    for group in optimizer.param_groups:
        group[PROXIMAL] = mu

    def add(*_: Any) -> None:
        for leaf, start in zip(leaves, starts, strict=True):
            if leaf.grad is not None:  # not in place: the gradient is the caller's
                leaf.grad = leaf.grad + mu * (leaf.detach() - start)

    optimizer.register_step_pre_hook(add)
    return optimizer


def _require_share(value: float, name: str) -> None:
    """Refuse a share of the last step with which the steps grow without end."""
    require(
        0 <= value < 1,
        f"{name} of the optimizer is {value:g}; expected a number of 0 or more and below 1",
    )


@dataclass(frozen=True)
class NamedOptimizer:
    """The optimizer that a text names, as a function of the parameters.

    Attributes:
        choice: named function or class, with its settings.
        lr: the learning rate where the settings have none.
    """

    choice: Choice
    lr: float

    def __call__(self, params: Leaves) -> torch.optim.Optimizer:
        """Return the optimizer of these parameters.

        Raises:
            InputError: the named function fails, or does not return an optimizer.
        """
        takes = signature(self.choice.make).parameters
        rate = {"lr": self.lr} if "lr" in takes and "lr" not in self.choice.settings else {}
        try:
            made: Any = self.choice.make(list(params), **self.choice.settings, **rate)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"optimizer {self.choice.text!r} failed: {first_line(error)}"
            ) from error
        if not isinstance(made, torch.optim.Optimizer):
            raise InputError(
                f"optimizer {self.choice.text!r} made {type(made).__name__}; expected a "
                "torch.optim.Optimizer"
            )
        return made

    def try_once(self) -> None:
        """Make a step of one parameter.

        Raises:
            InputError: the optimizer refuses its settings, or needs more than a gradient.
        """
        leaf = torch.ones(1, 1, requires_grad=True)
        try:
            Optimizing(self).over({"": leaf})({"": torch.ones(1, 1)})
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"optimizer {self.choice.text!r} cannot step on a gradient alone: "
                f"{first_line(error)}"
            ) from error


class Optimizing:
    """Steps of an optimizer with state, such as momentum, that persists over several epochs.

    Args:
        make: returns the optimizer of a list of parameters.
    """

    def __init__(self, make: Make) -> None:
        self._make = make
        self._before: torch.optim.Optimizer | None = None

    def over(self, leaves: Mapping[str, Tensor]) -> Callable[[Mapping[str, Tensor]], None]:
        """Return a function that moves ``leaves`` in place by one step on their gradient.

        ``leaves`` are parameters by name, in the same order in each call.
        """
        optimizer = self._make(list(leaves.values()))
        if self._before is not None:
            optimizer.load_state_dict(self._before.state_dict())
        self._before = optimizer

        def step(gradient: Mapping[str, Tensor]) -> None:
            for name, leaf in leaves.items():
                leaf.grad = gradient[name]
            optimizer.step()
            optimizer.zero_grad()

        return step
