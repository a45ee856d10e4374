"""Plays the epochs of one client that holds all the records, round by round."""

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.core.rng import stream
from leakgauge.core.types import Params
from leakgauge.inversion.epochs.epoch import Epoch
from leakgauge.inversion.labels.inference import label_accuracy
from leakgauge.inversion.metrics.lpips import Lpips
from leakgauge.inversion.metrics.table import LABEL_ACCURACY
from leakgauge.inversion.run.attempt import Attempt
from leakgauge.inversion.run.drawing import deal_distinct
from leakgauge.inversion.run.scenario import Scenario
from leakgauge.inversion.run.scoring import in_true_order, scores_of
from leakgauge.inversion.run.updates import attack_updates, in_updates
from leakgauge.inversion.search.targets import Progress, Reconstruction
from leakgauge.inversion.words import DISTINCT
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.runs.work import digest_of
from leakgauge.training.sending import Sent


@dataclass(frozen=True, eq=False)
class SingleEpoch:
    """What was sent in one epoch, and rebuilt from each of its updates alone.

    Attributes:
        seen: what the server saw.
        order: the true records of the updates, ``[U, B]``: for scoring alone.
        rough: records rebuilt from each update alone, by a short search, ``[U, B, ...]``.
        labels: of these, ``[U, B]``.
        scores: of a search at full length, and of the labels.
        warnings: why an update may not stand for a gradient.
    """

    seen: Epoch
    order: Tensor
    rough: Tensor
    labels: Tensor
    scores: dict[str, Tensor]
    warnings: tuple[str, ...]


def play_epochs(
    scenario: Scenario,
    attempt: Attempt,
    lpips: Lpips | None,
    progress: Progress | None,
    checkpoint: Checkpoint,
) -> list[SingleEpoch]:
    """Return what the client sends in each epoch, with what single updates give.

    An epoch has a round for each update: the server steps along its gradient before the next one
    is made, so that each update starts at weights of its own. The paper leaves open what else
    trains the model between them; here, nothing does.
    """
    params, played = scenario.params, []
    for number in range(attempt.spec.epochs):
        part = checkpoint.part(f"epoch-{number + 1}")
        params, one = _play(scenario, attempt, params, number, lpips, progress, part)
        played.append(one)
    return played


def _play(
    scenario: Scenario,
    attempt: Attempt,
    params: Params,
    number: int,
    lpips: Lpips | None,
    progress: Progress | None,
    checkpoint: Checkpoint,
) -> tuple[Params, SingleEpoch]:
    """Play one epoch from these weights; return those after it."""
    client, spec = attempt.client, attempt.spec
    order = _order(scenario, attempt, number)
    x, y = (in_updates(values[order], client) for values in (scenario.x, scenario.y))
    models, rounds = [params], []
    for update in range(len(x)):
        one = _play_round(
            scenario,
            attempt,
            models[-1],
            (x[update : update + 1], y[update : update + 1]),
            seed=spec.seed + number,
            update=update,
            progress=progress,
            checkpoint=checkpoint,
        )
        rounds.append(one)
        models.append(_after_step(models[-1], one[0].grads, float(spec.server_lr or 0.0)))
    sent, rough, found = zip(*rounds, strict=True)
    labels = torch.cat([one.labels for one in rough])
    rows = in_true_order(torch.cat([one.x for one in found]), x)
    return models[-1], SingleEpoch(
        Epoch(
            {name: torch.stack([one[name] for one in models[:-1]]) for name in params},
            {name: torch.cat([one.grads[name] for one in sent]) for name in params},
        ),
        order.view(-1, client.records),
        torch.cat([one.x for one in rough]),
        labels,
        {
            **scores_of(scenario, rows, scenario.x[order], lpips),
            LABEL_ACCURACY: label_accuracy(labels, y),
        },
        tuple(dict.fromkeys(text for one in sent for text in one.warnings())),
    )


def _play_round(
    scenario: Scenario,
    attempt: Attempt,
    params: Params,
    records: tuple[Tensor, Tensor],
    *,
    seed: int,
    update: int,
    progress: Progress | None,
    checkpoint: Checkpoint,
) -> tuple[Sent, Reconstruction, Reconstruction]:
    """What the client sends in one round, and what the rough and the full search make of it."""
    play = functools.partial(
        attack_updates,
        *(scenario, attempt, params, *records),
        seed=seed,
        first_target=update,
        progress=progress,
    )
    after = digest_of(params)
    part = checkpoint.part(f"rough-{update + 1}", after=after)
    sent, rough, _ = play(settings=attempt.rough, checkpoint=part)
    if attempt.rough == attempt.settings:
        return sent, rough, rough
    # An epoch by itself is scored at full length.
    return sent, rough, play(checkpoint=checkpoint.part(f"update-{update + 1}", after=after))[1]


def _order(scenario: Scenario, attempt: Attempt, number: int) -> Tensor:
    """The records in the order in which an epoch uses them; the first takes them as they come."""
    count, spec = len(scenario.x), attempt.spec
    if number == 0 or spec.same_batches:
        return torch.arange(count, device=scenario.y.device)
    rng = stream(spec.seed, "epoch", number)
    if scenario.drawn == DISTINCT:
        order = deal_distinct(scenario.y.cpu().numpy(), attempt.client.records, rng)
    else:
        order = rng.permutation(count)
    return torch.from_numpy(order).to(scenario.y.device)


def _after_step(params: Params, grads: Params, lr: float) -> Params:
    """The weights after the server's step along the gradient of one update, leaf ``[1, *p]``."""
    return {name: leaf - lr * grads[name][0] for name, leaf in params.items()}
