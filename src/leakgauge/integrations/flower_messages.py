"""Read the model, the settings and the round from a message of Flower."""

import logging
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.core.extras import not_installed
from leakgauge.core.names import few
from leakgauge.integrations.arrays import tensors_in

try:
    from flwr.app import Message
except ImportError as error:
    raise not_installed("flwr", "flower") from error

LOG = logging.getLogger("leakgauge")

TRAIN, ROUND, PARTITION = "train", "server-round", "partition-id"
ARRAYS = "arrays"
"""Flower's key of the model among the records of a message."""

EXAMPLES = ("num-examples", "num_examples", "num-samples")
"""Default names of the number of records in a reply's metrics."""


def is_training(msg: Message) -> bool:
    """Return whether a message asks a client to train."""
    return bool(msg.metadata.message_type.partition(".")[0] == TRAIN)


def keys_of(msg: Message) -> tuple[str, ...]:
    """Return the keys under which a client's reply may hold the model, the likeliest first."""
    received = list(msg.content.array_records)
    return (ARRAYS, *received) if len(received) == 1 else (ARRAYS,)


def model_in(msg: Message, keys: Sequence[str]) -> dict[str, Tensor]:
    """Return the tensors of a message, in the order in which they came.

    Several records may be parts of a model. If they share names, as SCAFFOLD's control variates
    do with the model, only the first record that ``keys`` names counts.
    """
    records = dict(msg.content.array_records.items())
    names = [name for record in records.values() for name in record]
    if len(set(names)) < len(names):
        key = next((key for key in keys if key in records), None)
        if key is None:
            raise InputError(
                f"not kept: the records {few(records)} share names, and the model is not under "
                f"{ARRAYS!r}; send it under this key"
            )
        LOG.info("only the arrays under %r are kept; other records have the same names", key)
        records = {key: records[key]}
    arrays = {name: array for record in records.values() for name, array in record.items()}
    return tensors_in(arrays, f"message under {few(records)}")


def beside_model(reply: Message, keys: Sequence[str]) -> tuple[str, ...]:
    """Return the records of a reply that ``model_in`` leaves out: they share the model's names."""
    records = dict(reply.content.array_records.items())
    names = [name for record in records.values() for name in record]
    if len(set(names)) == len(names):
        return ()
    model = next((key for key in keys if key in records), None)
    return tuple(key for key in records if key != model)


def config_in(msg: Message) -> dict[str, Any]:
    """Return the settings of a message."""
    records = msg.content.config_records.values()
    return {key: value for record in records for key, value in record.items()}


def round_of(msg: Message) -> int:
    """Return the round that the server names; else the message's group, if that is a number.

    Raises:
        InputError: neither is a number from 1.
    """
    number: Any = config_in(msg).get(ROUND) if msg.has_content() else None
    whole = isinstance(number, int) and not isinstance(number, bool)
    if not whole and msg.metadata.group_id.isdecimal():
        number, whole = int(msg.metadata.group_id), True
    if not whole or number <= 0:
        raise InputError(
            f"not kept: a message for training names no round ({ROUND!r} is {number!r}); let the "
            f"server send {ROUND!r}, a whole number from 1, in its configuration"
        )
    return int(number)
