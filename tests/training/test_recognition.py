"""Optimizers recognised from what torch's own optimizers do, and the bounds of gradients."""

from collections import Counter
from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from leakgauge.core.checks import InputError
from leakgauge.core.rng import torch_stream
from leakgauge.training.digits import digits_of
from leakgauge.training.first_step import first_step, gradient_bounds
from leakgauge.training.recipe import Recipe
from leakgauge.training.recognition import understood
from leakgauge.training.rules import AdamRule
from leakgauge.training.update import Update

Make = Callable[[Iterable[Tensor]], torch.optim.Optimizer]

SGD, RATE = 0.05, 1e-3
OPTIMIZERS: dict[str, tuple[Any, float]] = {
    "sgd": (torch.optim.SGD, SGD),
    "momentum": (partial(torch.optim.SGD, momentum=0.9), SGD),
    "nesterov": (partial(torch.optim.SGD, momentum=0.9, nesterov=True), SGD),
    "decay": (partial(torch.optim.SGD, weight_decay=0.01), SGD),
    "adam": (torch.optim.Adam, RATE),
    "adam, decay": (partial(torch.optim.Adam, weight_decay=0.01), RATE),
    "adamw": (torch.optim.AdamW, RATE),
    "rmsprop": (torch.optim.RMSprop, RATE),
    "adagrad": (torch.optim.Adagrad, 0.01),
}


def network(kind: str, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    if kind == "convolution":
        return nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(),
            nn.Linear(128, 10),
        )  # fmt: skip
    middle = nn.Sigmoid() if kind == "sigmoid" else nn.ReLU()
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 32), middle, nn.Linear(32, 10))


def step(
    model: nn.Module, optimizer: torch.optim.Optimizer, draw: torch.Generator, centres: Tensor
) -> dict[str, Tensor]:
    """Take one step on a new batch and return its gradient."""
    y = torch.randint(10, (8,), generator=draw)
    x = centres[y] + torch.randn(8, 3, 8, 8, generator=draw)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    grads = {name: leaf.grad.clone() for name, leaf in model.named_parameters()}  # type: ignore[union-attr]
    optimizer.step()
    return grads


@cache
def begun(kind: str, seed: int, before_it: int) -> tuple[nn.Module, Tensor, Tensor]:
    """Return a network after earlier steps of SGD, the state of the draws, and the classes."""
    model, draw = network(kind, seed), torch_stream(seed, "batches")
    centres = torch.randn(10, 3, 8, 8, generator=draw)
    earlier = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(before_it):
        step(model, earlier, draw, centres)
    return model, draw.get_state(), centres


def sent(
    make: Any, lr: float, steps: int, *, kind: str = "relu", seed: int = 0, before_it: int = 0
) -> tuple[Update, list[dict[str, Tensor]]]:
    """Return the update of steps on new batches of 8 each, and the gradient of each step."""
    model, drawn, centres = begun(kind, seed, before_it)
    model, draw = deepcopy(model), torch.Generator().set_state(drawn)
    before = {name: leaf.detach().clone() for name, leaf in model.named_parameters()}
    optimizer = make(model.parameters(), lr=lr)
    grads = [step(model, optimizer, draw, centres) for _ in range(steps)]
    after = {name: leaf.detach().clone() for name, leaf in model.named_parameters()}
    return Update("weights", after, before, lr=lr, steps=steps), grads


WHERE = [
    (kind, early, seed)
    for kind in ("relu", "sigmoid", "convolution")
    for early in (0, 50)
    for seed in range(1)
]


@pytest.mark.parametrize(
    ("name", "steps", "found"),
    [
        *((one, steps, {"sgd"}) for one in ("sgd", "momentum", "nesterov", "decay")
          for steps in (1, 4)),
        ("adam", 1, {"adam"}),
        ("adam, decay", 1, {"adam"}),  # its first step does not show a decay
        ("adamw", 1, {"adamw"}),
        ("rmsprop", 1, {"rmsprop"}),
        ("adagrad", 1, {"adam"}),  # the same step but for eps
        ("adam", 2, {"adam"}),
        ("adam", 4, {"adam", "sgd"}),
        ("rmsprop", 4, {"sgd"}),  # not recognised: the match of the update decides
    ],
)  # fmt: skip
def test_the_confusion_table(name: str, steps: int, found: set[str]) -> None:
    make, lr = OPTIMIZERS[name]
    seen = Counter(
        understood(sent(make, lr, steps, kind=kind, seed=seed, before_it=early)[0])
        .optimizer.partition(":")[0]
        for kind, early, seed in WHERE
    )  # fmt: skip
    assert set(seen) <= found, seen


