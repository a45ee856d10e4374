"""The one attack on updates: labels, then the method; with what an attacker assumes of clients."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast, get_args

import torch
from torch import Tensor

from leakgauge.core.rng import stream
from leakgauge.core.types import Grads, Task
from leakgauge.gradients.probing import private
from leakgauge.inversion.labels.inference import LabelGuess, LabelMethod, infer_labels
from leakgauge.inversion.methods import Method
from leakgauge.inversion.observed import (
    AttackOptions,
    Knowledge,
    ObservedUpdates,
    Reconstruction,
    SearchProgress,
)
from leakgauge.inversion.search.simulate import LocalSteps
from leakgauge.inversion.words import ASSUMED_LR, INFERRED, KNOWN, OPTIMIZER, RATE
from leakgauge.runs.question import Progress
from leakgauge.training.catalog import SGD
from leakgauge.training.client import Client
from leakgauge.training.local import draws, in_training, repeatable

LOSS_SHOWN_EVERY = 20
"""Iterations of a search between two readings of its loss."""

WITHOUT_DROPOUT = (
    "the client's dropout draws masks that the attacker does not know; it simulates the model "
    "without dropout"
)

_UNORDERED = (
    "the labels were inferred, which does not show the local step that used each: the "
    "simulation took them in ascending order, which is most likely wrong; leave out --simulate, or "
    "grant the labels with --labels known"
)


def attack(
    task: Task, seen: ObservedUpdates, method: Method, known: Knowledge, options: AttackOptions
) -> Reconstruction:
    """Rebuild the records behind the updates of T clients.

    Labels that are unknown are inferred from the updates first, unless the method finds them. The
    task comes from ``attacked_task``; the other arguments are those of ``Method.rebuild``.

    Raises:
        InputError: labels cannot be inferred from this gradient, or the method refuses the model,
            the update or the defense.
    """
    task = private(task, seen.params)  # a method may run it as it is
    if method.traits.searches:
        seen = replace(seen, grads=_at_assumed_rate(seen, known))
    guess = guess_labels(task, seen, method, known, seed=options.seed)
    if guess is None:
        return method.rebuild(task, seen, known, options)
    known = replace(known, labels=guess.labels)
    return replace(method.rebuild(task, seen, known, options), label_residual=guess.residual)


def guess_labels(
    task: Task, seen: ObservedUpdates, method: Method, known: Knowledge, *, seed: int
) -> LabelGuess | None:
    """Return the labels that are inferred before the method runs; None where none are.

    The arguments are those of ``attack``, with a seed.

    Raises:
        InputError: labels cannot be inferred from this gradient.
    """
    finds = known.infer == "auto" and method.finds_labels
    unused = known.labels is not None or finds or not method.traits.uses_labels
    if unused or known.infer is None:
        return None
    return infer_labels(
        task,
        seen.params,
        seen.grads,
        seen.shape[0],
        method=known.infer,
        signs=known.steps is not None and not known.steps.recipe.rule.linear,
        like=known.like,
        record=seen.shape[1:],
        rng=stream(seed, "labels"),
    )


def _at_assumed_rate(seen: ObservedUpdates, known: Knowledge) -> Grads:
    """Return the updates on the scale of a gradient, read at the rate that the attacker assumes."""
    if known.steps is None or not known.unknown or not seen.updates:
        return seen.grads
    recipe = known.steps.recipe
    each = [recipe.as_gradient(one.before, one.values) for one in seen.updates]
    return {name: torch.stack([one[name] for one in each]) for name in each[0]}


def attacked_task(task: Task, client: Client) -> Task:
    """Return the task as the attacker runs it: in the client's mode, but without dropout.

    The client's dropout masks are random, and the attacker does not know them.
    """
    return repeatable(in_training(task)) if client.training else task


def assumed_steps(
    client: Client,
    *,
    simulate: bool = False,
    unknown: Sequence[str] = (),
    assumed_lr: float | None = None,
) -> LocalSteps | None:
    """Return the client's steps as the attacker assumes them; None where one sent a gradient.

    Args:
        client: settings of the training; steps and batch sizes are part of the protocol, so known,
            and so are rate and optimizer unless ``unknown`` names them.
        simulate: whether the attacker simulates the steps.
        unknown: parts of the training that it does not know: ``"rate"``, ``"optimizer"``.
        assumed_lr: the rate that it assumes then; None takes ``ASSUMED_LR``.

    Raises:
        InputError: the steps cannot be simulated.
    """
    if client.sends_gradient:
        one = LocalSteps(1, client.local_lr, clients=client.summed)
        return one if client.summed > 1 else None
    optimizer = client.optimizer
    if OPTIMIZER in unknown or (not simulate and not client.is_known):
        optimizer = SGD
    rates = client.recipe.rates
    if RATE in unknown:
        rates = (assumed_lr or ASSUMED_LR,) * client.steps
    return LocalSteps(
        client.local_steps,
        rates[0],
        client.epochs,
        optimizer=optimizer,
        rates=rates,
        clients=client.summed,
    )


def assumptions(task: Task, client: Client, known: Knowledge) -> tuple[str, ...]:
    """Return what the attacker assumes of the training that it does not know, one sentence each."""
    found, local = [], known.steps
    if local is not None and OPTIMIZER in known.unknown:
        found.append("the attacker does not know the optimizer, and assumes plain SGD")
    if local is not None and RATE in known.unknown:
        found.append(rate_assumed(local.lr))
    if known.simulate and client.epochs > 1 and client.reshuffle:
        found.append(
            "the client shuffles its records in each local epoch; the attacker does not know the "
            "orders, and assumes that of the first"
        )
    if client.training and any(map(draws, in_training(task).model.modules())):
        found.append(WITHOUT_DROPOUT)
    return tuple(found)


def inference_of(labels: str) -> LabelMethod:
    """Return how ``infer_labels`` infers what the setting ``labels`` names.

    >>> inference_of("inferred"), inference_of("gradinversion")
    ('auto', 'gradinversion')
    """
    return cast(LabelMethod, labels) if labels in get_args(LabelMethod) else "auto"


def finds_labels(labels: str, method: Method) -> bool:
    """Return whether the method finds labels itself under the setting ``labels``."""
    return labels == INFERRED and method.finds_labels


def order_warnings(labels: str, method: Method, *, simulate: bool) -> tuple[str, ...]:
    """Return why inferred labels do not go with a simulation of the local steps; often nothing.

    Inference gives the labels of a whole update, and a simulation needs those of each step.

    References:
        Xu et al., AGIC, SRDS 2022, section VI-B.
    """
    inferred = labels != KNOWN and not finds_labels(labels, method)
    return (_UNORDERED,) if simulate and inferred else ()


def rate_assumed(lr: float) -> str:
    """Return in a sentence what an attacker assumes of a rate that it does not know."""
    return f"the attacker does not know the local learning rate, and assumes {lr:g} at each step"


def search_progress(progress: Progress, title: str, iterations: int) -> SearchProgress:
    """Return the function that reports the iterations of a search to the user.

    It reads the loss at each ``LOSS_SHOWN_EVERY``-th iteration: a GPU stops for each reading.
    """
    shown = ""

    def report(at: int, loss: Tensor) -> None:
        nonlocal shown
        if at % LOSS_SHOWN_EVERY == 0 or at + 1 == iterations or not shown:
            shown = f"loss {float(loss.mean()):.4f}"
        progress.step(title, at + 1, iterations, shown)

    return report
