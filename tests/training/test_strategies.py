"""Attackers in a federation: ascent against autograd written out, isolation against solitude."""

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import InputError
from leakgauge.core.losses import log_losses
from leakgauge.core.types import Task
from leakgauge.training import (
    GradientAscent,
    Isolate,
    Participant,
    Protocol,
    State,
    Strategy,
    Together,
)
from leakgauge.training.federation import federation
from leakgauge.training.state import Tensors
from support.federations import alone, close, copied, dataset, network, people, played, same

TARGETS = dataset(9, seed=5)
ONE_STEP = Protocol(rounds=2, lr=0.1, batch_size=None)


def written_out(model: nn.Module, *, rate: float, form: str) -> dict[str, Tensor]:
    """The parameters and buffers after Eq. 2, record by record, in evaluation mode."""
    model.eval()
    each = []
    for x, y in zip(TARGETS.x, TARGETS.y, strict=True):
        loss = cross_entropy(model(x[None]), y[None])
        grads = torch.autograd.grad(loss, list(model.parameters()))
        each.append([leaf / loss.detach() for leaf in grads] if form == "log" else grads)
    mean = [torch.stack(leaves).mean(0) for leaves in zip(*each, strict=True)]
    norm = math.sqrt(sum(float(leaf.square().sum()) for leaf in mean))
    step = rate / norm if form == "unit" else rate
    moved = {
        name: (leaf + step * slope).detach()
        for (name, leaf), slope in zip(model.named_parameters(), mean, strict=True)
    }
    return {**{name: leaf.clone() for name, leaf in model.named_buffers()}, **moved}


@pytest.mark.parametrize("form", ["printed", "unit", "log"])
@pytest.mark.parametrize("batch_norm", [True, False])
def test_the_server_ascends_in_what_it_sends(form: str, *, batch_norm: bool) -> None:
    strategy = GradientAscent(TARGETS.x, TARGETS.y, 0.2, form)
    model = network(batch_norm=batch_norm)
    rounds = played(people(12, 30), ONE_STEP, model, strategy=strategy)
    before = State.of(model).shared
    for one in rounds:
        server = copied(before, network(batch_norm=batch_norm))
        wanted = written_out(server, rate=0.2, form=form)
        close(one.received[0], {name: wanted[name] for name in one.received[0]})
        assert same(one.received[0], one.received[1])
        if form == "unit":
            moved = [one.received[0][name] - before[name] for name in params(one.received[0])]
            assert math.sqrt(sum(float(leaf.square().sum()) for leaf in moved)) == pytest.approx(
                0.2
            )
        before = one.state.shared


def params(tensors: Tensors) -> list[str]:
    return [name for name in tensors if "running" not in name and "num_batches" not in name]


@pytest.mark.parametrize("form", ["printed", "unit", "log"])
def test_a_participant_ascends_in_what_it_uploads(form: str) -> None:
    participants = people(12, 30)
    strategy = GradientAscent(TARGETS.x, TARGETS.y, 0.2, form, by=1)
    model = network(batch_norm=True)
    (one, _) = played(participants, ONE_STEP, model, strategy=strategy)
    assert same(one.received[1], State.of(model).shared)
    for position, participant in enumerate(participants):
        local = network(batch_norm=True)
        alone(local, participant.data, number=1, position=position, size=30, lr=0.1)
        wanted = dict(local.state_dict())
        if position == 1:
            wanted = written_out(local, rate=0.2, form=form)
        close(one.uploaded(position), {name: wanted[name] for name in one.uploaded(position)})
    mean = {
        name: (12 * one.uploaded(0)[name] + 30 * one.uploaded(1)[name]) / 42
        for name in params(one.state.shared)
    }
    close({name: one.state.shared[name] for name in mean}, mean)


def test_the_server_ascends_before_gradients_are_sent_too() -> None:
    strategy = GradientAscent(TARGETS.x, TARGETS.y, 0.2)
    participants = people(12, 30)
    (one,) = played(participants, Protocol(kind="fedsgd", rounds=1, lr=0.1), strategy=strategy)
    (as_weights,) = played(participants, Protocol(rounds=1, lr=0.1, steps=1), strategy=strategy)
    close(one.state.shared, as_weights.state.shared)


