"""Layers to protect when single layers show little and several together show much."""

from types import SimpleNamespace

import numpy as np
import pytest
from statsmodels.stats.proportion import proportion_confint

from leakgauge.inference.adversaries.calibration import HeldOut
from leakgauge.layers.run.advising import AdviceInputs, advantage_of, search, searched
from leakgauge.layers.run.judging import LayerJudgement
from leakgauge.layers.spec import LayersSpec


def judgement(strength: float, seed: int) -> LayerJudgement:
    """An attack whose log-odds lie ``strength`` standard deviations apart."""
    rng = np.random.default_rng(seed)
    secret = np.arange(400) % 2
    halves = []
    for _ in range(2):
        odds = strength * (2 * secret - 1) + rng.normal(size=400)
        halves.append(HeldOut(np.stack([0 * odds, odds], axis=1), secret))
    return LayerJudgement("", "made", (halves[0], halves[1]), np.zeros((1, 2)))


NOTHING = {name: judgement(0.0, seed) for seed, name in enumerate("abcdef")}


@pytest.mark.parametrize(("together", "hidden"), [("ab", 1), ("abcdef", 1), ("", 0)])
def test_layers_that_leak_only_together_are_separated(together: str, hidden: int) -> None:
    layers = [SimpleNamespace(name=name, parameters=(name,)) for name in NOTHING]
    fits: list[str] = []

    def judge(_view, seen, _sees):
        names = "".join(one.name for one in seen)
        fits.append(names)
        tells = together and set(together) <= set(names)
        return [judgement(3.0 if tells else 0.0, 9)]

    whole = judgement(3.0 if together else 0.0, 9)
    inputs = AdviceInputs(layers, None, NOTHING, whole, judge, None)  # type: ignore[arg-type]
    found, attacker = searched(LayersSpec(under=0.3), inputs)
    assert set(found.protect) & set(together) or not together
    assert len(found.protect) >= hidden
    assert attacker.own <= 0.3
    assert len(fits) <= 3  # one layer is hidden, then three, then all


def test_a_promise_is_the_upper_end_of_an_interval() -> None:
    one = judgement(1.0, 5)
    right = np.concatenate([(half.log_odds[:, 1] > 0) == half.secret for half in one.held_out])
    upper = proportion_confint(right.sum(), len(right), alpha=0.1, method="normal")[1]
    assert advantage_of(one) == pytest.approx(2 * upper - 1, abs=0.02)  # a shift is fitted, too
    assert advantage_of(judgement(0.0, 5)) < 0.15


def test_a_layer_that_is_not_needed_stays_unprotected() -> None:
    exposed = {"a": judgement(2.0, 1), "b": judgement(0.0, 2), "c": judgement(1.5, 3)}
    found = search(exposed, {}, under=0.3)
    assert found.protect == ("a", "c")
    assert found.before >= advantage_of(exposed["a"]) > 0.9
    assert search(exposed, {}, under=0.3, least=3).protect == ("a", "b", "c")
    # a layer behind a protection that changes nothing still leaks
    assert search(exposed, exposed, under=0.3).protect == ("a", "b", "c")
