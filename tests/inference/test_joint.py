"""The discriminant of all rounds side by side, against a solve in full coordinates and chance."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.defenses import Defense, none
from leakgauge.gradients import per_example_gradients
from leakgauge.inference import Discriminant, Joint, accumulate
from leakgauge.inference.adversaries.calibration import HeldOut, fit_slope, held_out_folds
from leakgauge.inference.run import (
    GameStage,
    answering,
    attack_jointly,
    attack_round,
    audit,
    measure,
    trajectory,
)
from leakgauge.inference.run.answering import ResumableStage
from leakgauge.inference.run.rounds import defense_of_round, sent_by_clients, shadows_of_round
from leakgauge.inference.words import FRESH
from leakgauge.results.measurements import ACCUMULATED
from leakgauge.results.scores import AUROC, ScoredTrials, figures
from leakgauge.runs.parts import run_stages
from leakgauge.runs.question import Silent
from leakgauge.runs.work import WorkFolder
from support.defenses import clip, dpsgd
from support.figures import auroc
from support.synthetic import records, small_stage

JOINT = Joint(ridge=0.03, batches=40, folds=2)
NOISY = dpsgd(clip=0.5, noise=0.3, batch_size=8)


def made(defense: Defense | None = None, attack: Joint = JOINT, **settings) -> GameStage:
    """Return a game of few records: the adversary has most of them, and training takes less."""
    data = records(1.0, n=900)
    return small_stage(data, attack, defense=defense, rounds=2, **{"trials": 60, **settings})


def starts_of(stage: GameStage) -> list[dict[str, torch.Tensor]]:
    """Return the parameters at the start of each round, without the training in the last one."""
    return list(islice(trajectory(stage), stage.spec.rounds))


def wide(parts: list[dict[str, torch.Tensor]]) -> np.ndarray:
    return torch.cat(
        [torch.cat([v.flatten(1) for v in grads.values()], 1) for grads in parts]
    ).numpy()


def side_by_side(
    stage: GameStage, starts: list[dict[str, torch.Tensor]], knowledge: str
) -> dict[str, np.ndarray]:
    """Return gradients of all rounds as one row: shadow records, held-out batches and trials."""
    rounds = []
    for number, params in enumerate(starts, start=1):
        defense = defense_of_round(stage, number, params)
        shadow = shadows_of_round(stage, number, params, defense)[knowledge]
        one = per_example_gradients(stage.task, params, shadow.data.x, shadow.data.y)
        records_ = wide([one])
        if knowledge == ADAPTIVE and defense.per_example is not None:
            norm = np.linalg.norm(records_, axis=1, keepdims=True)
            records_ = records_ * np.minimum(1, defense.per_example.l2 / norm)
        parts = list(held_out_folds(shadow, folds=JOINT.folds, batches=JOINT.batches))
        judged = [grads for part in parts for grads in shadow.gradients(part.batches)]
        seen = list(sent_by_clients(stage, number, params, stage.trials, defense))
        rounds.append({"records": records_, "judged": wide(judged), "seen": wide(seen)})
    return {key: np.concatenate([one[key] for one in rounds], axis=1) for key in rounds[0]}


def solve(g: np.ndarray, codes: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights and threshold of Fisher's discriminant of two secrets, in full coordinates."""
    one, two = (g[codes == a].mean(axis=0) for a in range(2))
    centred = np.where((codes == 0)[:, None], g - one, g - two)
    within = centred.T @ centred / (len(g) - 2)
    ridge = 0.03 * np.trace(within) + noise
    weight = np.linalg.solve(within + ridge * np.eye(len(within)), two - one)
    return weight, weight @ (one + two) / 2


@pytest.mark.parametrize("defense", [none(), NOISY], ids=str)
def test_it_is_the_solve_of_all_rounds_in_the_primal(defense: Defense) -> None:
    stage = made(defense, replace(JOINT, directions=0))
    starts = starts_of(stage)
    found_by = attack_jointly(stage, starts)
    for knowledge in stage.knowledge:
        rows = side_by_side(stage, starts, knowledge)
        noise = 0.0
        if knowledge == ADAPTIVE:
            noise = 8 * stage.defense.update.std**2
        shadow = shadows_of_round(stage, 1, starts[0], stage.defense)[knowledge]
        codes = shadow.data.secrets["s"].numpy()
        odds, truth, done = [], [], 0
        for part in held_out_folds(shadow, folds=JOINT.folds, batches=JOINT.batches):
            weight, middle = solve(rows["records"][part.rest], codes[part.rest], noise)
            judged = rows["judged"][done : done + len(part.secret)]
            done += len(part.secret)
            odds.append(8 * (judged @ weight - middle))
            truth.append(part.secret)
        half = np.concatenate(odds)[:, None] / 2 * np.array([-1, 1])
        slope = fit_slope(HeldOut(half, np.concatenate(truth)))
        weight, middle = solve(rows["records"], codes, noise)
        wanted = slope * 8 * (rows["seen"] @ weight - middle)
        found = found_by[f"{knowledge} joint"].log_posterior
        np.testing.assert_allclose(found[:, 1] - found[:, 0], wanted, rtol=1e-6, atol=1e-8)


