"""What clients with the scenario's records send, and what a search rebuilds from it."""

from torch import Tensor

from leakgauge.core.types import Params
from leakgauge.inversion.run.attempt import Attempt
from leakgauge.inversion.run.labelling import method_of
from leakgauge.inversion.run.scenario import Scenario
from leakgauge.inversion.search.attack import Knowledge, attack
from leakgauge.inversion.search.settings import Settings
from leakgauge.inversion.search.targets import Progress, Reconstruction
from leakgauge.inversion.words import KNOWN
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.training.client import Client, Sent, send


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
) -> tuple[Sent, Reconstruction]:
    """Return what clients with these records send, and what is rebuilt from it.

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
    rebuilt = attack(
        scenario.task,
        params,
        sent,
        settings or attempt.settings,
        attempt.client,
        _knowledge(scenario, attempt, y),
        record=tuple(scenario.x.shape[1:]),
        seed=seed,
        first_target=first_target,
        snapshots=snapshots,
        progress=progress,
        checkpoint=checkpoint,
    )
    return sent, rebuilt


def _knowledge(scenario: Scenario, attempt: Attempt, y: Tensor) -> Knowledge:
    spec = attempt.spec
    return Knowledge(
        scenario.low,
        scenario.high,
        y if spec.labels == KNOWN else None,
        attempt.is_adaptive,
        spec.simulate,
        method_of(spec.labels),
    )
