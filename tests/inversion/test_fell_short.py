"""A search that fell short is not taken for records that cannot be rebuilt."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from leakgauge.core.types import Grads
from leakgauge.inversion.observed import Reconstruction
from leakgauge.inversion.report.levels import badge, statement, verdict_of
from leakgauge.inversion.search.presets import preset
from leakgauge.report.compare import Group
from leakgauge.report.grouping import group_tests
from leakgauge.results.measurements import ACCUMULATED, Estimate, Measurement
from support.command import run
from support.pictures import (
    LABELS,
    gradients_of_pictures,
    searched_pictures,
    smooth_pictures,
)
from support.sources import pictures


def picture_file(folder: Path) -> Path:
    source, path = pictures(12, side=32), folder / "set.npz"
    assert source.pixels is not None
    np.savez(path, x=source.pixels.transpose(0, 2, 3, 1), y=source.frame["y"].to_numpy())
    return path


def searched(sent: Grads, *, iterations: int) -> Reconstruction:
    return searched_pictures(sent, preset("leakgauge", iterations=iterations))


def test_a_short_search_fell_short_and_one_from_the_truth_did_not() -> None:
    truth = smooth_pictures(4)
    found = searched(gradients_of_pictures(truth), iterations=3)
    short = found.fell_short(truth[:, None], LABELS)
    assert short is not None
    assert short.tolist() == [1.0] * 4
    assert found.distance is not None
    assert float(found.distance(truth[:, None], LABELS).abs().max()) < 1e-5
    exact = found.fell_short(found.x, LABELS)  # as if the rebuilt records were the true ones
    assert exact is not None
    assert exact.tolist() == [0.0] * 4


def test_under_strong_noise_the_objective_prefers_other_records() -> None:
    """The search fits a part of the noise; the truth does not. So it is not the search's fault."""
    truth = smooth_pictures(4)
    clean = gradients_of_pictures(truth)
    generator = torch.Generator().manual_seed(0)
    noisy = {
        name: leaf + 3 * leaf.norm() * torch.randn(leaf.shape, generator=generator)
        for name, leaf in clean.items()
    }
    found = searched(noisy, iterations=150)
    short = found.fell_short(truth[:, None], LABELS)
    assert short is not None
    assert short.tolist() == [0.0] * 4
    assert float((found.x[:, 0] - truth).square().mean()) > 0.1


def test_a_method_without_a_search_does_not_fall_short() -> None:
    x = torch.zeros(1, 1, 2)
    assert Reconstruction.direct(x).fell_short(x, torch.zeros(1, 1, dtype=torch.int64)) is None


def measured(metric: str, value: float, **changed: Any) -> Measurement:
    given: dict[str, Any] = {"chance": 0.0, "n": 4, "defense": "none"} | changed
    return Measurement(
        question="reconstruction",
        game="reconstruction",
        dataset="set",
        label="y",
        secret="records",
        defense=given["defense"],
        knowledge="static",
        adversary="leakgauge",
        metric=metric,
        round=ACCUMULATED,
        seed=0,
        estimate=Estimate(value, value, value, given["n"]),
        chance=given["chance"],
    )


@pytest.mark.parametrize("defense", ["none", "sign"])
@pytest.mark.parametrize(
    ("psnr", "short", "level", "words"),
    [
        (12.0, 0.0, "none", "Images not rebuilt"),
        (12.0, 0.25, "inconclusive", "Search fell short"),
        (15.0, 1.0, "weak", "Parts of images rebuilt"),
        (23.0, 1.0, "clear", "Images recognisable"),
        (12.4, 0.0, "none", "Images not rebuilt"),
    ],
)
def test_the_verdict_says_so(
    defense: str, psnr: float, short: float, level: str, words: str
) -> None:
    figures = [
        measured("psnr", psnr, chance=11.5, defense=defense),
        measured("fell_short", short, defense=defense),
    ]
    (test,) = group_tests(figures)
    verdict = verdict_of(test)
    assert (verdict.level, verdict.words) == (level, words)
    said = "The search fell short for 1 of 4 updates" in statement(test)
    assert said == (words == "Search fell short")
    found = badge(Group({}, "static", ("cell",), {one.metric: one for one in figures}))
    assert found is not None
    assert (found.level, found.words) == (level, words)


def test_a_text_that_the_method_cannot_see_is_not_called_safe() -> None:
    """A gradient in which every token lies in the span, or signs of one, stops the method."""
    figures = [measured("token_accuracy", 0.0, chance=0.05), measured("fell_short", 0.5)]
    (test,) = group_tests(figures)
    verdict = verdict_of(test)
    assert (verdict.level, verdict.words) == ("inconclusive", "Search stopped")
    assert "The search was stopped for 2 of 4 updates" in statement(test)
    direct = Reconstruction.direct(torch.zeros(2, 1, 3))
    found = replace(direct, stopped=torch.tensor([1.0, 0.0])).fell_short(direct.x, direct.labels)
    assert found is not None
    assert found.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("words", [(), ("--epochs", 2), ("--method", "dlg-adam")])
def test_the_command_says_it(tmp_path: Path, words: tuple[object, ...]) -> None:
    path = picture_file(tmp_path)
    few = ("--images", 2, "--iterations", 3, "--net", "lenet", "--out", tmp_path / "out")
    ended = run("invert", path, *few, *words)
    assert ended.returncode == 0, ended.stderr
    assert "Search fell short" in ended.stdout
    assert "The search fell short for 2 of 2 updates" in ended.stdout
    assert "not rebuilt:" not in ended.stdout


OWN = """
from leakgauge.defenses import Defense, Transform

class Own(Transform):
    def __call__(self, grads, rngs):
        return {name: -leaf + 0 * rngs[0].initial_seed() for name, leaf in grads.items()}

class Plain(Transform):
    def __call__(self, grads, rngs):
        return {name: -leaf for name, leaf in grads.items()}

def drawing(batch_size):
    return Defense("drawing", update=Own())

def each(batch_size):
    return Defense("each", per_example=Plain())
"""


@pytest.mark.parametrize(
    ("defense", "words"),
    [("drawing", ("--batch-size", 1)), ("each", ("--batch-size", 2))],
)
def test_a_defense_that_no_attack_knows_is_not_called_safe(
    defense: str, words: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One needs randomness to be computed, the other changes each record of a larger batch."""
    module = f"own_{defense}"
    (tmp_path / f"{module}.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    path = picture_file(tmp_path)
    few = ("--images", 2, "--iterations", 3, "--net", "lenet", "--out", tmp_path / "out")
    own = ("--defense", f"{module}:{defense}", "--labels", "known")
    ended = run("invert", path, *few, *own, *words)
    assert ended.returncode == 0, ended.stderr
    assert "Defense not understood" in ended.stdout
    assert "No attack here knows this defense" in (tmp_path / "out" / "report.html").read_text()
    assert "Images not rebuilt" not in ended.stdout
