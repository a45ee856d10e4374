"""The question of layers on data whose answer is known: a planted property, and a shuffled one."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from leakgauge.core.checks import InputError
from leakgauge.core.types import Dataset, Task
from leakgauge.data import Source
from leakgauge.layers.question import QUESTION
from leakgauge.layers.report.as_json import as_json
from leakgauge.layers.report.rows import advice_of, layer_rows
from leakgauge.layers.spec import LayersSpec
from leakgauge.runs.question import Answer, Silent
from leakgauge.runs.work import WorkFolder
from support.planted import Planted, odd, planted, source_of

SMALL = {
    "task": "mine:build",
    "batch_size": 16,
    "shadow_batches": 200,
    "held_out": 160,
    "trials": 200,
    "kernel_records": 100,
    "records": 20,
}

BRIEF = {"shadow_batches": 80, "held_out": 60, "trials": 60, "kernel_records": 40}
"""For tests whose assertions hold at any size of the samples."""


def run_question(source, folder: Path, **settings) -> Answer:
    spec = LayersSpec(**{**SMALL, **settings})
    QUESTION.check(spec)
    return QUESTION.run(QUESTION.prepare(spec, source), WorkFolder(folder), Silent(), workers=1)


@pytest.fixture(scope="module")
def answer(tmp_path_factory) -> Answer:
    """Before any training, when the property's layer has weights of zero."""
    return run_question(
        planted(seed=0), tmp_path_factory.mktemp("planted"), rounds=0, under=0.35, held_out=300
    )


def test_a_planted_property_is_found_in_its_layer_alone(answer: Answer) -> None:
    rows = {row.name: row for row in layer_rows(answer.measurements)}
    share = {name: row.figures["v_information_share"].estimate for name, row in rows.items()}
    assert share["aside"].value > 0.9
    for name in ("body", "head"):
        assert share[name].low <= 0.0 <= share[name].high
        auroc = rows[name].figures["auroc"].estimate
        assert auroc.low <= 0.5 <= auroc.high


def test_the_advice_names_the_layer_and_the_attack_without_it_is_at_chance(answer: Answer) -> None:
    advice = advice_of(answer.measurements)
    assert advice is not None
    assert advice.layers == ("aside",)
    assert advice.before.value > 0.9
    assert advice.before.low > 0.35
    assert advice.after.low <= 0.0 <= advice.after.high
    assert advice.holds


def test_the_family_sees_each_batch_once(monkeypatch, tmp_path: Path) -> None:
    def made_anew(*_: object) -> None:
        raise AssertionError("a gradient was made that no record has")

    monkeypatch.setattr("leakgauge.inference.adversaries.shadow.Shadow._whole", made_anew)
    answer = run_question(planted(seed=1), tmp_path, rounds=0, under=0.9, **BRIEF)
    names = {one.adversary for one in answer.measurements if one.metric == "auroc: aside"}
    assert names == {"forest", "logistic", "network"}


def test_a_run_that_goes_on_has_the_same_figures(tmp_path: Path) -> None:
    folder, source = tmp_path / "work", planted(seed=0)
    few = {"rounds": 2, "adversary": ("logistic",), **BRIEF}
    answer = run_question(source, tmp_path / "whole", **few)
    calls: list[str] = []

    class Killed(Silent):
        def step(self, what: str, done: int, of: int, note: str = "") -> None:
            calls.append(what)
            if what.endswith("private batches") and done == 2:
                raise KeyboardInterrupt

    spec = LayersSpec(**{**SMALL, **few})
    with pytest.raises(KeyboardInterrupt):
        QUESTION.run(QUESTION.prepare(spec, source), WorkFolder(folder), Killed(), workers=1)
    again = QUESTION.run(QUESTION.prepare(spec, source), WorkFolder(folder), Silent(), workers=1)
    assert again.measurements == answer.measurements


