"""The types that all other packages share: tasks, datasets, columns, gradients."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

Params = Mapping[str, Tensor]
"""Parameters by name; each value is ``[*p]``."""

Grads = Mapping[str, Tensor]
"""N gradients, stacked, by parameter name; each value is ``[N, *p]``."""


@dataclass(frozen=True, eq=False)
class Task:
    """A model and the loss that trains it.

    Attributes:
        model: any module; leakgauge reads its parameters and buffers and never writes them.
        loss: ``(outputs [B, ...], targets [B, ...]) -> mean loss over the batch`` (a scalar).
    """

    model: nn.Module
    loss: Callable[[Tensor, Tensor], Tensor]


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
        mean: the encoding subtracts it from a number.
        scale: the encoding divides by it after that.
        typical: of a number that was cut into ranges, as encoded, by the code of the range.
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
        classes: the label's values by code.
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
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Encoded records: features, labels, secrets and users.

    Attributes:
        x: features ``[n, ...]``, floating.
        y: labels ``[n]``, int64 codes.
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

    def rows(self, index: Tensor) -> "Dataset":
        """Return the records at ``index`` ``[k]`` (int64), in that order."""
        return replace(
            self,
            x=self.x[index],
            y=self.y[index],
            secrets={name: codes[index] for name, codes in self.secrets.items()},
            users=None if self.users is None else self.users[index],
        )

    def to(self, device: torch.device | str) -> "Dataset":
        """Return these records on another device."""
        return replace(
            self,
            x=self.x.to(device),
            y=self.y.to(device),
            secrets={name: codes.to(device) for name, codes in self.secrets.items()},
            users=None if self.users is None else self.users.to(device),
        )
