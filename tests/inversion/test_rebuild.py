"""Records, reconstructions, scores and kept files of an attempt."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy import stats
from torch import Tensor

from leakgauge.core.rng import stream, torch_stream
from leakgauge.data import Source
from leakgauge.gradients import params_of
from leakgauge.inversion.checking import check
from leakgauge.inversion.epochs.assignment import match_epochs
from leakgauge.inversion.epochs.epoch import EpochPlan
from leakgauge.inversion.epochs.joint import joint_reconstruct
from leakgauge.inversion.run import measuring, over_epochs, updates
from leakgauge.inversion.run.answering import rebuild
from leakgauge.inversion.run.attempt import Attempt, attempts_of
from leakgauge.inversion.run.kept import MOST_RECORDS, keep_records
from leakgauge.inversion.run.measuring import measurements_of
from leakgauge.inversion.run.preparing import prepare
from leakgauge.inversion.run.rebuilt import Rebuilt
from leakgauge.inversion.run.scenario import Scenario, scenario_of
from leakgauge.inversion.scoring import in_true_order
from leakgauge.inversion.spec import InversionSpec
from leakgauge.inversion.words import JOINTS, MATCHINGS
from leakgauge.models import build
from leakgauge.results.measurements import ACCUMULATED
from leakgauge.results.statistics import mean_estimate
from leakgauge.runs.spec import make_spec
from support.sources import CLASSES, SIDE, people, pictures, table_source

pytestmark = pytest.mark.usefixtures("few_scales")


def staged(source: Source, **settings) -> tuple[Scenario, Attempt]:
    common = {"data": source.name, "images": 4, "net": "lenet", "iterations": 3, "draw": "first"}
    if source.pixels is None:
        common |= {"label": "income", "net": "mlp", "method": "leakgauge"}
    spec = make_spec(InversionSpec, {**common, **settings})
    assert isinstance(spec, InversionSpec)
    check(spec)
    resolved = prepare(spec, source).spec
    (attempt,) = attempts_of(resolved)
    return scenario_of(source, resolved), attempt


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


# --- the scenario -------------------------------------------------------------------


def test_the_attacked_images_are_the_first_ones_in_order() -> None:
    source = pictures()
    for first in (0, 3):
        scenario, _ = staged(source, first=first)
        assert scenario.pixels is not None
        back = (255 * scenario.pixels.decode(scenario.x)).round().to(torch.uint8).numpy()
        assert np.array_equal(back, source.pixels[first : first + 4])
        assert scenario.y.tolist() == [(first + at) % CLASSES for at in range(4)]


def test_images_without_a_label_are_passed_over() -> None:
    source = pictures()
    frame = source.frame.astype("float").assign(y=lambda f: f["y"].where(f.index != 1))
    scenario, _ = staged(replace(source, frame=frame), drop_missing=True)
    assert scenario.pixels is not None
    back = (255 * scenario.pixels.decode(scenario.x)).round().to(torch.uint8).numpy()
    assert np.array_equal(back, source.pixels[[0, 2, 3, 4]])


def test_what_the_attacker_knows_is_learnt_from_other_images() -> None:
    source = pictures()
    assert source.pixels is not None

    def known(rows: slice) -> tuple[Scenario, bool]:
        pixels = source.pixels.copy()
        pixels[rows] //= 3
        scenario, _ = staged(replace(source, pixels=pixels))
        fits = (torch.equal(scenario.low, plain.low), torch.equal(scenario.high, plain.high))
        return scenario, all(fits) and same(scenario.params, plain.params)

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
    scenario, _ = staged(pictures(), images=12)
    assert any("all images are attacked" in note for note in scenario.notes)


@pytest.mark.parametrize(("init", "wanted"), [("he", 2), ("pytorch", 1 / 3)])
def test_the_network_of_a_table_is_drawn_by_the_named_scheme(init: str, wanted: float) -> None:
    """The variance of weights times the inputs of their layer: He's 2, PyTorch's a third."""
    scenario, _ = staged(table_source(people()), init=init, hidden=(500,))
    weight = next(iter(scenario.params.values()))
    assert float(weight.var() * weight.shape[1]) == pytest.approx(wanted, rel=0.15)


def test_trained_weights_are_the_ones_that_are_attacked(tmp_path: Path) -> None:
    model = build(
        "lenet", channels=3, classes=CLASSES, side=SIDE, generator=torch_stream(9, "other")
    )
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    scenario, _ = staged(pictures(), weights=str(tmp_path / "w.safetensors"))
    assert same(params_of(model), scenario.params)
    assert not same(params_of(model), staged(pictures())[0].params)


@pytest.mark.parametrize(
    ("net", "side", "untrained", "trained"),
    [("lenet", 8, 1e-4, 1e-2), ("lenet", 64, 1e-4, 1e-2), ("lenet", 65, 1e-3, 1e-1),
     ("resnet50", 32, 1e-3, 1e-1)],
)  # fmt: skip
def test_agic_has_the_settings_of_the_network_that_is_attacked(
    net: str, side: int, untrained: float, trained: float
) -> None:
    """Loaded weights count as trained; the paper's total variation depends on network and image."""
    common = {"data": "cifar10", "net": net, "side": side, "method": ("agic",)}
    fresh, loaded = (
        Attempt(InversionSpec(**common, weights=weights), "agic").settings
        for weights in (None, "w.pt")
    )
    assert (fresh.total_variation, loaded.total_variation) == (untrained, trained)
    assert (fresh.objective.beta, loaded.objective.beta) == (50.0, 2.0)
    own = Attempt(InversionSpec(**common, weights="w.pt"), "agic:beta=9").settings
    assert (own.objective.beta, own.total_variation) == (9.0, trained)


