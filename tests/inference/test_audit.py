from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.data import Split, split_records
from leakgauge.inference import Forest, Logistic
from leakgauge.inference.metrics import BEYOND
from leakgauge.inference.run import attack_round, audit, make_stage, measure, trajectory
from leakgauge.inference.run.figures import scored
from leakgauge.inference.run.readings import RunReading
from leakgauge.inference.spec import InferenceSpec
from leakgauge.inference.words import FRESH
from leakgauge.results.measurements import ACCUMULATED, CellContext, Measurement
from support.synthetic import records, small_stage, small_task

FOREST = Forest(trees=20, batches=300)
SMALL = Forest(trees=5, batches=60)
LOGISTIC = Logistic(batches=300)


def figure(found: list[Measurement], metric: str, when: int | str = ACCUMULATED) -> Measurement:
    (record,) = [r for r in found if (r.metric, r.round) == (metric, when)]
    return record


@pytest.mark.parametrize("attack", [FOREST, LOGISTIC])
@pytest.mark.calibration
def test_a_planted_secret_is_found(attack) -> None:
    found = audit(small_stage(records(4.0), attack))
    auroc = figure(found, "auroc").estimate
    assert auroc.value > 0.99
    assert auroc.low > 0.9


@pytest.mark.parametrize("values", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.calibration
def test_no_secret_in_the_data_is_chance(values: int) -> None:
    """Over seeds, the 95 % interval may miss now and then: 16 of 20 hold with probability 0.997."""
    held = []
    for seed in range(20):
        data = records(0.0, n=1050, values=values, seed=seed)
        auroc = figure(audit(small_stage(data, SMALL, rounds=1, seed=seed)), "auroc").estimate
        held.append(auroc.low <= 0.5 <= auroc.high)
    assert sum(held) >= 16


def test_three_secrets_are_distinguished() -> None:
    found = audit(small_stage(records(4.0, n=3000, values=3), FOREST))
    assert figure(found, "auroc").estimate.value > 0.99
    assert figure(found, "success").chance == pytest.approx(1 / 3)


def test_every_round_and_the_accumulation_have_every_metric() -> None:
    found = audit(small_stage(records(1.0), FOREST))
    whens = {(r.metric, r.round) for r in found if r.adversary}
    metrics = ("auroc", "tpr_at_1_fpr", "success", "advantage", "information_nats")
    beyond = {(m, ACCUMULATED) for m in BEYOND.values()}
    assert whens == {(m, when) for m in metrics for when in (1, 2, ACCUMULATED)} | beyond
    assert figure(found, "auroc").curve is not None
    assert figure(found, "accuracy", 2).estimate.value > 0.6


@pytest.mark.parametrize("prior", [pytest.param("uniform", marks=pytest.mark.slow), "empirical"])
def test_sums_of_the_first_rounds_are_those_of_log_posteriors(prior: str) -> None:
    """Besides Eq. 4 as it is printed, and scikit-learn's AUROC."""
    attack = Logistic(batches=100)
    stage = small_stage(records(0.7, n=1500), attack, rounds=5, prior=prior, trials=200)
    *starts, final = trajectory(stage)
    rounds = [attack_round(stage, number, params) for number, params in enumerate(starts, start=1)]
    found = measure(stage, rounds, final, dataset="d", label="l")
    truth = stage.trials.secret.numpy()
    for count, when in ((2, "first-2"), (3, "first-3"), (4, "first-4"), (5, ACCUMULATED)):
        log_posterior = np.zeros((len(truth), 2))
        for played in rounds[:count]:
            log_posterior += played.log_posterior["static logistic"]
        log_posterior -= (count - 1) * stage.log_prior
        auroc = roc_auc_score(truth, log_posterior[:, 1] - log_posterior[:, 0])
        right = np.mean(log_posterior.argmax(axis=1) == truth)
        assert figure(found, "auroc", when).estimate.value == pytest.approx(auroc, abs=1e-12)
        assert figure(found, "success", when).estimate.value == pytest.approx(right, abs=1e-9)
    assert {r.round for r in found if str(r.round).startswith("first")} == {
        "first-2", "first-3", "first-4"
    }  # fmt: skip
    assert figure(found, "auroc", "first-3").curve is None  # a curve of each would fill the file


def test_an_adversary_estimates_the_prior_without_private_records() -> None:
    stage = small_stage(records(0.7), LOGISTIC, prior="empirical")
    counts = np.bincount(stage.test.secrets[stage.secret].numpy(), minlength=2) + 1
    assert stage.log_prior == pytest.approx(np.log(counts / counts.sum()))
    assert max(stage.game.prior) == stage.majority != pytest.approx(np.exp(stage.log_prior).max())
    rare = stage.test.rows((stage.test.secrets[stage.secret] == 0).nonzero()[:, 0])
    assert np.isfinite(replace(stage, test=rare).log_prior).all()


def test_information_is_measured_from_the_prior_of_the_draws() -> None:
    """A posterior that is the prior of the draws carries nothing, whatever the estimate of it."""
    stage = small_stage(records(0.7), LOGISTIC, prior="empirical")
    nothing = np.tile(np.log(stage.game.prior), (len(stage.trials), 1))
    base = CellContext(question="inference", dataset="d", seed=0)
    reading = RunReading(ACCUMULATED, nothing)
    found = {one.metric: one.estimate.value for one in scored(stage, reading, base)}
    assert found["information_nats"] == pytest.approx(0.0, abs=1e-9)


def test_training_is_torchs_sgd() -> None:
    stage = small_stage(records(1.0), FOREST)
    first, second, final = trajectory(stage)
    model = small_task(stage.private).model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number, expected in ((1, second), (2, final)):
        order = stream(0, "property", "train", number).permutation(len(stage.private))
        for start in range(0, len(order), 8):
            batch = torch.from_numpy(order[start : start + 8])
            optimizer.zero_grad()
            outputs = model(stage.private.x[batch])
            stage.task.loss(outputs, stage.private.y[batch]).backward()
            optimizer.step()
        for name, value in model.named_parameters():
            torch.testing.assert_close(value.detach(), expected[name], rtol=1e-10, atol=1e-12)
    assert all(torch.equal(first[k], v) for k, v in stage.task.model.named_parameters())


def test_reused_batches_are_the_same_in_every_round_and_fresh_ones_are_not() -> None:
    """With parameters that stand still, only fresh batches tell something new."""
    frozen = dict(small_task(records(1.0)).model.named_parameters())
    said = {}
    for batches in ("reuse", FRESH):
        stage = small_stage(records(1.0), FOREST, batches=batches)
        params = {k: v.detach() for k, v in frozen.items()}
        first, second = (
            attack_round(stage, n, params).log_posterior["static forest"] for n in (1, 2)
        )
        said[batches] = np.corrcoef(first[:, 0], second[:, 0])[0, 1]
    assert said["reuse"] > said[FRESH] + 0.1


def test_private_shadow_and_test_records_never_overlap() -> None:
    stage = small_stage(records(1.0, users=500), FOREST)
    sides = [set(part.users.tolist()) for part in (stage.private, stage.public, stage.test)]
    assert sum(map(len, sides)) == len(set().union(*sides))


def test_memory_bound_does_not_change_what_is_found() -> None:
    data, attack = records(1.0), Logistic(batches=100)
    found = []
    for max_bytes in (2**28, 2**17):
        stage = small_stage(data, attack, rounds=1, max_bytes=max_bytes, trials=200)
        found.append(
            attack_round(stage, 1, next(trajectory(stage))).log_posterior["static logistic"]
        )
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6, atol=1e-9)


