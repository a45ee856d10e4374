"""The interface of a monitor for the adapters."""

from types import TracebackType
from typing import Any, Protocol, Self

from torch import Tensor

from leakgauge.defenses.defense import Defense


class Watcher(Protocol):
    """Watches a training loop, as ``leakgauge.Monitor`` does."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    @property
    def is_open(self) -> bool:
        """Whether it watches."""
        ...

    def drive(self) -> None:
        """Count only calls of ``look`` as steps, not those of optimizers."""
        ...

    def look(self) -> None:
        """Look at the gradients of a step, before the optimizer uses them."""
        ...

    def step(self, x: Tensor | None, y: Tensor | None = None) -> None:
        """Take note of a batch ``x [n, ...]``, ``y [n, ...]``."""
        ...

    def defend_records(self, defense: Defense) -> None:
        """Measure each record's gradient as it leaves; batches are read as they are."""
        ...


def tensors(batch: Any) -> tuple[Tensor | None, Tensor | None]:
    """Return the inputs and targets of a batch, as far as they are tensors.

    Args:
        batch: a tensor, a sequence or a mapping that begins with them.

    >>> import torch
    >>> [found.shape for found in tensors([torch.zeros(4, 3), torch.zeros(4)])]
    [torch.Size([4, 3]), torch.Size([4])]
    """
    if isinstance(batch, Tensor):
        return batch, None
    if hasattr(batch, "values"):
        batch = list(batch.values())
    if not isinstance(batch, list | tuple):
        return None, None
    found = [one for one in batch if isinstance(one, Tensor) and one.dim() > 0]
    first, second, *_ = [*found, None, None]
    return first, second
