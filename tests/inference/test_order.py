"""The order in which trials are made: it saves gradients and changes no figure."""

import numpy as np
import torch
from torch import nn

from leakgauge.core.types import Task
from leakgauge.gradients import batching, iter_batch_gradients, params_of
from leakgauge.inference import Forest
from leakgauge.inference.run import GameStage, attack_round, rounds, trajectory
from leakgauge.inference.run.observing import by_block, sent_by_clients
from support.defenses import dpsgd
from support.synthetic import records, small_stage

NOISY = dpsgd(clip=0.5, noise=0.3, batch_size=8)


def made(**settings) -> GameStage:
    return small_stage(
        records(1.0, n=1500), Forest(batches=60), rounds=1, **{"trials": 200, **settings}
    )


def test_trials_of_one_block_follow_one_another() -> None:
    trials = made().trials
    blocks = trials.block[by_block(trials)]
    assert int((blocks[1:] != blocks[:-1]).sum()) == len(torch.unique(blocks)) - 1


def test_each_trial_sends_the_same_in_any_order() -> None:
    """Also its noise, and whatever the size of a chunk."""
    stage = made(defense=NOISY, max_bytes=2**12, trials=60)
    params = next(iter(trajectory(stage)))
    order = torch.randperm(len(stage.trials), generator=torch.Generator().manual_seed(0))
    plain, shuffled = (
        list(sent_by_clients(stage, 1, params, stage.trials, NOISY, order=one))
        for one in (None, order)
    )
    for name in plain[0]:
        whole, mixed = (torch.cat([one[name] for one in part]) for part in (plain, shuffled))
        torch.testing.assert_close(whole[order], mixed)


def test_each_posterior_belongs_to_its_trial(monkeypatch) -> None:
    stage = made(max_bytes=2**12, trials=60)
    params = next(iter(trajectory(stage)))
    found = attack_round(stage, 1, params).log_posterior
    monkeypatch.setattr(rounds, "by_block", lambda trials: torch.arange(len(trials)))
    for key, wanted in attack_round(stage, 1, params).log_posterior.items():
        np.testing.assert_array_equal(found[key], wanted)


def test_neighbours_of_a_block_need_few_gradients(monkeypatch) -> None:
    """In their own order, each chunk of trials needs records of nearly all blocks."""
    made = 0
    direct = batching.GradientJob.direct

    def counted(job, batches, count, batch):
        nonlocal made
        made += count * batch
        return direct(job, batches, count, batch)

    monkeypatch.setattr(batching.GradientJob, "direct", counted)
    generator = torch.Generator().manual_seed(0)
    block = torch.randint(20, (600,), generator=generator)
    inside = torch.stack([torch.randperm(20, generator=generator)[:16] for _ in block])
    rows = block[:, None] * 20 + inside
    x = torch.randn(400, 1, 12, 12, generator=generator)
    y = torch.zeros(400, dtype=torch.int64)
    torch.manual_seed(0)
    task = Task(nn.Sequential(nn.Conv2d(1, 4, 5), nn.ReLU(), nn.Flatten(), nn.Linear(256, 2)))
    counts = []
    for order in (block.argsort(stable=True), torch.arange(600)):
        made = 0
        for _ in iter_batch_gradients(
            task, params_of(task.model), x, y, rows[order], max_bytes=2**19
        ):
            pass
        counts.append(made)
    assert counts[0] < counts[1] / 3
    assert counts[0] < 600 * 16 / 10
