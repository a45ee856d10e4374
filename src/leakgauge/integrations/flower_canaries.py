"""A mod for Flower that plants clients whose update the auditor chooses."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from leakgauge.core.checks import require, require_count, require_positive
from leakgauge.core.extras import not_installed
from leakgauge.integrations.flower_messages import (
    EXAMPLES,
    PARTITION,
    config_in,
    is_training,
    keys_of,
    round_of,
)
from leakgauge.integrations.released_models import flat, names_of
from leakgauge.privacy.planted_clients import Planted
from leakgauge.results.statistics import Floats

try:
    from flwr.app import Array, ArrayRecord, Context, Message
    from flwr.clientapp.typing import ClientAppCallable
except ImportError as error:
    raise not_installed("flwr", "flower") from error

CLIP = "clipping_norm"
"""Flower's name of the norm that the server sends where clients clip."""


@dataclass(frozen=True)
class CanaryClients:
    """A mod that plants clients: ``ClientApp(mods=[CanaryClients([0, 1, 2], clip=1.0)])``.

    A planted client trains as it always does, and then sends a random direction in place of its
    update: the model that it received plus ``norm`` clips along the direction. Its direction is new
    in each round. A fair coin says whether a planted client takes part; otherwise it is honest. The
    auditor knows coins and directions by the seed.

    Place it after a mod that clips: ``mods=[fixedclipping_mod, CanaryClients(...)]``.

    Args:
        nodes: ``partition-id`` of each planted client, or its node, if it has no partition.
        clip: norm to which an update is clipped; not needed where the server sends it. Where it
            adapts, its first value.
        seed: seed of coins and directions; keep it from the other clients.
        norm: norm of what a planted client sends, in clips, before it is clipped.
        members: whether each planted client takes part; None flips coins, again if nobody would.
        examples: number of records that a planted client states; None for its honest one. A server
            that weights by it should not let it matter.

    Raises:
        InputError: a node is named twice, a number is not above 0, or no planted client takes part.

    >>> CanaryClients([3, 5], clip=1.0, seed=1).planted.members
    (False, True)
    """

    nodes: Sequence[int]
    clip: float | None = None
    seed: int = 0
    norm: float = 10.0
    members: Sequence[bool] | None = None
    examples: int | None = None

    def __post_init__(self) -> None:
        require(
            len(set(self.nodes)) == len(self.nodes),
            f"planted clients are {list(self.nodes)}; expected different ones",
        )
        require_positive(self.norm, "norm of a planted client")
        if self.clip is not None:
            require_positive(self.clip, "clip")
        if self.examples is not None:
            require_count(self.examples, "number of examples")
        require(
            self.members is None or len(self.members) == len(self.nodes),
            f"{len(self.members or ())} members for {len(self.nodes)} planted clients; expected "
            "one for each",
        )
        _ = self.planted

    @cached_property
    def planted(self) -> Planted:
        """The planted clients, in the order of ``nodes``."""
        if self.members is None:
            return Planted.by_coins(len(self.nodes), self.seed)
        return Planted(tuple(map(bool, self.members)), self.seed)

    def __call__(self, msg: Message, ctx: Context, call_next: ClientAppCallable) -> Message:
        """Return the reply, with a direction in place of the update of a planted client."""
        node = int(ctx.node_config.get(PARTITION, ctx.node_id))
        which = self.nodes.index(node) if node in self.nodes else None
        if which is None or not self.planted.members[which] or not is_training(msg):
            return call_next(msg, ctx)
        before, number = model_of(msg), round_of(msg)
        size = self.norm * self._clip_of(msg)
        out = call_next(msg, ctx)
        if not out.has_error():
            names = names_of(before)
            start = flat(before, names)
            direction = self.planted.directions(number, len(start))[which]
            self._replace(out, moved(before, names, start + size * direction))
        return out

    def _clip_of(self, msg: Message) -> float:
        sent = config_in(msg).get(CLIP, self.clip)
        require(
            isinstance(sent, int | float),
            "the clip of the updates is unknown: the server sends none, and CanaryClients has "
            "none; name clip=",
        )
        return float(sent)  # type: ignore[arg-type]

    def _replace(self, out: Message, record: ArrayRecord) -> None:
        records = out.content.array_records
        keys = [key for key, one in records.items() if set(one) == set(record)]
        require(
            len(keys) == 1 and len(records) == 1,
            f"a planted client's reply has {len(records)} records of arrays, {len(keys)} of them "
            "with the names of the model that it received; expected the model alone",
        )
        old = records[keys[0]]
        out.content[keys[0]] = ArrayRecord({name: record[name] for name in old})
        if self.examples is not None:
            _state(out, self.examples)


def _state(out: Message, examples: int) -> None:
    """Let a reply state another number of examples."""
    found = [
        (metrics, name)
        for metrics in out.content.metric_records.values()
        for name in EXAMPLES
        if name in metrics
    ]
    require(
        len(found) > 0,
        f"a planted client's reply states no number of examples ({EXAMPLES[0]!r}); leave out "
        "examples=",
    )
    for metrics, name in found:
        metrics[name] = examples


def model_of(msg: Message) -> ArrayRecord:
    """Return the one record of arrays of a message.

    Raises:
        InputError: there are several, or none.
    """
    records = msg.content.array_records
    require(
        len(records) == 1,
        f"a message has {len(records)} records of arrays ({', '.join(keys_of(msg))}); planted "
        "clients need the model alone",
    )
    return next(iter(records.values()))


def moved(record: ArrayRecord, names: Sequence[str], values: Floats) -> ArrayRecord:
    """Return the record with other values ``[size]`` in some of its arrays."""
    arrays, at = {name: one.numpy() for name, one in record.items()}, 0
    for name in names:
        old = arrays[name]
        arrays[name] = values[at : at + old.size].reshape(old.shape).astype(old.dtype)
        at += old.size
    return ArrayRecord({name: Array(np.asarray(one)) for name, one in arrays.items()})
