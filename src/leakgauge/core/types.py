"""Types that all packages share: tasks, datasets, columns, gradients; checks of tensors."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from leakgauge.core.checks import InputError, require, require_known
from leakgauge.core.forward import drops_axis, forward
from leakgauge.core.losses import LOSSES, LossFunction

Params = Mapping[str, Tensor]
"""Parameters by name; each value is ``[*p]``."""

Grads = Mapping[str, Tensor]
"""N gradients, stacked, by parameter name; each value is ``[N, *p]``."""


@dataclass(frozen=True, eq=False, init=False)
class Task:
    """A model and the loss that trains it.

    Attributes:
        model: any module; leakgauge reads its parameters and buffers and never writes them.
        loss: ``(outputs [B, ...], targets [B, ...]) -> mean loss over the batch``, a scalar, or
            the loss of each record ``[B]``. In place of a function, a name: ``"cross_entropy"``
            (targets int64 ``[n]``), ``"mse"`` (numbers ``[n]`` or ``[n, k]``) or ``"bce"`` (0 or
            1, ``[n, k]``: several labels a record). Nothing standardises the targets.

    Raises:
        InputError: no loss has this name, or the model is lazy and has not run yet.

    >>> task = Task(nn.Linear(3, 1), "mse")
    >>> task.mean_loss(torch.zeros(2, 1), torch.tensor([1.0, 3.0]))
    tensor(5.)
    """

    model: nn.Module
    loss: LossFunction

    def __init__(self, model: nn.Module, loss: LossFunction | str = "cross_entropy") -> None:
        if isinstance(loss, str):
            require_known(loss, LOSSES, f"no loss is called {loss!r}")
            loss = LOSSES[loss]
        if not callable(loss):
            raise InputError(
                f"the loss of a Task is {type(loss).__name__}; expected a function of outputs and "
                f"targets, or one of {', '.join(LOSSES)}"
            )
        if isinstance(model, nn.Module):
            require_shapes(model)
        object.__setattr__(self, "model", model)
        object.__setattr__(self, "loss", loss)

    def outputs(self, x: Tensor, values: Params | None = None) -> Any:
        """Return the model's outputs for copies of records, which it may write.

        Args:
            x: records ``[B, ...]``.
            values: parameters and buffers by name, in place of the model's own.
        """
        return forward(self.model, x, values)

    def paired(self, x: Tensor) -> Tensor:
        """Return records, or two copies of a single one whose axis the model drops.

        A hook on the model then sees one pass, with an axis of records.

        Args:
            x: records ``[B, ...]``.
        """
        return torch.cat([x, x]) if drops_axis(self.model, x) else x

    def mean_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss over a batch, also if ``loss`` returns one value per record.

        Args:
            outputs: outputs of the model ``[B, ...]``.
            targets: ``[B, ...]``; the loss gets a copy, which it may write.
        """
        try:
            loss = self.loss(outputs, targets.clone())
        except (IndexError, RuntimeError) as error:  # vectorised, it is the second
            if not (isinstance(error, IndexError) or "is out of bounds" in str(error)):
                raise
            raise InputError(
                "the loss fails for a label that is not among the outputs "
                f"{list(getattr(outputs, 'shape', ())[-1:])} of a record ({error}); expected "
                "labels from 0 on, each below the number of outputs"
            ) from error
        each = isinstance(loss, Tensor) and loss.dim() == 1 and loss.shape == targets.shape[:1]
        return loss.mean() if each else loss


@dataclass(frozen=True)
class Column:
    """One original column and its positions in the encoded features ``x``.

    Attributes:
        name: the column's name in the user's table.
        kind: ``"number"`` (one standardised value) or ``"category"`` (one-hot).
        start: the first encoded position.
        stop: one past the last encoded position.
        categories: the values behind the one-hot positions, in order; empty for a number.
        missing: whether the last encoded position marks a missing value.
        mean: value that the encoding subtracts from a number.
        scale: divisor that the encoding then applies.
        typical: for a number cut into ranges, the encoded typical value of each range.
    """

    name: str
    kind: str
    start: int
    stop: int
    categories: tuple[str, ...] = ()
    missing: bool = False
    mean: float = 0.0
    scale: float = 1.0
    typical: tuple[float, ...] = ()


