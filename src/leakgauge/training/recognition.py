"""Recognises from an update the optimizer of a client's local steps.

Optimizers that divide by the gradient's size leave changes of one size: all of them after a first
step, and those whose gradients keep their sign after a few. Gradients themselves do not: after SGD
the largest change is far above most others. Limits lie between the values seen on four small
networks, trained and untrained, under nine optimizers (``tests/training/test_recognition.py``).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.core.checks import InputError, require
from leakgauge.training.catalog import SGD, own_rate, with_settings
from leakgauge.training.digits import digits_of
from leakgauge.training.first_step import first_step, rounding
from leakgauge.training.recipe import Recipe, named_rule
from leakgauge.training.shrinking import shrinking
from leakgauge.training.update import Update

FEWEST, FEWEST_PILED = 30, 1000
"""Fewest changes above their rounding that show anything, after one step and after several: among a
few hundred normal changes, some are near the largest by chance."""

ONE_SIZE, ONE_WIDTH = 0.3, 0.05
"""After one step: smallest share of changes within this relative width of the largest. Seen: 0.52
or more after Adam and its like, at most 0.003 after SGD."""

PILED, PILED_WIDTH = 0.03, 0.1
"""The same after several steps. Seen after four: 0.037 or more after Adam, at most 0.006 else."""

BEYOND = 1.05
"""Largest of all changes, relative to the largest after rare ones, where they pile up at an end."""

SAME, SAME_OVER_STEPS = 0.02, 0.05
"""Relative difference of two rates that counts as none, after one step and after several."""

DECAYED = 0.5
"""Smallest share of the sizes' variance that a decoupled weight decay explains."""


PLAIN = "plain SGD"


@dataclass(frozen=True)
class Understood:
    """The optimizer of an update, as the attacker takes it.

    Attributes:
        optimizer: as ``training.catalog`` reads it.
        assumed: what was not named, in words; empty where all was.
        named: whether the optimizer was named, not assumed.
    """

    optimizer: str
    assumed: str = ""
    named: bool = False


@dataclass(frozen=True)
class Sizes:
    """The common size of an update's changes.

    Attributes:
        size: the size; None where the changes have no common one.
        decay: decoupled weight decay, relative to the size.
        share: share of the changes near the largest.
    """

    size: float | None
    decay: float = 0.0
    share: float = 0.0


@dataclass(frozen=True, eq=False)
class _Changes:
    """Changes of weights ``[n]``, the weights before ``[n]``, and the spacing of the weights."""

    moved: Tensor
    weights: Tensor
    digits: float


def understood(
    update: Update, *, named: str | None = None, beside: Mapping[str, float] | None = None
) -> Understood:
    """Return the optimizer behind an update: the named one, or the recognised one.

    Args:
        update: the update; its own ``optimizer`` counts as named unless it is plain SGD.
        named: the optimizer that a user or a configuration names; None for none.
        beside: named settings of an optimizer that is not named, such as ``proximal_mu``; those
            that the update shows count before.

    Raises:
        InputError: the update contradicts the optimizer, or its rate.
    """
    named = named or (update.optimizer if update.optimizer != SGD else None)
    if update.kind == "gradient":
        return Understood(SGD, named=True)
    changes = _changes_of(update)
    sizes = _common_size(update, changes)
    if named is not None:
        _refuse_contradicted(update, named, sizes, changes)
        return Understood(named, named=True)
    found = _of_sgd(update) if sizes.size is None else _recognised(update, sizes)
    if not beside:
        return found
    assumed = found.assumed.replace(PLAIN, "SGD") + f", with {_in_words(beside)} as configured"
    return Understood(with_settings(found.optimizer, beside), assumed)


def _of_sgd(update: Update) -> Understood:
    """Return SGD, with the weight decay that one step shows."""
    shrunk = shrinking(update) if update.steps == 1 and update.lr is not None else None
    if shrunk is None or update.lr is None:
        return Understood(SGD, f"{PLAIN} (no optimizer is named)")
    decay = shrunk.share / update.lr
    seen = f"recognised from {shrunk.count} weights that only shrink"
    return Understood(
        f"{SGD}:weight_decay={decay:.3g}", f"SGD with a weight decay of {decay:.3g}, {seen}"
    )


def _in_words(settings: Mapping[str, float]) -> str:
    return ", ".join(f"{name}={value:g}" for name, value in settings.items())


