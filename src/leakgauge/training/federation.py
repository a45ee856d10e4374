"""Federated training, round by round: who receives what, who sends what, and the state after."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakgauge.core.checks import InputError, require
from leakgauge.core.rng import own_randomness, stream
from leakgauge.core.threads import one_thread
from leakgauge.core.types import Params, Task, all_finite
from leakgauge.gradients.probing import explained
from leakgauge.training.catalog import SGD
from leakgauge.training.local import defended, gradient_alone, train
from leakgauge.training.participant import Trainee, Turn
from leakgauge.training.protocol import FEDAVG, FEDSGD, STEPS, Protocol
from leakgauge.training.state import State, Tensors, average, check_tensors
from leakgauge.training.strategies import Honest, Strategy
from leakgauge.training.update import Update

HONEST = Honest()


@dataclass(frozen=True, eq=False)
class Round:
    """One round of a federation.

    Attributes:
        number: number of the round, from 1.
        received: parameters and buffers that the server sent, by the position of the participant;
            only sampled participants are here.
        sent: update of each of them.
        state: state after the round, the only input of the next round.
    """

    number: int
    received: dict[int, Tensors]
    sent: dict[int, Update]
    state: State

    def uploaded(self, participant: int) -> Tensors:
        """Return the parameters and buffers of a participant's model as it was uploaded.

        With ``"fedsgd"`` the parameters are those that it received: it uploads a gradient.
        """
        update = self.sent[participant]
        return {**update.after(), **update.buffers}


def federation(
    task: Task,
    state: State,
    participants: Sequence[Trainee],
    protocol: Protocol,
    *,
    strategy: Strategy = HONEST,
    seed: int,
    after: int = 0,
) -> Iterator[Round]:
    """Return an iterator over the rounds of a federation.

    All randomness follows from ``seed``, the round and the participant, and arithmetic runs on one
    thread, so a run resumed from a kept state is bit-identical to one that was never stopped.
    The model trains in the mode in which it comes: in train mode BatchNorm's buffers change, are
    sent and are averaged, and dropout draws by seed, round and participant.

    Args:
        task: the model and its loss; the module is not changed.
        state: start of the training: ``State.of(model)``, or the state of an earlier round.
        participants: records and defenses.
        protocol: steps of each round.
        strategy: changes that an attacker makes.
        seed: seed of all randomness.
        after: number of finished rounds; the iterator starts with the next one.

    Yields:
        Rounds ``after + 1`` to ``protocol.rounds``.

    Raises:
        InputError: the parts do not fit, which is checked at once; or the training diverges.

    >>> import torch
    >>> from leakgauge.core.types import Dataset
    >>> from leakgauge.training.participant import Participant
    >>> task = Task(torch.nn.Linear(2, 1), "mse")
    >>> people = [Participant(Dataset(torch.ones(4, 2), torch.full((4,), y))) for y in (1.0, 3.0)]
    >>> protocol = Protocol(rounds=50, lr=0.1)
    >>> *_, last = federation(task, State.of(task.model), people, protocol, seed=0)
    >>> fitted = torch.func.functional_call(task.model, dict(last.state.shared), torch.ones(2))
    >>> last.number, list(last.sent), round(fitted.item(), 3)
    (50, [0, 1], 2.0)
    """
    require(len(participants) > 0, "a federation has no participants; pass at least one")
    strategy.check(len(participants), protocol)
    require(
        0 <= after <= protocol.rounds,
        f"{after} rounds are finished; expected 0 to {protocol.rounds}, the rounds of all",
    )
    check_tensors(state.shared, task, "the shared model")
    for position, tensors in state.own.items():
        require(
            position in strategy.isolates,
            f"the state has an own model of participant {position}, whom the strategy does not "
            "isolate; pass the strategy of the rounds before",
        )
        check_tensors(tensors, task, f"participant {position}")
    return _rounds(_Federation(task, tuple(participants), protocol, strategy, seed), state, after)


def _rounds(federated: "_Federation", state: State, after: int) -> Iterator[Round]:
    for number in range(after + 1, federated.protocol.rounds + 1):
        with one_thread():
            done = federated.run_round(number, state)
        yield done
        state = done.state


@dataclass(frozen=True, eq=False)
class _Group:
    """Messages of participants with one common model, and their model after the round."""

    received: Tensors
    sent: dict[int, Update]
    after: Tensors


@dataclass(frozen=True, eq=False)
class _Federation:
    """The parts of a federation that stay the same in all rounds."""

    task: Task
    participants: tuple[Trainee, ...]
    protocol: Protocol
    strategy: Strategy
    seed: int

    def run_round(self, number: int, state: State) -> Round:
        """Return one round."""
        sampled = self._sampled(number)
        alone = self.strategy.isolates
        own = {one: state.own.get(one, state.shared) for one in sorted(alone)}
        together = self._group(number, [one for one in sampled if one not in alone], state.shared)
        apart = {one: self._group(number, [one], own[one]) for one in sampled if one in alone}
        group_of = {one: apart.get(one, together) for one in sampled}
        return Round(
            number,
            {one: group.received for one, group in group_of.items()},
            {one: group.sent[one] for one, group in group_of.items()},
            State(together.after, {**own, **{one: group.after for one, group in apart.items()}}),
        )

    def _sampled(self, number: int) -> list[int]:
        total = len(self.participants)
        count = max(1, int(self.protocol.share * total + 0.5))
        rng = stream(self.seed, "federation", "sample", number)
        return sorted(rng.choice(total, size=count, replace=False).tolist())

    def _group(self, number: int, members: Sequence[int], model: Tensors) -> _Group:
        if not members:
            return _Group(model, {}, model)
        received = self.strategy.broadcast(self.task, model)
        sent = {one: self._upload(number, one, received) for one in members}
        weights = [len(self.participants[one]) if self.protocol.weighted else 1 for one in sent]
        return _Group(received, sent, self._aggregate(received, list(sent.values()), weights))

    def _aggregate(
        self, received: Tensors, sent: Sequence[Update], weights: Sequence[float]
    ) -> Tensors:
        buffers = average([update.buffers for update in sent], weights)
        if self.protocol.kind == FEDAVG:
            return {**average([update.after() for update in sent], weights), **buffers}
        gradient = average([update.values for update in sent], weights)
        leaves = {name: received[name].clone().requires_grad_() for name in gradient}
        self.protocol.mover()(leaves)(gradient)
        return {**{name: leaf.detach() for name, leaf in leaves.items()}, **buffers}

    def _upload(self, number: int, position: int, received: Tensors) -> Update:
        one = self.participants[position]
        turn = one.turn(received, seed=self.seed, number=number, position=position)
        who = "training" if len(self.participants) == 1 else f"training of participant {position}"
        with explained(f"{who} failed in round {number}"):
            update = upload_of(self.task, received, turn, self.protocol, who=who, number=number)
        return self.strategy.upload(self.task, update, participant=position)


def upload_of(
    task: Task, received: Tensors, turn: Turn, protocol: Protocol, *, who: str, number: int
) -> Update:
    """Return what a participant uploads: its weights, or with ``"fedsgd"`` its gradient.

    Args:
        task: the model and its loss; the module is not changed.
        received: parameters and buffers from the server.
        turn: records, defense and seeds of the participant in this round.
        protocol: steps of the round.
        who: subject of messages, such as ``"training of participant 2"``.
        number: number of the round.

    Returns:
        The update. Its ``buffers`` are the model's after training, ``held`` those before.

    Raises:
        InputError: the training diverges, or the defense does not fit the protocol.
    """
    at_steps = protocol.kind == FEDSGD or protocol.defended == STEPS
    require(
        at_steps or turn.defense.per_example is None,
        f"{turn.defense.name!r} changes each record's gradient, and the upload of several steps "
        'has none; take defended="steps" or another defense',
    )
    rows = [one.to(turn.data.y.device) for one in protocol.batches(len(turn.data), rng=turn.rng)]
    gradient: dict[str, Tensor] = {}
    mover = gradient_alone(gradient) if protocol.kind == FEDSGD else turn.mover or protocol.mover()
    defense = turn.defense if at_steps else None
    with own_randomness(turn.model_seed, turn.data.x.device):
        after = train(
            task, received, turn.data, rows, over=mover, defense=defense, noise_seed=turn.noise_seed
        )
    _refuse_diverged({**after, **gradient}, turn, protocol, f"{who} diverged in round {number}")
    update = _update(task, received, after, gradient, turn, protocol, rows)
    return update if at_steps else _defended(update, turn)


def _update(
    task: Task,
    received: Tensors,
    after: Tensors,
    gradient: Params,
    turn: Turn,
    protocol: Protocol,
    rows: Sequence[Tensor],
) -> Update:
    trained = [name for name, leaf in task.model.named_parameters() if leaf.requires_grad]
    aside = [name for name in after if name not in trained]
    lr, optimizer = (None, SGD) if turn.mover is not None else protocol.update_settings
    return Update(
        "gradient" if gradient else "weights",
        gradient or {name: after[name] for name in trained},
        {name: received[name] for name in trained},
        lr=lr,
        steps=len(rows),
        batch_size=protocol.size(len(turn.data)),
        records=min(len(turn.data), sum(map(len, rows))),
        buffers={name: after[name] for name in aside},
        held={name: received[name] for name in aside},
        optimizer=optimizer,
    )


def _defended(update: Update, turn: Turn) -> Update:
    """Return the change of the weights after the defense, in place of the weights."""
    change = {name: update.values[name] - leaf for name, leaf in update.before.items()}
    noise = torch.Generator(turn.data.y.device).manual_seed(turn.noise_seed)
    return replace(update, kind="change", values=defended(change, turn.defense, noise))


def _refuse_diverged(tensors: Tensors, turn: Turn, protocol: Protocol, what: str) -> None:
    if all_finite(tensors.values()):
        return
    name = turn.defense.name
    weaker = "" if name == "none" else f", or weaken the defense {name!r}"
    raise InputError(
        f"{what} (parameters are not finite); lower the learning rate, now {protocol.rate:g}"
        f"{weaker}"
    )
