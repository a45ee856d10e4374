"""Federations against loops in plain PyTorch, closed cases, and a run that is killed."""

import math
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.core.types import Dataset, Task
from leakgauge.defenses import DPSGD, Perturb, Prune, Sign
from leakgauge.gradients import params_of
from leakgauge.training import Isolate, Participant, Protocol, State, train_epoch
from leakgauge.training.federation import federation
from support import processes
from support.federations import (
    KEPT,
    alone,
    close,
    copied,
    dataset,
    keep_rounds,
    network,
    people,
    played,
    same,
    stochastic,
)

# Closed cases.


@pytest.mark.parametrize("optimizer", [None, lambda params: torch.optim.Adam(params, lr=0.05)])
def test_fedsgd_on_all_data_is_one_step_on_the_union(optimizer) -> None:
    participants = people(10, 7, 25)
    protocol = Protocol(kind="fedsgd", rounds=3, lr=0.2, batch_size=None, optimizer=optimizer)
    (*_, last) = played(participants, protocol)
    model = network()
    x = torch.cat([one.data.x for one in participants])
    y = torch.cat([one.data.y for one in participants])
    for _ in range(3):
        make = optimizer or (lambda params: torch.optim.SGD(params, lr=0.2))
        literal = make(list(model.parameters()))
        literal.zero_grad()
        cross_entropy(model(x), y).backward()
        literal.step()
    close(last.state.shared, model.state_dict())


def test_fedavg_with_one_client_is_plain_training() -> None:
    model = network()
    (participant,) = people(20)
    rounds = played([participant], Protocol(rounds=3, lr=0.1, batch_size=8))
    for number in (1, 2, 3):
        alone(model, participant.data, number=number, position=0, size=8, lr=0.1)
    close(rounds[-1].state.shared, model.state_dict())


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("batch_norm", [True, False])
def test_fedavg_is_the_literal_average(*, weighted: bool, batch_norm: bool) -> None:
    """Parameters and running statistics alike; counts of batches are rounded."""
    sizes = (12, 30, 18)
    participants = people(*sizes)
    protocol = Protocol(rounds=3, lr=0.1, batch_size=6, weighted=weighted)
    rounds = played(participants, protocol, network(batch_norm=batch_norm))
    shared = network(batch_norm=batch_norm).state_dict()
    shares = [n / sum(sizes) for n in sizes] if weighted else [1 / 3] * 3
    for number in (1, 2, 3):
        each = []
        for position, one in enumerate(participants):
            model = copied(shared, network(batch_norm=batch_norm))
            alone(model, one.data, number=number, position=position, size=6, lr=0.1)
            each.append(model.state_dict())
        shared = {
            name: sum(s * e[name].double() for s, e in zip(shares, each, strict=True))
            for name in shared
        }
        shared = {
            name: leaf.round().long() if "num_batches" in name else leaf
            for name, leaf in shared.items()
        }
    close(rounds[-1].state.shared, shared)


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


# Rounds, steps and samples.


def test_local_steps_take_batches_from_pass_to_pass() -> None:
    drawn = list(Protocol(rounds=1, steps=5, batch_size=4).batches(10, rng=stream(0, "order")))
    assert [len(rows) for rows in drawn] == [4, 4, 2, 4, 4]
    assert torch.cat(drawn[:3]).sort()[0].tolist() == list(range(10))
    rng = stream(0, "order")
    orders = [torch.from_numpy(rng.permutation(10)) for _ in range(2)]
    assert torch.cat(drawn).tolist() == [*orders[0].tolist(), *orders[1][:8].tolist()]
    (one,) = played(people(10), Protocol(rounds=1, steps=2, batch_size=4))
    assert (one.sent[0].steps, one.sent[0].records) == (2, 8)


def test_an_optimizer_is_made_anew_in_each_round() -> None:
    (participant,) = people(20)
    make = lambda params: torch.optim.Adam(params, lr=0.01)  # noqa: E731
    protocol = Protocol(rounds=2, optimizer=make, batch_size=5, epochs=2)
    rounds = played([participant], protocol)
    model = network()
    for number in (1, 2):
        literal = make(list(model.parameters()))
        rng = participant.turn({}, seed=0, number=number, position=0).rng
        for rows in protocol.batches(20, rng=rng):
            literal.zero_grad()
            cross_entropy(model(participant.data.x[rows]), participant.data.y[rows]).backward()
            literal.step()
    close(rounds[-1].state.shared, model.state_dict())
    assert rounds[0].sent[0].lr is None


def test_a_share_of_the_participants_is_sampled() -> None:
    protocol = Protocol(rounds=100, lr=1e-3, batch_size=None, share=0.4, steps=1)
    rounds = played(people(3, 3, 3, 3, 3), protocol)
    chosen = [tuple(one.sent) for one in rounds]
    assert {len(one) for one in chosen} == {2}
    counts = [sum(position in one for one in chosen) for position in range(5)]
    # Each is in 2 of 5: 40 of 100 rounds, with the standard deviation sqrt(100 * 0.4 * 0.6) = 5.
    assert all(abs(count - 40) < 4 * 5 for count in counts)
    for before, one in pairwise(rounds):
        wanted = {
            name: (one.uploaded(one_of[0])[name] + one.uploaded(one_of[1])[name]) / 2
            for one_of in [tuple(one.sent)]
            for name in before.state.shared
        }
        close(one.state.shared, wanted)


def test_the_smallest_share_samples_one() -> None:
    (one,) = played(people(3, 3, 3), Protocol(rounds=1, share=0.01))
    assert len(one.sent) == 1


