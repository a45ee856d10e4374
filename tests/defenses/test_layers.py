"""Defenses of some layers: the others stay bit-equal, and no trait claims what no longer holds."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from leakgauge.core.checks import InputError
from leakgauge.core.types import Task
from leakgauge.defenses import (
    Chain,
    ClipNorm,
    Defense,
    GaussianNoise,
    Layers,
    OnLayers,
    SignTransform,
    parse_defense,
)
from leakgauge.gradients import batch_gradients, params_of
from leakgauge.inference.catalog import panel_of
from leakgauge.inference.checking import attacks_for
from leakgauge.inference.spec import InferenceSpec
from leakgauge.inversion.search.adaptive import adapted, adapts
from leakgauge.inversion.search.engine import reconstruct
from leakgauge.inversion.search.objective import Cosine, SquaredError
from leakgauge.inversion.search.presets import preset
from leakgauge.models import initialise
from leakgauge.privacy.certificates import UNLIMITED, guarantees

SENDS = ["prune:rate=0.9", "prune:rate=0.9,whole=1", "sign", "noise:std=0.1", "quantise:levels=2"]
RUN = {"batch_size": 4, "records": 40, "rounds": 1, "parameters": 9, "prior": (0.5, 0.5)}


@pytest.fixture
def task() -> Task:
    model = nn.Sequential()
    model.add_module("body", nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4), nn.Tanh()))
    model.add_module("head", nn.Linear(4, 3))
    generator = torch.Generator().manual_seed(0)
    return Task(initialise(model, generator=generator), nn.functional.cross_entropy)


@pytest.fixture
def grads(task: Task) -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(1)
    x, y = torch.randn(3, 4, 6, generator=rng), torch.randint(0, 3, (3, 4), generator=rng)
    return dict(batch_gradients(task, params_of(task.model), x, y))


def rngs(first: int = 0) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(first + row) for row in range(3)]


def defended(text: str) -> Defense:
    return parse_defense(text, batch_size=4)


def on(text: str, layers: str) -> Defense:
    return defended(f"{text}{',' if ':' in text else ':'}layers={layers}")


@pytest.mark.parametrize("text", SENDS)
@pytest.mark.parametrize(
    ("layers", "held"),
    [
        ("first", ["body.0"]),
        ("last", ["head"]),
        ("body.2", ["body.2"]),
        ("body.0+head", ["body.0", "head"]),
        (" last + first ", ["body.0", "head"]),
        ("first+body.0", ["body.0"]),
        ("first+body.2+last", ["body.0", "body.2", "head"]),
    ],
)
def test_other_layers_stay_and_these_change_as_by_themselves(text, layers, held, grads) -> None:
    found = on(text, layers).update(grads, rngs())
    assert list(found) == list(grads)
    own = {name: leaf for name, leaf in grads.items() if name.rpartition(".")[0] in held}
    wanted = defended(text).update(own, rngs())
    for name, leaf in grads.items():
        assert torch.equal(found[name], wanted.get(name, leaf)), name
    assert any(not torch.equal(found[name], grads[name]) for name in own)
    assert {name for name in grads if not torch.equal(found[name], grads[name])} <= set(own)


def test_all_layers_are_the_defense_without_a_choice(grads) -> None:
    for text in SENDS:
        found = on(text, "first+body.2+last").update(grads, rngs())
        for name, leaf in defended(text).update(grads, rngs()).items():
            assert torch.equal(found[name], leaf)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ("bdy.2", "no layer 'bdy.2'; did you mean 'body.2'?"),
        ("first+frist", "no layer 'frist'; did you mean 'first'?"),
        ("body", "no layer 'body'; did you mean"),
        ("body.1", "no layer 'body.1'; did you mean"),  # Tanh has no gradient
    ],
)
def test_an_unknown_layer_is_one_line_when_the_model_is_met(layers, message, task, grads) -> None:
    defense = on("prune:rate=0.9", layers)
    generator = torch.Generator()
    for meet in (
        lambda: defense.prepare(task, shape=(6,), generator=generator),
        lambda: defense.check(task),
        lambda: replace(defense, update=Chain((SignTransform(), defense.update))).check(task),
        lambda: defense.update(grads, rngs()),
    ):
        with pytest.raises(InputError) as caught:
            meet()
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
    assert on("sign", "body.2").prepare(task, shape=(6,), generator=generator) is task


def test_a_word_that_is_also_a_module_s_name_is_refused() -> None:
    assert Layers(("first",)).parameters(["first.weight", "b.weight"]) == ["first.weight"]
    with pytest.raises(InputError, match="'last' is the last layer, 'b', and also the name of ano"):
        Layers(("last",)).parameters(["last.weight", "b.weight"])


@pytest.mark.parametrize("layers", ["", "+", "0+", "0++3"])
def test_an_empty_word_is_refused(layers) -> None:
    with pytest.raises(InputError, match="expected first, last or names of layers, joined by"):
        on("sign", layers)


@pytest.mark.parametrize("text", ["dpsgd:clip=2,noise=0.1", "dpsgd", "clip:l2=1", "vib", "perturb"])
def test_defenses_of_the_whole_gradient_refuse_layers(text) -> None:
    with pytest.raises(InputError, match=r"takes no layers, as .*; leave layers= out") as caught:
        on(text, "first")
    assert "\n" not in str(caught.value)
    defended(text)


@pytest.mark.parametrize("text", SENDS)
def test_the_name_is_read_as_the_same_defense(text) -> None:
    defense = on(text, "0+last")
    assert defense.name.endswith("layers=0+last")
    assert parse_defense(defense.name, batch_size=4) == defense


def test_noise_on_some_layers_promises_nothing(grads) -> None:
    whole, part = defended("noise:std=0.1"), on("noise:std=0.1", "first+body.2+last")
    assert (whole.noise_std, part.noise_std) == (pytest.approx(0.1), 0.0)
    assert [one.adds_noise for one in (whole, part, on("sign", "first"))] == [True, True, False]
    # Behind clipping, noise on all coordinates is a release; noise on named layers is none.
    clipped = [replace(one, per_example=ClipNorm(1.0)) for one in (whole, part)]
    assert clipped[0].release is not None
    assert clipped[1].release is None
    after = Chain((part.update, GaussianNoise(0.1)))
    assert replace(clipped[0], update=after).release is None
    promised = guarantees(clipped[1].release, **RUN)
    assert (promised["epsilon"], promised["note"]) == (None, UNLIMITED)
    # An adversary that leaves out the noise it can reckon with still simulates this one.
    known = part.without_noise().update(grads, rngs())
    assert not torch.equal(known["body.0.weight"], grads["body.0.weight"])


def test_clipping_some_layers_is_no_clipping() -> None:
    part = OnLayers(Layers(("first",)), ClipNorm(1.0))
    assert ClipNorm(1.0).clip_norm == 1.0
    assert part.clip_norm is None
    assert Defense("x", per_example=part, update=GaussianNoise(1.0)).release is None


def test_the_size_is_kept_where_the_layers_keep_it() -> None:
    assert on("noise:std=0.1", "first").keeps_size
    assert not on("sign", "first").keeps_size
    assert not on("prune:rate=0.5", "last").keeps_size


def test_noise_on_some_layers_calls_the_adversary_of_all_rounds() -> None:
    spec = InferenceSpec(ask=("property",), rounds=2, batches="reuse")
    wanted = panel_of("property", all_rounds=True)
    for text in ("noise:std=0.1", "noise:std=0.1,layers=first"):
        assert attacks_for(spec, "property", defended(text)).panel == wanted
    assert attacks_for(spec, "property", defended("sign:layers=first")).panel != wanted


@pytest.mark.parametrize("text", SENDS)
@pytest.mark.parametrize("objective", [SquaredError(), Cosine()], ids=["squared", "cosine"])
def test_an_adaptive_attacker_compares_each_part_by_what_it_knows(text, objective, grads) -> None:
    """Against the same distances, taken by hand of the two parts."""
    defense = on(text, "body.2+last")
    assert adapts(preset("inverting-gradients"), defense)
    sent = defense.update(grads, rngs())
    guess = {name: leaf.flip(0) + 0.1 for name, leaf in grads.items()}
    parts = [[name for name in grads if name.startswith(start)] for start in ("body.0", "")]
    plain, changed = parts[0], [name for name in grads if name not in parts[0]]
    wanted = objective({n: guess[n] for n in plain}, {n: sent[n] for n in plain})
    own = defended(text).adapt(objective)
    if own is not None:
        sizes = {name: leaf[0].numel() for name, leaf in grads.items()}
        weight = sum(sizes[name] for name in changed) / sum(sizes.values())
        theirs = own({n: guess[n] for n in changed}, {n: sent[n] for n in changed})
        wanted = (1 - weight) * wanted + weight * theirs
    found = adapted(objective, defense)(guess, sent)
    torch.testing.assert_close(found, wanted)


def test_where_nothing_is_left_to_compare_it_is_said(grads) -> None:
    defense = on("quantise:levels=2", "first+body.2+last")
    sent = defense.update(grads, rngs())
    with pytest.raises(InputError, match="are all layers of the model, and no attack adapts"):
        adapted(Cosine(), defense)(grads, sent)


def test_the_unchanged_layers_rebuild_a_record(task) -> None:
    """Quantising the last layer does not stop an attacker who knows it: the first reveals it."""
    params, x = params_of(task.model), torch.linspace(-1, 1, 6)[None, None]
    y = torch.tensor([[1]])
    sent = on("quantise:levels=1", "last").update(batch_gradients(task, params, x, y), rngs()[:1])
    settings = preset("dlg-adam", iterations=250, joint_labels=False)
    knowing = adapted(SquaredError(), on("quantise:levels=1", "last"))
    errors = []
    for objective in (SquaredError(), knowing):
        attack = replace(settings, objective=objective)
        rebuilt = reconstruct(task, params, sent, attack, shape=(1, 6), labels=y, seed=0)
        errors.append(float((rebuilt.x - x).abs().max()))
    assert errors[1] < 0.01
    assert errors[0] > 0.1
