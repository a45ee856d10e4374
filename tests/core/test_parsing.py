"""Defenses and attacks as users spell them."""

import pytest

from leakgauge.core.checks import InputError
from leakgauge.core.parsing import read
from leakgauge.inversion.checking import check
from leakgauge.inversion.methods import method_of
from leakgauge.inversion.search.layer_weights import DepthWeights, LayerWeights
from leakgauge.inversion.search.presets import PRESETS
from leakgauge.inversion.spec import InversionSpec

KINDS = {"one": {"rate": float, "whole": bool, "count": int, "word": str}, "two": {}}


def test_every_kind_of_value_is_read() -> None:
    found = read(" one : rate = 1e-3 ,whole=1,count=3,word=cubic", KINDS, "thing")
    assert found == ("one", {"rate": 1e-3, "whole": True, "count": 3, "word": "cubic"})
    assert read("two", KINDS, "thing") == ("two", {})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("onne", "thing 'onne' is not known; did you mean 'one'?"),
        ("two:a=1", "thing 'two' takes no settings"),
        ("one:rat=1", "has no setting 'rat'; did you mean 'rate'?"),
        ("one:rate=1,rate=2", "sets 'rate' twice"),
        ("one:rate=x", "one: rate is 'x'; expected a number"),
        ("one:count=1.5", "expected a whole number"),
        ("one:whole=yes", "expected 0 or 1"),
        ("one:", "has no setting ''"),
    ],
)
def test_what_is_not_known_is_refused(text: str, says: str) -> None:
    with pytest.raises(InputError, match=r"thing|one") as error:
        read(text, KINDS, "thing")
    assert says in str(error.value)


@pytest.mark.parametrize("name", PRESETS)
def test_a_bare_name_is_the_preset(name: str) -> None:
    whole = PRESETS[name].iterations
    assert method_of(name, iterations=whole).settings == PRESETS[name]


def test_settings_of_search_and_layers_are_told_apart() -> None:
    found = method_of(
        "agic:function=linear,beta=5,relu=0,schedule=cosine,boxed=1,lr=0.05,patience=9"
    ).settings
    assert found.objective == LayerWeights("linear", beta=5.0, relu=False)
    assert (found.schedule, found.boxed, found.lr, found.patience) == ("cosine", True, 0.05, 9)
    ours = method_of("leakgauge:maximum=10,form=layers").settings
    assert ours.objective == DepthWeights(10.0, "layers")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("agi", "did you mean 'agic'?"),
        ("agic:function=steep", "function of the layer weights"),
        ("agic:lr=0", "lr"),
        ("agic:optimizer=sgd", "optimizer"),
        ("agic:iterations=3", "has no setting 'iterations'"),
        ("inverting-gradients:beta=2", "has no setting 'beta'"),
        ("exact:lr=1", "takes no settings"),
    ],
)
def test_attacks_that_make_no_sense_are_refused(text: str, says: str) -> None:
    with pytest.raises(InputError) as error:
        check(InversionSpec(data="cifar10", method=(text,)))
    assert says in str(error.value)