@pytest.mark.slow
def test_under_noise_it_gains_from_rounds_that_repeat_themselves() -> None:
    """No training: every round shows the same gradients, under fresh noise."""
    data = records(1.2, n=1800)
    defense = dpsgd(clip=1.0, noise=0.5, batch_size=8)
    shared = {"defense": defense, "trials": 600, "rounds": 6, "lr": 1e-9}
    both = audit(small_stage(data, Joint(batches=300), Discriminant(batches=300), **shared))
    joint, alone = ([r for r in both if r.adversary == name] for name in ("joint", "discriminant"))
    assert auroc(joint, 1) == auroc(alone, 1)
    assert auroc(joint, ACCUMULATED) > auroc(alone, 1) + 0.05
    assert auroc(joint, ACCUMULATED) > auroc(alone, ACCUMULATED) - 0.005


@pytest.mark.calibration
def test_nothing_planted_is_chance_on_average() -> None:
    """Within four standard errors of a mean of four, by Mann and Whitney."""
    found = []
    for seed in range(4):
        stage = small_stage(records(0.0, n=1300, seed=seed), Joint(batches=100), trials=200)
        said = attack_jointly(stage, starts_of(stage))["static joint"]
        found.append(auroc_of(stage, said.log_posterior))
    assert abs(np.mean(found) - 0.5) < 4 * np.sqrt(201 / (12 * 100 * 100) / 4)


def auroc_of(stage: GameStage, said: np.ndarray) -> float:
    truth = stage.trials.secret.numpy()
    return float(figures(ScoredTrials(truth, said, np.zeros_like(truth)))[AUROC])


@pytest.mark.slow
@pytest.mark.parametrize("defense", [none(), NOISY], ids=str)
@pytest.mark.calibration
def test_nothing_planted_is_chance(defense: Defense) -> None:
    held = []
    for seed in range(10):
        stage = small_stage(
            records(0.0, n=1300, seed=seed), Joint(batches=100), defense=defense, trials=200
        )
        held += [
            record.estimate.low <= 0.5 <= record.estimate.high
            for record in audit(stage)
            if record.round == ACCUMULATED and record.metric == AUROC
        ]
    assert sum(held) >= 0.8 * len(held)


def test_three_secrets_and_any_memory_bound() -> None:
    data = records(2.0, n=900, values=3)
    found = []
    for size in (2**28, 2**20):
        stage = small_stage(data, JOINT, defense=clip(0.5), max_bytes=size, trials=100)
        found.append(attack_jointly(stage, starts_of(stage)))
    assert found[0].keys() == found[1].keys()
    assert auroc_of(stage, found[0]["adaptive joint"].log_posterior) > 0.8
    for key, said in found[0].items():
        np.testing.assert_allclose(said.log_posterior, found[1][key].log_posterior, atol=1e-6)


def test_rounds_with_batches_of_their_own_are_summed() -> None:
    stage = made(NOISY, batches=FRESH)
    *starts, final = trajectory(stage)
    assert attack_jointly(stage, starts) == {}
    played = [attack_round(stage, n, params) for n, params in enumerate(starts, start=1)]
    said = np.stack([one.log_posterior["adaptive joint"] for one in played])
    assert np.isfinite(accumulate(said, stage.log_prior)).all()
    measured = measure(stage, played, final, dataset="d", label="y")
    assert auroc(list(measured), ACCUMULATED) > 0.5


@pytest.mark.slow
def test_a_stopped_run_goes_on_and_does_not_weigh_again(tmp_path: Path, monkeypatch) -> None:
    stage = made(NOISY)
    folder = WorkFolder(tmp_path / "run")
    stages = [ResumableStage(stage, "data", "y")]
    weigh = answering.attack_jointly

    def killed(*args, **kwargs):
        raise KeyboardInterrupt

    given = {"workers": 1, "progress": Silent()}
    monkeypatch.setattr(answering, "attack_jointly", killed)
    with pytest.raises(KeyboardInterrupt):
        run_stages(folder, stages, **given)
    monkeypatch.setattr(answering, "attack_jointly", weigh)
    first, _ = run_stages(folder, stages, **given)
    monkeypatch.setattr(answering, "attack_jointly", killed)
    again, _ = run_stages(folder, stages, **given)
    assert [r.estimate for r in again] == [r.estimate for r in first]
    monkeypatch.setattr(answering, "attack_jointly", weigh)
    assert [r.estimate for r in first] == [
        r.estimate for r in audit(stage, dataset="data", label="y")
    ]


def test_it_does_not_depend_on_the_order_of_asking() -> None:
    stage = made(NOISY, trials=40)
    starts = starts_of(stage)
    both = replace(stage, attacks=(Discriminant(batches=60), JOINT))
    again = attack_jointly(both, starts)
    for key, said in attack_jointly(stage, starts).items():
        np.testing.assert_array_equal(again[key].log_posterior, said.log_posterior)
