"""An isolated participant against solitude, and user-defined strategies."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from leakgauge.core.types import Dataset, Task
from leakgauge.training import Isolate, Participant, Protocol, State, Strategy, Together
from leakgauge.training.federation import federation
from leakgauge.training.state import Tensors
from support.federations import alone, close, dataset, network, people, played, same
from support.references.federation import averaged


def test_an_isolated_participant_trains_alone() -> None:
    participants = people(12, 30, 18)
    protocol = Protocol(rounds=3, lr=0.1, batch_size=6)
    rounds = played(participants, protocol, network(batch_norm=True), strategy=Isolate(1))
    model = network(batch_norm=True)
    for number, one in enumerate(rounds, start=1):
        close(one.received[1], model.state_dict())
        alone(model, participants[1].data, number=number, position=1, size=6, lr=0.1)
        close(one.state.own[1], model.state_dict())
        close(one.uploaded(1), model.state_dict())
    for before, one in pairwise(rounds):
        assert same(one.received[0], before.state.shared)
        close(one.state.shared, averaged([one.uploaded(0), one.uploaded(2)], [12, 18]))


@pytest.mark.parametrize("kind", ["fedavg", "fedsgd"])
def test_nothing_passes_between_an_isolated_participant_and_the_others(kind: str) -> None:
    """Other records on one side leave every bit on the other side as it is."""
    first, isolated, third = people(12, 30, 18)
    other = Participant(dataset(45, seed=9))
    protocol = Protocol(kind=kind, rounds=3, lr=0.1, batch_size=6)

    def last(*participants: Participant) -> State:
        model = network(batch_norm=True)
        return played(participants, protocol, model, strategy=Isolate(1))[-1].state

    usual = last(first, isolated, third)
    assert same(last(first, other, third).shared, usual.shared)
    assert not same(last(first, other, third).own[1], usual.own[1])
    assert same(last(other, isolated, third).own[1], usual.own[1])
    assert not same(last(other, isolated, third).shared, usual.shared)


def test_all_participants_can_be_isolated() -> None:
    participants = people(12, 30)
    start = State.of(network()).shared
    everyone = Together((Isolate(0), Isolate(1)))
    rounds = played(participants, Protocol(rounds=2, lr=0.1), strategy=everyone)
    assert same(rounds[-1].state.shared, start)
    for position in (0, 1):
        (*_, last) = played(participants, Protocol(rounds=2, lr=0.1), strategy=Isolate(position))
        assert same(rounds[-1].state.own[position], last.state.own[position])


def test_an_isolated_participant_that_is_not_sampled_keeps_its_model() -> None:
    protocol = Protocol(rounds=30, lr=0.1, batch_size=6, share=0.3)
    rounds = played(people(12, 12, 12), protocol, strategy=Isolate(1))
    chosen = set()
    for before, one in pairwise(rounds):
        chosen.add(tuple(one.sent))
        if 1 not in one.sent:
            assert same(one.state.own[1], before.state.own[1])
        else:
            assert same(one.state.shared, before.state.shared)
    assert chosen == {(0,), (1,), (2,)}


def test_isolation_can_begin_after_rounds() -> None:
    """The participant continues from the shared model of the last round."""
    participants, protocol = people(12, 30), Protocol(rounds=3, lr=0.1)
    task = Task(network())
    honest, *_ = federation(task, State.of(task.model), participants, protocol, seed=0)
    later = federation(
        task, honest.state, participants, protocol, strategy=Isolate(0), seed=0, after=1
    )
    first, second = later
    assert same(first.received[0], honest.state.shared)
    assert same(second.received[0], first.uploaded(0))


def test_a_converged_isolated_participant_sends_a_zero_update() -> None:
    """Its loss cannot fall further; that is a warning, no refusal."""
    task = Task(nn.Linear(2, 1).double(), "mse")
    fitted = Dataset(torch.zeros(4, 2).double(), task.model.bias.expand(4).detach())
    (one,) = federation(
        task,
        State.of(task.model),
        [Participant(fitted)] * 2,
        Protocol(rounds=1),
        strategy=Isolate(0),
        seed=0,
    )
    assert one.sent[0].is_zero
    assert "reveals nothing" in one.sent[0].warnings()[0]


def test_a_strategy_of_ones_own() -> None:
    class Doubled(Strategy):
        def broadcast(self, task: Task, tensors: Tensors) -> Tensors:
            return {name: 2 * leaf for name, leaf in tensors.items()}

    (one,) = played(people(4), Protocol(rounds=1), strategy=Together([Doubled(), Doubled()]))
    start = State.of(network()).shared
    assert same(one.received[0], {name: 4 * leaf for name, leaf in start.items()})
