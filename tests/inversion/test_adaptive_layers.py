"""Attackers who know that only some layers are changed: they rebuild no less than who does not."""

import pytest

from leakgauge.core.rng import torch_stream
from leakgauge.defenses import parse_defense
from leakgauge.defenses.layers import AdaptedOnLayers
from leakgauge.gradients.gradients import params_of
from leakgauge.inversion.search.adaptive import FEW, RelativeError, adapted_settings
from leakgauge.inversion.search.layer_weights import objective_of
from leakgauge.inversion.search.objective import Cosine
from leakgauge.inversion.search.presets import preset
from support.pictures import error_of, gradients_of_pictures, picture_network, smooth_pictures


@pytest.mark.parametrize("text", ["sign:layers=first", "sign:layers=2+5"])
def test_who_knows_the_layers_rebuilds_more(text: str) -> None:
    """The first: 3 % of the coordinates, which are left out; the second: 97 %."""
    truth = smooth_pictures(4)
    defense = parse_defense(text, batch_size=1)
    rngs = [torch_stream(0, "row", row) for row in range(4)]
    sent = defense.update(gradients_of_pictures(truth), rngs)
    plain = preset("leakgauge", iterations=150)
    knowing = adapted_settings(plain, defense, picture_network(), sent)
    static, adaptive = (error_of(one, sent, truth) for one in (plain, knowing))
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
