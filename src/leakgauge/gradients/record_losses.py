"""The loss of each record of a batch, as on a batch of one."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import vmap


def record_losses(
    loss: Callable[[Tensor, Tensor], Tensor], outputs: Tensor, y: Tensor, *, vectorised: bool
) -> Tensor:
    """Return the losses ``[B]`` of records.

    Args:
        loss: mean loss of a batch, as ``Task.mean_loss``.
        outputs: ``[B, ...]``.
        y: targets ``[B, ...]``.
        vectorised: by ``vmap``, which refuses a loss that branches on its data; else by a loop.
    """
    outputs, y = outputs[:, None], y[:, None]
    if vectorised:
        return vmap(loss)(outputs, y)
    return torch.stack([loss(*one) for one in zip(outputs, y, strict=True)])
