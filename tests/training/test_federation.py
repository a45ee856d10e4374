"""Federations against loops in plain PyTorch, closed cases, and a run that is killed."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.core.types import Dataset, Task
from leakgauge.defenses import DPSGD, Defense, Prune, Sign
from leakgauge.gradients import params_of
from leakgauge.training import Isolate, Participant, Protocol, State, train_epoch
from leakgauge.training.federation import Round, federation
from leakgauge.training.state import Tensors


def network(*, batch_norm: bool = False, dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(6) if batch_norm else nn.Identity()
    return nn.Sequential(
        nn.Linear(4, 6), norm, nn.Tanh(), nn.Dropout(dropout), nn.Linear(6, 3)
    ).double()


def dataset(n: int, seed: int = 0) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=generator, dtype=torch.float64) + seed
    return Dataset(x, torch.arange(n) % 3)


def people(*sizes: int) -> list[Participant]:
    return [Participant(dataset(n, seed)) for seed, n in enumerate(sizes)]


def played(
    participants: Sequence[Participant], protocol: Protocol, model: nn.Module | None = None, **more
) -> list[Round]:
    task = Task(network() if model is None else model)
    start = State.of(task.model)
    return list(federation(task, start, participants, protocol, **{"seed": 0, **more}))


def same(found: Tensors, wanted: Tensors) -> bool:
    assert found.keys() == wanted.keys()
    return all(torch.equal(found[name], leaf) for name, leaf in wanted.items())


def close(found: Tensors, wanted: Tensors) -> None:
    assert found.keys() == wanted.keys()
    for name, leaf in wanted.items():
        torch.testing.assert_close(found[name], leaf, rtol=0, atol=1e-6)


def alone(
    model: nn.Module, data: Dataset, *, number: int, position: int, size: int, lr: float
) -> None:
    """An epoch of PyTorch's own SGD, on the batches that the participant draws."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    protocol = Protocol(rounds=1, batch_size=size)
    turn = Participant(data).turn({}, seed=0, number=number, position=position)
    for rows in protocol.batches(len(data), rng=turn.rng):
        optimizer.zero_grad()
        cross_entropy(model(data.x[rows]), data.y[rows]).backward()
        optimizer.step()


def copied(state: Tensors, model: nn.Module) -> nn.Module:
    model.load_state_dict(dict(state))
    return model


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
    protocol = Protocol(rounds=200, lr=1e-3, batch_size=None, share=0.4, steps=1)
    rounds = played(people(3, 3, 3, 3, 3), protocol)
    chosen = [tuple(one.sent) for one in rounds]
    assert {len(one) for one in chosen} == {2}
    counts = [sum(position in one for one in chosen) for position in range(5)]
    # Each is in 2 of 5: 80 of 200 rounds, with the standard deviation sqrt(200 * 0.4 * 0.6) = 7.
    assert all(abs(count - 80) < 4 * 7 for count in counts)
    for one, before in zip(rounds[1:], rounds, strict=False):
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


# Repeats, kills.


STOCHASTIC = {"model": {"batch_norm": True, "dropout": 0.3}, "defense": "noise"}


def stochastic(rounds: int) -> tuple[Task, State, list[Participant], Protocol, Isolate]:
    """Everything that draws: batches, samples, dropout, noise; with buffers and isolation."""
    noisy = DPSGD(clip=1.0, noise=0.5).build(batch_size=4)
    defense = Defense("noise", update=noisy.update)
    participants = [Participant(dataset(12, seed), defense) for seed in range(4)]
    protocol = Protocol(rounds=rounds, lr=0.1, batch_size=4, share=0.75)
    task = Task(network(batch_norm=True, dropout=0.3))
    return task, State.of(task.model, isolated=[1]), participants, protocol, Isolate(1)


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
