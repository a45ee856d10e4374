"""Audits of models of numbers and of several labels: leakage, baselines, utility."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, r2_score, roc_auc_score
from torch import nn

import leakgauge as lg
from leakgauge.core.rng import stream, torch_stream
from leakgauge.core.types import Dataset, Task
from leakgauge.data import Roles, encode, from_arrays, make_table, split_records
from leakgauge.inference import Energies, Plda
from leakgauge.inference.run import GameStage, audit, make_stage, trajectory
from leakgauge.inference.run.baselines import baselines
from leakgauge.inference.spec import InferenceSpec
from leakgauge.models import mlp
from leakgauge.results.scores import AUROC, LABELS_ALONE, TASK_AUROC, ScoredTrials, figures
from leakgauge.training.utility import Utility, utility_of
from support import command
from support.tables import frame

pytestmark = pytest.mark.usefixtures("blank_charts")


def data_of(
    kind: str, shift: float, *, users: int | None = None, seed: int = 0, of_label: float = 0.0
) -> Dataset:
    """The first feature moves by ``shift`` with the secret, the label by ``of_label``."""
    rng = stream(seed, "tasks")
    n = 1800
    owners = None if users is None else np.arange(n) // (n // users)
    secret = rng.integers(2, size=n)
    x = rng.normal(size=(n, 6))
    x[:, 0] += shift * secret
    y = x[:, 1:4] + 0.5 * rng.normal(size=(n, 3)) + of_label * secret[:, None]
    labels = {"mse": y[:, 0], "several": y, "bce": (y > 0.4).astype(float)}
    codes = {"s": secret}
    return from_arrays(x, labels[kind], codes, users=owners, dtype=torch.float64)


LOSSES = {"mse": "mse", "several": nn.functional.mse_loss, "bce": "bce"}


def stage_of(
    kind: str, data: Dataset, attack=None, *, ask: str = "property", **settings
) -> GameStage:
    outputs = 1 if data.y.ndim == 1 else data.y.shape[1]
    model = mlp(6, outputs, hidden=(12,), generator=torch_stream(0, "model")).to(torch.float64)
    chosen = InferenceSpec(
        secret="s", **{"batch_size": 8, "rounds": 2, "trials": 400, "lr": 0.05, **settings}
    )
    split = split_records(
        data.secrets["s"], users=data.users, shadow=600, rng=stream(chosen.seed, "split")
    )
    attacks = (attack or Energies(batches=150),)
    return make_stage(ask, Task(model, LOSSES[kind]), data, split, attacks=attacks, spec=chosen)


def auroc(stage: GameStage) -> float:
    return next(one.estimate.value for one in audit(stage) if one.metric == AUROC)


@pytest.mark.calibration
@pytest.mark.parametrize("kind", list(LOSSES))
def test_a_planted_secret_is_found(kind: str) -> None:
    assert auroc(stage_of(kind, data_of(kind, 3.0), rounds=1)) > 0.95


@pytest.mark.calibration
@pytest.mark.parametrize("kind", ["mse", pytest.param("bce", marks=pytest.mark.slow)])
def test_no_secret_gives_chance(kind: str) -> None:
    found = [auroc(stage_of(kind, data_of(kind, 0.0, seed=seed), rounds=1)) for seed in range(4)]
    assert np.mean(found) == pytest.approx(0.5, abs=0.08)


def outputs_on_test(stage: GameStage) -> tuple[np.ndarray, np.ndarray, Utility]:
    *_, final = trajectory(stage)
    found = utility_of(stage.task, final, stage.test, rng=np.random.default_rng(0))
    assert found is not None
    with torch.no_grad():
        out = torch.func.functional_call(stage.task.model, final, (stage.test.x,))
    return stage.test.y.numpy(), out.numpy(), found


@pytest.mark.parametrize("kind", list(LOSSES))
def test_utility_is_that_of_scikit_learn(kind: str) -> None:
    y, out, found = outputs_on_test(stage_of(kind, data_of(kind, 0.0), rounds=3))
    if kind == "bce":
        assert found.metric == "macro_f1"
        assert found.estimate.value == pytest.approx(f1_score(y, out > 0, average="macro"))
        every = f1_score(y, np.ones_like(y), average="macro")
        assert found.chance == pytest.approx(every)
    else:
        assert (found.metric, found.chance) == ("r2", 0.0)
        assert found.estimate.value == pytest.approx(r2_score(y, out))
        assert found.estimate.low > 0.2


def test_one_yes_or_no_label_has_an_accuracy() -> None:
    data = data_of("bce", 0.0)
    one = Dataset(data.x, data.y[:, 0], data.secrets)
    y, out, found = outputs_on_test(stage_of("bce", one, rounds=3))
    assert found.metric == "accuracy"
    assert found.estimate.value == pytest.approx(accuracy_score(y, out[:, 0] > 0))
    # the same numbers learnt by their squared error are numbers
    assert outputs_on_test(stage_of("mse", one))[2].metric == "r2"


@pytest.mark.parametrize("classes", [2, 3])
def test_the_auroc_of_the_task_is_that_of_scikit_learn(classes: int) -> None:
    rng = stream(1, "classes")
    x, s = rng.normal(size=(1800, 6)), rng.integers(2, size=1800)
    y = np.digitize(x[:, 0] + 0.5 * rng.normal(size=1800), np.linspace(-0.5, 0.5, classes - 1))
    data = from_arrays(x, y, {"s": s}, dtype=torch.float64)
    model = mlp(6, classes, hidden=(12,), generator=torch_stream(0, "model")).to(torch.float64)
    chosen = InferenceSpec(secret="s", batch_size=8, rounds=2, trials=100, lr=0.05)
    split = split_records(data.secrets["s"], shadow=600, rng=stream(0, "split"))
    attacks = (Energies(batches=100),)
    task = Task(model, "cross_entropy")
    stage = make_stage("property", task, data, split, attacks=attacks, spec=chosen)
    *_, final = trajectory(stage)
    with torch.no_grad():
        out = torch.func.functional_call(model, final, (stage.test.x,)).softmax(dim=1).numpy()
    shares = out if classes > 2 else out[:, 1]
    expected = roc_auc_score(stage.test.y.numpy(), shares, multi_class="ovr", average="macro")
    (found,) = [one for one in audit(stage) if one.metric == TASK_AUROC]
    assert expected > 0.7
    assert found.estimate.value == pytest.approx(expected, abs=1e-9)
    assert (found.round, found.chance) == (2, 0.5)


def test_one_yes_or_no_output_ranks_as_it_is() -> None:
    data = data_of("bce", 0.0)
    attack = Energies(batches=100)
    one = Dataset(data.x, data.y[:, 0], data.secrets)
    stage = stage_of("bce", one, attack, rounds=1, trials=100)
    *_, final = trajectory(stage)
    with torch.no_grad():
        out = torch.func.functional_call(stage.task.model, final, (stage.test.x,)).numpy()
    (found,) = [one for one in audit(stage) if one.metric == TASK_AUROC]
    expected = roc_auc_score(stage.test.y.numpy(), out)
    assert found.estimate.value == pytest.approx(expected)


def test_outputs_within_0_and_1_are_probabilities() -> None:
    stage = stage_of("bce", data_of("bce", 0.0), rounds=3)
    model = nn.Sequential(*stage.task.model, nn.Sigmoid())  # type: ignore[misc]
    other = replace(stage, task=Task(model, nn.functional.binary_cross_entropy))
    y, out, found = outputs_on_test(other)
    assert found.estimate.value == pytest.approx(f1_score(y, out > 0.5, average="macro"))


def alone(stage: GameStage) -> float:
    truth = stage.trials.secret.numpy()
    return figures(ScoredTrials(truth, baselines(stage)[LABELS_ALONE], truth))[AUROC]


def test_labels_of_numbers_tell_by_their_means() -> None:
    """The mean of 8 labels moves by 1 of their standard deviation sqrt(1.25)."""
    expected = 0.5 * (1 + torch.erf(torch.tensor((8 / 1.25) ** 0.5 / 2))).item()
    for kind in ("mse", "several"):
        told = alone(stage_of(kind, data_of(kind, 0.0, of_label=1.0)))
        assert told == pytest.approx(expected if kind == "mse" else 1.0, abs=0.03)
    several = [alone(stage_of("mse", data_of("mse", 0.0, seed=seed))) for seed in range(4)]
    assert np.mean(several) == pytest.approx(0.5, abs=0.1)


def test_candidates_are_compared_by_the_means_of_their_labels() -> None:
    rng = stream(4, "users")
    users = np.repeat(np.arange(150), 20)
    y = rng.normal(size=150)[users] + 0.3 * rng.normal(size=3000)
    data = from_arrays(
        rng.normal(size=(3000, 6)), y, {"s": users % 2}, users=users, dtype=torch.float64
    )
    assert alone(stage_of("mse", data, Plda(), ask="user", rounds=1)) > 0.9


def test_a_numeric_label_is_standardised_over_private_records_alone() -> None:
    table = frame()
    made = make_table(table, Roles("age", ("sex",), drop=("person",), numeric=True))
    private = torch.arange(0, 600, 3)
    data = encode(made, fit_on=private, dtype=torch.float64)
    ages = table["age"].to_numpy(dtype=float)
    seen = ages[::3]
    assert data.y.numpy() == pytest.approx((ages - seen.mean()) / seen.std())
    assert data.schema is not None
    assert data.schema.classes == ()


def test_a_feature_that_orders_the_label_is_told() -> None:
    table = frame().assign(months=lambda one: 12 * one["age"] + 3)
    (warning,) = make_table(table, Roles("age", ("sex",), drop=("person",), numeric=True)).warnings
    assert "'months' alone tells the label 'age' (rank correlation 1.000)" in warning
    assert "--drop months" in warning


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tasks") / "t.csv"
    rng = stream(1, "table")
    made = frame(1800).drop(columns="person")
    made["pay"] = (100 * (made["height"] - 170) + rng.normal(size=1800) * 300).round(2)
    made.to_csv(path, index=False)
    return path


SMALL = ("--secret", "sex", "--rounds", 1, "--trials", 200, "--adversary", "energies:batches=100")


def test_a_table_with_a_numeric_label(table: Path, tmp_path: Path) -> None:
    """The terminal, JSON and page name R², and nothing speaks of an accuracy."""
    done = command.run(
        "audit", table, "--label", "pay", "--loss", "mse", *SMALL, "--defense", "sign",
        "--optimizer", "adam:lr=0.003", "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "label 'pay' stays a number" in done.stderr
    cells = json.loads(done.stdout)["inference"]["cells"]
    assert [list(cell["utility"]) for cell in cells] == [["r2"]] * 3
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "test R²" in page
    assert "the mean of the labels" in page
    assert "the optimizer <code>adam:lr=0.003</code>" in page
    assert "accuracy" not in page
    assert "most frequent class" not in page
    repeat = (tmp_path / "run" / "run.yaml").read_text(encoding="utf-8")
    assert "--loss mse" in repeat
    assert "--optimizer adam:lr=0.003" in repeat


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--label", "pay"), "--bins pay=N, or learn the number itself with --loss mse"),
        (("--label", "income", "--loss", "mse"), "label 'income' is not a column of numbers"),
        (("--label", "pay", "--loss", "mse", "--bins", "pay=3"), "leave one out"),
        (("--label", "pay", "--loss", "mse", "--ask", "guarantee"), "tries every class"),
        (("--label", "pay", "--loss", "mse", "--ask", "reconstruction"), "which no search infers"),
        (
            ("--label", "income", "--lr", "0.1", "--optimizer", "adam:lr=1"),
            "name two learning rates",
        ),
        (("--label", "income", "--optimizer", "adm"), "did you mean 'adam'?"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(table: Path, words, said) -> None:
    roles = () if "reconstruction" in words else ("--secret", "sex")
    done = command.run("audit", table, *roles, *words)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert said in line


def test_records_are_rebuilt_where_the_numbers_are_known(table: Path, tmp_path: Path) -> None:
    done = command.run(
        "invert", table, "--label", "pay", "--loss", "mse", "--labels", "known", "--images", 2,
        "--iterations", 100, "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["label_accuracy"] is None
    assert set(answer["columns"].values()) == {1.0}


def test_python_users_name_a_class_as_the_optimizer() -> None:
    data, model = data_of("mse", 0.0), nn.Linear(6, 1).double()
    result = lg.audit(
        lg.load(Task(model, "mse"), data),
        optimizer=torch.optim.NAdam,
        adversaries="energies:batches=100",
        rounds=1,
        trials=100,
    )
    assert "NAdam</code>, the learning rate 0.01" in result.to_html()
    with pytest.raises(lg.InputError, match=r"give audit\(load\(task, dataset\), \.\.\.\)"):
        lg.audit(Task(model, "mse"), data)  # type: ignore[arg-type]
