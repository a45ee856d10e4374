"""``leakgauge invert`` as a user meets it, and what a cell plays, scores and keeps."""

import json
import math
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy import stats
from torch import Tensor

from leakgauge.cli import invert, main
from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream, torch_stream
from leakgauge.data import Source
from leakgauge.gradients import params_of
from leakgauge.inversion.epochs.assignment import EpochPlan
from leakgauge.inversion.run import attempt as rebuilding
from leakgauge.inversion.run import scoring
from leakgauge.inversion.run.attempt import rebuild
from leakgauge.inversion.run.kept import SHOWN, keep_evidence
from leakgauge.inversion.run.scenario import Scenario, scenario_of
from leakgauge.inversion.run.scoring import Rebuilt, ordered, records_of
from leakgauge.inversion.run.spec import MATCHINGS, InversionCell
from leakgauge.models import build
from leakgauge.results.measurements import ACCUMULATED, read_measurements, read_run
from leakgauge.results.statistics import mean_estimate

Go = Callable[..., tuple[int, str, str]]
SIDE, CLASSES = 8, 3


def pictures(n: int = 12, *, side: int = SIDE, seed: int = 0) -> Source:
    pixels = stream(seed, "pictures").integers(0, 256, (n, 3, side, side), dtype=np.uint8)
    frame = pd.DataFrame({"y": np.arange(n) % CLASSES})
    return Source("pictures", frame, pixels, None, "0" * 64)


def people(n: int = 60) -> pd.DataFrame:
    rng = stream(0, "people")
    return pd.DataFrame(
        {
            "height": rng.normal(170, 9, size=n).round(2),
            "town": rng.choice(["a", "b", "c"], size=n),
            "sex": rng.choice(["f", "m"], size=n),
            "income": rng.choice(["high", "low"], size=n),
            "age": rng.integers(18, 90, size=n),
        }
    )


def staged(source: Source, **settings) -> tuple[Scenario, InversionCell]:
    usual = {"data": source.name, "images": 4, "net": "lenet", "iterations": 3}
    if source.pixels is None:
        usual |= {"label": "income", "net": "mlp"}
    cell = InversionCell(**{**usual, **settings}).settled(source)
    return scenario_of(source, cell), cell


def table_source(frame: pd.DataFrame) -> Source:
    return Source("people", frame, None, None, "0" * 64)


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


# --- the scene -----------------------------------------------------------------------------------


def test_the_attacked_images_are_the_first_ones_in_order() -> None:
    source = pictures()
    for first in (0, 3):
        scene, _ = staged(source, first=first)
        assert scene.pixels is not None
        back = (255 * scene.pixels.decode(scene.x)).round().to(torch.uint8).numpy()
        assert np.array_equal(back, source.pixels[first : first + 4])
        assert scene.y.tolist() == [(first + at) % CLASSES for at in range(4)]


def test_images_without_a_label_are_passed_over() -> None:
    source = pictures()
    frame = source.frame.astype("float").assign(y=lambda f: f["y"].where(f.index != 1))
    scene, _ = staged(replace(source, frame=frame), drop_missing=True)
    assert scene.pixels is not None
    back = (255 * scene.pixels.decode(scene.x)).round().to(torch.uint8).numpy()
    assert np.array_equal(back, source.pixels[[0, 2, 3, 4]])


def test_what_the_attacker_knows_is_learnt_from_other_images() -> None:
    source = pictures()
    assert source.pixels is not None

    def known(rows: slice) -> tuple[Scenario, bool]:
        pixels = source.pixels.copy()
        pixels[rows] //= 3
        scene, _ = staged(replace(source, pixels=pixels))
        fits = (torch.equal(scene.low, plain.low), torch.equal(scene.high, plain.high))
        return scene, all(fits) and same(scene.params, plain.params)

    plain, _ = staged(source)
    private, equal = known(slice(0, 4))
    assert equal
    assert not torch.equal(private.x, plain.x)
    assert not known(slice(4, None))[1]  # the others do show


def test_what_the_attacker_knows_is_learnt_from_other_rows() -> None:
    frame = people()
    extreme = frame.copy()
    extreme.loc[:3, "height"] = 1e6
    plain, odd = (staged(table_source(one))[0] for one in (frame, extreme))
    for name in ("low", "high", "guess"):
        assert torch.equal(getattr(plain, name), getattr(odd, name)), name
    assert (plain.schema, plain.notes) == (odd.schema, odd.notes)
    assert float(odd.x.max()) > 1000
    other = frame.copy()
    other.loc[10, "height"] = 1e6
    assert not torch.equal(staged(table_source(other))[0].high, plain.high)


