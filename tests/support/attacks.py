"""Attacks on what clients sent, with the knowledge that a test names."""

from typing import Any

from torch import Tensor

from leakgauge.core.types import Params, Task
from leakgauge.inversion.attack import assumed_steps, attack, attacked_task
from leakgauge.inversion.observed import AttackOptions, Knowledge, ObservedUpdates, Reconstruction
from leakgauge.inversion.search.presets import Search
from leakgauge.inversion.search.settings import SearchSettings
from leakgauge.training.client import Client
from leakgauge.training.sending import Sent


def attack_sent(
    task: Task,
    params: Params,
    sent: Sent,
    settings: SearchSettings,
    client: Client,
    box: tuple[Tensor, Tensor],
    *,
    record: tuple[int, ...],
    seed: int,
    defense: bool = False,
    simulate: bool = False,
    unknown: tuple[str, ...] = (),
    **known: Any,
) -> Reconstruction:
    """Return what a search rebuilds; ``defense`` says whether it adapts to the client's."""
    return attack(
        attacked_task(task, client),
        ObservedUpdates(params, sent.grads, (client.records, *record), sent.updates),
        Search(settings),
        Knowledge(
            *box,
            defense=client.defense if defense else None,
            steps=assumed_steps(client, simulate=simulate, unknown=unknown),
            simulate=simulate,
            unknown=unknown,
            **known,
        ),
        AttackOptions(seed),
    )
