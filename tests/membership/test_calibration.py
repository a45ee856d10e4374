"""Attacks on an untrained model guess; attacks on a model that memorised are right."""

from math import sqrt

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from leakgauge.membership.catalog import ADVERSARIES, parse_attack
from leakgauge.membership.run.answering import run_attack
from leakgauge.membership.run.target_model import TargetModel
from support.worlds import world

UNTRAINED, MEMORISED = 600, 1200
"""Records; two fifths of a quarter are target members."""

QUICK = {name: f"{name}:epochs=4" for name in ("gradients", "white-box", "shadow", "spectral")}
QUICK |= {name: f"{name}:epochs=4" for name in ("label-loss", "label", "probabilities")}
QUICK["hidden-outputs"] = "hidden-outputs:epochs=4"

SHORTER = {name: f"{name}:epochs=8" for name in ("shadow", "spectral", "gradients")}
"""Attacks that train longest, and see what a model memorised after a few epochs."""

OUTPUTS_ALONE = ("probabilities", "hidden-outputs", "confidence")
"""Attacks without labels, which learn less from random labels."""


def auroc(attack: str, of: TargetModel, *, seed: int) -> float:
    said = run_attack(parse_attack(attack), of, fitted_at=of, seed=seed)
    return float(roc_auc_score(of.targets.member, said.targets))


def guessing_error(records: int, *, seeds: int = 1) -> float:
    """Standard error of the mean AUROC where nothing leaks (Mann and Whitney)."""
    targets = records // 10
    return sqrt((2 * targets + 1) / (12 * targets * targets) / seeds)


@pytest.fixture(scope="module")
def untrained() -> list[TargetModel]:
    return [world(count=UNTRAINED, seed=seed, epochs=0, references=2) for seed in range(4)]


@pytest.fixture(scope="module")
def memorised() -> TargetModel:
    return world(count=MEMORISED, seed=0, epochs=32, references=2)


SELDOM = ("white-box", "spectral", "kmeans")
"""Attacks on gradients, as the attack of this name."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=pytest.mark.slow) if one in SELDOM else one for one in ADVERSARIES],
)
def test_an_attack_on_an_untrained_model_guesses(name: str, untrained: list[TargetModel]) -> None:
    found = [auroc(QUICK.get(name, name), one, seed=at) for at, one in enumerate(untrained)]
    assert abs(np.mean(found) - 0.5) < 4 * guessing_error(UNTRAINED, seeds=4), found


@pytest.fixture(scope="module")
def twenty() -> list[TargetModel]:
    return [world(count=UNTRAINED, seed=seed, epochs=0, references=2) for seed in range(20)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ADVERSARIES)
def test_an_attack_on_twenty_untrained_models_guesses(name: str, twenty: list[TargetModel]) -> None:
    found = [auroc(name, one, seed=at) for at, one in enumerate(twenty)]
    assert abs(np.mean(found) - 0.5) < 4 * guessing_error(UNTRAINED, seeds=20), found


@pytest.mark.parametrize("name", ADVERSARIES)
def test_an_attack_on_a_model_that_memorised_is_right(name: str, memorised: TargetModel) -> None:
    found = auroc(SHORTER.get(name, name), memorised, seed=0)
    assert found > 0.95 or name in OUTPUTS_ALONE
    assert found > 0.5 + 4 * guessing_error(MEMORISED)