def test_scaling_by_the_attacked_images_themselves_is_said() -> None:
    assert not any("attacked" in note for note in staged(pictures())[0].notes)
    scene, _ = staged(pictures(), images=12)
    assert any("all images are attacked" in note for note in scene.notes)


@pytest.mark.parametrize(("init", "wanted"), [("he", 2), ("pytorch", 1 / 3)])
def test_the_network_of_a_table_is_drawn_by_the_named_scheme(init: str, wanted: float) -> None:
    """The variance of weights times the inputs of their layer: He's 2, PyTorch's a third."""
    scene, _ = staged(table_source(people()), init=init, hidden=(500,))
    weight = next(iter(scene.params.values()))
    assert float(weight.var() * weight.shape[1]) == pytest.approx(wanted, rel=0.15)


def test_trained_weights_are_the_ones_that_are_attacked(tmp_path: Path) -> None:
    model = build(
        "lenet", channels=3, classes=CLASSES, side=SIDE, generator=torch_stream(9, "other")
    )
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    scene, _ = staged(pictures(), weights=str(tmp_path / "w.safetensors"))
    assert same(params_of(model), scene.params)
    assert not same(params_of(model), staged(pictures())[0].params)


# --- playing -------------------------------------------------------------------------------------


def test_records_come_in_the_truth_s_order_within_an_update_alone() -> None:
    truth = torch.arange(6.0).view(3, 2, 1)
    assert torch.equal(ordered(truth.flip(1) + 0.1, truth), truth.flatten(0, 1) + 0.1)
    moved = ordered(truth.roll(1, 0), truth)  # another update's records stay there
    assert torch.equal(moved, truth.roll(1, 0).flatten(0, 1))


@pytest.fixture
def intercepted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Scenario], None]:
    """Whatever truth is scored against, clients send the records of the scene given here."""

    def use(scene: Scenario) -> None:
        def send(task, params, x, y, client, *, seed):
            own_x = scene.x.reshape(x.shape)
            return original(task, params, own_x, scene.y.reshape(y.shape), client, seed=seed)

        monkeypatch.setattr(rebuilding, "send", send)

    original = rebuilding.send
    return use


@pytest.mark.parametrize("labels", ["inferred", "known"])
@pytest.mark.parametrize("method", ["agic", "dlg-adam"])
def test_the_truth_is_for_scoring_alone(intercepted, method: str, labels: str) -> None:
    """Once the updates are sent, another truth changes the scores and nothing that was found."""
    scene, cell = staged(pictures(), method=method, labels=labels)
    truth = replace(scene, x=scene.x.flip(3))
    if labels == "inferred":
        truth = replace(truth, y=(scene.y + 1) % CLASSES)
    intercepted(scene)
    one, other = rebuild(scene, cell), rebuild(truth, cell)
    assert torch.equal(one.found, other.found)
    assert not torch.equal(one.scores["psnr"], other.scores["psnr"])
    assert one.curves["loss"] == other.curves["loss"]
    if labels == "inferred" and method == "agic":
        assert one.scores["label_accuracy"].tolist() == [1.0] * 4
        assert other.scores["label_accuracy"].tolist() == [0.0] * 4


def test_labels_reach_the_attack_only_where_granted(intercepted) -> None:
    scene, cell = staged(pictures(), method="agic", labels="known")
    intercepted(scene)
    lied = replace(scene, y=(scene.y + 1) % CLASSES)
    assert not torch.equal(rebuild(scene, cell).found, rebuild(lied, cell).found)


@pytest.mark.parametrize("size", [1, 2])
def test_scores_are_those_of_the_records(size: int) -> None:
    source = pictures()
    scene, cell = staged(source, batch_size=size)
    played = rebuild(scene, cell)
    truth = source.pixels[:4] / 255.0
    assert np.allclose(played.truth.numpy(), truth, atol=1e-6)
    error = ((played.found.numpy() - truth) ** 2).reshape(4, -1).mean(axis=1)
    assert np.allclose(played.scores["psnr"].numpy(), -10 * np.log10(error), atol=1e-4)
    assert "ssim" not in played.scores  # its window needs 11 pixels
    assert len(played.scores["label_accuracy"]) == 4 // size
    mean = source.pixels[4:].mean(axis=(0, 2, 3), keepdims=True)[0] / 255
    guess = -10 * np.log10(((mean - truth) ** 2).reshape(4, -1).mean(axis=1)).mean()
    assert played.chance["psnr"] == pytest.approx(guess, abs=1e-4)


