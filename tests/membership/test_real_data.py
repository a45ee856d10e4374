"""Membership inference on real data, against the figures of independent prototypes."""

from pathlib import Path

import numpy as np
import pytest
import torch

from leakgauge.core.types import Dataset, Task
from leakgauge.data import Source, open_data
from leakgauge.membership.checking import check
from leakgauge.membership.run.answering import answer
from leakgauge.membership.run.preparing import prepare
from leakgauge.membership.spec import MembershipSpec
from leakgauge.models import alexnet_cifar
from leakgauge.models.conv_stacks import SMALL
from leakgauge.results.measurements import ACCUMULATED
from leakgauge.runs.question import Silent
from leakgauge.runs.sources import source_of, task_source
from leakgauge.runs.work import WorkFolder

SEEDS = (0, 1, 2)

FEDERATED = {"participants": 4, "size": 800, "rounds": 40}


def figures_of(spec: MembershipSpec, source: Source, folder: Path) -> dict[str, dict[str, float]]:
    """Return the figures of each attack, and of the model under an empty name."""
    folder.mkdir(parents=True)
    check(spec)
    prepared = prepare(spec, source)
    said = answer(prepared, WorkFolder(folder), Silent(), workers=1)
    found: dict[str, dict[str, float]] = {}
    for one in said.measurements:
        if one.round == ACCUMULATED:
            found.setdefault(one.adversary, {})[one.metric] = one.estimate.value
    return found


def location30(folder: Path, **settings) -> dict[str, dict[str, float]]:
    """Return the figures on location30, by the path of the grids of ``experiments/nasr19``."""
    spec = MembershipSpec(data="location30", hidden=(512, 256, 128), **settings)
    return figures_of(spec, source_of(spec), folder)


def over_seeds(tmp_path: Path, **settings) -> dict[str, dict[str, float]]:
    """Return the mean over seeds of each figure on location30."""
    each = [location30(tmp_path / str(seed), seed=seed, **settings) for seed in SEEDS]
    return {
        name: {metric: float(np.mean([one[name][metric] for one in each])) for metric in figures}
        for name, figures in each[0].items()
    }


@pytest.mark.slow
@pytest.mark.usefixtures("data_folder")
def test_a_central_model_of_location30(tmp_path: Path) -> None:
    found = over_seeds(tmp_path, size=1250, rounds=50)
    gradients, label_loss = found["gradients"], found["label-loss"]
    assert found[""]["train_accuracy"] > 0.99
    assert gradients["success"] >= 0.85
    assert gradients["auroc"] >= 0.90
    assert gradients["success"] >= found["probabilities"]["success"] + 0.10
    assert abs(gradients["auroc"] - label_loss["auroc"]) <= 0.02
    assert found["shadow"]["success"] >= 0.85
    assert found["spectral"]["success"] >= 0.75
    assert found["kmeans"]["success"] >= 0.83


@pytest.mark.slow
@pytest.mark.usefixtures("data_folder")
def test_a_fine_tuned_model_of_location30(tmp_path: Path) -> None:
    bars = {"parts": 0.80, "first": 0.84, "second": 0.74}
    for apart, bar in bars.items():
        settings = {"apart": apart, "snapshots": 2, "adversary": ("white-box",)}
        found = over_seeds(tmp_path / apart, size=1250, rounds=50, fine_tune=0.4, **settings)
        assert found["white-box"]["success"] >= bar, apart


@pytest.mark.slow
@pytest.mark.usefixtures("data_folder")
def test_active_attacks_on_a_federation_of_location30(tmp_path: Path) -> None:
    def auroc(strategy: str) -> float:
        active = {"strategy": strategy, "targets": 100, "ascent_rate": 0.05}
        found = over_seeds(tmp_path / strategy, **FEDERATED, **active, adversary=("loss",))
        return found["loss"]["auroc"]

    passive, isolated = auroc("passive"), auroc("isolate")
    assert isolated >= passive + 0.12
    assert auroc("ascent") >= passive + 0.01
    assert auroc("both") >= isolated + 0.01


@pytest.mark.slow
@pytest.mark.usefixtures("data_folder")
def test_rounds_and_participants_of_a_federation_of_location30(tmp_path: Path) -> None:
    def auroc(name: str, **settings) -> float:
        one = {**FEDERATED, **settings, "adversary": ("loss",)}
        return over_seeds(tmp_path / name, **one)["loss"]["auroc"]

    late = auroc("late")
    assert late >= auroc("early", observed=(2, 4, 6, 8, 10)) + 0.08
    assert late >= auroc("local", attacker="local") + 0.01
    of = [
        auroc(str(count), attacker="local", participants=count, size=640) for count in (2, 3, 4, 5)
    ]
    assert of == sorted(of, reverse=True)


@pytest.mark.slow
@pytest.mark.usefixtures("data_folder")
def test_a_small_alexnet_on_cifar10(tmp_path: Path) -> None:
    parts = [open_data(name) for name in ("cifar10-train", "cifar10")]
    x = torch.from_numpy(np.concatenate([one.pixels for one in parts])).float() / 255
    y = np.concatenate([one.frame["y"].to_numpy() for one in parts]).astype(np.int64)
    generator = torch.Generator().manual_seed(0)
    task = Task(alexnet_cifar(3, 10, widths=SMALL, generator=generator), "cross_entropy")
    data = Dataset((x - 0.5) / 0.25, torch.from_numpy(y))
    attacks = ("gradients", "label", "probabilities")
    spec = MembershipSpec(task="mine:build", rounds=20, size=1500, adversary=attacks)
    found = figures_of(spec, task_source(task, data), tmp_path / "run")
    alone = found["probabilities"]["auroc"]
    assert alone > 0.6
    assert min(found[name]["auroc"] for name in attacks[:2]) > alone + 0.08


@pytest.mark.usefixtures("data_folder")
def test_the_places_of_location30_stay_0_and_1() -> None:
    spec = MembershipSpec(data="location30", rounds=1)
    source = source_of(spec)
    x = prepare(spec, source).data.x
    assert x.shape == (5010, 446)
    assert x.unique().tolist() == [0.0, 1.0]
    scaled = MembershipSpec(data="location30", rounds=1, scale_binary=True)
    assert float(prepare(scaled, source).data.x.abs().max()) > 10


@pytest.mark.slow
def test_one_seed_of_location30_leaks(tmp_path: Path, data_folder: Path) -> None:
    settings = {"size": 1250, "rounds": 40, "adversary": ("gradients:epochs=10", "kmeans")}
    found = location30(tmp_path / "run", **settings)
    assert found["gradients:epochs=10"]["auroc"] > 0.8
    assert found["kmeans"]["success"] > 0.8
