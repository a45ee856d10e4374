"""Attackers who know that only some layers are changed: they rebuild no less than who does not."""

import pytest
import torch
from torch import Tensor, nn

from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Task
from leakgauge.defenses import parse_defense
from leakgauge.defenses.layers import AdaptedOnLayers
from leakgauge.gradients.gradients import params_of
from leakgauge.inversion.double_backward.gradients import differentiable_gradients
from leakgauge.inversion.search.adaptive import FEW, RelativeError, adapted_settings
from leakgauge.inversion.search.engine import reconstruct
from leakgauge.inversion.search.layer_weights import objective_of
from leakgauge.inversion.search.objective import Cosine
from leakgauge.inversion.search.presets import preset
from leakgauge.inversion.search.settings import SearchSettings
from support.pictures import picture_network, smooth_pictures


def error_of(settings: SearchSettings, task: Task, sent: dict[str, Tensor], truth: Tensor) -> float:
    """Return the mean squared error of the records that a search rebuilds."""
    limits = {"low": torch.tensor(-1.0), "high": torch.tensor(1.0)}
    labels = torch.arange(len(truth))[:, None]
    shape = (1, *truth.shape[1:])
    params = params_of(task.model)
    found = reconstruct(task, params, sent, settings, shape=shape, labels=labels, seed=0, **limits)
    return float((found.x[:, 0] - truth).square().mean())


@pytest.mark.parametrize("text", ["sign:layers=first", "sign:layers=2+5"])
def test_who_knows_the_layers_rebuilds_more(text: str) -> None:
    """The first: 3 % of the coordinates, which are left out; the second: 97 %."""
    task = Task(picture_network(), nn.functional.cross_entropy)
    truth = smooth_pictures(4)
    clean = differentiable_gradients(
        task, params_of(task.model), truth[:, None], torch.arange(4)[:, None]
    )
    defense = parse_defense(text, batch_size=1)
    rngs = [torch_stream(0, "row", row) for row in range(4)]
    sent = defense.update({name: leaf.detach() for name, leaf in clean.items()}, rngs)
    plain = preset("leakgauge", iterations=150)
    knowing = adapted_settings(plain, defense, task.model, sent)
    static, adaptive = (error_of(one, task, sent, truth) for one in (plain, knowing))
    assert adaptive < 0.7 * static


@pytest.mark.parametrize("name", ["leakgauge", "inverting-gradients", "agic", "dlg-adam"])
def test_few_changed_layers_are_left_out_and_the_search_stays_as_it_is(name: str) -> None:
    model, plain = picture_network(), preset(name)
    changed = adapted_settings(plain, parse_defense("sign:layers=first", batch_size=1), model)
    assert changed.objective.layers == ("2.weight", "2.bias", "5.weight", "5.bias")
    assert changed.total_variation == plain.total_variation
    assert not changed.rescale
    whole = objective_of(plain.objective, model)
    assert type(changed.objective) is type(whole)
    many = adapted_settings(plain, parse_defense("sign:layers=5", batch_size=1), model)
    assert isinstance(many.objective, AdaptedOnLayers)


def test_who_compares_some_layers_leaves_out_the_changed_ones_of_them() -> None:
    model, defense = picture_network(), parse_defense("sign:layers=first", batch_size=1)
    some = preset("inverting-gradients", objective=Cosine(layers=("0.weight", "5.bias")))
    assert adapted_settings(some, defense, model).objective == Cosine(layers=("5.bias",))
    for other in (Cosine(layers=("0.weight",)), RelativeError()):  # nothing left, or not ours
        own = adapted_settings(preset("inverting-gradients", objective=other), defense, model)
        assert isinstance(own.objective, AdaptedOnLayers)


def test_the_share_of_a_layer_decides() -> None:
    params = params_of(picture_network())
    shares = {
        layers: parse_defense(f"sign:layers={layers}", batch_size=1).update.share(params)
        for layers in ("first", "2", "last")
    }
    assert shares == pytest.approx({"first": 160 / 5365, "2": 2320 / 5365, "last": 2885 / 5365})
    assert shares["first"] < FEW < shares["2"]