def test_json_has_the_layers_in_forward_order(answer: Answer, tmp_path: Path) -> None:
    found = as_json(answer, tmp_path)
    assert [one["name"] for one in found["layers"]] == ["body", "head", "aside"]
    first = found["layers"][0]
    assert first["kind"] == "linear"
    assert first["parameters"] == 88
    for key in ("auroc", "v_information"):
        assert set(first[key]) == {"value", "low", "high"}
    assert {"printed_f", "raw_1", "median_inf"} <= set(first["sensitivity"])
    assert first["kernel_information"]["bits"]["high"] > 0
    assert found["advice"]["hide"] == ["aside"]
    assert found["advice"]["advantage_before"]["value"] > 0.9
    # 95 of 100 records have one label, which the untrained model may name for all of them
    assert set(found["utility"]) == {"accuracy", "balanced_accuracy"}
    assert abs(found["utility"]["balanced_accuracy"]["value"] - 0.5) < 0.2


@pytest.mark.slow
def test_a_shuffled_property_shows_no_information(tmp_path: Path) -> None:
    held = 0
    for seed in range(20):
        source = planted(seed=seed, shuffled=True)
        found = run_question(source, tmp_path / str(seed), rounds=0, seed=seed)
        rows = layer_rows(found.measurements)
        each = [row.figures["v_information"].estimate for row in rows]
        held += all(one.low <= 0 <= one.high for one in each)
    assert held >= 18


def test_a_defense_of_one_layer_is_advised_and_verified(tmp_path: Path) -> None:
    """Noise far above the gradient leaves nothing of the layer that it is added to."""
    settings = {"rounds": 0, "under": 0.35, "adversary": ("logistic",)}
    found = run_question(planted(seed=1), tmp_path, protect="noise:std=10", **settings)
    advice = advice_of(found.measurements)
    assert advice is not None
    assert advice.layers == ("aside",)
    assert advice.after.low <= 0.0 <= advice.after.high


def test_layers_of_every_kind_are_measured(tmp_path: Path) -> None:
    adversaries = ("logistic", "energies")
    found = run_question(odd(seed=0), tmp_path, adversary=adversaries, rounds=2, **BRIEF)
    rows = layer_rows(found.measurements)
    kinds = {row.name: row.kind for row in rows}
    assert kinds["words"] == "embedding"
    assert kinds["convolution"] == "convolution"
    assert kinds["norm"] == "normalisation"
    assert any(name.startswith("attention") for name in kinds)
    assert [rows[0].name, rows[-1].name] == ["words", "last"]
    assert rows[0].figures["auroc"].estimate.value > 0.9, "the word with the property moves its row"
    assert {name for row in rows for name in row.each} == {"logistic", "energies"}


def test_several_values_coordinates_and_fedavg_play(tmp_path: Path) -> None:
    source = planted(seed=2)
    assert source.dataset is not None
    codes = torch.from_numpy(np.random.default_rng(0).integers(3, size=len(source.dataset)))
    data = replace(source.dataset, secrets={"p": codes})
    three = replace(source, dataset=data)
    found = run_question(
        three, tmp_path, adversary=("forest:trees=10",), coordinates=5, local_steps=2, rounds=3
    )
    shares = [row.figures["v_information_share"].estimate for row in layer_rows(found.measurements)]
    assert all(one.low <= 0 <= one.high for one in shares), "the values are random"


def test_the_softmax_over_votes_ends_at_0_548_bits(tmp_path: Path) -> None:
    settings = {"adversary": ("forest",), "calibration": "softmax-votes", "rounds": 0}
    found = run_question(planted(seed=0), tmp_path, **settings)
    rows = {row.name: row for row in layer_rows(found.measurements)}
    assert 0.53 < rows["aside"].figures["v_information"].estimate.value <= 0.5485