def test_the_log_of_the_loss_moves_records_whose_loss_rounds_to_zero() -> None:
    """In float32 the loss of a well-fitted record is 0, and so is its gradient."""
    torch.manual_seed(0)
    model = nn.Linear(2, 3)
    x, y = torch.tensor([[400.0, 30.0]]), torch.tensor([0])
    with torch.no_grad():
        model.weight.copy_(torch.eye(3, 2) * 2)
    task, start = Task(model), State.of(model).shared
    assert cross_entropy(model(x), y).item() == 0
    for form in ("printed", "unit"):
        assert same(GradientAscent(x, y, 1.0, form).broadcast(task, start), start)
    moved = GradientAscent(x, y, 1.0, "log").broadcast(task, start)
    # log L is about log(sum of exp(z_j - z_0)): its slope in z is the softmax of the others, -1.
    others = (model(x)[0, 1:] - model(x)[0, 0]).softmax(0)
    slope = torch.cat([torch.tensor([-1.0]), others.detach()])
    torch.testing.assert_close(moved["bias"] - start["bias"], slope, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(moved["weight"] - start["weight"], slope[:, None] * x[0])


def test_log_losses_of_any_loss() -> None:
    outputs, codes = torch.randn(5, 4).double(), torch.tensor([0, 3, 1, 2, 2])
    each = functional.cross_entropy(outputs, codes, reduction="none").log()
    for loss in (cross_entropy, nn.CrossEntropyLoss(), lambda o, t: cross_entropy(o, t)):
        torch.testing.assert_close(log_losses(loss, outputs, codes), each)
    numbers = torch.randn(5).double()
    wanted = (outputs[:, 0] - numbers).square().log()
    mse = Task(nn.Linear(1, 1), "mse").loss
    torch.testing.assert_close(log_losses(mse, outputs[:, :1], numbers), wanted)
    by_record = lambda o, t: (o[:, 0] - t).square()  # noqa: E731
    torch.testing.assert_close(log_losses(by_record, outputs[:, :1], numbers), wanted)
    smooth = nn.CrossEntropyLoss(label_smoothing=0.1)
    one = [smooth(outputs[row : row + 1], codes[row : row + 1]).log() for row in range(5)]
    torch.testing.assert_close(log_losses(smooth, outputs, codes), torch.stack(one))


def test_log_losses_are_exact_far_below_rounding() -> None:
    """Against log1p of the standard library; below -36 the loss is exp(margin) to all digits."""
    margins = torch.tensor([-800.0, -60.0, -49.0, -30.0, -1.0, 0.0, 5.0, 60.0], dtype=torch.float64)
    outputs = torch.stack([torch.zeros(8).double(), margins], dim=1).requires_grad_()
    found = log_losses(cross_entropy, outputs, torch.zeros(8, dtype=torch.int64))
    wanted = [
        m if m < -36 else math.log(math.log1p(math.exp(-abs(m))) + max(m, 0.0))
        for m in margins.tolist()
    ]
    assert found.tolist() == pytest.approx(wanted, rel=1e-12)
    (slope,) = torch.autograd.grad(found.sum(), outputs)
    assert slope[:3, 1].tolist() == pytest.approx([1, 1, 1])


# Isolation.


def test_an_isolated_participant_trains_alone() -> None:
    """And the others train as if it were not there, at other positions' randomness."""
    participants = people(12, 30, 18)
    protocol = Protocol(rounds=3, lr=0.1, batch_size=6)
    rounds = played(participants, protocol, network(batch_norm=True), strategy=Isolate(1))
    model = network(batch_norm=True)
    for number, one in enumerate(rounds, start=1):
        close(one.received[1], model.state_dict())
        alone(model, participants[1].data, number=number, position=1, size=6, lr=0.1)
        close(one.state.own[1], model.state_dict())
        close(one.uploaded(1), model.state_dict())
    assert same(rounds[-1].received[0], rounds[1].state.shared)
    mean = {
        name: (12 * rounds[-1].uploaded(0)[name] + 18 * rounds[-1].uploaded(2)[name]) / 30
        for name in params(rounds[-1].state.shared)
    }
    close({name: rounds[-1].state.shared[name] for name in mean}, mean)


def test_all_participants_can_be_isolated() -> None:
    participants = people(12, 30)
    start = State.of(network()).shared
    everyone = Together((Isolate(0), Isolate(1)))
    rounds = played(participants, Protocol(rounds=2, lr=0.1), strategy=everyone)
    assert same(rounds[-1].state.shared, start)
    for position in (0, 1):
        (*_, last) = played(participants, Protocol(rounds=2, lr=0.1), strategy=Isolate(position))
        assert same(rounds[-1].state.own[position], last.state.own[position])


def test_isolation_and_ascent_together() -> None:
    """The isolated participant's own model is ascended, and so is the others'."""
    ascent = GradientAscent(TARGETS.x, TARGETS.y, 0.2, "log")
    participants = people(12, 30, 18)
    model = network(batch_norm=True)
    for both in (Together((Isolate(1), ascent)), Together((ascent, Isolate(1)))):
        rounds = played(participants, ONE_STEP, model, strategy=both)
        for position, before in ((1, rounds[0].state.own[1]), (0, rounds[0].state.shared)):
            server = copied(before, network(batch_norm=True))
            wanted = written_out(server, rate=0.2, form="log")
            found = rounds[1].received[position]
            close(found, {name: wanted[name] for name in found})


def test_an_isolated_participant_that_is_not_sampled_keeps_its_model() -> None:
    protocol = Protocol(rounds=30, lr=0.1, batch_size=6, share=0.3)
    rounds = played(people(12, 12, 12), protocol, strategy=Isolate(1))
    kinds = set()
    for before, one in pairwise(rounds):
        kinds.add(tuple(one.sent))
        if 1 not in one.sent:
            assert same(one.state.own[1], before.state.own[1])
        else:
            assert same(one.state.shared, before.state.shared)
    assert kinds == {(0,), (1,), (2,)}


def test_a_converged_isolated_participant_sends_a_zero_update() -> None:
    """Its loss cannot fall further; that is a warning, no refusal."""
    task = Task(nn.Linear(2, 1).double(), "mse")
    data = Participant(
        type(TARGETS)(torch.zeros(4, 2).double(), task.model.bias.expand(4).detach())
    )
    (one,) = federation(
        task, State.of(task.model), [data, data], Protocol(rounds=1), strategy=Isolate(0), seed=0
    )
    assert one.sent[0].is_zero
    assert "tells nothing" in one.sent[0].warnings()[0]


def test_a_strategy_of_ones_own() -> None:
    class Doubled(Strategy):
        def broadcast(self, task: Task, tensors: Tensors) -> Tensors:
            return {name: 2 * leaf for name, leaf in tensors.items()}

    (one,) = played(people(4), Protocol(rounds=1), strategy=Together([Doubled(), Doubled()]))
    start = State.of(network()).shared
    assert same(one.received[0], {name: 4 * leaf for name, leaf in start.items()})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ascent(form="logs"), "form of the ascent is 'logs'; did you mean 'log'"),
        (lambda: ascent(rate=0.0), "rate of the ascent is 0; expected a number above 0"),
        (lambda: ascent(x=TARGETS.x[:3]), "gradient ascent got 3 records and 9 labels"),
        (lambda: ascent(by=2), "there is no participant 2; expected 0 to 1"),
        (lambda: Together((Isolate(0), Isolate(-1))), "there is no participant -1"),
    ],
)
def test_wrong_strategies_are_refused_in_one_line(make, said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        played(people(3, 3), Protocol(rounds=1), strategy=make())
    assert "\n" not in str(refused.value)


def ascent(**changed) -> GradientAscent:
    given = {"x": TARGETS.x, "y": TARGETS.y, "rate": 0.2, **changed}
    return GradientAscent(**given)


def test_a_participant_who_sends_gradients_cannot_ascend() -> None:
    with pytest.raises(InputError, match="take fedavg, or let the server ascend"):
        played(people(3, 3), Protocol(kind="fedsgd", rounds=1), strategy=ascent(by=0))


def test_an_ascent_that_diverges_says_so() -> None:
    task = Task(nn.Linear(4, 3).double(), "mse")
    far = GradientAscent(TARGETS.x, torch.full((9, 3), 1e200, dtype=torch.float64), 1e200)
    with pytest.raises(InputError, match=r"gradient ascent at rate 1e\+200 diverged .* the rate$"):
        far.broadcast(task, State.of(task.model).shared)
