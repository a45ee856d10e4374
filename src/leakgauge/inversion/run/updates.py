"""What clients with the scenario's records send, and what an attack rebuilds from it."""

from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.types import Params
from leakgauge.gradients.probing import private
from leakgauge.inversion.attack import (
    assumed_steps,
    attack,
    attacked_task,
    guess_labels,
    inference_of,
)
from leakgauge.inversion.methods import Method
from leakgauge.inversion.observed import AttackOptions, Knowledge, ObservedUpdates, Reconstruction
from leakgauge.inversion.run.attempt import Attempt
from leakgauge.inversion.run.scenario import Scenario
from leakgauge.inversion.search.priors import (
    MOST_PROXIES,
    BatchStatistics,
    stacked_statistics,
    statistics_of,
    statistics_of_update,
    statistics_over_steps,
)
from leakgauge.inversion.words import FROM_BUFFERS, KNOWN, PROXY
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
    options: AttackOptions,
    *,
    method: Method | None = None,
) -> tuple[Sent, Reconstruction, Knowledge]:
    """Return what clients with these records send, what is rebuilt, and what the attacker knows.

    Args:
        scenario: private records, network and public records.
        attempt: method, defense and knowledge.
        params: parameters where the clients start, leaf ``[*p]``.
        x: records ``[T, N * S * B, ...]``.
        y: labels ``[T, N * S * B]``.
        options: seed, progress and checkpoint of the attack.
        method: the method; None takes the attempt's.
    """
    sent, known, seen = _observed(scenario, attempt, params, x, y)
    task = attacked_task(scenario.task, attempt.client)
    return sent, attack(task, seen, method or attempt.attack, known, options), known


def check_updates(
    scenario: Scenario, attempt: Attempt, params: Params, x: Tensor, y: Tensor, *, seed: int
) -> Sent:
    """Return what clients with these records send, if its labels can be inferred where needed.

    The arguments are those of ``attack_updates``, with the seed of its options.

    Raises:
        InputError: labels cannot be inferred from this update.
    """
    sent, known, seen = _observed(scenario, attempt, params, x, y)
    task = private(attacked_task(scenario.task, attempt.client), params)
    guess_labels(task, seen, attempt.attack, known, seed=seed)
    return sent


def _observed(
    scenario: Scenario, attempt: Attempt, params: Params, x: Tensor, y: Tensor
) -> tuple[Sent, Knowledge, ObservedUpdates]:
    """Return what clients send, what the attacker knows, and what it sees."""
    client = attempt.client
    sent = send(scenario.task, params, x, y, client, seed=attempt.spec.seed)
    known = knowledge_of(scenario, attempt, params, sent, x, y)
    shape = (client.records, *scenario.x.shape[1:])
    return sent, known, ObservedUpdates(params, sent.grads, shape, sent.updates)


def knowledge_of(
    scenario: Scenario, attempt: Attempt, params: Params, sent: Sent, x: Tensor, y: Tensor
) -> Knowledge:
    """Return what an attempt's attacker knows; true records serve only what the settings grant.

    The arguments are those of ``attack_updates``, and ``sent``, what the clients sent.

    Raises:
        InputError: statistics are asked for that nothing shows.
    """
    spec = attempt.spec
    return Knowledge(
        scenario.low,
        scenario.high,
        y if spec.labels == KNOWN else None,
        inference_of(spec.labels),
        defense=attempt.defense_of_means if attempt.is_adaptive else None,
        steps=assumed_steps(
            attempt.client,
            simulate=attempt.simulates,
            unknown=spec.unknown,
            assumed_lr=spec.assumed_lr,
        ),
        simulate=attempt.simulates,
        unknown=spec.unknown,
        statistics=_statistics(scenario, attempt, params, sent, x),
        schema=scenario.schema,
        guess=scenario.guess,
    )


def _statistics(
    scenario: Scenario, attempt: Attempt, params: Params, sent: Sent, x: Tensor
) -> BatchStatistics | None:
    """Return the statistics of the batches as the attacker knows them; None where it does not."""
    kind, client = attempt.spec.statistics, attempt.client
    if kind is None or not client.training or not attempt.attack.traits.searches:
        return None
    task = attacked_task(scenario.task, client)
    steps, epochs, clients = client.local_steps, client.epochs, client.summed
    if kind == FROM_BUFFERS:
        known = stacked_statistics([statistics_of_update(task.model, one) for one in sent.updates])
    elif kind == PROXY:
        public = scenario.public.x
        require(len(public) > 1, "all records are attacked, so none is a proxy; lower --images")
        found = statistics_of(task, params, public[None, :MOST_PROXIES])
        known = {
            name: (m.expand(len(x), -1), v.expand(len(x), -1)) for name, (m, v) in found.items()
        }
    else:
        known = statistics_over_steps(task, params, x, steps=steps, epochs=epochs, clients=clients)
    if not (attempt.simulates or client.sends_gradient):  # it takes the update for one batch's
        steps = epochs = clients = 1
    return BatchStatistics(known, steps, epochs, clients)