def test_the_curve_of_psnr_ends_where_the_search_does() -> None:
    scene, cell = staged(pictures(), method="inverting-gradients", batch_size=2, iterations=10)
    played = rebuild(scene, cell)
    steps = [at for at, _ in played.curves["psnr"]]
    assert steps == sorted(steps)
    assert (steps[0], steps[-1]) == (0, 10)
    assert played.curves["loss"][-1][1] < played.curves["loss"][0][1]
    assert played.curves["loss"][-1][0] == 10


def test_more_iterations_come_nearer() -> None:
    few, many = (
        rebuild(*staged(pictures(), net="slim", method="agic", iterations=n)).scores["psnr"].mean()
        for n in (1, 60)
    )
    assert many > few + 3


def test_several_epochs_are_played_over_all_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict = {}

    def joint(task, epochs, plan, settings, **given):
        seen.update(epochs=epochs, plan=plan, labels=given["labels"])
        return original(task, epochs, plan, settings, **given)

    original = rebuilding.joint_reconstruct
    monkeypatch.setattr(rebuilding, "joint_reconstruct", joint)
    source = pictures()
    scene, cell = staged(source, batch_size=2, epochs=3, local_lr=0.5, labels="known")
    played = rebuild(scene, cell)

    model, now = scene.task.model, dict(scene.params)
    dealt = [stream(cell.seed, "epoch", number).permutation(4) for number in (1, 2)]
    for epoch, order in zip(seen["epochs"], [np.arange(4), *dealt], strict=True):
        assert same(now, dict(epoch.params))
        rows = []
        for one in torch.as_tensor(order.copy()).split(2):
            leaves = {name: leaf.clone().requires_grad_() for name, leaf in now.items()}
            out = torch.func.functional_call(model, leaves, (scene.x[one],))
            torch.nn.functional.cross_entropy(out, scene.y[one]).backward()
            rows.append({name: leaf.grad for name, leaf in leaves.items()})
        for name in now:
            stacked = torch.stack([row[name] for row in rows])
            torch.testing.assert_close(epoch.grads[name], stacked, atol=1e-6, rtol=1e-4)
            now[name] = epoch.params[name] - 0.5 * epoch.grads[name].mean(dim=0)
    assert list(seen["plan"].members.shape) == [3, 2, 2]
    assert torch.equal(seen["labels"], scene.y)
    assert sorted(played.rounds) == [1, 2, 3]
    for name in ("matching_greedy", "matching_optimal", "matching_gradients"):
        assert len(played.scores[name]) == 2
    records = records_of(cell, "pictures", played)
    single = {r.round for r in records if r.metric == "psnr"}
    assert single == {1, 2, 3, ACCUMULATED}