def test_bad_input_gets_one_clear_line(tmp_path: Path) -> None:
    source = planted(seed=0)
    assert source.dataset is not None
    single = source_of(Task(torch.nn.Linear(11, 2)), source.dataset)
    one_value = replace(
        source, dataset=replace(source.dataset, secrets={"p": torch.zeros(2400, dtype=torch.int64)})
    )
    cases = (
        (source, {"layers": ("bodi",)}, "no layer 'bodi'.*body"),
        (single, {}, "one layer with parameters .'model'.*bring a deeper one"),
        (one_value, {}, "one value .'0'.*nothing can be inferred"),
        (source, {"secret": "q"}, "--secret is 'q'"),
        (source, {"under": 1.5}, "under is 1.5; expected an advantage between 0 and 1"),
        (source, {"adversary": ("forest:batches=50",)}, "names its batches.*set shadow_batches"),
        (source, {"adversary": ("encoder",)}, "'encoder' does not infer a property; choose"),
        (source, {"protect": "dpsgd:clip=1,noise=1"}, "layers"),
        (source, {"local_steps": 2, "adversary": ("energies",)}, "local_steps"),
    )
    for given, settings, wanted in cases:
        with pytest.raises(InputError, match=wanted) as caught:
            run_question(given, tmp_path, **settings)
        assert "\n" not in str(caught.value)


def test_the_model_stays_unchanged(tmp_path: Path) -> None:
    source = planted(seed=3)
    assert source.task is not None
    before = {name: leaf.clone() for name, leaf in source.task.model.state_dict().items()}
    run_question(source, tmp_path, adversary=("logistic",), rounds=2)
    assert isinstance(source.task.model, Planted)
    assert source.task.model.training
    after = source.task.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_records_of_all_sides_are_apart() -> None:
    from leakgauge.layers.run.preparing import prepare

    source = planted(seed=0)
    users = torch.arange(2400) // 4
    data = replace(source.dataset, users=users) if isinstance(source.dataset, Dataset) else None
    for given in (source, replace(source, dataset=data)):
        spec = LayersSpec(**SMALL, participants=3)
        sides = prepare(spec, given).sides
        parts = [sides.private, sides.fitting, *sides.held_out, *sides.others, sides.test]
        owners = users if given is not source else torch.arange(2400)
        groups = [set(owners[part].tolist()) for part in parts]
        assert sum(map(len, groups)) == len(set().union(*groups))


def test_participants_train_by_any_optimizer() -> None:
    """With several local steps it is theirs; the model then ends elsewhere."""
    from leakgauge.layers.run.preparing import prepare
    from leakgauge.layers.run.training import rounds

    source, ends = planted(seed=0), []
    for optimizer in ("sgd", "sgd:momentum=0.9", "sgd:momentum=0"):
        spec = LayersSpec(**SMALL, rounds=1, local_steps=3, optimizer=optimizer)
        (last,) = rounds(prepare(spec, source))
        ends.append(torch.cat([leaf.flatten() for leaf in last.values()]))
    assert torch.equal(ends[0], ends[2])
    assert not torch.allclose(ends[0], ends[1])
    with pytest.raises(InputError, match="optimizer 'adm' is not known"):
        QUESTION.check(LayersSpec(**SMALL, optimizer="adm"))


def faces(side: int) -> Source:
    """Return noise images with a label and a secret."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.choice(["a", "b"], 1200) for name in ("label", "secret")})
    pixels = rng.integers(0, 256, (1200, 3, side, side), dtype=np.uint8)
    return Source("faces", frame, pixels, None, "fingerprint")


def test_the_first_weights_are_drawn_as_asked() -> None:
    from leakgauge.layers.run.preparing import prepare

    images = {"label": "label", "secret": "secret", "net": "alexnet", "batch_size": 4, "side": 16}
    biases = {}
    for init in ("pytorch", "xavier"):
        model = prepare(LayersSpec(**images, init=init), faces(16)).task.model
        biases[init] = torch.cat([m.bias for m in model if hasattr(m, "bias")])
    assert biases["pytorch"].all()
    assert not biases["xavier"].any()
    with pytest.raises(InputError, match="--init is about a TABLE; with --task"):
        prepare(LayersSpec(**SMALL, init="xavier"), planted(seed=0))


def test_images_have_the_side_that_was_asked_for() -> None:
    from leakgauge.layers.run.preparing import prepare

    asked = {"label": "label", "secret": "secret", "net": "alexnet", "batch_size": 4}
    prepared = prepare(LayersSpec(**asked, side=16), faces(16))
    assert prepared.data.x.shape[1:] == (3, 16, 16)
    with pytest.raises(InputError, match=r"layers\.side is 64, but .* with 16 pixels"):
        prepare(LayersSpec(**asked, side=64), faces(16))
