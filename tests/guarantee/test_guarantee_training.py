"""The audit of a trained model: DP-SGD on the records first, as plain loops give it."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.core.types import Dataset, Params, Task
from leakgauge.data.encoding import encode
from leakgauge.gradients import params_of
from leakgauge.guarantee.question import QUESTION
from leakgauge.guarantee.run import audit
from leakgauge.guarantee.run.training import audited_params, private_rows
from leakgauge.guarantee.spec import GuaranteeSpec
from leakgauge.runs.audit import AuditRun, describe, prepare_all, run_audit
from leakgauge.runs.question import Silent
from leakgauge.runs.sources import source_of
from leakgauge.runs.work import WorkFolder
from support.references import guarantee as literal

QUIET = 1e-9
"""A noise that no parameter shows."""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng, n = stream(0, "users"), 60
    frame = pd.DataFrame(
        {
            "height": rng.normal(170, 7, size=n).round(),
            "sex": rng.choice(["f", "m"], size=n),
            "income": rng.choice(["high", "low"], size=n),
        }
    )
    path = tmp_path_factory.mktemp("table") / "users.csv"
    frame.to_csv(path, index=False)
    return path


def spec_of(table: Path, **more: Any) -> GuaranteeSpec:
    asked = {
        "attribute": "sex",
        "label": "income",
        "trials": 60,
        "hidden": (4,),
        "canary": "random",
    }
    asked |= {"clip": 0.5, "noise": QUIET, "rounds": 2, "lr": 0.3, "batch_size": 16}
    return GuaranteeSpec(**{"data": str(table), **asked, **more})


def start_of(spec: GuaranteeSpec) -> tuple[Task, Dataset]:
    made = spec.table(source_of(spec))
    data = encode(made, fit_on=torch.arange(len(made)))
    return audit._initial_task(data, len(made.classes), spec), data


def trained(spec: GuaranteeSpec, folder: Path) -> tuple[Task, Dataset, Params]:
    task, data = start_of(spec)
    return task, data, audited_params(task, data, spec, WorkFolder(folder), Silent())


def run(spec: GuaranteeSpec, out: Path) -> AuditRun:
    asked = prepare_all({"guarantee": (QUESTION, spec)})
    return run_audit(out, describe("audit", asked), asked, progress=Silent())


def test_no_rounds_is_the_initial_model(table: Path, tmp_path: Path) -> None:
    task, _, params = trained(spec_of(table, rounds=0), tmp_path)
    assert all(torch.equal(params[name], leaf) for name, leaf in params_of(task.model).items())


def test_a_round_is_an_epoch_of_dp_sgd(table: Path, tmp_path: Path) -> None:
    """Every record's gradient by plain autograd, clipped; steps of 0.3 along the means."""
    task, data, found = trained(spec_of(table), tmp_path)
    params = {name: leaf.clone() for name, leaf in params_of(task.model).items()}
    private = data.rows(private_rows(60, spec_of(table)))
    for number in (1, 2):
        order = stream(0, "guarantee", "train", number).permutation(60)
        for first in range(0, 60, 16):
            rows = order[first : first + 16]
            each = [literal.gradient(task, params, private.x[r], private.y[r]) for r in rows]
            mean = torch.stack([literal.clipped(one, 0.5) for one in each]).mean(dim=0)
            sizes = [leaf.numel() for leaf in params.values()]
            for (name, leaf), step in zip(params.items(), mean.split(sizes), strict=True):
                params[name] = leaf - 0.3 * step.reshape(leaf.shape)
    for name, leaf in params.items():
        torch.testing.assert_close(found[name], leaf, rtol=1e-4, atol=1e-6)


def test_its_noise_is_that_of_the_mechanism(table: Path, tmp_path: Path) -> None:
    """Four steps an epoch of 0.3 times noise / sqrt(16), in each parameter."""
    _, _, quiet = trained(spec_of(table, rounds=1, hidden=(400,)), tmp_path / "quiet")
    _, _, loud = trained(spec_of(table, rounds=1, hidden=(400,), noise=0.01), tmp_path / "loud")
    apart = torch.cat([(loud[name] - quiet[name]).flatten() for name in quiet])
    assert float(apart.std()) == pytest.approx(0.3 * 0.01 / 4 * 2, rel=0.1)


def test_private_limits_what_is_trained_on(table: Path, tmp_path: Path) -> None:
    """The labels of the other records change nothing."""
    spec = spec_of(table, private=20)
    task, data, found = trained(spec, tmp_path / "one")
    rows = private_rows(len(data), spec)
    assert len(rows) == len(set(rows.tolist())) == 20
    y = 1 - data.y
    y[rows] = data.y[rows]
    other = Dataset(data.x, y, schema=data.schema)
    again = audited_params(task, other, spec, WorkFolder(tmp_path / "other"), Silent())
    assert all(torch.equal(found[name], again[name]) for name in found)
    everyone = trained(spec_of(table), tmp_path / "all")[2]
    assert not all(torch.equal(found[name], everyone[name]) for name in found)


def test_record_and_releases_are_of_the_trained_model(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(table, noise=0.1, canary="crafted-valid")
    seen: list[Params] = []
    for name in ("pair_of", "audit_pair"):
        original = getattr(audit, name)

        def look(task: Task, params: Params, *rest: Any, of: Any = original, **more: Any) -> Any:
            seen.append(params)
            return of(task, params, *rest, **more)

        monkeypatch.setattr(audit, name, look)
    found = run(spec, tmp_path / "run")
    _, _, params = trained(spec, tmp_path / "work")
    assert len(seen) == 2
    for one in seen:
        assert all(torch.equal(one[name], leaf) for name, leaf in params.items())
    assert found.answers["guarantee"].run.settings["rounds"] == 2
    section = QUESTION.section(found.answers["guarantee"], tmp_path)
    assert "The model is that after 2 epochs of DP-SGD on the records." in section.html


def test_a_killed_run_does_not_train_again(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(spec_of(table, noise=0.1), tmp_path / "whole")

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(audit, "pair_of", killed)
        with pytest.raises(KeyboardInterrupt):
            run(spec_of(table, noise=0.1), tmp_path / "killed")
    monkeypatch.setattr("leakgauge.guarantee.run.training.train_epoch", pytest.fail)
    again = run(spec_of(table, noise=0.1), tmp_path / "killed")
    assert again.measurements == whole.measurements


def test_a_training_that_diverges_is_refused(table: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"training diverged in round 1 .*lower --lr"):
        trained(spec_of(table, lr=1e38, noise=10.0), tmp_path)
