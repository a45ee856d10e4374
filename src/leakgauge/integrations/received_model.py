"""Loads the tensors that a client received into its own model, and checks them by ``guard``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

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
        """Return the verdict on a received model that is not refused.

        Args:
            received: its tensors by name, or by number.
            previous: those of the last round, in the same way; None in the first round.
            records: returns the client's records and labels; None for none.

        Raises:
            ModelRefusedError: the model is refused, does not fit the client's own, or cannot be
                checked.
        """
        verdict = self._verdict(received, previous, records)
        verdict.require()
        return verdict

    def _verdict(
        self,
        received: Mapping[str, Tensor],
        previous: Mapping[str, Tensor] | None,
        records: Callable[[], OwnRecords] | None,
    ) -> ModelVerdict:
        try:
            own = self.build()
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
