"""Moves the model: an optimizer whose state goes on, with a rate that decays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import Optimizer

from leakgauge.core.types import Params
from leakgauge.runs.checkpoint import restore_optimizer
from leakgauge.tokens.run.streaming import Stream
from leakgauge.training.catalog import parse_optimizer
from leakgauge.training.local import Mover as Over
from leakgauge.training.local import Step, plain_sgd

if TYPE_CHECKING:
    from leakgauge.tokens.spec import TimelineSpec


class Mover:
    """The optimizer of a training, from sub-epoch to sub-epoch.

    The rate of sub-epoch ``s``, from 1, is ``lr * decay ** ((s - 1) // decay_every)``, as StepLR
    has it.

    Args:
        spec: names the optimizer, its rate and its decay.
    """

    def __init__(self, spec: TimelineSpec) -> None:
        self._spec = spec
        self._make = parse_optimizer(spec.optimizer, lr=spec.lr)
        self._optimizer: Optimizer | None = None
        self._restored: Any = None

    @property
    def state(self) -> Any:
        """What the optimizer remembers; None of one that remembers nothing."""
        if self._optimizer is not None:
            return self._optimizer.state_dict()["state"]
        return self._restored

    @state.setter
    def state(self, state: Any) -> None:
        self._optimizer, self._restored = None, state

    def at(self, step: int) -> Over:
        """Return what moves parameters in a sub-epoch, which counts from 1."""
        factor = self._spec.decay ** ((step - 1) // self._spec.decay_every)
        make = self._make
        if make is None:
            return plain_sgd(self._spec.lr * factor)

        def over(leaves: Params) -> Step:
            optimizer = make(list(leaves.values()))
            if self.state:
                restore_optimizer(optimizer, self.state)
            for group in optimizer.param_groups:
                group["lr"] *= factor
            self._optimizer = optimizer
            return _stepping(optimizer, leaves)

        return over

    @staticmethod
    def watched(over: Over, stream: Stream, batches: Iterator[Tensor]) -> Over:
        """Return the same mover, which shows each gradient to a stream before it moves.

        Args:
            over: that moves.
            stream: that watches.
            batches: inputs of each step's records.
        """

        def watching(leaves: Params) -> Step:
            step = over(leaves)

            def both(gradient: Params) -> None:
                stream.observe(leaves, next(batches), gradient)
                step(gradient)

            return both

        return watching


def _stepping(optimizer: Optimizer, leaves: Params) -> Step:
    def step(gradient: Params) -> None:
        for name, leaf in leaves.items():
            leaf.grad = gradient[name]
        optimizer.step()
        optimizer.zero_grad()

    return step
