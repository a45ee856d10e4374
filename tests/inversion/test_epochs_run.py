"""Several epochs as a user asks for them: rules, rounds, FedAvg, and what the settings refuse."""

from typing import Any

import pytest
import torch

from leakgauge.core.checks import InputError
from leakgauge.inversion.checking import check
from leakgauge.inversion.run import over_epochs
from leakgauge.inversion.run.answering import rebuild
from leakgauge.inversion.run.attempt import Attempt, EpochRules, attempts_of
from leakgauge.inversion.run.measuring import measurements_of
from leakgauge.inversion.run.over_epochs import OverEpochs
from leakgauge.inversion.run.preparing import prepare
from leakgauge.inversion.run.scenario import Scenario, scenario_of
from leakgauge.inversion.spec import InversionSpec
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.runs.spec import make_spec
from support.sources import pictures

pytestmark = pytest.mark.usefixtures("few_scales")


def spec_of(**settings: Any) -> InversionSpec:
    common = {"data": "pictures", "images": 4, "net": "lenet", "iterations": 1, "epochs": 2}
    spec = make_spec(InversionSpec, {**common, "method": "agic", **settings})
    assert isinstance(spec, InversionSpec)
    check(spec)
    return spec


def staged(**settings: Any) -> tuple[Scenario, Attempt]:
    source = pictures()
    resolved = prepare(spec_of(**settings), source).spec
    (attempt,) = attempts_of(resolved)
    return scenario_of(source, resolved), attempt


@pytest.mark.parametrize(
    ("settings", "rules"),
    [
        ({}, EpochRules("greedy", "per-sample", 0.1)),
        ({"method": "agic:lr=0.2"}, EpochRules("greedy", "per-sample", 0.1)),
        ({"method": "leakgauge"}, EpochRules("gradients", "all", 1.0)),
        ({"joint": "all"}, EpochRules("greedy", "all", 1.0)),
        (
            {"method": "leakgauge", "joint": "per-sample"},
            EpochRules("gradients", "per-sample", 0.1),
        ),
        ({"joint": "all", "gamma": 0.1}, EpochRules("greedy", "all", 0.1)),
        ({"matching": "optimal", "gamma": 0.5}, EpochRules("optimal", "per-sample", 0.5)),
    ],
)
def test_the_rules_are_the_paper_s_for_agic_and_ours_for_others(
    settings: dict[str, Any], rules: EpochRules
) -> None:
    _, attempt = staged(**settings)
    assert attempt.rules == rules
    spec = attempt.spec
    assert (spec.matching, spec.joint, spec.gamma) == (rules.matching, rules.joint, rules.later)


def test_a_rule_stays_open_where_methods_differ_in_it() -> None:
    spec = prepare(spec_of(method=("agic", "leakgauge")), pictures()).spec
    assert (spec.matching, spec.joint, spec.gamma) == (None, None, None)
    assert [one.rules.joint for one in attempts_of(spec)] == ["per-sample", "all"]
    assert prepare(spec, pictures()).spec == spec


@pytest.mark.parametrize(
    ("settings", "rate"),
    [
        ({}, 0.01),
        ({"local_steps": 2, "local_lr": 0.25}, 0.5),
        ({"local_steps": 2, "server_lr": 3.0}, 3.0),
    ],
)
def test_the_rate_of_the_server(settings: dict[str, Any], rate: float) -> None:
    assert staged(**settings)[1].spec.server_lr == rate