# --- playing ------------------------------------------------------------------------


def test_records_come_in_the_truth_s_order_within_an_update_alone() -> None:
    truth = torch.arange(6.0).view(3, 2, 1)
    assert torch.equal(in_true_order(truth.flip(1) + 0.1, truth), truth.flatten(0, 1) + 0.1)
    moved = in_true_order(truth.roll(1, 0), truth)  # another update's records stay there
    assert torch.equal(moved, truth.roll(1, 0).flatten(0, 1))


@pytest.fixture
def intercepted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Scenario], None]:
    """Whatever truth is scored against, clients send the records of the scenario given here."""

    def use(scenario: Scenario) -> None:
        def send(task, params, x, y, client, *, seed):
            own_x = scenario.x.reshape(x.shape)
            return original(task, params, own_x, scenario.y.reshape(y.shape), client, seed=seed)

        monkeypatch.setattr(updates, "send", send)

    original = updates.send
    return use


@pytest.mark.parametrize("labels", ["inferred", "known"])
@pytest.mark.parametrize("method", ["agic", "dlg-adam"])
def test_the_truth_is_for_scoring_alone(intercepted, method: str, labels: str) -> None:
    """Once the updates are sent, another truth changes the scores and nothing that was found."""
    scenario, attempt = staged(pictures(), method=method, labels=labels)
    truth = replace(scenario, x=scenario.x.flip(3))
    if labels == "inferred":
        truth = replace(truth, y=(scenario.y + 1) % CLASSES)
    intercepted(scenario)
    one, other = rebuild(scenario, attempt), rebuild(truth, attempt)
    assert torch.equal(one.x, other.x)
    assert not torch.equal(one.scores["psnr"], other.scores["psnr"])
    assert one.curves["loss"] == other.curves["loss"]
    if labels == "inferred" and method == "agic":
        assert one.scores["label_accuracy"].tolist() == [1.0] * 4
        assert other.scores["label_accuracy"].tolist() == [0.0] * 4


def test_labels_reach_the_attack_only_where_granted(intercepted) -> None:
    scenario, attempt = staged(pictures(), method="agic", labels="known")
    intercepted(scenario)
    lied = replace(scenario, y=(scenario.y + 1) % CLASSES)
    assert not torch.equal(rebuild(scenario, attempt).x, rebuild(lied, attempt).x)