def test_a_decoupled_decay_and_another_rate_are_read_off() -> None:
    update, _ = sent(partial(torch.optim.AdamW, weight_decay=0.05), 0.002, 1)
    named_otherwise = Update("weights", update.values, update.before, lr=0.1)
    found = understood(named_otherwise)
    assert found.optimizer == "adamw:lr=0.002,weight_decay=0.05"
    assert "the settings name a rate of 0.1" in found.assumed


@pytest.mark.parametrize("decay", [1e-4, 0.01])
def test_a_decay_is_read_off_weights_without_a_gradient(decay: float) -> None:
    """Some of the first layer's units are off for all records of these batches."""
    for seed in range(4):
        make = partial(torch.optim.SGD, weight_decay=decay)
        update, _ = sent(make, SGD, 1, kind="convolution", seed=seed)
        name, _, value = understood(update).optimizer.partition(":weight_decay=")
        assert (name, float(value)) == ("sgd", pytest.approx(decay, rel=0.01))


@pytest.mark.parametrize("name", ["sgd", "momentum", "nesterov"])
def test_no_decay_is_read_off_steps_without_one(name: str) -> None:
    make, lr = OPTIMIZERS[name]
    for kind, early, seed in [*WHERE, ("relu", 300, 1), ("convolution", 300, 1)]:
        update, _ = sent(make, lr, 1, kind=kind, seed=seed, before_it=early)
        assert understood(update).optimizer == "sgd"


def test_settings_beside_an_unnamed_optimizer_are_its_own() -> None:
    beside = {"weight_decay": 0.1, "proximal_mu": 0.01}
    found = understood(sent(torch.optim.SGD, SGD, 1)[0], beside=beside)
    assert found.optimizer == "sgd:weight_decay=0.1,proximal_mu=0.01"
    assert "with weight_decay=0.1, proximal_mu=0.01 as configured" in found.assumed
    assert "plain" not in found.assumed
    adam, _ = sent(partial(torch.optim.AdamW, weight_decay=0.05), RATE, 1)
    assert understood(adam, beside=beside).optimizer == "adamw:weight_decay=0.05,proximal_mu=0.01"


@pytest.mark.parametrize(
    ("made", "named", "said"),
    [
        ("adam", "sgd", "the update contradicts it: recognised from the update (100 %"),
        ("adam", "sgd:momentum=0.9", "the update contradicts it"),
        ("sgd", "adam", "its changes have no common size"),
        ("adam", "adam:lr=0.1", "name the rate, --local-lr 0.001"),
        ("adam", "rmsprop", "one step at a rate of 0.001 makes 0.01"),
    ],
)
def test_a_named_optimizer_that_the_update_contradicts_is_refused(
    made: str, named: str, said: str
) -> None:
    make, lr = OPTIMIZERS[made]
    update, _ = sent(make, lr, 1)
    with pytest.raises(InputError) as refused:
        understood(update, named=named)
    assert said in str(refused.value)


def test_changes_beyond_all_steps_are_refused() -> None:
    update, _ = sent(torch.optim.Adam, 0.01, 8)
    with pytest.raises(InputError, match="8 steps change none by more than"):
        understood(Update("weights", update.values, update.before, steps=8), named="adam:lr=0.001")
    assert understood(update, named="adam").named


