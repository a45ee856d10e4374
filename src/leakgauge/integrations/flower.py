"""Keeps the updates of a Flower federation: a mod for clients, a wrapper for strategies.

``CanaryClients`` and ``CanaryAudit`` audit its client-level differential privacy.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.core.extras import not_installed
from leakgauge.integrations.arrays import harmless
from leakgauge.integrations.flower_audit import CanaryAudit as CanaryAudit
from leakgauge.integrations.flower_canaries import CanaryClients as CanaryClients
from leakgauge.integrations.flower_messages import (
    ARRAYS,
    EXAMPLES,
    PARTITION,
    beside_model,
    config_in,
    is_training,
    keys_of,
    model_in,
    round_of,
)
from leakgauge.integrations.flower_wrapped import WrappedStrategy
from leakgauge.integrations.kept import CLIENT, MOST, SERVER, Exchange, Keeper
from leakgauge.integrations.kept_base import BaseSource, ModelSource
from leakgauge.integrations.training_settings import LocalTraining

try:
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
    from flwr.clientapp.typing import ClientAppCallable
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Strategy
except ImportError as error:
    raise not_installed("flwr", "flower") from error

LOG = logging.getLogger("leakgauge")

PARTITIONS = (PARTITION, "partition_id")
"""Names of a client's partition in a reply's metrics."""


@dataclass(frozen=True, eq=False)
class _SentToClient:
    """Keep what a client received in a round, and the keys under which it may send the model."""

    number: int
    run: str
    before: Mapping[str, Tensor]
    config: Mapping[str, Any]
    keys: Sequence[str]


class KeepUpdates:
    """A mod that keeps the messages of a client: ``ClientApp(mods=[KeepUpdates("kept")])``.

    At the last place in ``mods`` it keeps raw updates; at the first, what leaves the client after
    all other mods. A client is named by its ``partition-id``, and else by its node. The learning
    rate, batch size and epochs are read from the message's and the run's configuration.

    If an update cannot be kept, the training continues and the reason is logged.

    Args:
        folder: for the updates; clients of one machine may share it.
        rounds: numbers of the rounds to keep; None for all.
        max_size: largest size of the folder, in words.
        training: settings of the client that no configuration names.
        client: the client's name, in place of the number of its partition.
        model: the client's model, or a function that returns it, where clients send a part of it,
            such as adapters: the checksum of the other parameters is kept, by which an audit
            recognises the same base.

    Raises:
        InputError: a round is not above 0, or the size cannot be read.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        rounds: Collection[int] | None = None,
        max_size: str = MOST,
        training: LocalTraining | None = None,
        client: str | None = None,
        model: ModelSource | None = None,
    ) -> None:
        self._base = BaseSource(model)
        self._keeper = Keeper(folder, rounds, max_size, training or LocalTraining())
        self._client = client

    def __call__(self, msg: Message, ctx: Context, call_next: ClientAppCallable) -> Message:
        """Keep the update of a training message, and return the reply unchanged."""
        received: _SentToClient | None = None
        if is_training(msg):
            with harmless("a message to a client"):
                number = round_of(msg)
                if self._keeper.wants(number):
                    # The app may write into the message.
                    keys, config = keys_of(msg), {**ctx.run_config, **config_in(msg)}
                    run = str(ctx.run_id)
                    received = _SentToClient(number, run, model_in(msg, keys), config, keys)
        out = call_next(msg, ctx)
        if received is not None:
            client = self._client or str(ctx.node_config.get(PARTITION, ctx.node_id))
            _keep(self._keeper, received, client, out, seen=CLIENT, base=self._base)
        return out


