"""The check of a received model: whether it was made to give records away."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from leakgauge.core.checks import InputError, require, require_count
from leakgauge.core.losses import LossFunction
from leakgauge.core.types import Task
from leakgauge.model_checks.observed import ModelSeen, observe
from leakgauge.model_checks.signs import (
    LEAST_BATCH,
    ModelSign,
    equal_rows,
    muted,
    other_layers,
    outputs_of,
    replaced,
    single_units,
    zero_rows,
)

MOST_BATCHES = 8
"""Batches of the client's records that a check looks at."""


class ModelRefusedError(Exception):
    """A received model shows a sign that it was made to give records away."""


@dataclass(frozen=True)
class ModelVerdict:
    """The result of a check.

    Attributes:
        signs: all signs that were measured.
        unchecked: what was not checked, and why, one sentence each.
    """

    signs: tuple[ModelSign, ...]
    unchecked: tuple[str, ...]

    @property
    def refused(self) -> bool:
        """Whether a client should refuse to train this model."""
        return bool(self.reasons)

    @property
    def reasons(self) -> tuple[ModelSign, ...]:
        """The signs above their limits."""
        return tuple(one for one in self.signs if one.refuses)

    def require(self) -> None:
        """Raise ``ModelRefusedError`` where the model is refused."""
        if self.refused:
            raise ModelRefusedError(str(self))

    def __str__(self) -> str:
        """Return the verdict in one line."""
        if self.refused:
            reasons = "; ".join(f"{one.name}: {one.said}" for one in self.reasons)
            return f"model refused, it looks as if made to give records away ({reasons})"
        missing = f"; not checked: {'; '.join(self.unchecked)}" if self.unchecked else ""
        names = ", ".join(one.name for one in self.signs)
        return f"no sign of an altered model (checked: {names}{missing})"


def guard(
    model: nn.Module,
    previous: nn.Module | Mapping[str, Tensor] | None = None,
    *,
    x: Tensor | None = None,
    y: Tensor | None = None,
    loss: LossFunction | str = "cross_entropy",
    batch_size: int = 64,
) -> ModelVerdict:
    """Check a received model before a client trains it on private records.

    The check knows the servers of ``leakgauge invert --server``: layers that sort or single out
    records, and heads that let the gradient of few records through. It cannot prove that a model is
    honest, and what an honest model gives away it does not measure.

    Args:
        model: the received model; it stays as it is.
        previous: the model of the last round, or its tensors by name; None in the first round.
        x: the client's records ``[n, ...]``, of which up to eight batches are used.
        y: their labels ``[n, ...]``.
        loss: the client's loss, a function or a name, as for ``Task``.
        batch_size: records of a training step.

    Raises:
        InputError: the records do not fit the model, or x and y differ in length.

    >>> import torch
    >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
    <torch._C.Generator object at 0x...>
    >>> model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 3))
    >>> x, y = torch.randn(128, 20), torch.randint(3, (128,))
    >>> guard(model, x=x, y=y).refused
    False
    >>> with torch.no_grad():
    ...     _ = model[0].weight.copy_(model[0].weight[:1].expand(64, -1))
    >>> [one.name for one in guard(model, x=x, y=y).reasons]
    ['equal rows']
    """
    require_count(batch_size, "batch_size")
    require((x is None) == (y is None), "records come with labels; give both x and y, or neither")
    signs, unchecked = [equal_rows(model)], []
    if previous is None:
        unchecked.append("changes since the last round (no previous model)")
    else:
        before = previous.state_dict() if isinstance(previous, nn.Module) else previous
        signs.append(other_layers(_trained(model.state_dict(), before), before))
        signs.append(replaced(model.state_dict(), before))
    if x is None or y is None:
        unchecked.append("what the model does with the client's records (no x and y)")
        return ModelVerdict(tuple(signs), tuple(unchecked))
    require(len(x) == len(y) > 0, f"{len(x)} records and {len(y)} labels; expected as many of both")
    try:
        seen = list(_observations(Task(model, loss), x, y, batch_size))
    except (RuntimeError, ValueError, IndexError) as error:
        raise InputError(f"the model does not run on these records: {error}") from error
    batch = min(batch_size, len(x))
    if batch < LEAST_BATCH:
        unchecked.append(f"units for single records (batches of {batch}, {LEAST_BATCH} needed)")
    elif any(one.layers for one in seen):
        signs.append(single_units(seen))
    if seen[0].head:
        signs += [zero_rows(model, seen[0].head), muted(model, seen)]
        if outputs_of(model, seen[0].head) < 3:
            unchecked.append(
                "whether the last layer isolates a class (with two outputs, it looks like a model "
                "that expects one class)"
            )
    else:
        unchecked.append("the last layer (it is not linear)")
    return ModelVerdict(tuple(signs), tuple(unchecked))


def _observations(task: Task, x: Tensor, y: Tensor, batch_size: int) -> Iterator[ModelSeen]:
    """Return what whole batches show; a single smaller one where there are fewer records."""
    size = min(batch_size, len(x))
    for at in range(0, min(len(x) // size, MOST_BATCHES) * size, size):
        yield observe(task, x[at : at + size], y[at : at + size])


def _trained(state: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return a model's tensors; counters are left out where the last round left them out."""
    return {
        name: leaf for name, leaf in state.items() if name in before or leaf.is_floating_point()
    }
