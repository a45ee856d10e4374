"""The local steps behind a received update, and whether an attack simulates them."""

from leakgauge.core.checks import InputError, require
from leakgauge.inversion.search.simulate import LocalSteps
from leakgauge.inversion.words import EQUAL_GRADIENTS
from leakgauge.training.digits import digits_of
from leakgauge.training.update import Update

MOST_SIMULATED = 10
"""Largest number of steps of SGD that are simulated unless one asks for it. An iteration of the
search is about that many times as long as one that takes the steps for a single gradient."""


def record_count(update: Update) -> int:
    """Return the number of records behind an update.

    Where the update does not say it, each of its steps is taken to use different records.

    Raises:
        InputError: it gives neither its records nor its batch size.
    """
    if update.records is not None:
        return update.records
    if update.batch_size is None:
        raise InputError(
            "the update gives neither its records nor its batch size; give the number of its "
            "records with --images"
        )
    return update.batch_size * update.steps


def local_steps(update: Update, count: int) -> LocalSteps:
    """Return the client's training: passes over ``count`` records in the same batches and order.

    Raises:
        InputError: the update does not say enough, or its steps are not whole passes.
    """
    size, recipe = update.batch_size, update.recipe
    if recipe is None or (update.steps == 1 and recipe.is_plain):
        raise InputError(
            f"a {update.kind} of {update.steps} step needs no simulation; leave out --simulate"
        )
    if size is None:
        raise InputError(
            "the update does not give its batch size, without which its steps cannot be simulated; "
            "leave out --simulate"
        )
    steps = count // size
    require(
        count % size == 0 and update.steps % steps == 0,
        f"{update.steps} steps of {size} records are not whole passes over {count} records, so "
        "they cannot be simulated; leave out --simulate",
    )
    passes, rates = update.steps // steps, recipe.rates
    return LocalSteps(
        steps,
        rates[0],
        passes,
        optimizer=update.optimizer,
        rates=rates,
        digits=digits_of(update),
    )


def not_simulated(update: Update, count: int, *, ordered: bool) -> str:
    """Return why local steps are not simulated unless one asks for it; empty where they are.

    Args:
        update: what the client sent.
        count: number of its records.
        ordered: whether the labels of each step are known; inferred ones are those of all steps.
    """
    size, recipe = update.batch_size, update.recipe
    if recipe is None or update.steps == 1:
        return "there is one step"
    if size is None:
        return "the batches are unknown"
    if count % size or update.steps % (count // size):
        return f"{update.steps} steps of {size} records are not whole passes over {count}"
    if not recipe.rule.linear:  # such steps are no gradient together
        return ""
    if update.steps > MOST_SIMULATED:
        return f"over {MOST_SIMULATED} steps take long to simulate"
    return "" if ordered or count == size else "it is unknown which label belongs to which step"


def one_gradient(update: Update, against: str, *, simulate: bool) -> str:
    """Return in words that several steps are taken for one gradient; empty where they are not."""
    if simulate or update.steps == 1 or update.kind == "gradient":
        return ""
    reason = f", since {against}" if against else ""
    return f"{EQUAL_GRADIENTS} {update.steps} steps{reason}"


def plain_steps(update: Update) -> LocalSteps | None:
    """Return the steps of an update that are not simulated: only their rule matters."""
    recipe = update.recipe
    if recipe is None:
        return None
    rate = recipe.rates[0]
    return LocalSteps(len(recipe), rate, optimizer=update.optimizer, digits=digits_of(update))