@pytest.mark.parametrize("size", [1, 2])
def test_scores_are_those_of_the_records(size: int) -> None:
    source = pictures()
    scenario, attempt = staged(source, batch_size=size)
    played = rebuild(scenario, attempt)
    truth = source.pixels[:4] / 255.0
    assert np.allclose(played.truth.numpy(), truth, atol=1e-6)
    error = ((played.x.numpy() - truth) ** 2).reshape(4, -1).mean(axis=1)
    assert np.allclose(played.scores["psnr"].numpy(), -10 * np.log10(error), atol=1e-4)
    assert "ssim" not in played.scores  # its window needs 11 pixels
    assert len(played.scores["label_accuracy"]) == 4 // size
    mean = source.pixels[4:].mean(axis=(0, 2, 3), keepdims=True)[0] / 255
    guess = -10 * np.log10(((mean - truth) ** 2).reshape(4, -1).mean(axis=1)).mean()
    assert played.chance["psnr"] == pytest.approx(guess, abs=1e-4)


def test_the_curve_of_psnr_ends_where_the_search_does() -> None:
    scenario, attempt = staged(
        pictures(), method="inverting-gradients", batch_size=2, iterations=10
    )
    played = rebuild(scenario, attempt)
    steps = [at for at, _ in played.curves["psnr"]]
    assert steps == sorted(steps)
    assert (steps[0], steps[-1]) == (0, 10)
    assert played.curves["loss"][-1][1] < played.curves["loss"][0][1]
    assert played.curves["loss"][-1][0] == 10


def test_more_iterations_come_nearer() -> None:
    few, many = (
        rebuild(*staged(pictures(), net="slim", method="agic", iterations=n)).scores["psnr"].mean()
        for n in (1, 30)
    )
    assert many > few + 3


def test_several_epochs_use_all_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict = {}

    def joint(task, epochs, plan, settings, **given):
        seen.update(epochs=epochs, plan=plan, labels=given["labels"])
        return original(task, epochs, plan, settings, **given)

    original = over_epochs.joint_reconstruct
    monkeypatch.setattr(over_epochs, "joint_reconstruct", joint)
    source = pictures()
    settings = {"batch_size": 2, "epochs": 3, "server_lr": 0.5, "labels": "known", "iterations": 1}
    scenario, attempt = staged(source, **settings)
    played = rebuild(scenario, attempt)

    model, now = scenario.task.model, dict(scenario.params)
    dealt = [stream(attempt.spec.seed, "epoch", number).permutation(4) for number in (1, 2)]
    for epoch, order in zip(seen["epochs"], [np.arange(4), *dealt], strict=True):
        for update, one in enumerate(torch.as_tensor(order.copy()).split(2)):
            # The server steps after each update, so that the next one starts elsewhere.
            assert same(now, {name: leaf[update] for name, leaf in epoch.params.items()})
            leaves = {name: leaf.clone().requires_grad_() for name, leaf in now.items()}
            out = torch.func.functional_call(model, leaves, (scenario.x[one],))
            torch.nn.functional.cross_entropy(out, scenario.y[one]).backward()
            for name, leaf in leaves.items():
                sent = epoch.grads[name][update]
                torch.testing.assert_close(sent, leaf.grad, atol=1e-6, rtol=1e-4)
                now[name] = now[name] - 0.5 * sent
    assert list(seen["plan"].members.shape) == [3, 2, 2]
    assert torch.equal(seen["labels"], scenario.y)
    assert sorted(played.rounds) == [1, 2, 3]
    for name in ("matching_greedy", "matching_optimal", "matching_gradients"):
        assert len(played.scores[name]) == 2
    records = measurements_of(attempt, "pictures", played)
    single = {r.round for r in records if r.metric == "psnr"}
    assert single == {1, 2, 3, ACCUMULATED}


RULES = {"all": "joint_reconstruct", "per-sample": "per_sample_reconstruct"}


