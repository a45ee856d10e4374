"""Several global models: which they are, what is sent at each, and that attacks use all of them."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.core.memory import VARIABLE
from leakgauge.core.types import Dataset, Params, Task
from leakgauge.defenses import none
from leakgauge.gradients import params_of
from leakgauge.layers.observation import gradient_of_other
from leakgauge.layers.question import QUESTION
from leakgauge.layers.run.observing import attacker_view, observer_of, sent_at
from leakgauge.layers.run.preparing import LayersPrepared, prepare
from leakgauge.layers.run.training import Snapshots, rounds, saved_snapshots
from leakgauge.layers.spec import LayersSpec
from leakgauge.runs.question import Silent
from leakgauge.runs.work import WorkFolder
from support.planted import planted, source_of

SMALL = {
    "task": "mine:build",
    "batch_size": 16,
    "shadow_batches": 200,
    "held_out": 160,
    "trials": 400,
    "rounds": 2,
}


def prepared_for(**settings: object) -> LayersPrepared:
    return prepare(LayersSpec(**{**SMALL, **settings}), planted(seed=0))


def snapshots_in(folder: Path, prepared: LayersPrepared) -> Snapshots:
    return saved_snapshots(prepared, WorkFolder(folder), Silent())


def gradient_at(prepared: LayersPrepared, params: Params, rows: Tensor) -> dict[str, Tensor]:
    """Return the gradient of one batch by plain autograd on a copy of the model."""
    model = copy.deepcopy(prepared.task.model)
    model.load_state_dict(dict(params))
    batch = prepared.data.rows(rows)
    torch.nn.functional.cross_entropy(model(batch.x), batch.y).backward()
    return {name: leaf.grad for name, leaf in model.named_parameters() if leaf.grad is not None}


@pytest.mark.parametrize("first", [0, 2])
def test_they_are_the_models_after_these_rounds(first: int, tmp_path: Path) -> None:
    found = snapshots_in(tmp_path, prepared_for(rounds=first, snapshots=3)).models
    start = params_of(prepared_for().task.model)
    for number, params in enumerate(found, start=first):
        alone = [start, *rounds(prepared_for(rounds=max(1, number)))]
        wanted = start if number == 0 else alone[-1]
        assert all(torch.equal(params[name], leaf) for name, leaf in wanted.items())
    assert not torch.equal(found[1]["head.weight"], found[2]["head.weight"])
    again = snapshots_in(tmp_path, prepared_for(rounds=first, snapshots=3))
    assert all(
        torch.equal(one[name], leaf)
        for one, other in zip(again.models, found, strict=True)
        for name, leaf in other.items()
    )


def test_what_is_seen_is_the_difference_of_two_global_models(tmp_path: Path) -> None:
    """Section 3.3: subtract two sequential models and the own part; here by plain autograd."""
    prepared = prepared_for(snapshots=3)
    saved = snapshots_in(tmp_path, prepared)
    rng, lr = torch.Generator().manual_seed(0), 0.01
    batches = torch.randint(len(prepared.data), (7, 16), generator=rng)
    at = torch.tensor([2, 0, 1, 0, 2, 1, 1])
    seen = observer_of(prepared, saved, none())(prepared.data, batches, at)
    for position, (rows, number) in enumerate(zip(batches, at, strict=True)):
        before = saved.models[number]
        own = gradient_at(prepared, before, torch.arange(position, position + 16))
        sent = gradient_at(prepared, before, rows)
        after = {name: leaf - lr * (own[name] + sent[name]) / 2 for name, leaf in before.items()}
        wanted = gradient_of_other(before, after, own, lr=lr)
        for name, leaf in wanted.items():
            torch.testing.assert_close(seen[name][position], leaf, rtol=0, atol=1e-4)


def test_batches_are_spread_over_the_models_evenly() -> None:
    spec = LayersSpec(**SMALL, snapshots=7)
    at = sent_at(spec, "private batches", 700)
    assert torch.bincount(at).tolist() == [100] * 7
    assert not torch.equal(at, sent_at(spec, "batches to learn from", 700))
    # a permutation of ones does not keep neighbours apart
    assert 40 < int((at[1:] == at[:-1]).sum()) < 160


def leaking(prepared: LayersPrepared, *, says: float) -> Params:
    """Return weights that predict label 1 with a probability for all; 0.95 of the records have it.

    The mean slope in the outputs is 0.95 less the probability. The gradient of ``aside`` is the
    slope times the property's sign, so that only a wrong prediction gives the property away.
    """
    params = {name: torch.zeros_like(leaf) for name, leaf in params_of(prepared.task.model).items()}
    params["head.bias"] = torch.tensor([0.0, np.log(says / (1 - says))], dtype=torch.float32)
    return params


@pytest.mark.parametrize("second", [0.3, 0.95])
def test_trials_are_sent_at_every_model(second: float, tmp_path: Path) -> None:
    """At 0.3 a batch gives its property away; at 0.95 it does only if all its labels are 1."""
    prepared = prepared_for(snapshots=2)
    saved = Snapshots(tuple(leaking(prepared, says=one) for one in (0.3, second)))
    view = attacker_view(prepared, saved, none(), WorkFolder(tmp_path), Silent(), workers=1)
    slope = view.seen["aside.weight"][:, 1, 0].numpy()
    found = np.mean((slope < 0) == view.trials.secret.numpy().astype(bool))
    rate = float(prepared.rows(prepared.sides.private).y.double().mean())
    wanted = 1.0 if second == 0.3 else (1 + rate**16) / 2
    error = np.sqrt(wanted * (1 - wanted) / len(slope))
    assert abs(found - wanted) <= 4 * error


def test_a_run_attacks_all_of_them(tmp_path: Path) -> None:
    few = {"shadow_batches": 50, "held_out": 40, "trials": 50, "records": 5, "kernel_records": 0}
    spec = LayersSpec(**{**SMALL, **few}, snapshots=3, adversary=("logistic",), under=0.9)
    QUESTION.check(spec)
    prepared = QUESTION.prepare(spec, planted(seed=0))
    answer = QUESTION.run(prepared, WorkFolder(tmp_path), Silent(), workers=1)
    assert answer.run.settings["snapshots"] == 3
    assert any(one.metric == "auroc: aside" for one in answer.measurements)


def test_an_attack_on_one_model_is_refused() -> None:
    spec = LayersSpec(**SMALL, snapshots=2, adversary=("energies",))
    with pytest.raises(InputError, match=r"'energies' .*one global model.*choose from forest"):
        QUESTION.check(spec)


def wide() -> LayersPrepared:
    """Return a run on records of 20,000 columns, more than are kept of a parameter."""
    rng = torch.Generator().manual_seed(0)
    p, y = torch.arange(400) % 2, torch.arange(400) // 2 % 2
    data = Dataset(torch.randn(400, 20_000, generator=rng), y, {"p": p})
    model = torch.nn.Sequential(torch.nn.Linear(20_000, 1), torch.nn.Linear(1, 2))
    few = {"batch_size": 4, "shadow_batches": 20, "held_out": 20, "trials": 20}
    spec = LayersSpec(**{**SMALL, **few}, all_gradients=True)
    return prepare(spec, source_of(Task(model), data))


def test_all_gradients_are_those_of_autograd(tmp_path: Path) -> None:
    prepared = wide()
    model = params_of(prepared.task.model)
    rows = torch.arange(8).reshape(2, 4)
    observer = observer_of(prepared, Snapshots((model,)), none())
    seen = observer(prepared.data, rows, torch.zeros(2, dtype=torch.int64))
    for position in range(2):
        for name, leaf in gradient_at(prepared, model, rows[position]).items():
            torch.testing.assert_close(seen[name][position], leaf, rtol=1e-4, atol=1e-6)


def test_all_gradients_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """60 batches and three copies of 20 take 20,005 numbers of 4 bytes each: 9.6 MB."""
    prepared = wide()
    models = Snapshots((params_of(prepared.task.model),))
    monkeypatch.setenv(VARIABLE, "610MB")
    observer_of(prepared, models, none())
    monkeypatch.setenv(VARIABLE, "609MB")
    with pytest.raises(InputError, match="60 batches with all gradients") as caught:
        observer_of(prepared, models, none())
    assert "\n" not in str(caught.value)
    assert "leave all_gradients out" in str(caught.value)
