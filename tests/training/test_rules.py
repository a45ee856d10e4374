"""Optimizers as pure functions: against torch's own over several steps, and read as gradients."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from leakgauge.training.catalog import parse_optimizer
from leakgauge.training.recipe import Recipe, named_rule
from leakgauge.training.rules import SgdRule, root, rule_of

STEPS = 6
OWN = [
    lambda p: torch.optim.SGD(p, 0.1),
    lambda p: torch.optim.SGD(p, 0.1, 0.9),
    lambda p: torch.optim.SGD(p, 0.1, 0.9, 0.3, 0.01),
    lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=0.01, nesterov=True),
    lambda p: torch.optim.Adam(p, 0.01),
    lambda p: torch.optim.Adam(p, 0.01, (0.8, 0.95), 1e-4, 0.1, amsgrad=True),
    lambda p: torch.optim.AdamW(p, 0.01),
    lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.3, amsgrad=True),
    lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.9, centered=True),
    lambda p: torch.optim.RMSprop(p, 0.01, weight_decay=0.1),
    lambda p: torch.optim.Adagrad(p, 0.01, lr_decay=0.1, weight_decay=0.1),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("make", OWN)
def test_steps_are_those_of_torch(make, dtype) -> None:
    """Gradients depend on the weights, some are 0, and the rate changes on the way."""
    torch.manual_seed(0)
    before, slopes = torch.randn(5, 3, dtype=dtype), torch.randn(STEPS, 5, 3, dtype=dtype)
    slopes[:, 0] = 0.0
    literal = before.clone().requires_grad_()
    optimizer = make([literal])
    rates = [float(optimizer.param_groups[0]["lr"]) * 0.8**step for step in range(STEPS)]
    for slope, rate in zip(slopes, rates, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        literal.grad = slope * literal.detach().cos()
        optimizer.step()
    recipe = Recipe(tuple(rates), rule_of(optimizer))
    change = recipe.change({"w": before}, lambda at, now: {"w": slopes[at] * now["w"].cos()})
    assert float((before + change["w"] - literal.detach()).abs().max()) < 1e-6
    # Rows in front are rows of their own.
    stacked = {"w": torch.stack([before, before])}
    both = recipe.change(stacked, lambda at, now: {"w": slopes[at] * now["w"].cos()})["w"]
    torch.testing.assert_close(both[1], change["w"])


@pytest.mark.parametrize(
    "name", ["sgd", "sgd:momentum=0.9,nesterov=1,weight_decay=0.01", "adam", "adamw", "rmsprop"]
)
def test_the_term_of_fedprox_is_that_of_the_loss(name: str) -> None:
    """Against autograd of ``mu / 2 * |w - start|^2`` and torch's optimizer without the term."""
    torch.manual_seed(0)
    start, slopes = torch.randn(5, dtype=torch.float64), torch.randn(STEPS, 5, dtype=torch.float64)
    rate, mu = 0.1, 0.7
    with_term = name + (",proximal_mu=0.7" if ":" in name else ":proximal_mu=0.7")
    literal, hooked = (start.clone().requires_grad_() for _ in range(2))
    optimizer = (parse_optimizer(name, lr=rate) or partial(torch.optim.SGD, lr=rate))([literal])
    own = parse_optimizer(with_term, lr=rate)
    assert own is not None
    moving = own([hooked])
    for slope in slopes:
        optimizer.zero_grad()
        loss = (slope * literal.sin()).sum() + mu / 2 * (literal - start).square().sum()
        loss.backward()
        optimizer.step()
        before = hooked.detach().clone()
        given = slope * before.cos()
        hooked.grad = given
        moving.step()
        assert torch.equal(given, slope * before.cos()), "the caller's gradient is as it was"
    torch.testing.assert_close(hooked, literal)
    recipe = Recipe.named(with_term, steps=STEPS, lr=rate)
    change = recipe.change({"w": start}, lambda at, now: {"w": slopes[at] * now["w"].cos()})
    torch.testing.assert_close(start + change["w"], literal.detach())
    assert Recipe.named(with_term, steps=1, lr=rate).is_plain == (name == "sgd")
    assert not recipe.is_plain


@pytest.mark.parametrize("name", ["sgd", "sgd:momentum=0.9,weight_decay=0.1"])
def test_a_constant_gradient_is_read_off_steps_with_fedprox(name: str) -> None:
    torch.manual_seed(0)
    before, slope = {"w": torch.randn(4).double()}, torch.randn(4).double()
    recipe = replace(Recipe.named(name, steps=3, lr=0.1), proximal=0.5)
    change = recipe.change(before, lambda at, now: {"w": slope})
    torch.testing.assert_close(recipe.as_gradient(before, change)["w"], slope)


def test_a_constant_gradient_is_read_off_a_change_by_sgd() -> None:
    torch.manual_seed(0)
    before, slope = {"w": torch.randn(4).double()}, torch.randn(4).double()
    for make in OWN[:4]:
        rule = rule_of(make([torch.zeros(1, requires_grad=True)]))
        recipe = Recipe((0.1, 0.05, 0.1), rule)
        change = recipe.change(before, lambda at, now: {"w": slope})
        torch.testing.assert_close(recipe.as_gradient(before, change)["w"], slope)
    # By hand: momentum counts the first of two gradients 1 + 0.5 times.
    assert Recipe((1.0, 1.0), SgdRule(momentum=0.5)).gain == pytest.approx(-2.5)


def test_adam_leaves_the_sign_of_a_gradient() -> None:
    slope = torch.tensor([3.0, -0.01, 0.0])
    recipe = Recipe.named("adam:lr=0.001", steps=1)
    change = recipe.change({"w": torch.zeros(3)}, lambda at, now: {"w": slope})
    sign = recipe.as_gradient({"w": torch.zeros(3)}, change)["w"]
    torch.testing.assert_close(sign, slope.sign(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", OWN[4:])
def test_a_slope_through_steps_is_finite_and_that_of_differences(make) -> None:
    """Also at a gradient of 0, where the slope of a plain root is infinite."""
    rule = rule_of(make([torch.zeros(1, requires_grad=True)]))
    recipe, before = Recipe((0.1, 0.1), rule), {"w": torch.tensor([0.3, -0.2]).double()}

    def ends(slope):
        # A second gradient of another size: after equal ones Adam stands still.
        return recipe.change(before, lambda at, now: {"w": slope * (1.0, 1.7)[at] + at * 0.2})["w"]

    slope = torch.tensor([0.4, -0.6]).double().requires_grad_()
    assert torch.autograd.gradcheck(ends, [slope])
    dead = torch.zeros(2).double().requires_grad_()
    recipe.change(before, lambda at, now: {"w": dead * 1.0})["w"].sum().backward()
    assert dead.grad.isfinite().all()
    assert root(torch.tensor([4.0, 0.0])).tolist() == [2.0, 0.0]


def test_an_optimizer_without_a_rule_is_said_to_have_none() -> None:
    weight = torch.zeros(1, requires_grad=True)
    assert rule_of(torch.optim.NAdam([weight])) is None
    assert rule_of(torch.optim.SGD([weight], 0.1, maximize=True)) is None
    assert named_rule("torch.optim:NAdam") is None
