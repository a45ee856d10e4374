"""Loads the tensors that a client received into its own model, and checks them by ``guard``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from leakgauge.core.checks import InputError
from leakgauge.core.losses import LossFunction
from leakgauge.core.user_code import one_line
from leakgauge.integrations.kept_tensors import named_as
from leakgauge.model_checks.guard import ModelRefusedError, ModelVerdict, guard

OwnRecords = tuple[Tensor, Tensor]
"""A client's records ``[n, ...]`` and their labels ``[n, ...]``."""


@dataclass(frozen=True)
class ReceivedModel:
    """How a client builds its model, and which records it checks a received one with.

    Attributes:
        build: returns the client's own model, with any weights.
        loss: the client's loss, a function or a name, as for ``Task``.
        batch_size: records of a training step.
    """

    build: Callable[[], nn.Module]
    loss: LossFunction | str = "cross_entropy"
    batch_size: int = 64

    def check(
        self,
        received: Mapping[str, Tensor],
        previous: Mapping[str, Tensor] | None,
        records: Callable[[], OwnRecords] | None,
    ) -> ModelVerdict:
        """Return the verdict on a received model.

        Args:
            received: its tensors by name, or by number.
            previous: those of the last round, in the same way; None in the first round.
            records: returns the client's records and labels; None for none.

        Raises:
            ModelRefusedError: the tensors do not fit the client's own model, or the check fails.
        """
        try:
            own = self.build().eval()
            if not isinstance(own, nn.Module):
                raise InputError(f"model gives {type(own).__name__}; expected a torch.nn.Module")
            with torch.no_grad():
                own.load_state_dict(named_as(dict(received), own, "the received model"))
            before = None
            if previous is not None:
                before = named_as(dict(previous), own, "the model of the last round")
            x, y = (None, None) if records is None else records()
            return guard(own, before, x=x, y=y, loss=self.loss, batch_size=self.batch_size)
        except Exception as error:
            raise ModelRefusedError(
                f"model refused, it cannot be checked: {one_line(error)}"
            ) from error


def plain(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return copies of tensors on the CPU, which another message cannot change."""
    return {name: leaf.detach().cpu().clone() for name, leaf in tensors.items()}
