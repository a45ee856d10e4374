"""What clients with the scenario's records send, and what a search rebuilds from it."""

from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.types import Params
from leakgauge.inversion.run.attempt import Attempt
from leakgauge.inversion.run.labelling import method_of
from leakgauge.inversion.run.scenario import Scenario
from leakgauge.inversion.search.attack import Knowledge, attack, attacked_task
from leakgauge.inversion.search.settings import Settings
from leakgauge.inversion.search.statistics import (
    MOST_PROXIES,
    Statistics,
    stacked_statistics,
    statistics_of,
    statistics_of_update,
    statistics_over_steps,
)
from leakgauge.inversion.search.targets import Progress, Reconstruction
from leakgauge.inversion.words import FROM_BUFFERS, KNOWN, PROXY
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.training.client import Client
from leakgauge.training.sending import Sent, send


def in_updates(values: Tensor, client: Client) -> Tensor:
    """Return values ``[N, ...]`` as the updates hold them, ``[T, S * B, ...]``."""
    return values.reshape(-1, client.records, *values.shape[1:])


def attack_updates(
    scenario: Scenario,
    attempt: Attempt,
    params: Params,
    x: Tensor,
    y: Tensor,
    *,
    seed: int,
    settings: Settings | None = None,
    first_target: int = 0,
    snapshots: int = 0,
    progress: Progress | None,
    checkpoint: Checkpoint | None = None,
) -> tuple[Sent, Reconstruction, Knowledge]:
    """Return what clients with these records send, what is rebuilt, and what the attacker knows.

    Args:
        scenario: what is attacked.
        attempt: how.
        params: where the clients start, leaf ``[*p]``.
        x: records ``[T, S * B, ...]``.
        y: labels ``[T, S * B]``.
        seed: of the search.
        settings: of the search; None takes the attempt's.
        first_target: as for ``reconstruct``.
        snapshots: points at which the records are noted.
        progress: called at each iteration.
        checkpoint: keeps the state of the search on the way.
    """
    sent = send(scenario.task, params, x, y, attempt.client, seed=attempt.spec.seed)
    known = knowledge_of(scenario, attempt, params, sent, x, y)
    rebuilt = attack(
        scenario.task,
        params,
        sent,
        settings or attempt.settings,
        attempt.client,
        known,
        record=tuple(scenario.x.shape[1:]),
        seed=seed,
        first_target=first_target,
        snapshots=snapshots,
        progress=progress,
        checkpoint=checkpoint,
    )
    return sent, rebuilt, known


def knowledge_of(
    scenario: Scenario, attempt: Attempt, params: Params, sent: Sent, x: Tensor, y: Tensor
) -> Knowledge:
    """Return what an attempt's attacker knows; true records serve what the settings grant alone.

    Args:
        scenario: what is attacked.
        attempt: how.
        params: where the clients start, leaf ``[*p]``.
        sent: what they sent.
        x: records ``[T, N * S * B, ...]``.
        y: labels ``[T, N * S * B]``.

    Raises:
        InputError: statistics are asked for that nothing tells.
    """
    spec = attempt.spec
    return Knowledge(
        scenario.low,
        scenario.high,
        y if spec.labels == KNOWN else None,
        attempt.is_adaptive,
        spec.simulate,
        method_of(spec.labels),
        unknown=spec.unknown,
        assumed_lr=spec.assumed_lr,
        statistics=_statistics(scenario, attempt, params, sent, x),
    )


def _statistics(
    scenario: Scenario, attempt: Attempt, params: Params, sent: Sent, x: Tensor
) -> Statistics | None:
    """Return the statistics of the batches as the attacker knows them; None where it does not."""
    kind, client = attempt.spec.statistics, attempt.client
    if kind is None or not client.training:
        return None
    task = attacked_task(scenario.task, client)
    if kind == FROM_BUFFERS:
        return stacked_statistics([statistics_of_update(task.model, one) for one in sent.updates])
    if kind == PROXY:
        public = scenario.public.x
        require(len(public) > 1, "all records are attacked, so none is a proxy; lower --images")
        found = statistics_of(task, params, public[None, :MOST_PROXIES])
        return {
            name: (m.expand(len(x), -1), v.expand(len(x), -1)) for name, (m, v) in found.items()
        }
    return statistics_over_steps(
        task, params, x, steps=client.local_steps, epochs=client.epochs, clients=client.summed
    )
