"""Strategies of attackers, who change what the server sends or what a participant uploads."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from leakgauge.core.checks import require, require_choice, require_positive
from leakgauge.core.losses import log_losses
from leakgauge.core.types import Params, Task, all_finite
from leakgauge.gradients.probing import explained
from leakgauge.training.catalog import FORMS, LOG, PRINTED, UNIT
from leakgauge.training.protocol import FEDSGD, Protocol
from leakgauge.training.state import Tensors, working_copy
from leakgauge.training.update import Update


def ascended(
    task: Task, tensors: Tensors, x: Tensor, y: Tensor, *, rate: float, form: str
) -> dict[str, Tensor]:
    """Return the tensors after one step that raises the loss on a batch.

    The model is in evaluation mode, and only its parameters change.

    Args:
        task: the model and its loss; the module is not changed.
        tensors: parameters and buffers.
        x: target records ``[n, ...]``, together one batch.
        y: their labels ``[n, ...]``.
        rate: length of the step, in units of the form.
        form: word of ``FORMS``; see ``GradientAscent``.

    Raises:
        InputError: the records do not fit the task, or the step leads to parameters that are not
            finite.
    """
    own, leaves = working_copy(task, tensors)
    own.model.eval()
    with explained("gradient ascent failed"):
        slope = _slope(own, leaves, x, y, form)
    scale = rate / _norm(slope) if form == UNIT else rate
    moved = {name: (leaf + scale * slope[name]).detach() for name, leaf in leaves.items()}
    require(
        all_finite(moved.values()),
        f"gradient ascent at rate {rate:g} diverged (parameters are not finite); lower the rate",
    )
    return {**tensors, **moved}


def _slope(own: Task, leaves: Params, x: Tensor, y: Tensor, form: str) -> Params:
    """Return the gradient of the ascent's objective."""
    with torch.enable_grad():
        outputs, logs = own.outputs(x), form == LOG
        raised = log_losses(own.loss, outputs, y).mean() if logs else own.mean_loss(outputs, y)
    slopes = torch.autograd.grad(raised, list(leaves.values()), materialize_grads=True)
    return dict(zip(leaves, slopes, strict=True))


def _norm(slope: Params) -> float:
    """Return the l2 norm of all leaves together; 1 for zeros."""
    norm = torch.stack([leaf.double().norm() for leaf in slope.values()]).norm()
    return float(norm) or 1.0


class Strategy:
    """Changes that an attacker makes to a protocol: none by default.

    A subclass overrides what its attacker changes.
    """

    @property
    def isolates(self) -> frozenset[int]:
        """Participants that get their own model back in each round."""
        return frozenset()

    def check(self, participants: int, protocol: Protocol) -> None:
        """Refuse a federation in which the attack is not possible.

        Raises:
            InputError: a participant does not exist, or sends what the attack cannot change.
        """
        for position in self.isolates:
            _require_participant(position, participants)

    def broadcast(self, task: Task, tensors: Tensors) -> Tensors:
        """Return what the server sends in place of a model's parameters and buffers."""
        return tensors

    def upload(self, task: Task, update: Update, *, participant: int) -> Update:
        """Return what a participant uploads in place of its update."""
        return update


@dataclass(frozen=True)
class Honest(Strategy):
    """Follows the protocol; the attacker only observes."""