def test_the_trained_module_is_not_touched() -> None:
    stage = small_stage(records(1.0), FOREST)
    before = {k: v.clone() for k, v in stage.task.model.state_dict().items()}
    audit(stage)
    assert all(torch.equal(before[k], v) for k, v in stage.task.model.state_dict().items())
    assert all(p.grad is None for p in stage.task.model.parameters())


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"rounds": 0}, "--rounds is 0"),
        ({"trials": -5}, "--trials is -5"),
        ({"batch_size": 0}, "--batch-size is 0"),
        ({"lr": 0.0}, "--lr is 0"),
        ({"batches": "fressh"}, "batches is 'fressh'; did you mean 'fresh'"),
        ({"prior": "flat"}, "prior is 'flat'"),
    ],
)
def test_settings_are_refused_when_made(setting: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        small_stage(records(1.0), FOREST, **setting)


def test_divergence_is_said() -> None:
    with pytest.raises(InputError, match="training diverged in round 1"):
        audit(small_stage(records(1.0), FOREST, lr=1e9))


def test_unknown_secret_and_question() -> None:
    data = records(1.0)
    split: Split = split_records(data.secrets["s"], rng=stream(0, "split"))
    with pytest.raises(InputError, match="no secret 'sex'"):
        make_stage("property", small_task(data), data, split, spec=InferenceSpec(secret="sex"))
    with pytest.raises(InputError, match="did you mean 'property'"):
        make_stage("propperty", small_task(data), data, split, spec=InferenceSpec(secret="s"))


def test_records_are_the_same_again() -> None:
    stage = small_stage(records(1.0), FOREST)
    *starts, final = trajectory(stage)
    rounds = [attack_round(stage, n, p) for n, p in enumerate(starts, start=1)]
    once, again = (list(measure(stage, rounds, final, dataset="d", label="l")) for _ in range(2))
    assert once == again