# Defenses.


def test_each_participant_has_its_own_defense() -> None:
    """At each step, as plain training with that defense."""
    data, pruned, signed = dataset(20), Prune(0.5).build(batch_size=5), Sign().build(batch_size=5)
    participants = [Participant(data, one) for one in (pruned, signed)]
    (one,) = played(participants, Protocol(rounds=1, lr=0.1, batch_size=5))
    for position, participant in enumerate(participants):
        turn = participant.turn({}, seed=0, number=1, position=position)
        task = Task(network())
        wanted = train_epoch(
            task, params_of(task.model), data,
            lr=0.1, batch_size=5, rng=turn.rng, defense=participant.defense,
        )  # fmt: skip
        assert same(one.sent[position].values, wanted)


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
    with pytest.raises(InputError, match="changes each record's gradient, and the upload"):
        played([replace(participant, defense=DPSGD().build(batch_size=5))], protocol)


def test_the_noise_of_a_defense_follows_from_seed_round_and_participant() -> None:
    data, defense = dataset(20), DPSGD(noise=1.0).build(batch_size=5)
    protocol = Protocol(rounds=2, batch_size=None, steps=1)
    first = played([Participant(data, defense)] * 2, protocol)
    again = played([Participant(data, defense)] * 2, protocol)
    other = played([Participant(data, defense)] * 2, protocol, seed=1)
    assert same(first[0].uploaded(1), again[0].uploaded(1))
    assert not same(first[0].uploaded(0), first[0].uploaded(1))
    assert not same(first[0].uploaded(0), other[0].uploaded(0))


# Repeats and resumes.


def test_two_runs_with_one_seed_are_bit_identical() -> None:
    def run(seed: int) -> dict[str, Tensor]:
        task, state, participants, protocol, strategy = stochastic(4)
        torch.manual_seed(seed + 7)  # global randomness does not count
        rounds = federation(task, state, participants, protocol, strategy=strategy, seed=seed)
        return list(rounds)[-1].state.flat()

    assert same(run(0), run(0))
    assert not same(run(0), run(1))


def test_global_randomness_and_the_model_stay_as_they_are() -> None:
    task, state, participants, protocol, strategy = stochastic(1)
    before = {name: leaf.clone() for name, leaf in task.model.state_dict().items()}
    torch.manual_seed(3)
    list(federation(task, state, participants, protocol, strategy=strategy, seed=0))
    assert float(torch.rand(())) == float(torch.rand((), generator=torch.manual_seed(3)))
    assert same(task.model.state_dict(), before)
    assert task.model.training
    assert all(leaf.grad is None for leaf in task.model.parameters())


def test_a_federation_goes_on_from_any_state() -> None:
    task, state, participants, protocol, strategy = stochastic(4)
    whole = list(federation(task, state, participants, protocol, strategy=strategy, seed=0))
    for after in (0, 1, 3):
        kept = state if after == 0 else State.from_flat(whole[after - 1].state.flat())
        rest = list(
            federation(task, kept, participants, protocol, strategy=strategy, seed=0, after=after)
        )
        assert [one.number for one in rest] == list(range(after + 1, 5))
        assert same(rest[-1].state.flat(), whole[-1].state.flat())
    over = federation(task, whole[-1].state, participants, protocol, seed=0, after=4)
    assert list(over) == []


@pytest.mark.process
def test_a_federation_that_is_killed_and_goes_on_ends_the_same(tmp_path: Path) -> None:
    """A real process, killed by SIGKILL between two rounds or in the middle of one."""
    task, state, participants, protocol, strategy = stochastic(KEPT)
    whole = list(federation(task, state, participants, protocol, strategy=strategy, seed=0))
    program = [sys.executable, "-m", "support.federations", tmp_path]
    running = processes.start(program, cwd=Path(__file__).parents[1])
    while not (tmp_path / "3").exists():
        assert running.poll() is None, "it ended before it could be killed"
        time.sleep(0.005)
    assert processes.kill(running)
    assert not (tmp_path / str(KEPT)).exists()
    keep_rounds(tmp_path)
    found = load_file(tmp_path / str(KEPT))
    assert same(found, whole[-1].state.flat())


# Refusals, one line each.


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


def test_parts_that_do_not_fit_are_refused_at_once() -> None:
    task, participants, protocol = Task(network()), people(5, 5), Protocol(rounds=2)
    good = State.of(task.model)
    less = State({name: leaf for name, leaf in good.shared.items() if name != "0.bias"})
    more = State({**good.shared, "7.bias": torch.zeros(1)})
    narrow = State(good.shared, {1: {**good.shared, "0.bias": torch.zeros(2)}})
    for state, group, settings, said in [
        (good, [], {}, "a federation has no participants"),
        (good, participants, {"after": 3}, "3 rounds are over already; expected 0 to 2"),
        (good, participants, {"strategy": Isolate(2)}, "no participant 2; expected 0 to 1"),
        (less, participants, {}, "state of the shared model has no '0.bias', which the model has"),
        (more, participants, {}, "has '7.bias', not in the model"),
        (narrow, participants, {}, r"state of participant 1: '0.bias' is \[2\]; expected \[6\]"),
    ]:
        with pytest.raises(InputError, match=said) as refused:
            federation(task, state, group, protocol, **{"seed": 0, **settings})
        assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match="'held/w' names no tensor of a federation"):
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
    with pytest.raises(InputError, match="learnt from public gradients"):
        replace(good, defense=Perturb().build(batch_size=5))