@pytest.mark.parametrize("rule", JOINTS)
@pytest.mark.parametrize("matching", [name for name in MATCHINGS if name != "known"])
def test_the_joint_search_is_by_the_matching_and_the_rule_that_were_asked_for(
    matching: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each way to match gives a different plan here; the joint search receives one of them."""
    plans = {
        name: EpochPlan(torch.tensor([[[0, 1], [2, 3]], second]))
        for name, second in {
            "greedy": [[0, 1], [2, 3]],
            "optimal": [[0, 2], [1, 3]],
            "gradients": [[1, 2], [0, 3]],
        }.items()
    }
    begun, used = [], []

    def settle(task, epochs, plan, settings, **given):
        begun.append(plan)
        return plans["gradients"]

    def joint(task, epochs, plan, settings, **given):
        used.append(plan)
        return original(task, epochs, plan, settings, **given)

    original = getattr(over_epochs, RULES[rule])
    monkeypatch.setattr(over_epochs, "match_epochs", lambda *_, method, **__: plans[method])
    monkeypatch.setattr(over_epochs, "refine_assignment", settle)
    monkeypatch.setattr(over_epochs, RULES[rule], joint)
    asked = {"batch_size": 2, "epochs": 2, "labels": "known", "iterations": 1}
    asked |= {"matching": matching, "joint": rule}
    played = rebuild(*staged(pictures(), **asked))
    assert used == [plans[matching]]
    assert begun == ([plans["optimal"]] if matching == "gradients" else [])
    assert ("matching_gradients" in played.scores) == (matching == "gradients")


@pytest.mark.parametrize(
    ("iterations", "rough", "searches"),
    [(6, None, [6, 6]), (6, 2, [2, 6, 2, 6]), (2001, None, [2000, 2001, 2000, 2001])],
)
def test_rough_images_have_a_shorter_search(
    iterations: int, rough: int | None, searches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are matched in each epoch, and a search at full length is scored."""
    played: list[tuple[int, Tensor]] = []
    matched: list[Tensor] = []

    def attack(task, sent, method, known, options):
        shorter = replace(method, settings=replace(method.settings, iterations=1))
        found = original(task, sent, shorter, known, options)
        x = found.x + 0.01 * method.iterations
        played.append((method.iterations, x))
        return replace(found, x=x)

    def match(images, labels, **given):
        matched.extend(images)
        return match_epochs(images, labels, **given)

    original = updates.attack
    monkeypatch.setattr(updates, "attack", attack)
    monkeypatch.setattr(over_epochs, "match_epochs", match)
    monkeypatch.setattr(
        over_epochs,
        "joint_reconstruct",
        lambda *given, **named: joint_reconstruct(
            *given[:3], replace(given[3], iterations=1), **named
        ),
    )
    settings = {"epochs": 2, "iterations": iterations, "rough_iterations": rough, "joint": "all"}
    given = {"labels": "known", "matching": "greedy", "batch_size": 4}  # one update an epoch
    scenario, attempt = staged(pictures(), **given, **settings)
    found = rebuild(scenario, attempt)
    assert [one for one, _ in played] == searches
    step = len(searches) // 2
    for epoch in range(2):
        assert torch.equal(matched[epoch], played[epoch * step][1])
    whole = in_true_order(played[step - 1][1], scenario.x[None])
    wished = scenario.scorer().scores(whole, scenario.x)["psnr"]
    torch.testing.assert_close(found.rounds[1]["psnr"], wished)


@pytest.mark.slow
def test_two_epochs_of_two_images_match_and_help() -> None:
    """Distinct labels name the records, so the matching is right."""
    scenario, attempt = staged(
        pictures(),
        images=2,
        epochs=2,
        net="slim",
        method="agic:total_variation=0.01",
        iterations=120,
        labels="known",
        matching="gradients",
        joint="all",
    )
    played = rebuild(scenario, attempt)
    assert played.scores["matching_gradients"].tolist() == [1.0]
    assert played.scores["matching_optimal"].tolist() == [1.0]
    assert played.scores["matching_greedy"].tolist() == [1.0]
    single = max(float(played.rounds[at]["psnr"].mean()) for at in (1, 2))
    assert float(played.scores["psnr"].mean()) > single + 1


def test_equal_cells_give_equal_figures() -> None:
    one, other = (rebuild(*staged(pictures(), batch_size=2)) for _ in range(2))
    assert torch.equal(one.x, other.x)
    assert not torch.equal(rebuild(*staged(pictures(), batch_size=2, seed=1)).x, one.x)


def test_exact_recovery_of_rows_and_of_what_it_cannot_tell() -> None:
    frame = people()
    scenario, attempt = staged(table_source(frame), method="exact")
    played = rebuild(scenario, attempt)
    torch.testing.assert_close(played.x, scenario.x, atol=1e-4, rtol=1e-4)
    columns = (f"columns: {name}" for name in ("height", "town", "sex", "age"))
    names = {"columns", "records", "cells", *columns}
    assert set(played.scores) == names
    assert all(values.tolist() == [1.0] * 4 for values in played.scores.values())
    # A net of one unit blends the records of a batch; what is not recovered is the guess.
    scenario, attempt = staged(table_source(frame), method="exact", batch_size=4, hidden=(1,))
    blended = rebuild(scenario, attempt)
    assert blended.scores["columns"].mean() < 1
    assert any(torch.equal(row, scenario.guess) for row in blended.x)


def test_exact_recovery_after_local_steps() -> None:
    scenario, attempt = staged(table_source(people()), method="exact", local_steps=2, hidden=(300,))
    assert rebuild(scenario, attempt).scores["columns"].mean() > rebuilt_by_guess(scenario)


def rebuilt_by_guess(scenario: Scenario) -> float:
    return measuring.chance_of(scenario)["columns"]


def test_the_guess_of_a_row_is_the_most_frequent_value() -> None:
    frame = people()
    scenario, _ = staged(table_source(frame))
    chance = measuring.chance_of(scenario)
    for name in ("town", "sex"):
        usual = frame[name][4:].mode()[0]
        assert chance[f"columns: {name}"] == (frame[name][:4] == usual).mean()


# --- measurements and records -------------------------------------------------------


def test_records_hold_means_with_student_intervals() -> None:
    scenario, attempt = staged(pictures(), labels="known")
    played = rebuild(scenario, attempt)
    by_name = {r.metric: r for r in measurements_of(attempt, "pictures", played)}
    named = {"psnr", "recognisable", "gain", "label_accuracy", "loss", "matched", "seconds"}
    assert set(by_name) == named | {"fell_short"}
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
    _, attempt = staged(pictures(), labels="inferred")
    blank = torch.zeros(len(values), 3, SIDE, SIDE)
    played = Rebuilt(blank, blank, {name: torch.tensor(values)}, {}, 1.0)
    record, time = measurements_of(attempt, "pictures", played)
    assert time.metric == "seconds"
    plain, found = mean_estimate(torch.tensor(values)), record.estimate
    assert found.low == pytest.approx(plain.low if ends[0] is None else ends[0])
    assert found.high == pytest.approx(plain.high if ends[1] is None else ends[1])
    assert found.low <= found.value <= found.high


def test_a_loss_that_never_was_finite_leaves_the_other_figures() -> None:
    _, attempt = staged(pictures())
    blank = torch.zeros(2, 3, SIDE, SIDE)
    played = Rebuilt(blank, blank, {"psnr": torch.ones(2)}, {"loss": ()}, 1.0)
    found = measurements_of(attempt, "pictures", played)
    assert [record.metric for record in found] == ["psnr", "seconds"]


def test_what_is_kept_of_images_is_their_bytes(tmp_path: Path) -> None:
    source = pictures(MOST_RECORDS + 12)
    scenario, attempt = staged(source, images=MOST_RECORDS + 2, iterations=1)
    played = rebuild(scenario, attempt)
    keep_records(tmp_path, scenario.schema, [played, played])
    (kept,) = tmp_path.iterdir()
    found = load_file(kept)
    assert set(found) == {"truth", "0", "1"}
    assert np.array_equal(found["truth"].numpy(), source.pixels[:MOST_RECORDS])
    assert len(found["0"]) == MOST_RECORDS
    assert (found["0"] / 255 - played.x[:MOST_RECORDS]).abs().max() <= 0.5001 / 255


def test_what_is_kept_of_rows_are_their_values(tmp_path: Path) -> None:
    frame = people()
    frame.loc[1, "height"] = np.nan
    frame.loc[20, "height"] = np.nan
    scenario, _ = staged(table_source(frame))
    assert scenario.schema is not None
    age, height = (
        next(c.start for c in scenario.schema.columns if c.name == name)
        for name in ("age", "height")
    )
    found = scenario.x.clone()
    found[0, height] += 0.04  # of a standard deviation: still right
    found[0, age] += 0.06  # no more
    keep_records(tmp_path, scenario.schema, [Rebuilt(found, scenario.x, {}, {}, 1.0)])
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
