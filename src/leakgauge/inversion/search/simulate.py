"""Simulates the update of a client with several local steps (FedAvg), step by step."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from leakgauge.core.checks import require, require_count, require_positive
from leakgauge.core.types import Grads, Params, Task
from leakgauge.inversion.double_backward.gradients import differentiable_gradients
from leakgauge.training.catalog import SGD
from leakgauge.training.recipe import Recipe
from leakgauge.training.rules import NormalisedRule

SOFTNESS = 0.03
"""Chosen on three clients with images of CIFAR-10, a small network and four steps of Adam: 17.5,
18.2 and 15.3 dB, in place of 16.8, 15.9 and 14.7 for 0.1, and of 12.9, 14.0 and 12.3 for 0.5."""


@dataclass(frozen=True)
class LocalSteps:
    """A client's training between two updates, over consecutive batches.

    Attributes:
        steps: batches in one pass over its records.
        lr: learning rate of the client.
        epochs: passes over the same batches, in the same order.
        optimizer: optimizer of the steps, as ``Recipe.named`` reads it.
        rates: learning rate of each of the steps of all passes, in place of ``lr``.
        clients: number of clients behind one mean.
        softness: softness of simulated steps of Adam and its like. A first step is the sign of the
            gradient, which has no slope; g / sqrt(g^2 + (softness * r)^2), with r the root mean
            square of the layer's, has one. 0 simulates the steps as they are.
        digits: spacing of the weights that the client sent, relative to them; 0 for their type's.

    Raises:
        InputError: a number is not above 0, or the optimizer cannot be simulated.
    """

    steps: int
    lr: float
    epochs: int = 1
    optimizer: str = SGD
    rates: tuple[float, ...] = ()
    clients: int = 1
    softness: float = SOFTNESS
    digits: float = 0.0

    def __post_init__(self) -> None:
        require_count(self.steps, "number of local steps")
        require_count(self.epochs, "number of local epochs")
        require_count(self.clients, "number of summed clients")
        require_positive(self.lr, "local learning rate")
        _ = self.recipe

    @cached_property
    def recipe(self) -> Recipe:
        """The steps of all passes."""
        return Recipe.named(
            self.optimizer, steps=self.steps * self.epochs, lr=self.lr, rates=self.rates
        )

    @cached_property
    def soft(self) -> Recipe:
        """The steps as they are simulated, with a slope where Adam's own have none."""
        rule = self.recipe.rule
        if not (self.softness and isinstance(rule, NormalisedRule)):
            return self.recipe
        return replace(self.recipe, rule=replace(rule, softness=self.softness))


def simulated_gradients(
    task: Task, params: Params, x: Tensor, y: Tensor, local: LocalSteps
) -> Grads:
    """Return the weight change of each of N clients, as ``Recipe.as_gradient`` reads it.

    That is the scale of ``Update.as_gradient()``, which takes all records for one batch and needs
    no simulation: after plain SGD, the mean of the gradients of all steps. Differentiable in ``x``
    and ``y`` through all steps; each step costs about as much as a whole one-batch iteration.

    Args:
        task: the model and its loss; in training mode BatchNorm takes the statistics of each batch.
        params: where every client starts, leaf ``[*p]``.
        x: records ``[N, clients * steps * B, ...]``; those of a client in a row, and the first B of
            them are its first step's batch, and so on.
        y: labels ``[N, clients * steps * B]``, or soft ones ``[N, clients * steps * B, classes]``.
        local: steps, learning rate and optimizer.

    Returns:
        Leaf ``[N, *p]``.

    Raises:
        InputError: the records do not fall into equal batches.

    References:
        Geiping et al., Inverting Gradients, NeurIPS 2020, section 6.
    """
    count, parts = x.shape[1], local.steps * local.clients
    require(
        count % parts == 0,
        f"{count} records do not fall into {parts} equal batches; take a multiple of {parts}",
    )
    if local.clients == 1:
        return _of_clients(task, params, x, y, local)
    shape = (len(x), local.clients)
    alone_x, alone_y = (one.reshape(math.prod(shape), -1, *one.shape[2:]) for one in (x, y))
    grads = _of_clients(task, params, alone_x, alone_y, local)
    return {name: leaf.view(*shape, *leaf.shape[1:]).mean(1) for name, leaf in grads.items()}


def _of_clients(task: Task, params: Params, x: Tensor, y: Tensor, local: LocalSteps) -> Grads:
    """Return the change of each client by itself, leaf ``[N, *p]``."""
    batches = list(zip(x.chunk(local.steps, 1), y.chunk(local.steps, 1), strict=True))

    def gradient(step: int, now: Params) -> Grads:
        # After a step the weights depend on the records, so their derivative counts as well.
        moved = step > 0
        return differentiable_gradients(
            task, now, *batches[step % local.steps], stacked_params=moved, weights_fixed=not moved
        )

    change = local.soft.change(params, gradient)
    return local.recipe.as_gradient(params, change)
