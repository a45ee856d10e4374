"""Who knows that small coordinates were dropped and large ones cut compares what is left."""

import pytest
import torch

from leakgauge.defenses.percentile import LargestCompared, LargestOnly, PercentilePrivacy
from leakgauge.inversion.search.adaptive import adapted_settings
from leakgauge.inversion.search.objective import Cosine, SquaredError
from leakgauge.inversion.search.presets import preset
from support.pictures import error_of, gradients_of_pictures, picture_network, smooth_pictures

GENERATOR = torch.Generator().manual_seed(0)
GRADS = {
    "w": torch.randn(3, 40, 5, generator=GENERATOR, dtype=torch.float64),
    "b": torch.randn(3, 20, generator=GENERATOR, dtype=torch.float64),
    "single": 1e-3 * torch.randn(3, generator=GENERATOR, dtype=torch.float64),  # passes whole
}


@pytest.mark.parametrize("percentile", [0, 10, 50, 90])
@pytest.mark.parametrize("gamma", [0.1, 1.0, 100.0])
def test_true_gradients_are_at_no_distance(percentile: float, gamma: float) -> None:
    sent = LargestOnly(percentile, gamma)(GRADS, [])
    measured = LargestOnly(percentile, gamma).adapt(SquaredError())(GRADS, sent)
    cut = torch.cat([sent[name].flatten(1) for name in ("w", "b")], dim=1).abs()
    for row, distance in zip(cut, measured, strict=True):
        if float(row[row > 0].min()) < float(row.max()):  # values are left, not signs alone
            assert float(distance) == pytest.approx(0.0, abs=1e-12)
    cosine = LargestOnly(percentile, gamma).adapt(Cosine())
    assert bool((cosine(GRADS, sent) < 0.1).all())
    others = {name: leaf.flip(0) for name, leaf in GRADS.items()}
    assert bool((cosine(others, sent)[[0, 2]] > 0.5).all())


@pytest.mark.parametrize("gamma", [0.3, 1.0])
def test_slopes_are_those_of_finite_differences(gamma: float) -> None:
    sent = LargestOnly(50, 1.0)(GRADS, [])
    assert isinstance(LargestOnly().adapt(SquaredError()), LargestCompared)
    objective = LargestOnly(50, 1.0).adapt(SquaredError())
    guess = {name: (gamma * leaf).requires_grad_() for name, leaf in GRADS.items()}

    def value(*leaves: torch.Tensor) -> torch.Tensor:
        return objective(dict(zip(guess, leaves, strict=True)), sent)

    assert torch.autograd.gradcheck(value, list(guess.values()))


@pytest.mark.parametrize(("percentile", "gamma"), [(10, 0.01), (50, 0.001)])
def test_who_knows_the_defense_rebuilds_more(percentile: float, gamma: float) -> None:
    truth = smooth_pictures(4)
    defense = PercentilePrivacy(percentile, gamma).build(batch_size=1)
    sent = defense.update(gradients_of_pictures(truth), [])
    plain = preset("leakgauge", iterations=200)
    knowing = adapted_settings(plain, defense, picture_network(), sent)
    errors = [error_of(settings, sent, truth) for settings in (plain, knowing)]
    assert errors[1] < 0.8 * errors[0]