def _common_size(update: Update, changes: _Changes) -> Sizes:
    """Return the size that the changes of an update share, if they do."""
    moved, weights = changes.moved, changes.weights
    if len(moved) < (FEWEST if update.steps == 1 else FEWEST_PILED):
        return Sizes(None)
    sizes = moved.abs()
    rare = max(1, len(sizes) // 1000)
    top = float(sizes.topk(rare + 1).values[-1])
    one = update.steps == 1
    width = ONE_WIDTH if one else PILED_WIDTH
    near = (sizes - top).abs() < width * top
    share = float(near.double().mean())
    if share < (ONE_SIZE if one else PILED) or float(sizes.max()) > BEYOND * top:
        return Sizes(None, share=share)
    if not one:
        return Sizes(top, share=share)
    return Sizes(*_size_and_decay(moved[near], weights[near]), share)


def _changes_of(update: Update) -> _Changes:
    """Return the changes that are well above their rounding."""
    moved, weights = [], []
    after, digits = update.after(), digits_of(update)
    for name, before in update.before.items():
        change = (after[name] - before).double()
        if update.kind == "change":
            change = update.values[name].double()
        clear = change.abs() > 100 * rounding(before, change.to(before.dtype), digits)
        moved.append(change[clear])
        weights.append(before.double()[clear])
    return _Changes(torch.cat(moved), torch.cat(weights), digits)


def _size_and_decay(moved: Tensor, weights: Tensor) -> tuple[float, float]:
    """Return size and decay of steps ``-size (sign(g) + decay w)``, by least squares.

    The sizes lie below the line where ``eps`` shortens a step, so those far below it are left out.
    """
    along = -moved.sign() * weights
    sizes, kept = moved.abs(), torch.ones_like(moved, dtype=torch.bool)
    level, slope = float(sizes.median()), 0.0
    for _ in range(5):
        line = torch.stack([torch.ones_like(along[kept]), along[kept]], 1)
        level, slope = torch.linalg.lstsq(line, sizes[kept, None]).solution.flatten().tolist()
        off = (sizes - level - slope * along).abs()
        kept = off <= 3 * off.median() + 1e-12
    plain = sizes[kept] - sizes[kept].mean()
    left = sizes[kept] - level - slope * along[kept]
    explained = 1 - float(left.square().sum() / plain.square().sum().clamp(min=1e-300))
    if slope <= 0 or explained < DECAYED:
        return float(sizes.median()), 0.0
    return level, slope / level


def _recognised(update: Update, sizes: Sizes) -> Understood:
    """Return the optimizer that makes changes of this size."""
    assert sizes.size is not None
    lr, rate = own_rate(update.optimizer) or update.lr, sizes.size / update.steps
    within = SAME if update.steps == 1 else SAME_OVER_STEPS
    if sizes.decay:
        title, name, settings = "AdamW", "adamw", [f"weight_decay={sizes.decay:.2g}"]
    else:
        title, name, settings = ("Adam or its like" if update.steps == 1 else "Adam"), "adam", []
        for other, its_title in (("rmsprop", "RMSprop"), ("adagrad", "Adagrad")):
            # Gradients that keep their sign make steps of one size, which differs by optimizer.
            each = -Recipe.named(other, steps=update.steps, lr=1.0).gain / update.steps
            if lr and _near(rate, each * lr, within) and not _near(rate, lr, within):
                title, name, rate = its_title, other, lr
    agrees = lr is not None and _near(rate, lr, within)
    if not agrees:
        settings = [f"lr={rate:.3g}", *settings]
    said = f"{title} at a rate of {lr if agrees else rate:.3g}, {_seen(sizes)}"
    if lr and not agrees:
        said += f"; the settings name a rate of {lr:g}"
    return Understood(f"{name}:{','.join(settings)}" if settings else name, said)


def _refuse_contradicted(update: Update, named: str, sizes: Sizes, changes: _Changes) -> None:
    rule = named_rule(named)
    if rule is None:
        return
    if rule.linear:
        require(
            sizes.size is None,
            f"the optimizer is named {named!r}, and the update contradicts it: {_seen(sizes)}, as "
            "after Adam; name another --local-optimizer, or none",
        )
        return
    lr = own_rate(named) or update.lr
    if lr is None:
        return
    recipe = Recipe.named(named, steps=update.steps, lr=update.lr, rates=update.rates)
    step = first_step(recipe)
    if step is not None and len(changes.moved) >= FEWEST:
        size = step.unit * recipe.rates[0]
        require(
            sizes.size is not None,
            f"the optimizer is named {named!r}, and the update contradicts it: its changes have no "
            "common size, as they have after one such step; name another --local-optimizer, or the "
            "number of local steps",
        )
        assert sizes.size is not None
        require(
            _near(sizes.size, size),
            f"the update contradicts {named!r}: its changes have a size of {sizes.size:.3g}, and "
            f"one step at a rate of {recipe.rates[0]:g} makes {size:.3g}; name the rate, "
            f"--local-lr {sizes.size / step.unit:.3g}",
        )
    _refuse_too_large(named, recipe, changes)


def _refuse_too_large(named: str, recipe: Recipe, changes: _Changes) -> None:
    """Refuse changes beyond the sum of the largest steps; a weight decay may add to them."""
    moved, rule = changes.moved, recipe.rule
    most = sum(rate * rule.largest_step(at) for at, rate in enumerate(recipe.rates, start=1))
    if not len(moved) or math.isinf(most) or getattr(rule, "decoupled", False):
        return
    rounded = rounding(changes.weights, moved, changes.digits)
    largest = float((moved.abs() - rounded).max())
    if largest > (1 + SAME) * most:
        raise InputError(
            f"the update contradicts {named!r}: a weight changed by {largest:.3g}, and "
            f"{len(recipe)} steps change none by more than {most:.3g}; name the rate "
            "(--local-lr) or the number of steps"
        )


def _seen(sizes: Sizes) -> str:
    return f"recognised from the update ({100 * sizes.share:.0f} % of the changes have one size)"


def _near(one: float, other: float, within: float = SAME) -> bool:
    return abs(one - other) <= within * other
