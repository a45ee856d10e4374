"""Gradient ascent against Eq. 2 written out, and against finite differences."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import InputError
from leakgauge.core.types import Task
from leakgauge.training import GradientAscent, Isolate, Protocol, State, Together
from leakgauge.training.state import Tensors
from support.federations import alone, close, copied, dataset, network, people, played, same
from support.references.federation import ascended, averaged, raised, slopes_by_differences

TARGETS = dataset(9, seed=5)
ONE_STEP = Protocol(rounds=2, lr=0.1, batch_size=None)
FORMS = ("printed", "unit", "log")


def ascent(**changed) -> GradientAscent:
    given = {"x": TARGETS.x, "y": TARGETS.y, "rate": 0.2, **changed}
    return GradientAscent(**given)


def literally(model: nn.Module, *, form: str) -> Tensors:
    return ascended(model, TARGETS.x, TARGETS.y, rate=0.2, form=form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("batch_norm", [True, False])
def test_the_server_ascends_in_what_it_sends(form: str, *, batch_norm: bool) -> None:
    model = network(batch_norm=batch_norm)
    rounds = played(people(12, 30), ONE_STEP, model, strategy=ascent(form=form))
    before = State.of(model).shared
    for one in rounds:
        close(one.received[0], literally(copied(before, model), form=form))
        assert same(one.received[0], one.received[1])
        before = one.state.shared


@pytest.mark.parametrize("form", FORMS)
def test_the_step_follows_finite_differences(form: str) -> None:
    model = network()
    start = State.of(model).shared
    moved = ascent(form=form).broadcast(Task(model), start)
    slopes = slopes_by_differences(model, TARGETS.x, TARGETS.y, form)
    norm = math.sqrt(sum(float(leaf.square().sum()) for leaf in slopes.values()))
    scale = 0.2 / norm if form == "unit" else 0.2
    for name, leaf in start.items():
        torch.testing.assert_close(moved[name] - leaf, scale * slopes[name], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_the_ascent_raises_the_loss_of_the_targets(form: str) -> None:
    """In each round: what the participants receive fits the targets worse than the model did."""
    model = network(batch_norm=True)
    strategy = ascent(form=form, rate=1e-3)
    rounds = played(people(12, 30), Protocol(rounds=8, lr=0.1), model, strategy=strategy)
    before = State.of(model).shared
    for one in rounds:
        losses = [
            raised(copied(state, model).eval(), TARGETS.x, TARGETS.y, form).item()
            for state in (before, one.received[0])
        ]
        assert losses[0] < losses[1]
        before = one.state.shared


@pytest.mark.parametrize("form", FORMS)
def test_a_participant_ascends_in_what_it_uploads(form: str) -> None:
    participants = people(12, 30)
    model = network(batch_norm=True)
    (one, _) = played(participants, ONE_STEP, model, strategy=ascent(form=form, by=1))
    assert same(one.received[1], State.of(model).shared)
    for position, participant in enumerate(participants):
        local = network(batch_norm=True)
        alone(local, participant.data, number=1, position=position, size=30, lr=0.1)
        wanted = literally(local, form=form) if position == 1 else local.state_dict()
        close(one.uploaded(position), wanted)
    close(one.state.shared, averaged([one.uploaded(0), one.uploaded(1)], [12, 30]))


def test_the_server_ascends_before_gradients_are_sent_too() -> None:
    participants = people(12, 30)
    by_gradients, by_weights = (
        played(participants, protocol, strategy=ascent())[0].state.shared
        for protocol in (
            Protocol(kind="fedsgd", rounds=1, lr=0.1),
            Protocol(rounds=1, lr=0.1, steps=1),
        )
    )
    close(by_gradients, by_weights)


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


def test_isolation_and_ascent_together() -> None:
    """The isolated participant's own model is ascended, and so is the others'."""
    model = network(batch_norm=True)
    for both in (Together((Isolate(1), ascent())), Together((ascent(), Isolate(1)))):
        rounds = played(people(12, 30, 18), ONE_STEP, model, strategy=both)
        for position, before in ((1, rounds[0].state.own[1]), (0, rounds[0].state.shared)):
            wanted = literally(copied(before, network(batch_norm=True)), form="printed")
            close(rounds[1].received[position], wanted)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ascent(form="logs"), "form of the ascent is 'logs'; did you mean 'log'"),
        (lambda: ascent(rate=0.0), "rate of the ascent is 0; expected a number above 0"),
        (lambda: ascent(x=TARGETS.x[:3]), "gradient ascent got 3 records and 9 labels"),
        (lambda: ascent(by=2), "participant 2 does not exist; expected 0 to 1"),
        (lambda: Together((Isolate(0), Isolate(-1))), "participant -1 does not exist"),
        (lambda: ascent(x=TARGETS.x[:, :3]), "gradient ascent failed.*shapes cannot be multiplied"),
    ],
)
def test_wrong_strategies_are_refused_in_one_line(make, said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        played(people(3, 3), Protocol(rounds=1), strategy=make())
    assert "\n" not in str(refused.value)


def test_a_participant_who_sends_gradients_cannot_ascend() -> None:
    with pytest.raises(InputError, match="take fedavg, or let the server ascend"):
        played(people(3, 3), Protocol(kind="fedsgd", rounds=1), strategy=ascent(by=0))


def test_an_ascent_that_diverges_says_so() -> None:
    task = Task(nn.Linear(4, 3).double(), "mse")
    far = GradientAscent(TARGETS.x, torch.full((9, 3), 1e200, dtype=torch.float64), 1e200)
    with pytest.raises(InputError, match=r"gradient ascent at rate 1e\+200 diverged .* the rate$"):
        far.broadcast(task, State.of(task.model).shared)