@pytest.mark.parametrize(("beyond", "refused"), [(1.022, False), (1.04, True)])
def test_rounding_is_no_step_that_is_too_large(beyond: float, refused: bool) -> None:
    """Beyond the largest sum of steps by less than float16's spacing and 2 %, or by more."""
    most = sum(0.001 * AdamRule().largest_step(at) for at in range(1, 5))
    before = {"w": torch.linspace(0.04, 0.06, 2000)}
    after = {"w": (before["w"] - beyond * most).half().float()}
    update = Update("weights", after, before, lr=0.001, steps=4)
    if refused:
        with pytest.raises(InputError, match="4 steps change none by more than"):
            understood(update, named="adam")
    else:
        assert understood(update, named="adam").named


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["adam", "rmsprop"])
def test_the_true_gradient_lies_within_the_bounds_of_rounded_weights(
    name: str, dtype: torch.dtype
) -> None:
    make, lr = OPTIMIZERS[name]
    inside, missed, count = 0, 0, 0
    for kind, early, seed in WHERE:
        update, (grads,) = sent(make, lr, 1, kind=kind, seed=seed, before_it=early)
        after = {key: leaf.to(dtype).to(leaf.dtype) for key, leaf in update.values.items()}
        rounded = Update("weights", after, update.before, lr=lr)
        change = {key: after[key] - leaf for key, leaf in update.before.items()}
        recipe = Recipe.named(name, steps=1, lr=lr)
        digits = digits_of(rounded)
        assert digits == torch.finfo(dtype).eps
        bounds = gradient_bounds(recipe, update.before, change, digits=digits)
        as_float32 = gradient_bounds(recipe, update.before, change)
        for key, true in grads.items():
            inside += int(((bounds.low[key] <= true) & (true <= bounds.high[key])).sum())
            missed += int(((as_float32.low[key] > true) | (true > as_float32.high[key])).sum())
            count += true.numel()
    assert inside / count > 0.99
    assert missed / count > 0.1, "the spacing of float32 is too fine for rounded weights"


@pytest.mark.parametrize("name", ["adam", "adam, decay", "adamw", "rmsprop", "adagrad"])
def test_the_true_gradient_lies_within_the_bounds(name: str) -> None:
    make, lr = OPTIMIZERS[name]
    text = {"adam, decay": "adam:weight_decay=0.01"}.get(name, name)
    inside, closed, count = 0, 0, 0
    for kind, early, seed in WHERE:
        update, (grads,) = sent(make, lr, 1, kind=kind, seed=seed, before_it=early)
        change = {key: update.values[key] - leaf for key, leaf in update.before.items()}
        bounds = gradient_bounds(Recipe.named(text, steps=1, lr=lr), update.before, change)
        for key, true in grads.items():
            low, high = bounds.low[key], bounds.high[key]
            assert not (low.isinf() & high.isinf()).any()
            inside += int(((low <= true) & (true <= high)).sum())
            closed += int((low.isfinite() & high.isfinite()).sum())
            count += true.numel()
    assert inside / count > 0.99
    assert closed > 0, "eps shows the size of the smallest gradients"


def test_the_largest_step_of_adam_is_reached_and_never_passed() -> None:
    """A literal maximum over random gradients, and the gradients that reach it."""
    rule = AdamRule(beta1=0.8, beta2=0.95, eps=0.0)
    draw = torch_stream(0, "gradients")
    for steps in (1, 2, 5):
        past = torch.arange(steps - 1, -1, -1)
        extreme = (0.8 / 0.95) ** past  # Cauchy's equality
        rows = torch.cat([extreme[None], torch.randn(2000, steps, generator=draw)]).double()
        leaf = torch.zeros(len(rows), dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.Adam([leaf], lr=1.0, betas=(0.8, 0.95), eps=0.0)
        for at in range(steps):
            last = leaf.detach().clone()
            leaf.grad = rows[:, at].clone()
            optimizer.step()
        moved = (leaf.detach() - last).abs()
        assert float(moved[0]) == pytest.approx(rule.largest_step(steps), rel=1e-6)
        assert float(moved.max()) <= rule.largest_step(steps) * (1 + 1e-9)


def test_only_one_step_of_such_an_optimizer_has_bounds() -> None:
    assert first_step(Recipe.named("sgd:momentum=0.9", steps=1, lr=1.0)) is None
    assert first_step(Recipe.named("adam", steps=2, lr=1.0)) is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("steps", [1, 4])
def test_rounded_weights_are_not_taken_for_steps_of_one_size(
    dtype: torch.dtype, steps: int
) -> None:
    """Coarse weights change by whole units of their last digit, whatever the optimizer."""
    rng = torch.Generator().manual_seed(0)
    before = {"w": torch.randn(40, 40, generator=rng).to(dtype).float()}
    moved = before["w"] - 0.01 * torch.randn(40, 40, generator=rng)
    after = {"w": moved.to(dtype).float()}
    update = Update("weights", after, before, lr=0.1, steps=steps)
    assert understood(update).assumed.startswith("plain SGD")
