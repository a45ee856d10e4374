"""What participants and the server do in a round: steps, samples, defenses."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.defenses import DPSGD, Noise, Prune, Sign
from leakgauge.training import Participant, Protocol, State
from support.federations import close, dataset, drawn, network, people, played, same, sgd
from support.references import defenses as literal
from support.references.federation import averaged, train_locally


def test_local_steps_take_batches_from_pass_to_pass() -> None:
    rows = list(Protocol(rounds=1, steps=5, batch_size=4).batches(10, rng=stream(0, "order")))
    assert [len(one) for one in rows] == [4, 4, 2, 4, 4]
    assert torch.cat(rows[:3]).sort()[0].tolist() == list(range(10))
    rng = stream(0, "order")
    orders = [torch.from_numpy(rng.permutation(10)) for _ in range(2)]
    assert torch.cat(rows).tolist() == [*orders[0].tolist(), *orders[1][:8].tolist()]
    (one,) = played(people(10), Protocol(rounds=1, steps=2, batch_size=4))
    assert (one.sent[0].steps, one.sent[0].records) == (2, 8)


def test_each_round_and_participant_draws_its_own_batches() -> None:
    protocol, (participant,) = Protocol(rounds=1, batch_size=None), people(40)
    orders = [
        drawn(participant, protocol, number=number, position=position)[0].tolist()
        for number, position in [(1, 0), (2, 0), (1, 1), (1, 0)]
    ]
    assert orders[0] == orders[3]
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_a_share_of_the_participants_is_sampled() -> None:
    protocol = Protocol(rounds=100, lr=1e-3, batch_size=None, share=0.4, steps=1)
    rounds = played(people(3, 4, 5, 6, 7), protocol)
    chosen = [tuple(one.sent) for one in rounds]
    assert {len(one) for one in chosen} == {2}
    counts = [sum(position in one for one in chosen) for position in range(5)]
    # Each is in 2 of 5: 40 of 100 rounds, with the standard deviation sqrt(100 * 0.4 * 0.6) = 5.
    assert all(abs(count - 40) < 4 * 5 for count in counts)
    for before, one in pairwise(rounds):
        for position in one.sent:
            assert same(one.received[position], before.state.shared)
        each = [dict(one.uploaded(position)) for position in one.sent]
        close(one.state.shared, averaged(each, [3 + position for position in one.sent]))


def test_the_smallest_share_samples_one() -> None:
    (one,) = played(people(3, 3, 3), Protocol(rounds=1, share=0.01))
    assert len(one.sent) == 1


# Defenses.


def literally(change):
    """A change of rows of numbers, as one of a leaf ``[*p]``."""
    return lambda grad: torch.tensor(change(grad.flatten().tolist())).double().view(grad.shape)


def test_each_participant_has_its_own_defense() -> None:
    """The gradient of each of its steps; pruning counts each leaf apart."""
    data, pruned, signed = dataset(20), Prune(0.5).build(batch_size=5), Sign().build(batch_size=5)
    participants = [Participant(data, one) for one in (pruned, signed)]
    protocol = Protocol(rounds=1, lr=0.1, batch_size=5)
    (one,) = played(participants, protocol)
    changes = [literally(lambda row: literal.prune(row, 0.5)), literally(literal.sign)]
    for position, change in enumerate(changes):
        model = network()
        batches = drawn(participants[position], protocol, number=1, position=position)
        train_locally(model, data, batches, sgd(0.1), change)
        close(one.sent[position].values, model.state_dict())


def test_a_gradient_is_defended_once() -> None:
    """Whether as a step's or as the upload; then the server moves by what was sent."""
    signed, noisy = Sign().build(batch_size=20), Noise(std=0.1).build(batch_size=20)
    protocol = Protocol(kind="fedsgd", rounds=1, lr=0.1, batch_size=None)
    (one,) = played([Participant(dataset(20), signed)], protocol)
    model = network()
    batches = drawn(Participant(dataset(20)), protocol, number=1)
    train_locally(model, dataset(20), batches, sgd(0.1), literally(literal.sign))
    close(one.state.shared, model.state_dict())
    each = [
        played([Participant(dataset(20), noisy)], replace(protocol, defended=word))[0].sent[0]
        for word in ("steps", "upload")
    ]
    assert same(each[0].values, each[1].values)


def test_the_upload_alone_is_defended() -> None:
    (participant,) = people(20)
    protocol = Protocol(rounds=1, lr=0.1, batch_size=5, defended="upload")
    defense = Prune(0.5).build(batch_size=5)
    (plain,) = played([participant], protocol)
    (one,) = played([replace(participant, defense=defense)], protocol)
    before = State.of(network()).shared
    change = {name: (leaf - before[name])[None] for name, leaf in plain.state.shared.items()}
    wanted = defense.update(change, [])
    close(one.sent[0].values, {name: leaf[0] for name, leaf in wanted.items()})
    close(one.state.shared, {name: before[name] + leaf[0] for name, leaf in wanted.items()})


def test_the_noise_of_a_defense_follows_from_seed_round_and_participant() -> None:
    data, defense = dataset(20), DPSGD(noise=1.0).build(batch_size=5)
    protocol = Protocol(rounds=2, batch_size=None, steps=1)

    def changes(seed: int) -> list[Tensor]:
        rounds = played([Participant(data, defense)] * 2, protocol, seed=seed)
        return [
            one.uploaded(at)["0.bias"] - one.received[at]["0.bias"]
            for one in rounds
            for at in (0, 1)
        ]

    first, again, other = changes(0), changes(0), changes(1)
    assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))
    different = [*first, *other]
    assert len({tuple(one.tolist()) for one in different}) == len(different)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"kind": "fedprox"}, "kind of federation is 'fedprox'; known: 'fedavg', 'fedsgd'"),
        ({"rounds": 0}, "number of rounds is 0; expected a whole number above 0"),
        ({"epochs": 0}, "number of local epochs is 0"),
        ({"steps": 2.5}, "number of local steps is 2.5"),
        ({"batch_size": 0}, "batch size is 0"),
        ({"lr": 0.0}, "learning rate is 0"),
        ({"share": 0.0}, "share of participants is 0; expected a number above 0, at most 1"),
        ({"share": 1.5}, "share of participants is 1.5"),
        ({"steps": 2, "epochs": 3}, "2 local steps and 3 local epochs name two lengths"),
        ({"kind": "fedsgd", "steps": 2}, "with fedsgd a participant sends the gradient of one"),
        ({"defended": "gradients"}, "what is defended is 'gradients'; known: 'steps', 'upload'"),
    ],
)
def test_a_wrong_protocol_is_refused(settings: dict, said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        Protocol(**{"rounds": 1, **settings})
    assert "\n" not in str(refused.value)
