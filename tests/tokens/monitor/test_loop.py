"""A monitor in a plain loop: it changes nothing, leaves nothing behind, and never ends the loop."""

import copy
import io
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import optimizer as optimizers

from leakgauge import InputError, Monitor, Prune
from leakgauge.tokens.monitor import background
from support.loops import QUICK, AtOnce, batches, network, train


def hooks(model: nn.Module) -> int:
    """How many hooks the modules and all optimizers have."""
    count = len(optimizers._global_optimizer_pre_hooks)
    for module in model.modules():
        count += len(module._forward_hooks) + len(module._forward_pre_hooks)
        count += len(module._backward_hooks) + len(module._backward_pre_hooks)
    return count


def weights(model: nn.Module) -> list[Tensor]:
    return [leaf.detach().clone() for leaf in model.parameters()]


def test_two_lines_give_records_at_every_tenth_step() -> None:
    model = network()
    with Monitor(model, every=10, checkpoints=0) as monitor:
        train(model, 31)
    assert [one["step"] for one in monitor.records] == [0, 10, 20, 30]
    assert monitor.notes == []
    assert list(monitor.to_pandas().columns) == ["step", "cheap"]


@pytest.mark.parametrize("defense", [None, Prune(rate=0.5)])
def test_weights_and_random_states_are_those_without_it(
    defense: Prune | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the estimate runs in the process of the loop."""
    monkeypatch.setattr(background, "ProcessPoolExecutor", lambda **given: AtOnce())

    def run(watched: bool) -> tuple[list[Tensor], list[object]]:
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002  the global generator is what is tested
        random.seed(0)
        model = nn.Sequential(network(), nn.Dropout(0.5), nn.BatchNorm1d(3))
        if watched:
            with Monitor(
                model,
                every=3,
                checkpoints=[120],
                gather=1,
                settings=QUICK,
                defense=defense,
                live=False,
                wait=120,
            ) as monitor:
                train(model, 130)
            assert len(monitor.records) == 45, monitor.notes
        else:
            train(model, 130)
        states = [torch.get_rng_state().tolist(), np.random.get_state()[1].tolist()]  # noqa: NPY002
        return weights(model), [*states, random.getstate()]

    (plain, states), (watched, others) = run(False), run(True)
    assert all(torch.equal(one, other) for one, other in zip(plain, watched, strict=True))
    assert states == others


def failing(model: nn.Module, during: Callable[[], None]) -> None:
    """A watched loop that fails between forward and backward."""
    with Monitor(model, checkpoints=0):
        for x, y in batches(3):
            loss = functional.cross_entropy(model(x), y)
            during()
            loss.backward()


@pytest.mark.parametrize("fails", [True, False])
def test_no_hook_is_left_after_the_loop_also_where_it_fails(fails: bool) -> None:
    """On modules, on optimizers, and on tensors of a graph that lives on."""
    model, outputs, seen = network(), [], []
    model[0].register_forward_hook(lambda *given: outputs.append(given[-1]))
    before = hooks(model)

    def during() -> None:
        seen.append((hooks(model) - before, len(outputs[0]._backward_hooks or ())))
        if fails:
            raise RuntimeError("of the user")

    if fails:
        with pytest.raises(RuntimeError, match="of the user"):
            failing(model, during)
    else:
        failing(model, during)
    assert seen[0][0] > 2
    assert seen[0][1] == 2
    assert hooks(model) == before
    assert [len(one._backward_hooks or ()) for one in outputs] == [0] * len(outputs)


def test_copies_and_files_of_a_watched_model_are_watched_by_nobody() -> None:
    model = network()
    with Monitor(model, every=1, checkpoints=0) as monitor:
        train(model, 2)
        twin = copy.deepcopy(model)
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        other = torch.load(file, weights_only=False)
        count = len(monitor.records)
        for one in (twin, other):
            train(one, 3)
        assert len(monitor.records) == count == 2
    assert monitor.notes == []


def test_a_shallow_copy_of_a_layer_is_watched_by_nobody() -> None:
    """It keeps the hooks of its layer, which would have run twice."""
    model = network()
    with Monitor(model, every=1, checkpoints=0) as monitor:
        train(model, 2, each=lambda *_: copy.copy(model[3])(torch.ones(1, 75)).sum().backward())
        hooked = copy.copy(model[3])
        for x, y in batches(1):
            loss = functional.cross_entropy(model(x), y) + hooked(torch.ones(8, 75)).sum()
            loss.backward()
            torch.optim.SGD(model.parameters(), 0.1).step()
    assert len(monitor.records) == 3
    assert monitor.notes == []


def test_an_evaluation_inside_the_loop_changes_nothing() -> None:
    def run(evaluates: bool) -> list[float]:
        model = network()

        def evaluate(*_: object) -> None:
            with torch.no_grad():
                model(torch.ones(20, 2, 5, 5))
            model(torch.ones(20, 2, 5, 5))  # with gradients, of which none is computed

        with Monitor(model, every=1, checkpoints=0) as monitor:
            train(model, 5, each=evaluate if evaluates else None)
        return [one["cheap"] for one in monitor.records]

    assert run(True) == run(False)


def test_a_closure_is_looked_at_behind_its_backward_pass() -> None:
    def run(by_closure: bool) -> list[float]:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with Monitor(model, every=1, checkpoints=0) as monitor:
            for x, y in batches(3):

                def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
                    optimizer.zero_grad()
                    loss = functional.cross_entropy(model(x), y)
                    loss.backward()
                    return loss

                if by_closure:
                    optimizer.step(closure)
                else:
                    closure()
                    optimizer.step()
        assert monitor.notes == []
        return [one["cheap"] for one in monitor.records]

    assert run(True) == run(False)
    assert len(run(True)) == 3


def test_optimizers_that_take_turns_are_one_step_and_others_are_none() -> None:
    model, other = network(), nn.Linear(2, 1)
    parts = [torch.optim.SGD(model[:4].parameters(), 0.1), torch.optim.Adam(model[5].parameters())]
    stranger = torch.optim.SGD(other.parameters(), 0.1)
    with Monitor(model, every=1, checkpoints=0) as monitor:
        for x, y in batches(3):
            functional.cross_entropy(model(x), y).backward()
            for one in (*parts, stranger):
                one.step()
    assert monitor.next_step == 3


def test_accumulated_gradients_are_one_step_with_all_their_records() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    monitor = Monitor(model, every=1, checkpoints=[1], gather=1, settings=QUICK)
    with monitor:
        for number, (x, y) in enumerate(batches(4)):
            functional.cross_entropy(model(x), y).backward()
            if number % 2:
                total = monitor._observer.taps.features()
                assert total is not None
                assert monitor._observer.taps._count == 16
                optimizer.step()
    assert monitor.next_step == 2


def test_a_loop_that_never_calls_backward_is_told_once() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Monitor(model, every=1, checkpoints=0) as monitor:
        for x, _ in batches(5):
            model(x)
            optimizer.step()
    assert monitor.records == []
    assert monitor.notes == [
        "no parameter of the model has a gradient at the optimizer's step; call loss.backward() "
        "before it"
    ]


def test_a_loop_without_a_step_is_told() -> None:
    with Monitor(network(), checkpoints=0) as monitor:
        pass
    assert len(monitor.notes) == 1
    assert monitor.notes[0].startswith("the loop took no step")


def test_gradients_that_are_not_finite_are_left_out_counted_and_told() -> None:
    model = network()
    optimizer, start = torch.optim.SGD(model.parameters(), 0.1), copy.deepcopy(model.state_dict())
    with Monitor(model, every=1, checkpoints=0) as monitor:
        for number, (x, y) in enumerate(batches(6)):
            model.load_state_dict(start)
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            if number in (2, 4):
                model[3].weight.grad[0, 0] = torch.nan if number == 2 else torch.inf
            optimizer.step()
    assert [one["step"] for one in monitor.records] == [0, 1, 3, 5]
    assert monitor.not_finite == 2
    assert monitor.notes == [
        "a gradient is not finite (NaN or infinite); such steps are left out",
        "2 of 6 steps had gradients that are not finite; they are left out",
    ]


def test_a_batch_of_one_is_told_once() -> None:
    model = network()
    with Monitor(model, every=1, checkpoints=0) as monitor:
        train(model, 3, size=1)
    assert monitor.records == []
    assert monitor.notes == [
        "a batch has 1 record, and the cheap measure compares the records of a batch; it needs 4 "
        "or more"
    ]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"layers": ["33"]}, "the model has no layer '33' with parameters; did you mean '3'?"),
        ({"features": "bod"}, "the model has no module 'bod'"),
        ({"every": 0}, "every is 0; expected a whole number above 0"),
        ({"checkpoints": [-1]}, "a checkpoint is -1; expected a step, 0 or more"),
        ({"pairs": "steam"}, "pairs is 'steam'; did you mean 'stream'?"),
        ({"estimator": "infonc"}, "estimator is 'infonc'; did you mean 'infonce'?"),
        ({"pairs": "checkpoint"}, 'pairs="checkpoint" computes further gradients'),
        ({"defense": "prune"}, "defense is 'prune'; expected one such as"),
    ],
)
def test_bad_settings_are_one_line(settings: dict[str, object], words: str) -> None:
    with pytest.raises(InputError) as refusal:
        Monitor(network(), **settings)  # type: ignore[arg-type]
    assert str(refusal.value).startswith(words)
    assert "\n" not in str(refusal.value)


def test_a_compiled_model_is_refused() -> None:
    with pytest.raises(InputError, match="runs no hooks"):
        Monitor(torch.compile(network(), backend="eager"))  # type: ignore[arg-type]


def test_a_failure_inside_is_a_line_and_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()
    monitor = Monitor(model, every=1, checkpoints=0)
    monkeypatch.setattr(monitor._observer, "look", lambda step: 1 / 0)
    with monitor:
        train(model, 3)
    assert monitor.notes == [
        "the monitor failed at a step (ZeroDivisionError: division by zero); the loop continues"
    ]


def test_layers_that_run_twice_or_have_no_factors_are_named_once() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.norm, self.b = nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.b(self.norm(self.a(self.a(x))))
            return out

    model = Twice()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Monitor(model, every=1, checkpoints=0) as monitor:
        for _ in range(3):
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
    assert len(monitor.records) == 3
    assert monitor.notes == [
        "the cheap measure leaves out layers without gradients of single records: 'a', 'norm'"
    ]