@pytest.mark.parametrize("matching", MATCHINGS)
def test_the_joint_search_is_by_the_matching_that_was_asked_for(
    matching: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ways to match give plans of their own here; the joint search is told one of them."""
    plans = {
        name: EpochPlan(torch.tensor([[[0, 1], [2, 3]], second]))
        for name, second in zip(
            MATCHINGS, ([[0, 1], [2, 3]], [[0, 2], [1, 3]], [[1, 2], [0, 3]]), strict=True
        )
    }
    begun, used = [], []

    def settle(task, epochs, plan, settings, **given):
        begun.append(plan)
        return plans["gradients"]

    def joint(task, epochs, plan, settings, **given):
        used.append(plan)
        return original(task, epochs, plan, settings, **given)

    original = rebuilding.joint_reconstruct
    monkeypatch.setattr(rebuilding, "match_epochs", lambda *_, method, **__: plans[method])
    monkeypatch.setattr(rebuilding, "refine_assignment", settle)
    monkeypatch.setattr(rebuilding, "joint_reconstruct", joint)
    played = rebuild(*staged(pictures(), batch_size=2, epochs=2, labels="known", matching=matching))
    assert used == [plans[matching]]
    assert begun == ([plans["optimal"]] if matching == "gradients" else [])
    assert ("matching_gradients" in played.scores) == (matching == "gradients")


def test_two_epochs_of_two_images_match_and_help() -> None:
    """Distinct labels name the records, so the matching is right."""
    scene, cell = staged(
        pictures(),
        images=2,
        epochs=2,
        net="slim",
        method="agic:total_variation=0.01,prior_relative=0",
        iterations=120,
        labels="known",
    )
    played = rebuild(scene, cell)
    assert played.scores["matching_gradients"].tolist() == [1.0]
    assert played.scores["matching_optimal"].tolist() == [1.0]
    assert played.scores["matching_greedy"].tolist() == [1.0]
    single = max(float(played.rounds[at]["psnr"].mean()) for at in (1, 2))
    assert float(played.scores["psnr"].mean()) > single + 1


def test_equal_cells_give_equal_figures() -> None:
    one, other = (rebuild(*staged(pictures(), batch_size=2)) for _ in range(2))
    assert torch.equal(one.found, other.found)
    assert not torch.equal(rebuild(*staged(pictures(), batch_size=2, seed=1)).found, one.found)


def test_exact_recovery_of_rows_and_of_what_it_cannot_tell() -> None:
    frame = people()
    scene, cell = staged(table_source(frame), method="exact")
    played = rebuild(scene, cell)
    torch.testing.assert_close(played.found, scene.x, atol=1e-4, rtol=1e-4)
    names = {"columns", *(f"columns: {name}" for name in ("height", "town", "sex", "age"))}
    assert set(played.scores) == names
    assert all(values.tolist() == [1.0] * 4 for values in played.scores.values())
    # A net of one unit blends the records of a batch; what is not recovered is the guess.
    scene, cell = staged(table_source(frame), method="exact", batch_size=4, hidden=(1,))
    blended = rebuild(scene, cell)
    assert blended.scores["columns"].mean() < 1
    assert any(torch.equal(row, scene.guess) for row in blended.found)


def test_exact_recovery_after_local_steps() -> None:
    scene, cell = staged(table_source(people()), method="exact", local_steps=2, hidden=(300,))
    assert rebuild(scene, cell).scores["columns"].mean() > rebuilt_by_guess(scene)


def rebuilt_by_guess(scene: Scenario) -> float:
    return scoring.chance_of(scene)["columns"]


def test_the_guess_of_a_row_is_the_most_frequent_value() -> None:
    frame = people()
    scene, _ = staged(table_source(frame))
    chance = scoring.chance_of(scene)
    for name in ("town", "sex"):
        usual = frame[name][4:].mode()[0]
        assert chance[f"columns: {name}"] == (frame[name][:4] == usual).mean()


# --- records and evidence ------------------------------------------------------------------------


def test_records_hold_means_with_student_intervals() -> None:
    scene, cell = staged(pictures(), labels="known")
    played = rebuild(scene, cell)
    by_name = {r.metric: r for r in records_of(cell, "pictures", played)}
    assert set(by_name) == {"psnr", "label_accuracy", "loss"}
    psnr, values = by_name["psnr"], played.scores["psnr"].numpy()
    ends = stats.t.interval(0.95, 3, values.mean(), stats.sem(values))
    assert (psnr.estimate.value, psnr.estimate.n) == (pytest.approx(values.mean()), 4)
    assert (psnr.estimate.low, psnr.estimate.high) == pytest.approx(ends)
    assert psnr.curve == played.curves["psnr"]
    assert psnr.details["labels"] == "known"
    granted = by_name["label_accuracy"].estimate
    assert (granted.low, granted.value, granted.high) == (1.0, 1.0, 1.0)  # nothing was measured
    assert by_name["loss"].estimate.value == played.curves["loss"][-1][1]


EIGHT_OF_EIGHT = stats.binomtest(8, 8).proportion_ci().low


@pytest.mark.parametrize(
    ("name", "values", "ends"),
    [
        ("label_accuracy", (1.0, 0.5, 1.0, 1.0), (None, 1.0)),
        ("columns: age", (1.0,) * 8, (EIGHT_OF_EIGHT, 1.0)),
        ("columns", (0.0,) * 8, (0.0, 1 - EIGHT_OF_EIGHT)),
        ("matching_optimal", (1.0,), (0.025, 1.0)),
        ("ssim", (-0.2, 0.3, 0.1), (None, None)),
        ("ssim", (0.99, 0.5, 1.0), (None, 1.0)),
        ("lpips", (1.3, 1.1), (0.0, None)),
        ("lpips", (0.1, 0.5), (0.0, None)),
        ("psnr", (8.0, 30.0), (None, None)),
    ],
)
def test_an_interval_stays_within_what_its_figure_can_be(
    name: str, values: tuple[float, ...], ends: tuple[float | None, float | None]
) -> None:
    """None: the interval is as Student's t gives it."""
    _, cell = staged(pictures(), labels="inferred")
    blank = torch.zeros(len(values), 3, SIDE, SIDE)
    played = Rebuilt(blank, blank, {name: torch.tensor(values)}, {}, 1.0)
    (record,) = records_of(cell, "pictures", played)
    plain, found = mean_estimate(torch.tensor(values)), record.estimate
    assert found.low == pytest.approx(plain.low if ends[0] is None else ends[0])
    assert found.high == pytest.approx(plain.high if ends[1] is None else ends[1])
    assert found.low <= found.value <= found.high


def test_a_loss_that_never_was_finite_leaves_the_other_figures() -> None:
    _, cell = staged(pictures())
    blank = torch.zeros(2, 3, SIDE, SIDE)
    played = Rebuilt(blank, blank, {"psnr": torch.ones(2)}, {"loss": ()}, 1.0)
    assert [record.metric for record in records_of(cell, "pictures", played)] == ["psnr"]


def test_what_is_kept_of_images_is_their_bytes(tmp_path: Path) -> None:
    source = pictures(SHOWN + 12)
    scene, cell = staged(source, images=SHOWN + 2, iterations=1)
    played = rebuild(scene, cell)
    keep_evidence(tmp_path, scene, [played, played])
    (kept,) = tmp_path.iterdir()
    found = load_file(kept)
    assert set(found) == {"truth", "0", "1"}
    assert np.array_equal(found["truth"].numpy(), source.pixels[:SHOWN])
    assert len(found["0"]) == SHOWN
    assert (found["0"] / 255 - played.found[:SHOWN]).abs().max() <= 0.5001 / 255


def test_what_is_kept_of_rows_are_their_values(tmp_path: Path) -> None:
    frame = people()
    frame.loc[1, "height"] = np.nan
    frame.loc[20, "height"] = np.nan
    scene, _ = staged(table_source(frame))
    assert scene.schema is not None
    age, height = (
        next(c.start for c in scene.schema.columns if c.name == name) for name in ("age", "height")
    )
    found = scene.x.clone()
    found[0, height] += 0.04  # of a standard deviation: still right
    found[0, age] += 0.06  # no more
    keep_evidence(tmp_path, scene, [Rebuilt(found, scene.x, {}, {}, 1.0)])
    (kept,) = tmp_path.iterdir()
    told = json.loads(kept.read_text(), parse_constant=pytest.fail)
    for at, row in enumerate(told["truth"]):
        height_there = "(missing)" if at == 1 else f"{frame['height'][at]:g}"
        wanted = {"height": height_there, "age": f"{frame['age'][at]:g}"}
        assert row == wanted | {name: frame[name][at] for name in ("town", "sex")}
    for at, row in enumerate(told["0"]):
        assert {name for name, (_, right) in row.items() if not right} == (
            {"age"} if at == 0 else set()
        )
        if at:
            assert {name: text for name, (text, _) in row.items()} == told["truth"][at]
    assert float(told["0"][0]["height"][0]) > frame["height"][0] + 0.1


# --- the command ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = pictures(12, side=32)
    assert source.pixels is not None
    path = tmp_path_factory.mktemp("images") / "set.npz"
    np.savez(path, x=source.pixels.transpose(0, 2, 3, 1), y=source.frame["y"].to_numpy())
    return path


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "people.csv"
    people().to_csv(path, index=False)
    return path


@pytest.fixture
def go(
    images: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Go:
    """Run the command with small settings; later options replace earlier ones."""
    monkeypatch.chdir(tmp_path)  # runs without --out stay there
    monkeypatch.setenv("COLUMNS", "400")

    def run(*words: object, on: object = images) -> tuple[int, str, str]:
        usual = ("--images", 2, "--iterations", 3)
        return plainly("invert", on, *usual, *(() if "--net" in words else NET[on]), *words)

    def plainly(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["leakgauge", *map(str, words)])
        with pytest.raises(SystemExit) as done:
            main()
        said = capsys.readouterr()
        return int(done.value.code or 0), said.out, said.err

    class _Net(dict):
        def __missing__(self, on: object) -> tuple[str, ...]:
            return (
                ("--label", "income")
                if str(on).endswith((".csv", ".parquet"))
                else ("--net", "lenet")
            )

    NET = _Net()
    run.plainly = plainly
    return run


def told(go: Go, *words: object, **where: object) -> dict:
    code, out, err = go("--json", *words, **where)
    assert code == 0, err
    (line,) = out.splitlines()
    return json.loads(line, parse_constant=pytest.fail)  # no NaN, no Infinity


def test_json_has_what_a_pipeline_needs(go: Go) -> None:
    found = told(go, "--method", "agic")
    assert (found["method"], found["images"], found["iterations"]) == ("agic", 2, 3)
    for name in ("psnr", "ssim"):
        ends = found[name]
        assert set(ends) == {"value", "low", "high"}
        each = [one[name] for one in found["per_image"]]
        assert ends["value"] == pytest.approx(np.mean(each))
        assert ends["low"] < ends["value"] < ends["high"]
    assert found["lpips"] is None or set(found["lpips"]) == {"value", "low", "high"}
    assert found["label_accuracy"] == 1.0  # iDLG, one record each
    assert found["seconds_per_iteration"] > 0
    assert len(found["per_image"]) == 2
    assert found["warnings"] == []
    assert Path(found["report"]).is_file()


def test_the_seed_is_all_randomness(go: Go) -> None:
    aside = {"seconds_per_iteration": 0, "report": ""}
    one, again = (told(go, "--seed", 5) | aside for _ in range(2))
    assert one == again
    assert told(go, "--seed", 6)["psnr"] != one["psnr"]


def test_several_methods_and_epochs_are_told(go: Go) -> None:
    found = told(go, "--method", "agic", "--method", "inverting-gradients")
    assert [one["method"] for one in found["results"]] == ["agic", "inverting-gradients"]
    assert found["psnr"] == found["results"][0]["psnr"]
    found = told(go, "--images", 4, "--batch-size", 2, "--epochs", 2, "--labels", "known")
    assert len(found["single_epochs"]) == 2
    assert set(found["matching"]) == {"greedy", "optimal", "gradients"}
    assert found["joint_matching"] == "gradients"
    assert len(found["per_image"]) == 4


@pytest.mark.parametrize("defense", ["prune:rate=0.9", "sign", "noise:std=0.01"])
def test_a_defense_is_attacked_without_and_with_knowing_it(go: Go, defense: str) -> None:
    found = told(go, "--method", "agic", "--defense", defense)["results"]
    assert [one["knowledge"] for one in found] == ["static", "static", "adaptive"]
    assert found[0]["defense"] == "none"
    assert {one["defense"] for one in found[1:]} == {defense}
    assert len({one["psnr"]["value"] for one in found}) == 3


def test_a_great_rate_warns_and_simulation_is_played(go: Go) -> None:
    words = ("--local-steps", 2, "--labels", "known", "--local-lr", 1)
    plain = told(go, *words)
    assert any("simulate the local steps" in line for line in plain["warnings"])
    assert "simulate the local steps" in go(*words)[2]
    assert told(go, *words, "--simulate")["psnr"] != plain["psnr"]


def test_a_search_that_is_stopped_says_so(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, progress: Callable[[int, Tensor], None], **__: object) -> None:
        progress(0, torch.ones(2))
        raise KeyboardInterrupt

    monkeypatch.setattr(invert, "rebuild", stopped)
    code, out, err = go()
    assert (code, out) == (130, "")
    assert "stopped; a search cannot go on later" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("how", "says", "code"),
    [(KeyboardInterrupt(), "stopped: agic;", 130), (InputError("no"), "refused: agic: no", 2)],
)
def test_what_was_rebuilt_before_is_kept(
    go: Go,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: BaseException,
    says: str,
    code: int,
) -> None:
    plain = invert.rebuild

    def once(scene: Scenario, cell: InversionCell, **given: Any) -> Rebuilt:
        if cell.method == "agic":
            raise how
        return plain(scene, cell, **given)

    monkeypatch.setattr(invert, "rebuild", once)
    words = ("--method", "dlg-adam", "--method", "agic", "--defense", "sign")
    got, out, err = go(*words, "--json", "--out", tmp_path / "kept")
    assert got == code
    assert {one["method"] for one in json.loads(out)["results"]} == {"dlg-adam"}
    assert says in err
    page = (tmp_path / "kept" / "report.html").read_text(encoding="utf-8")
    missing = "not played to the end: &#39;agic&#39;, &#39;agic&#39; under sign."
    assert missing in page
    code, out, err = go.plainly("report", tmp_path / "kept")
    assert code == 0, err
    assert missing in (tmp_path / "kept" / "report.html").read_text(encoding="utf-8")


def test_the_default_number_of_images_makes_whole_updates(go: Go, images: Path) -> None:
    words = ("--json", "--net", "lenet", "--iterations", 1, "--batch-size", 3)
    code, out, err = go.plainly("invert", images, *words)
    assert code == 0, err
    assert json.loads(out)["images"] == 9


def test_plain_words(go: Go) -> None:
    code, out, err = go("--method", "dlg-adam")
    assert code == 0, err
    assert "dlg-adam: The images were not rebuilt. PSNR" in out
    assert "the mean colour alone scores" in out
    assert "report: leakgauge-runs" in out


def test_out_keeps_the_result_and_the_page_is_rebuilt_from_it(go: Go, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    first = told(go, "--out", folder)
    kept = {"run.yaml", "measurements.jsonl", "report.html", "pictures.safetensors"}
    assert {one.name for one in folder.iterdir()} == kept
    records = {r.metric: r for r in read_measurements(folder)}
    assert records["psnr"].estimate.value == first["psnr"]["value"]
    assert read_run(folder).settings["images"] == 2
    page = (folder / "report.html").read_bytes()
    (folder / "report.html").unlink()
    assert go.plainly("report", folder)[0] == 0
    assert (folder / "report.html").read_bytes() == page
    code, _, err = go("--out", folder, "--seed", 1)
    assert code == 2
    assert "holds another run (seed is 0 there, 1 here)" in err
    # What no longer can be read is refused, and the page is not written without it.
    (folder / "pictures.safetensors").write_bytes(b"\x10" + bytes(7) + b"{damaged")
    code, _, err = go.plainly("report", folder)
    assert code == 2
    assert err.count(os.linesep) == 1
    assert "pictures.safetensors cannot be read" in err


def test_redact_keeps_no_record(go: Go, images: Path, tmp_path: Path) -> None:
    raw = np.load(images)["x"][:2]
    traces = [raw[at].transpose(2, 0, 1)[0, 0].tobytes() for at in range(2)]  # a row of pixels
    for redact in (False, True):
        folder = tmp_path / f"kept-{redact}"
        words = ["--redact"] if redact else []
        assert told(go, "--out", folder, *words)["psnr"] is not None
        held = b"".join(one.read_bytes() for one in folder.rglob("*") if one.is_file())
        assert all((trace in held) is not redact for trace in traces)
        assert (b"data:image/png" in held) is not redact
    assert {one.name for one in folder.iterdir()} == {
        "run.yaml",
        "measurements.jsonl",
        "report.html",
    }


def test_redact_keeps_no_row(go: Go, table: Path, tmp_path: Path) -> None:
    height = f"{people()['height'][0]:g}"
    for redact in (False, True):
        folder = tmp_path / f"rows-{redact}"
        words = ["--redact"] if redact else []
        told(go, "--method", "exact", "--out", folder, *words, on=table)
        held = "".join(one.read_text() for one in folder.iterdir())
        assert (height in held) is not redact
        assert (folder / "rows.json").exists() is not redact


def test_a_table_is_told_by_column(go: Go, table: Path) -> None:
    found = told(go, "--method", "exact", on=table)
    assert found["psnr"] is None
    assert found["columns"] == dict.fromkeys(("height", "town", "sex", "age"), 1.0)
    assert found["per_image"] == [{"columns": 1.0}] * 2
    out = go("--method", "exact", on=table)[1]
    assert "100 % of the columns of 2 records were rebuilt right" in out
    assert found["iterations"] == 0  # nothing is searched for
    searched = told(go, "--method", "dlg", "--iterations", 2, on=table)
    assert searched["label_accuracy"] is not None
    assert 0 <= searched["per_image"][0]["columns"] <= 1


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files that no weights can come from."""

    folder = tmp_path_factory.mktemp("stored")
    (folder / "code.pt").write_bytes(pickle.dumps(Planted()))
    model = build("lenet", channels=3, classes=9, side=32, generator=torch_stream(0, "nine"))
    save_file(model.state_dict(), folder / "nine.safetensors")
    return folder


class Planted:
    """Would write a file if a pickle of it were run."""

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return os.system, ("touch it_ran",)


REFUSED = [
    (("--method", "agi"), "attack 'agi' is not known; did you mean 'agic'?"),
    (("--net", "slm"), "--net is 'slm'; did you mean 'slim'?"),
    (("--net", "mlp"), "--net is 'mlp', but 'set.npz' holds images"),
    (("--method", "exact"), "--method exact needs a first linear layer"),
    (("--init", "hee"), "--init is 'hee'; did you mean 'he'?"),
    (("--labels", "guessed"), "--labels is 'guessed'"),
    (("--images", 3, "--batch-size", 2), "--images is 3; expected a multiple of 2"),
    (("--images", 99), "records 0 to 98 are asked for; there are 12; lower --images"),
    (("--images", 0), "--images is 0"),
    (("--side", 100_000), "--side is 100000; expected at most 1024 pixels"),
    (("--batch-size", 0), "batch size is 0"),
    (("--epochs", 0), "--epochs is 0"),
    (("--epochs", 2, "--defense", "sign"), "--epochs goes with single gradients"),
    (("--epochs", 2, "--local-steps", 2), "--epochs goes with single gradients"),
    (("--matching", "greedy"), "give --epochs of 2 or more"),
    (("--epochs", 2, "--matching", "best"), "--matching is 'best'"),
    (("--simulate",), "--simulate is about local steps"),
    (("--local-steps", 2, "--local-lr", -1), "local learning rate is -1"),
    (("--local-steps", 2, "--local-lr", "nan"), "local learning rate is nan"),
    (("--iterations", 0), "iterations is 0"),
    (("--restarts", 0), "restarts is 0"),
    (("--label", "yy"), "did you mean 'y'?"),
    (("--hidden", 8), "--hidden is about the network for tables"),
    (("--weights", "no.safetensors"), "no such file"),
    (("--weights", "{stored}/code.pt"), "hold a pickle that would run code"),
    (("--weights", "{stored}/nine.safetensors"), "of other shapes ([9]"),
    (("--lpips", "no.safetensors"), "LPIPS weights 'no.safetensors' cannot be read"),
    (("--defense", "perturb"), "choose another --defense"),
    (("--defense", "vib"), "choose another --defense"),
    (("--defense", "prun"), "did you mean 'prune'?"),
    (("--defense", "dpsgd", "--local-steps", 2), "take --local-steps 1 or another --defense"),
    (("--device", "abacus"), "--device abacus cannot be used here"),
]


@pytest.mark.parametrize(("words", "reason"), REFUSED)
def test_bad_input_is_one_clear_line(
    go: Go, stored: Path, tmp_path: Path, words: tuple[object, ...], reason: str
) -> None:
    code, out, err = go(*(str(word).format(stored=stored) for word in words))
    assert (code, out) == (2, "")
    assert reason in err
    assert err.startswith("error: ")
    assert err.count(os.linesep) == 1
    assert list(tmp_path.iterdir()) == []  # nothing was begun, and no pickle ran


def test_bad_input_of_tables_is_one_clear_line(go: Go, table: Path) -> None:
    for words, reason in (
        (("--net", "slim", "--label", "income"), "--net is 'slim', but 'people.csv' holds a table"),
        (("--images", 60), "so there are none to learn the encoding from; lower --images"),
        (("--method", "exact", "--epochs", 2), "leave out --epochs"),
        (("--label", "incme"), "did you mean 'income'?"),
    ):
        code, out, err = go(*words, on=table)
        assert (code, out, err.count(os.linesep)) == (2, "", 1)
        assert reason in err


# --- real data -----------------------------------------------------------------------------------


def test_cifar10_by_name_and_by_path_gives_the_first_test_images(
    data_folder: Path, go: Go, tmp_path: Path
) -> None:
    path = data_folder / "cifar10" / "cifar10_subset.npz"
    with np.load(path) as arrays:
        wanted = arrays["x_test"][:2].transpose(0, 3, 1, 2)
    found = {}
    for name, on in (("name", "cifar10"), ("path", path)):
        folder = tmp_path / name
        found[name] = told(go, "--iterations", 1, "--out", folder, on=on)
        assert np.array_equal(load_file(folder / "pictures.safetensors")["truth"].numpy(), wanted)
    assert found["name"]["psnr"] == found["path"]["psnr"]
    assert found["name"]["lpips"] is not None


def test_a_row_of_adult_is_read_off_with_every_column_right(data_folder: Path, go: Go) -> None:
    path = data_folder / "adult" / "adult.parquet"
    found = told(go, "--label", "income", "--method", "exact", "--images", 4, on=path)
    assert len(found["columns"]) >= 12
    assert set(found["columns"].values()) == {1.0}
    assert math.isclose(found["per_image"][0]["columns"], 1.0)
    assert np.mean([v for k, v in found["chance"].items() if k.startswith("columns:")]) < 0.9
