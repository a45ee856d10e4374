"""The panel's reading of a batch's mean input, from the gradients of several rounds."""

from dataclasses import replace
from itertools import islice

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
from leakgauge.inference.adversaries import layer_inputs, round_means
from leakgauge.inference.adversaries.round_means import (
    MeanReader,
    Moments,
    PublicRecords,
    linear_layer,
    made_up,
    public_records,
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


def staged(shift: float = 0.4, *, rounds: int = 4, n: int = 1800, **settings):
    attacks = [parse_adversary(name) for name in PANEL]
    stage = small_stage(records(shift, n=n), *attacks, rounds=rounds, lr=0.1, **settings)
    return replace(stage, panel=PANEL)


def read(stage, starts) -> tuple[PublicRecords, MeanReader, torch.Tensor]:
    """Return the public records, their reader, and both estimates of the first trials' means."""
    names = linear_layer(starts[0])
    assert names is not None
    shadows = [shadow_of_round(stage, at, one) for at, one in enumerate(starts, start=1)]
    known = public_records(shadows, *names)
    reader = known.reader(len(starts))
    private = stage.private
    return known, reader, sums(stage, starts, reader, private.x, private.y, stage.trials.rows[:50])


def sums(stage, starts, reader, x, y, rows) -> torch.Tensor:
    """Return both estimates of batches ``[n, 2, D]``, from their gradients."""
    total = torch.zeros(())
    for number, params in enumerate(starts, start=1):
        grads = batch_gradients(stage.task, params, x[rows], y[rows], method="loop")
        total = total + reader(number, grads["0.weight"], grads["0.bias"])
    return total.unflatten(1, (2, -1))


def wide(stage):
    model = mlp(6, 2, hidden=(60,), generator=torch_stream(0, "wide")).double()
    return replace(stage, task=Task(model, cross_entropy))


def errors(stage, total) -> list[float]:
    """Return the error of each estimate, relative to the spread of the true means."""
    true = stage.private.x[stage.trials.rows[:50]].mean(1)
    spread = (true - true.mean(0)).norm()
    return [float((one - true).norm() / spread) for one in total.unbind(1)]


@pytest.fixture(scope="module")
def trained():
    """Return a stage with a wide layer, and the parameters at the start of seven rounds."""
    stage = wide(staged(rounds=7))
    *starts, _ = trajectory(stage)
    return stage, starts


def test_a_sum_over_rounds_is_the_mean_of_the_inputs(trained, monkeypatch) -> None:
    """By the truth: the batch's mean, which the adversary never sees."""
    stage, starts = trained
    known, _, total = read(stage, starts)
    assert errors(stage, total)[0] < 0.4
    (numbers,) = Moments.of(known.outputs).weights([1e-4])
    assert float((known.outputs @ numbers - 1).abs().mean()) < 0.12
    assert torch.allclose(known.inputs, stage.public.x.double(), atol=1e-6)
    monkeypatch.setattr(round_means, "MADE_UP", 1)
    _, _, with_few = read(stage, starts)
    assert errors(stage, with_few)[0] > 1.1 * errors(stage, total)[0], "made-up records help"


def test_the_sum_needs_several_rounds(trained) -> None:
    stage, starts = trained
    _, _, of_one = read(stage, starts[:1])
    assert errors(stage, of_one)[0] > 0.7, "one round of two classes has both signs"


def test_made_up_records_hold_no_record_of_the_public_ones() -> None:
    """Their inputs mix two records, and their labels come from a third."""
    data = records(0.4, n=600)
    made = made_up(data, rng=np.random.default_rng(0))
    for column in range(data.x.shape[1]):
        assert torch.isin(made.x[:, column], data.x[:, column]).all()
    equal = (made.x[:, None] == data.x[None]).all(2).any(1)
    assert float(equal.double().mean()) < 0.1
    assert sorted(made.y.tolist()) == sorted(data.y.tolist())


def test_shadow_batches_are_made_without_their_gradients() -> None:
    """By the gradients of batches of public records."""
    stage = staged()
    *starts, _ = trajectory(stage)
    known, reader, _ = read(stage, starts)
    rows = torch.arange(12).view(3, 4)
    public = stage.public
    total = sums(stage, starts, reader, public.x, public.y, rows)
    made = torch.from_numpy(reader.of_records(known, rows.numpy())).unflatten(1, (2, -1))
    assert torch.allclose(total, made, atol=1e-7)


def test_the_first_round_is_read_by_positive_weights() -> None:
    """By the mean with weights ``b' M d_i``, record by record."""
    stage = staged()
    *starts, _ = trajectory(stage)
    known, reader, _ = read(stage, starts)
    rows, units = np.arange(8)[None], len(reader.metric)
    first = known.outputs[rows[0], :units]
    shares = first @ reader.metric @ first.mean(0)
    expected = (shares[:, None] * known.inputs[rows[0]]).sum(0) / shares.sum()
    second = torch.from_numpy(reader.of_records(known, rows)).unflatten(1, (2, -1))[0, 1]
    assert torch.allclose(second, expected)
    seen = known.outputs[:, :units]
    moments = seen.T @ seen / len(seen)
    ridge = layer_inputs.RIDGE * moments.diagonal().mean() * torch.eye(units).double()
    assert torch.allclose(reader.metric @ (moments + ridge), torch.eye(units).double(), atol=1e-6)


def headline(stage, rounds, final, jointly) -> float:
    found = measure(stage, rounds, final, dataset="d", label="y", jointly=jointly)
    return next(m.estimate.value for m in found if (m.metric, m.round) == (AUROC, HEADLINE))


def test_the_panel_finds_more_with_it() -> None:
    stage = staged(0.5, rounds=4, n=3000)
    *starts, final = trajectory(stage)
    rounds = [attack_round(stage, at, params) for at, params in enumerate(starts, start=1)]
    with_it = headline(stage, rounds, final, attack_jointly(stage, starts))
    without = headline(stage, rounds, final, {})
    assert with_it > without + 0.03


def test_it_finds_nothing_where_nothing_is() -> None:
    """On held-out batches and on trials of a secret that the records do not know."""
    found = []
    for seed in range(8):
        stage = staged(0.0, rounds=2, seed=seed, n=1400)
        starts = list(islice(trajectory(stage), 2))
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


def test_each_way_of_reading_counts_alike() -> None:
    assert shares_of(["a", "b", "quotients", ROUND_MEANS]) == pytest.approx(
        (1 / 6, 1 / 6, 1 / 3, 1 / 3)
    )
    assert shares_of(["a", "quotients"]) == (0.5, 0.5)
    assert shares_of(["a", "b"]) == (0.5, 0.5)


def test_a_single_input_is_read() -> None:
    data = records(3.0, n=3000)
    attacks = [parse_adversary(name) for name in PANEL]
    stage = small_stage(replace(data, x=data.x[:, :1]), *attacks, rounds=2, lr=0.1)
    *starts, _ = trajectory(stage := replace(stage, panel=PANEL))
    (reading,) = mean_inputs.means_over_rounds(stage, starts).values()
    assert reading.log_posterior.shape == (len(stage.trials.rows), 2)
    assert reading.auroc is not None
    assert reading.auroc > 0.9