@dataclass(frozen=True)
class Schema:
    """The original column of each encoded position, and the meaning of the codes.

    Attributes:
        columns: the encoded columns, in the order of their positions.
        label: the name of the label's column.
        classes: the label's values by code; empty for a label of numbers.
        secrets: each secret's values by code.
        users: names of the users by code; empty where they have none.
    """

    columns: tuple[Column, ...]
    label: str
    classes: tuple[str, ...]
    secrets: Mapping[str, tuple[str, ...]]
    users: tuple[str, ...] = ()

    def column(self, name: str) -> Column:
        """Return the encoded column called ``name``.

        Raises:
            KeyError: no column has this name.
        """
        return {column.name: column for column in self.columns}[name]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Encoded records: features, labels, secrets and users.

    Attributes:
        x: features ``[n, ...]``, floating.
        y: labels: int64 codes ``[n]`` of classes, numbers ``[n]`` or ``[n, k]``, or 0 and 1
            ``[n, k]`` for several labels a record.
        secrets: each secret's codes ``[n]``, int64.
        users: the user of each record ``[n]``, int64, or None.
        schema: the meaning of codes and positions, where the records come from a table.
    """

    x: Tensor
    y: Tensor
    secrets: Mapping[str, Tensor] = field(default_factory=dict)
    users: Tensor | None = None
    schema: Schema | None = None

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        """Return a summary without records."""
        secrets = f", secrets {', '.join(map(repr, self.secrets))}" if self.secrets else ""
        return f"<Dataset: {len(self):,} records of shape {list(self.x.shape[1:])}{secrets}>"

    def rows(self, index: Tensor) -> "Dataset":
        """Return the records at ``index`` ``[k]`` (int64), in that order."""
        return self._mapped(lambda values: values[index])

    def to(self, device: torch.device | str) -> "Dataset":
        """Return these records on another device."""
        return self._mapped(lambda values: values.to(device))

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> "Dataset":
        return replace(
            self,
            x=change(self.x),
            y=change(self.y),
            secrets={name: change(codes) for name, codes in self.secrets.items()},
            users=None if self.users is None else change(self.users),
        )


def all_finite(leaves: Iterable[Tensor]) -> bool:
    """Return whether all numbers in the tensors are finite.

    A finite sum proves it at a fifth of the cost; otherwise each number is checked.

    >>> all_finite([torch.tensor([3e38, 3e38])]), all_finite([torch.tensor([1.0, torch.nan])])
    (True, False)
    """
    return all(bool(leaf.sum().isfinite()) or bool(leaf.isfinite().all()) for leaf in leaves)


def require_shapes(model: nn.Module) -> None:
    """Refuse a lazy model that has not run yet: its parameters have no shapes.

    >>> require_shapes(nn.LazyLinear(2))
    Traceback (most recent call last):
    leakgauge.core.checks.InputError: parameter 'weight' has no shape yet; run the lazy model once \
first
    """
    for name, leaf in (*model.named_parameters(), *model.named_buffers()):
        require(
            not nn.parameter.is_lazy(leaf),
            f"parameter {name!r} has no shape yet; run the lazy model once first",
        )


def require_plain(value: Tensor, name: str) -> None:
    """Refuse a tensor without values, or with a layout or type that arithmetic does not take.

    >>> require_plain(torch.zeros(2, device="meta"), "'w'")
    Traceback (most recent call last):
    leakgauge.core.checks.InputError: 'w' is on the device meta and has no values; save real weights
    """
    require(
        value.device.type != "meta",
        f"{name} is on the device meta and has no values; save real weights",
    )
    require(
        value.layout == torch.strided, f"{name} is a {value.layout} tensor; save it by to_dense()"
    )
    require(not value.is_quantized, f"{name} is quantised ({value.dtype}); save it by dequantize()")
    require(
        not value.is_floating_point() or value.dtype.itemsize > 1,
        f"{name} is {value.dtype}; save it as float32",
    )
