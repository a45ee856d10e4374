"""The panel's reading of a batch's mean input, from the gradients of several rounds."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Task
from leakgauge.defenses import parse_defense
from leakgauge.gradients import batch_gradients, params_of
from leakgauge.inference import parse_adversary
from leakgauge.inference.adversaries.round_means import (
    PublicRecords,
    linear_layer,
    public_records,
    weighted_gradients,
)
from leakgauge.inference.catalog import ROUND_MEANS, shares_of
from leakgauge.inference.run import attack_jointly, attack_round, mean_inputs, measure, trajectory
from leakgauge.inference.run.observing import shadow_of_round
from leakgauge.models import mlp
from leakgauge.results.measurements import HEADLINE
from leakgauge.results.scores import AUROC
from support.synthetic import records, small_stage

PANEL = ("energies", "quotients")
KEY = f"static {ROUND_MEANS}"


def staged(shift: float = 0.4, *, rounds: int = 4, **settings):
    attacks = [parse_adversary(name) for name in PANEL]
    stage = small_stage(records(shift), *attacks, rounds=rounds, lr=0.1, **settings)
    return replace(stage, panel=PANEL)


def read(stage, starts) -> tuple[PublicRecords, list[torch.Tensor], torch.Tensor]:
    """Return the public records, their numbers, and the means of the first trials."""
    names = linear_layer(starts[0])
    assert names is not None
    shadows = [shadow_of_round(stage, at, one) for at, one in enumerate(starts, start=1)]
    known = public_records(iter(shadows), *names)
    numbers = known.mean_weights()
    rows = stage.trials.rows[:50]
    total = torch.zeros(())
    for at, params in enumerate(starts):
        grads = batch_gradients(
            stage.task, params, stage.private.x[rows], stage.private.y[rows], method="loop"
        )
        own = [one.chunk(len(starts))[at] for one in numbers]
        total = total + weighted_gradients(grads, names[0], own)
    return known, numbers, total


def test_a_sum_over_rounds_is_the_mean_of_the_inputs() -> None:
    """By the truth: the batch's mean, which the adversary never sees."""
    stage = staged(rounds=10)
    wide = mlp(6, 2, hidden=(60,), generator=torch_stream(0, "wide")).double()
    stage = replace(stage, task=Task(wide, cross_entropy))
    *starts, _ = trajectory(stage)
    known, numbers, total = read(stage, starts)
    true = stage.private.x[stage.trials.rows[:50]].mean(1)
    spread = (true - true.mean(0)).norm()
    errors = [float((one - true).norm() / spread) for one in total]

    assert min(errors) < 0.6
    alone, _, of_one = read(stage, starts[:1])
    first = [float((one - true).norm() / spread) for one in of_one]

    assert min(first) > 0.7, "one round of two classes has both signs"
    assert torch.allclose(known.inputs, stage.public.x.double(), atol=1e-6)
    assert torch.allclose(alone.inputs, stage.public.x.double(), atol=1e-6)
    weights = known.outputs @ numbers[0]
    assert float((weights - 1).abs().mean()) < 0.12


def test_a_batch_has_the_mean_of_its_records_parts() -> None:
    """What shadow batches are made of, without their gradients."""
    stage = staged()
    *starts, _ = trajectory(stage)
    known, numbers, _ = read(stage, starts)
    rows = torch.arange(12).view(3, 4)
    each = (known.outputs @ numbers[2])[:, None] * known.inputs
    total = torch.zeros(())
    for at, params in enumerate(starts):
        public = stage.public
        grads = batch_gradients(stage.task, params, public.x[rows], public.y[rows], method="loop")
        own = numbers[2].chunk(len(starts))[at]
        total = total + torch.einsum("h,nhd->nd", own, grads["0.weight"].double())
    assert torch.allclose(total, each[rows].mean(1), atol=1e-9)


def headline(stage, starts, final, jointly) -> float:
    rounds = [attack_round(stage, at, params) for at, params in enumerate(starts, start=1)]
    found = measure(stage, rounds, final, dataset="d", label="y", jointly=jointly)
    return next(m.estimate.value for m in found if (m.metric, m.round) == (AUROC, HEADLINE))


def test_the_panel_finds_more_with_it() -> None:
    stage = staged(0.5, rounds=5)
    *starts, final = trajectory(stage)
    with_it = headline(stage, starts, final, attack_jointly(stage, starts))
    without = headline(stage, starts, final, {})
    assert with_it > without + 0.03


def test_it_finds_nothing_where_nothing_is() -> None:
    """On held-out batches and on trials of a secret that the records do not know."""
    found = []
    for seed in range(8):
        stage = staged(0.0, rounds=3, seed=seed)
        *starts, _ = trajectory(stage)
        reading = attack_jointly(stage, starts)[KEY]
        odds = reading.log_posterior[:, 1] - reading.log_posterior[:, 0]
        truth = stage.trials.secret.numpy()
        wins = odds[truth == 1][:, None] > odds[truth == 0][None]
        ties = odds[truth == 1][:, None] == odds[truth == 0][None]
        found.append(float((wins + 0.5 * ties).mean()))
    assert abs(np.mean(found) - 0.5) < 0.06


@pytest.mark.parametrize(
    ("stage", "why"),
    [
        (lambda: staged(batches="fresh"), "each round draws other batches"),
        (lambda: staged(rounds=1), "one round"),
        (lambda: replace(staged(), panel=("energies",)), "quotients are not in the panel"),
        (
            lambda: replace(
                small_stage(
                    records(0.4),
                    *[parse_adversary(name) for name in PANEL],
                    defense=parse_defense("prune:rate=0.5", batch_size=8),
                ),
                panel=PANEL,
            ),
            "a pruned gradient is no mean of its records'",
        ),
    ],
    ids=["fresh", "one round", "other panel", "defense"],
)
def test_where_a_sum_is_no_mean_there_is_none(stage, why: str) -> None:
    made = stage()
    *starts, _ = trajectory(made)
    assert KEY not in attack_jointly(made, starts), why


def test_a_layer_that_would_not_fit_into_memory_is_not_read(monkeypatch) -> None:
    stage = staged()
    *starts, _ = trajectory(stage)
    monkeypatch.setattr(mean_inputs, "MOST_NUMBERS", 12 * 4 - 1)
    assert KEY not in attack_jointly(stage, starts)
    monkeypatch.setattr(mean_inputs, "MOST_NUMBERS", 12 * 4)
    assert KEY in attack_jointly(stage, starts)


def test_only_a_first_linear_layer_is_read() -> None:
    convolution = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))
    assert linear_layer(params_of(Task(convolution, cross_entropy).model)) is None
    assert linear_layer({"weight": torch.ones(2, 2)}) is None


def test_readers_of_records_share_one_half() -> None:
    assert shares_of(["a", "b", "quotients", ROUND_MEANS]) == (0.25, 0.25, 0.25, 0.25)
    assert shares_of(["a", "quotients"]) == (0.5, 0.5)
