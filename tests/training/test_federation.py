"""Federations against loops in plain PyTorch, and closed cases."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import InputError
from leakgauge.core.types import Dataset, Task
from leakgauge.defenses import DPSGD, VIB, Perturb
from leakgauge.training import Isolate, Participant, Protocol, State
from leakgauge.training.catalog import parse_optimizer
from leakgauge.training.federation import federation
from support.federations import close, dataset, drawn, network, people, played, sgd
from support.references.federation import fedavg, steps_on_the_union, train_locally


@pytest.mark.parametrize("optimizer", [None, lambda params: torch.optim.Adam(params, lr=0.05)])
def test_fedsgd_on_all_data_is_one_step_on_the_union(optimizer) -> None:
    participants = people(10, 7, 25)
    protocol = Protocol(kind="fedsgd", rounds=3, lr=0.2, batch_size=None, optimizer=optimizer)
    (*_, last) = played(participants, protocol)
    model = network()
    steps_on_the_union(model, [one.data for one in participants], 3, optimizer or sgd(0.2))
    close(last.state.shared, model.state_dict())


def test_fedavg_with_one_client_is_plain_training() -> None:
    (participant,) = people(20)
    protocol = Protocol(rounds=3, lr=0.1, batch_size=8)
    rounds = played([participant], protocol)
    batches = [rows for number in (1, 2, 3) for rows in drawn(participant, protocol, number=number)]
    model = network()
    train_locally(model, participant.data, batches, sgd(0.1))
    assert len(batches) == 9
    close(rounds[-1].state.shared, model.state_dict())


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize("settings", [{"epochs": 2}, {"steps": 4}])
def test_fedavg_is_the_literal_average(settings: dict, *, weighted: bool, batch_norm: bool) -> None:
    """Weighted by records or equally; with buffers in train mode and local steps."""
    participants = people(12, 30, 18)
    protocol = Protocol(rounds=3, lr=0.1, batch_size=6, weighted=weighted, **settings)
    rounds = played(participants, protocol, network(batch_norm=batch_norm))
    orders = [
        [drawn(one, protocol, number=number, position=at) for at, one in enumerate(participants)]
        for number in (1, 2, 3)
    ]
    wanted = fedavg(
        network(batch_norm=batch_norm),
        [one.data for one in participants],
        orders,
        sgd(0.1),
        weighted=weighted,
    )
    close(rounds[-1].state.shared, wanted.state_dict())


def test_buffers_do_not_change_in_evaluation_mode() -> None:
    model = network(batch_norm=True).eval()
    (*_, last) = played(people(12, 18), Protocol(rounds=2, batch_size=6), model)
    for name, buffer in model.named_buffers():
        assert torch.equal(last.state.shared[name], buffer)
    assert not torch.equal(last.state.shared["1.weight"], model[1].weight)


def test_what_is_sent_holds_the_buffers() -> None:
    (one,) = played(people(12, 18), Protocol(rounds=1, batch_size=6), network(batch_norm=True))
    update = one.sent[1]
    assert (update.kind, update.steps, update.batch_size, update.records) == ("weights", 3, 6, 18)
    assert update.lr == 0.01
    assert int(update.held["1.num_batches_tracked"]) == 0
    assert int(update.buffers["1.num_batches_tracked"]) == 3
    assert not torch.equal(update.buffers["1.running_mean"], update.held["1.running_mean"])
    assert one.uploaded(1).keys() == one.state.shared.keys()


def test_fedsgd_sends_gradients_and_buffers() -> None:
    participants = people(12, 30)
    model = network(batch_norm=True)
    (one,) = played(participants, Protocol(kind="fedsgd", rounds=1, batch_size=None), model)
    for position, participant in enumerate(participants):
        literal = network(batch_norm=True)
        cross_entropy(literal(participant.data.x), participant.data.y).backward()
        wanted = {name: leaf.grad for name, leaf in literal.named_parameters()}
        close(one.sent[position].values, wanted)
        close(one.sent[position].buffers, dict(literal.named_buffers()))
    means = [update.buffers["1.running_mean"] for update in one.sent.values()]
    close(
        {"mean": one.state.shared["1.running_mean"]}, {"mean": (12 * means[0] + 30 * means[1]) / 42}
    )


def test_an_optimizer_is_made_anew_in_each_round() -> None:
    (participant,) = people(20)
    make = lambda params: torch.optim.Adam(params, lr=0.01)  # noqa: E731
    protocol = Protocol(rounds=2, optimizer=make, batch_size=5, epochs=2)
    rounds = played([participant], protocol)
    model = network()
    for number in (1, 2):
        train_locally(model, participant.data, drawn(participant, protocol, number=number), make)
    close(rounds[-1].state.shared, model.state_dict())
    assert rounds[0].sent[0].lr is None
    named = replace(protocol, optimizer=parse_optimizer("adam", lr=0.01))
    (update, *_) = (one.sent[0] for one in played([participant], named))
    assert (update.lr, update.optimizer) == (0.01, "adam")
    close(update.values, rounds[0].sent[0].values)


# Refusals, one line each.


def test_parts_that_do_not_fit_are_refused_at_once() -> None:
    task, participants, protocol = Task(network()), people(5, 5), Protocol(rounds=2)
    good = State.of(task.model)
    less = State({name: leaf for name, leaf in good.shared.items() if name != "0.bias"})
    more = State({**good.shared, "7.bias": torch.zeros(1)})
    narrow = State(good.shared, {1: {**good.shared, "0.bias": torch.zeros(2)}})
    for state, group, settings, said in [
        (good, [], {}, "a federation has no participants"),
        (good, participants, {"after": 3}, "3 rounds are finished; expected 0 to 2"),
        (good, participants, {"strategy": Isolate(2)}, "participant 2 does not exist"),
        (less, participants, {}, "state of the shared model has no '0.bias', which State.of"),
        (more, participants, {}, "has '7.bias', not in State.of"),
        (narrow, participants, {}, "own model of participant 1, whom the strategy does not iso"),
        (
            narrow,
            participants,
            {"strategy": Isolate(1)},
            r"state of participant 1: '0.bias' is \[2\]; expected \[6\]",
        ),
    ]:
        with pytest.raises(InputError, match=said) as refused:
            federation(task, state, group, protocol, **{"seed": 0, **settings})
        assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match="'held/w' is not a tensor of a federation"):
        State.from_flat({"held/w": torch.zeros(1)})


def test_a_participant_that_cannot_train_is_refused_in_one_line() -> None:
    (good,) = people(5)
    wide = Participant(Dataset(torch.randn(5, 9).double(), torch.zeros(5, dtype=torch.int64)))
    far = replace(good, data=replace(good.data, x=good.data.x * math.nan))
    for spoiled, said in [
        (wide, "training of participant 1 failed in round 1: .*shapes cannot be multiplied"),
        (far, r"training of participant 1 diverged in round 1 .*lower the learning rate, now 0\.5"),
    ]:
        with pytest.raises(InputError, match=said) as refused:
            played([good, spoiled], Protocol(rounds=1, lr=0.5, batch_size=2))
        assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match="a participant has no records"):
        people(0)


@pytest.mark.parametrize(
    ("defense", "said"),
    [
        (Perturb(), "'perturb.*' is learnt from public gradients"),
        (VIB(), "'vib.*' changes the model and adds noise to the code of each record"),
    ],
)
def test_a_defense_of_more_than_gradients_is_refused(defense, said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        Participant(dataset(5), defense.build(batch_size=5))
    assert "\n" not in str(refused.value)


def test_an_upload_of_several_steps_has_no_record_gradients_to_clip() -> None:
    participant = Participant(dataset(20), DPSGD().build(batch_size=5))
    with pytest.raises(InputError, match="changes each record's gradient, and the upload"):
        played([participant], Protocol(rounds=1, batch_size=5, defended="upload"))