def test_averaging_gives_the_client_s_own_weights() -> None:
    """FedAvg of one client: the next update starts where the client's two steps ended."""
    scenario, attempt = staged(local_steps=2, local_lr=0.25, labels="known")
    (first, _) = OverEpochs(scenario, attempt, None, None, Checkpoint(None)).singles
    now = dict(scenario.params)
    for step in range(2):
        leaves = {name: leaf.clone().requires_grad_() for name, leaf in now.items()}
        x, y = scenario.x[step : step + 1], scenario.y[step : step + 1]
        out = torch.func.functional_call(scenario.task.model, leaves, (x,))
        torch.nn.functional.cross_entropy(out, y).backward()
        now = {name: leaf.detach() - 0.25 * leaf.grad for name, leaf in leaves.items()}
    for name, leaf in now.items():
        torch.testing.assert_close(first.seen.params[name][1], leaf, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("joint", ["per-sample", "all"])
@pytest.mark.parametrize("labels", ["known", "gradinversion"])
def test_fedavg_over_two_epochs_runs(joint: str, labels: str) -> None:
    """Table III: four local steps; updates of both epochs are known to have the same records."""
    settings = {"images": 8, "local_steps": 4, "joint": joint, "labels": labels, "draw": "random"}
    granted = {"same_batches": True, "matching": "known", "server_lr": 0.1}
    if labels == "gradinversion":  # CLASSES is 3, so three steps of distinct labels
        settings |= {"images": 6, "local_steps": 3, "draw": "distinct"}
    scenario, attempt = staged(**settings, **granted)
    played = rebuild(scenario, attempt)
    assert sorted(played.rounds) == [1, 2]
    assert len(played.scores["psnr"]) == settings["images"]
    figures = measurements_of(attempt, "pictures", played)
    assert {one.round for one in figures if one.metric == "psnr"} == {1, 2, "accumulated"}


def test_the_known_matching_is_the_true_one(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = []

    def joint(task, epochs, plan, settings, **given):
        plans.append(plan)
        return original(task, epochs, plan, settings, **given)

    original = over_epochs.per_sample_reconstruct
    monkeypatch.setattr(over_epochs, "per_sample_reconstruct", joint)
    scenario, attempt = staged(matching="known", labels="known", batch_size=2)
    singles = OverEpochs(scenario, attempt, None, None, Checkpoint(None)).singles
    rebuild(scenario, attempt)
    for number, one in enumerate(singles):
        assert torch.equal(plans[0].members[number], one.order)
    assert not torch.equal(singles[0].order, singles[1].order)


def test_later_epochs_keep_labels_apart_and_same_batches_keep_records() -> None:
    scenario, attempt = staged(images=12, batch_size=3, iterations=1, epochs=3)
    for one in OverEpochs(scenario, attempt, None, None, Checkpoint(None)).singles:
        assert all(len(set(scenario.y[held].tolist())) == 3 for held in one.order)
    scenario, attempt = staged(batch_size=2, same_batches=True, iterations=1)
    one, other = OverEpochs(scenario, attempt, None, None, Checkpoint(None)).singles
    assert torch.equal(one.order, other.order)


def test_rough_images_come_from_a_shorter_search() -> None:
    scenario, attempt = staged(images=2, iterations=6, rough_iterations=1)
    (one, _) = OverEpochs(scenario, attempt, None, None, Checkpoint(None)).singles
    long = staged(images=2, iterations=6)
    (other, _) = OverEpochs(*long, None, None, Checkpoint(None)).singles
    assert not torch.equal(one.rough, other.rough)
    assert torch.equal(one.scores["psnr"], other.scores["psnr"])


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"defense": "sign"}, "without a defense"),
        ({"local_steps": 2, "simulate": True}, "leave out --simulate"),
        ({"method": "exact", "net": "mlp"}, "leave out --epochs"),
        ({"matching": "known"}, "--labels known, or --same-batches"),
        ({"matching": "some"}, "--matching is 'some'"),
        ({"joint": "some"}, "--joint is 'some'"),
        ({"gamma": 0.0}, "--gamma is 0.0"),
        *(
            ({"epochs": 1, name: value}, f"--{name.replace('_', '-')} is about several epochs")
            for name, value in (
                ("server_lr", 0.1), ("same_batches", True), ("matching", "greedy"),
                ("rough_iterations", 5), ("joint", "all"), ("gamma", 0.5),
            )
        ),
        ({"first": 3}, "write draw: first"),
        ({"classes": 1}, "--classes is 1"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason) as refused:
        spec_of(**settings)
    assert "\n" not in str(refused.value)


def test_a_head_of_more_classes() -> None:
    """Labels that are numbers of outputs keep their number, as those of a sample of ImageNet."""
    source = pictures()
    frame = source.frame.assign(y=10 * source.frame["y"])
    for classes, labels in ((1000, {0, 10, 20}), (7, {0, 1, 2})):
        spec = spec_of(classes=classes, epochs=1, draw="first")
        one = type(source)("pictures", frame, source.pixels, None, "0" * 64)
        scenario = scenario_of(one, prepare(spec, one).spec)
        assert scenario.task.model(scenario.x).shape == (4, classes)
        assert set(scenario.y.tolist()) == labels
    with pytest.raises(InputError, match="--classes is 2, and the data have 3"):
        prepare(spec_of(classes=2, epochs=1), source)


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({"simulate": True, "labels": "inferred"}, True),
        ({"simulate": True, "labels": "gradinversion"}, True),
        ({"simulate": True, "labels": "known"}, False),
        ({"simulate": True, "labels": "inferred", "method": "dlg-adam"}, False),
        ({"labels": "inferred"}, False),
    ],
)
def test_a_simulation_with_inferred_labels_is_warned_of(
    settings: dict[str, Any], warned: bool
) -> None:
    scenario, attempt = staged(epochs=1, local_steps=2, **settings)
    texts = rebuild(scenario, attempt).warnings
    assert any("ascending order" in text for text in texts) == warned


def test_the_method_of_inference_is_the_one_that_was_asked_for() -> None:
    """gradinversion gives distinct labels also where the true ones are not."""
    for labels, count in (("gradinversion", 3), ("counts", None)):
        scenario, attempt = staged(
            epochs=1, images=3, batch_size=3, labels=labels, draw="random", method="dlg-adam"
        )
        played = rebuild(scenario, attempt)
        assert len(played.scores["label_accuracy"]) == 1
        if count:
            truth = set(scenario.y.tolist())
            assert float(played.scores["label_accuracy"][0]) == pytest.approx(len(truth) / 3)


def test_epochs_that_show_no_labels_are_refused_before_any_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that steps far along one record's gradient has learned it: nothing is left."""
    monkeypatch.setattr(over_epochs, "attack_updates", lambda *_, **__: pytest.fail("it searched"))
    scenario, attempt = staged(images=1, server_lr=1e6, labels="gradinversion")
    with pytest.raises(InputError, match=r"epoch 2: the gradient of .* is all zero.*--server-lr"):
        OverEpochs(scenario, attempt, None, None, Checkpoint(None)).rebuild()