@dataclass(frozen=True, eq=False)
class GradientAscent(Strategy):
    """Raises the loss of target records in each round, since members pull their loss down again.

    Eq. 2 moves the parameters, W <- W + rate * dL/dW, with L the mean loss of the targets, which
    are one batch. (Section IV-E of the paper says that the attacker "updates their data features";
    that is wrong: the features of the records stay as they are.)

    Attributes:
        x: target records ``[n, ...]``.
        y: their labels ``[n, ...]``.
        rate: rate of the ascent.
        form: ``"printed"``: Eq. 2. ``"unit"``: a step of norm ``rate`` along the gradient, over
            all parameters together. ``"log"``: ascent on the mean log of the records' losses, so
            each record's gradient is divided by its loss: the printed step hardly moves members,
            whose gradients are tiny.
        by: position of the participant that ascends after its training (a local attacker); None
            for the server, which ascends before it sends (the global attacker).

    Raises:
        InputError: the records, the rate or the form do not fit.

    References:
        Nasr, Shokri, Houmansadr, "Comprehensive Privacy Analysis of Deep Learning", IEEE S&P 2019,
        sections II-C and IV-E.
    """

    x: Tensor
    y: Tensor
    rate: float
    form: str = PRINTED
    by: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        require_choice(self.form, "form of the ascent", FORMS)
        require_positive(self.rate, "rate of the ascent")
        require(
            len(self.x) == len(self.y) > 0,
            f"gradient ascent got {len(self.x)} records and {len(self.y)} labels; expected one "
            "label for each of at least one target",
        )

    def check(self, participants: int, protocol: Protocol) -> None:
        """Refuse a participant who does not exist, or sends gradients."""
        if self.by is not None:
            _require_participant(self.by, participants)
            require(
                protocol.kind != FEDSGD,
                "a participant who sends gradients has no parameters to ascend; take fedavg, or "
                "let the server ascend",
            )

    def broadcast(self, task: Task, tensors: Tensors) -> Tensors:
        """Return the tensors after the ascent, where the server is the attacker."""
        return tensors if self.by is not None else self._ascended(task, tensors)

    def upload(self, task: Task, update: Update, *, participant: int) -> Update:
        """Return the weights after the ascent, where the participant is the attacker."""
        if participant != self.by:
            return update
        moved = self._ascended(task, {**update.after(), **update.buffers})
        values = {name: moved[name] for name in update.before}
        return replace(update, kind="weights", values=values)

    def _ascended(self, task: Task, tensors: Tensors) -> Tensors:
        device = next(iter(tensors.values())).device
        x, y = self.x.to(device), self.y.to(device)
        return ascended(task, tensors, x, y, rate=self.rate, form=self.form)


@dataclass(frozen=True)
class Isolate(Strategy):
    """The server gives one participant its own model back, never the average.

    That participant's weights do not enter the average of the others either: a model with its own
    past would spoil it.

    Attributes:
        participant: its position, from 0.

    References:
        Nasr, Shokri, Houmansadr, IEEE S&P 2019, section IV-E.
    """

    participant: int

    @property
    def isolates(self) -> frozenset[int]:
        """The participant."""
        return frozenset({self.participant})


@dataclass(frozen=True, eq=False)
class Together(Strategy):
    """Several strategies at once, in order, such as isolation and gradient ascent.

    Attributes:
        strategies: strategies, applied in order.

    >>> sorted(Together((Isolate(2), Isolate(0))).isolates)
    [0, 2]
    """

    strategies: Collection[Strategy]

    @property
    def isolates(self) -> frozenset[int]:
        """All participants that any of the strategies isolates."""
        return frozenset().union(*(one.isolates for one in self.strategies))

    def check(self, participants: int, protocol: Protocol) -> None:
        """Refuse a federation that any of the strategies refuses."""
        for one in self.strategies:
            one.check(participants, protocol)

    def broadcast(self, task: Task, tensors: Tensors) -> Tensors:
        """Return what the server sends after all strategies."""
        for one in self.strategies:
            tensors = one.broadcast(task, tensors)
        return tensors

    def upload(self, task: Task, update: Update, *, participant: int) -> Update:
        """Return what the participant uploads after all strategies."""
        for one in self.strategies:
            update = one.upload(task, update, participant=participant)
        return update


def _require_participant(position: int, participants: int) -> None:
    require(
        0 <= position < participants,
        f"participant {position} does not exist; expected 0 to {participants - 1}",
    )