class KeepingStrategy(WrappedStrategy):
    """A strategy that also keeps what clients send: ``KeepingStrategy(FedAvg(), "kept")``.

    Everything else is delegated to the wrapped strategy. A client is named by the number of its
    partition if its reply's metrics have ``partition-id``, and else by its node, whose number is
    random: an auditor must then say whose records are whose.

    Args:
        strategy: to wrap.
        folder: for the updates.
        rounds: numbers of the rounds to keep; None for all.
        max_size: largest size of the folder, in words.
        training: settings of clients that no configuration names: a server does not know their
            batch size and epochs.
        model: as for ``KeepUpdates``.

    Raises:
        InputError: the strategy is one of ``flwr.server.strategy`` or has its own method ``start``,
            a round is not above 0, or the size cannot be read.
    """

    def __init__(
        self,
        strategy: Strategy,
        folder: Path | str,
        *,
        rounds: Collection[int] | None = None,
        max_size: str = MOST,
        training: LocalTraining | None = None,
        model: ModelSource | None = None,
    ) -> None:
        super().__init__(strategy, "use the mod KeepUpdates on clients")
        self._base = BaseSource(model)
        self._keeper = Keeper(folder, rounds, max_size, training or LocalTraining())
        self._keys = (getattr(strategy, "arrayrecord_key", ARRAYS), ARRAYS)
        self._sent: dict[int, _SentToClient] = {}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of the wrapped strategy, and remember them by node."""
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        self._sent = {}
        if self._keeper.wants(server_round):
            known: dict[int, dict[str, Tensor]] = {}  # most messages share one record
            for one in messages:
                with harmless(f"round {server_round}"):  # each alone: others can be kept
                    self._remember(server_round, one, known)
        return messages

    def _remember(self, number: int, one: Message, known: dict[int, dict[str, Tensor]]) -> None:
        at = id(one.content)
        if at not in known:
            known[at] = model_in(one, self._keys)
        run = str(one.metadata.run_id)
        sent = _SentToClient(number, run, known[at], config_in(one), self._keys)
        self._sent[one.metadata.dst_node_id] = sent

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Keep the replies of a chosen round, and return the strategy's aggregate."""
        received = list(replies)
        for one in received:
            node = one.metadata.src_node_id
            if node in self._sent:
                sent = self._sent[node]
                _keep(self._keeper, sent, None, one, seen=SERVER, base=self._base)
        self._sent = {}
        found: tuple[ArrayRecord | None, MetricRecord | None] = self.strategy.aggregate_train(
            server_round, received
        )
        return found

    def summary(self) -> None:
        """Log the folder, and the summary of the wrapped strategy."""
        LOG.info("updates are kept in %s", self._keeper.path)
        super().summary()


def _keep(
    keeper: Keeper,
    received: _SentToClient,
    client: str | None,
    reply: Message,
    *,
    seen: str,
    base: BaseSource,
) -> None:
    """Keep one reply without an error, or log the reason; a client of None is named by it."""
    name = f"round {received.number}, client {client}" if client else f"round {received.number}"
    with harmless(name):
        if reply.has_error():
            raise InputError(f"{name}: not kept, since the client answered with an error")
        metrics = {key: one for record in reply.content.metric_records.values()
                   for key, one in record.items()}  # fmt: skip
        named = (metrics.get(name) for name in EXAMPLES)
        counts = [int(value) for value in named if isinstance(value, int | float)]
        keeper.keep(
            Exchange(
                received.number,
                client or _name_of(reply, metrics),
                received.before,
                model_in(reply, received.keys),
                examples=counts[0] if counts else None,
                metrics=metrics,
                config=received.config,
                source="flower",
                seen=seen,
                run=received.run,
                base=base.base(received.before),
                beside=beside_model(reply, received.keys),
            )
        )


def _name_of(reply: Message, metrics: Mapping[str, Any]) -> str:
    """Return the partition that a reply's metrics name, else its node."""
    named = next((metrics[key] for key in PARTITIONS if key in metrics), None)
    whole = isinstance(named, int | float) and named == int(named)
    return str(int(named)) if named is not None and whole else str(reply.metadata.src_node_id)
