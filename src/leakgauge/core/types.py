"""The nouns that every floor above shares."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

Params = Mapping[str, Tensor]
"""Parameters by name; leaf ``[*p]``."""

Grads = Mapping[str, Tensor]
"""A stack of gradients by parameter name; leaf ``[N, *p]``, N on the first axis."""


@dataclass(frozen=True, eq=False)
class Task:
    """What is trained. The module is never mutated.

    Attributes:
        model: any module; its parameters and buffers are read, never written.
        loss: ``(outputs [B, ...], targets [B, ...]) -> mean loss over the batch`` (a scalar).
    """

    model: nn.Module
    loss: Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Column:
    """One original column and where its encoding stands in ``x``.

    Attributes:
        name: the column's name in the user's table.
        kind: ``"number"`` (one standardised value) or ``"category"`` (one-hot).
        start: first encoded position; ``stop`` is one past the last.
        categories: the values behind the one-hot positions, in order; empty for a number.
        missing: whether the last encoded position marks a missing value.
        mean: what was subtracted from a number, before the division by ``scale``.
    """

    name: str
    kind: str
    start: int
    stop: int
    categories: tuple[str, ...] = ()
    missing: bool = False
    mean: float = 0.0
    scale: float = 1.0


@dataclass(frozen=True)
class Schema:
    """Which encoded positions belong to which original column, and what the codes mean.

    Attributes:
        columns: the encoded columns, in the order of their positions.
        label: the label's column name; ``classes`` are its values by code.
        secrets: for each secret its values by code.
    """

    columns: tuple[Column, ...]
    label: str
    classes: tuple[str, ...]
    secrets: Mapping[str, tuple[str, ...]]

    def column(self, name: str) -> Column:
        """The encoded column called ``name``.

        Raises:
            KeyError: there is none.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Encoded records.

    Attributes:
        x: features ``[n, ...]``, floating.
        y: labels ``[n]``, int64 codes.
        secrets: for each secret its codes ``[n]``, int64.
        users: person (or group) of each record ``[n]``, int64, or None.
        schema: what the codes and positions mean, where a table was encoded.
    """

    x: Tensor
    y: Tensor
    secrets: Mapping[str, Tensor] = field(default_factory=dict)
    users: Tensor | None = None
    schema: Schema | None = None

    def __len__(self) -> int:
        return len(self.y)

    def rows(self, index: Tensor) -> "Dataset":
        """The records at ``index`` ``[k]`` (int64), in that order."""
        return replace(
            self,
            x=self.x[index],
            y=self.y[index],
            secrets={name: codes[index] for name, codes in self.secrets.items()},
            users=None if self.users is None else self.users[index],
        )

    def to(self, device: torch.device | str) -> "Dataset":
        """The same records on another device."""
        return replace(
            self,
            x=self.x.to(device),
            y=self.y.to(device),
            secrets={name: codes.to(device) for name, codes in self.secrets.items()},
            users=None if self.users is None else self.users.to(device),
        )
