"""A small federation of Flower with planted clients, in this process and with planted faults."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    Strategy,
)

from leakgauge.integrations.flower_audit import CanaryAudit
from leakgauge.integrations.flower_canaries import CanaryClients
from support.flower_app import in_process

CLIENTS, ROUNDS, MULTIPLIER = 10, 8, 1.0
SHAPES = {"0.weight": (20, 30), "0.bias": (20,), "2.weight": (4, 20), "2.bias": (4,)}

FIXED = DifferentialPrivacyServerSideFixedClipping
CLIENT_FIXED = DifferentialPrivacyClientSideFixedClipping
ADAPTIVE = DifferentialPrivacyServerSideAdaptiveClipping
CLIENT_ADAPTIVE = DifferentialPrivacyClientSideAdaptiveClipping
MODS = {CLIENT_FIXED: [fixedclipping_mod], CLIENT_ADAPTIVE: [adaptiveclipping_mod]}


def quieter(kind: type[Strategy], factor: float) -> type[Strategy]:
    """Return a strategy that adds less noise than its noise multiplier says."""

    class Quieter(kind):  # type: ignore[misc, valid-type]
        def _add_noise_to_aggregated_arrays(self, arrays: ArrayRecord) -> ArrayRecord:
            stated, self.noise_multiplier = self.noise_multiplier, self.noise_multiplier * factor
            found = super()._add_noise_to_aggregated_arrays(arrays)
            self.noise_multiplier = stated
            return found

    return Quieter


def repaired(kind: type[Strategy]) -> type[Strategy]:
    """Return an adaptive strategy whose noise is for the clip by which it clipped."""

    class Repaired(kind):  # type: ignore[misc, valid-type]
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            self.used = self.clipping_norm
            return super().aggregate_train(server_round, list(replies))

        def _add_noise_to_aggregated_arrays(self, arrays: ArrayRecord) -> ArrayRecord:
            following, self.clipping_norm = self.clipping_norm, self.used
            found = super()._add_noise_to_aggregated_arrays(arrays)
            self.clipping_norm = following
            return found

    return Repaired


def strategy(kind: type[Strategy], *, clients: int = CLIENTS, inner: Any = None) -> Any:
    """Return a strategy with a clip of 1 and a noise multiplier of ``MULTIPLIER``."""
    average = inner or FedAvg(fraction_evaluate=0.0, min_train_nodes=clients)
    if hasattr(kind, "_geometric_update"):
        return kind(average, MULTIPLIER, clients, initial_clipping_norm=1.0)
    return kind(average, MULTIPLIER, 1.0, clients)


def app(*mods: Any, examples: Callable[[int], int] = lambda _: 10, size: float = 0.3) -> ClientApp:
    """Return clients whose updates go towards a place of their own."""
    made = ClientApp(mods=list(mods))

    @made.train()
    def train(msg: Message, ctx: Context) -> Message:
        who = int(ctx.node_config["partition-id"])
        drawn = np.random.default_rng([who, msg.content["config"]["server-round"]])
        place = np.random.default_rng(who)
        after = {}
        for name, one in msg.content["arrays"].items():
            before = one.numpy()
            pull = place.normal(size=before.shape) - before
            step = size * pull + 0.05 * drawn.normal(size=before.shape)
            after[name] = Array(np.asarray(before + step, before.dtype))
        metrics = MetricRecord({"num-examples": examples(who)})
        content = RecordDict({"arrays": ArrayRecord(after), "metrics": metrics})
        return Message(content, reply_to=msg)

    return made


def zeros(shapes: dict[str, tuple[int, ...]] = SHAPES) -> ArrayRecord:
    """Return a model of zeros."""
    return ArrayRecord({name: Array(np.zeros(shape, np.float32)) for name, shape in shapes.items()})


def played(
    chosen: Strategy,
    clients: ClientApp,
    *,
    nodes: int = CLIENTS,
    rounds: int = ROUNDS,
    start: ArrayRecord | None = None,
) -> list[dict[str, Any]]:
    """Let Flower's own code train in this process, and return the released models."""
    models: list[dict[str, Any]] = []
    chosen.start(
        grid=in_process().InProcess(clients, nodes, {}),
        initial_arrays=start or zeros(),
        num_rounds=rounds,
        evaluate_fn=lambda _, arrays: models.append(
            {name: one.numpy() for name, one in arrays.items()}
        ),
    )
    return models


def audited(
    chosen: Strategy,
    seed: int,
    *,
    mods: Sequence[Any] = (),
    canaries: dict[str, Any] | None = None,
    examples: Callable[[int], int] = lambda _: 10,
    noise_multiplier: float | None = None,
    size: float = 0.3,
    **settings: Any,
) -> tuple[CanaryAudit, list[dict[str, Any]]]:
    """Return an audit after its training, and the released models."""
    np.random.seed(seed)  # noqa: NPY002 - Flower draws its noise by it
    random.seed(seed)
    planted = CanaryClients(range(4), clip=1.0, seed=1000 + seed, **(canaries or {}))
    audit = CanaryAudit(chosen, planted, noise_multiplier=noise_multiplier)
    clients = app(*mods, planted, examples=examples, size=size)
    return audit, played(audit, clients, **settings)
