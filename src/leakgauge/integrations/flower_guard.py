"""A mod of Flower's clients that refuses a model that was made to give records away."""

import logging
from collections.abc import Callable

import torch
from torch import nn

from leakgauge.core.extras import not_installed
from leakgauge.core.losses import LossFunction
from leakgauge.integrations.flower_messages import is_training, keys_of, model_in
from leakgauge.integrations.received_model import OwnRecords, ReceivedModel

try:
    from flwr.app import ArrayRecord, Context, Error, Message
    from flwr.clientapp.typing import ClientAppCallable
except ImportError as error:
    raise not_installed("flwr", "flower") from error

LOG = logging.getLogger("leakgauge")

REFUSED = 451
"""Code of the error that a client answers with, in place of an update."""

PREVIOUS = "leakgauge.guard"
"""Key of the last round's model in the state of a client."""


class GuardModel:
    """A mod that checks each model before a client trains it.

    ``ClientApp(mods=[GuardModel(build, records)])``. It runs ``leakgauge.guard`` on a model for
    training. A refused model never reaches the client's own code: the client answers with an error
    and the reason, which the log repeats. Flower then goes on with the other clients. A model that
    cannot be checked is refused as well.

    Args:
        model: returns the client's own model, with any weights.
        records: ``context -> (x [n, ...], y [n, ...])``, the client's records; None checks the
            weights alone.
        loss: the client's loss, a function or a name, as for ``leakgauge.Task``.
        batch_size: records of a training step.
    """

    def __init__(
        self,
        model: Callable[[], nn.Module],
        records: Callable[[Context], OwnRecords] | None = None,
        *,
        loss: LossFunction | str = "cross_entropy",
        batch_size: int = 64,
    ) -> None:
        self._check = ReceivedModel(model, loss, batch_size)
        self._records = records

    def __call__(self, msg: Message, ctx: Context, call_next: ClientAppCallable) -> Message:
        """Return the reply of the client, or an error where the model is refused."""
        if not is_training(msg):
            return call_next(msg, ctx)
        try:
            self._examine(msg, ctx)
        except Exception as error:  # noqa: BLE001 - an unchecked model must not be trained
            LOG.warning("client %s: %s", ctx.node_config.get("partition-id", ctx.node_id), error)
            return Message(Error(REFUSED, str(error)), reply_to=msg)
        return call_next(msg, ctx)

    def _examine(self, msg: Message, ctx: Context) -> None:
        """Raise an error where the model is refused; else remember it."""
        received = model_in(msg, keys_of(msg))
        kept = ctx.state.array_records.get(PREVIOUS)
        previous = None if kept is None else kept.to_torch_state_dict()
        own = self._records
        records = None if own is None else lambda: own(ctx)
        with torch.random.fork_rng(devices=[]):  # the client's own draws stay as they were
            self._check.check(received, previous, records)
        ctx.state.array_records[PREVIOUS] = ArrayRecord(received)
