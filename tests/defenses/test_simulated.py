"""A user's own transform that anybody can compute hides nothing from who knows it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.core.types import Grads
from leakgauge.defenses import Chain, Defense, SignTransform, parse_defense
from leakgauge.defenses.simulated import DefendedGuess, has_slope
from leakgauge.defenses.transform import Transform
from leakgauge.inversion.search.adaptive import adapted, adapted_settings, adapts
from leakgauge.inversion.search.objective import SquaredError
from leakgauge.inversion.search.presets import preset
from support.pictures import error_of, gradients_of_pictures, picture_network, smooth_pictures


@dataclass(frozen=True)
class Own(Transform):
    """A transform of each leaf, as a user writes it."""

    change: Callable[[Tensor], Tensor]

    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        return {name: self.change(leaf) for name, leaf in grads.items()}


def shuffled(leaf: Tensor) -> Tensor:
    flat = leaf.flatten(1)
    order = torch.randperm(flat.shape[1], generator=torch.Generator().manual_seed(3))
    return flat[:, order].view_as(leaf)


HIDES_NOTHING = {
    "other signs": lambda leaf: -leaf,
    "another order": shuffled,
    "an offset": lambda leaf: leaf + 0.05,
    "in place": lambda leaf: leaf.mul_(-1),
}
NO_SLOPE = {
    "rounded": lambda leaf: (10 * leaf).round() / 10,
    "without torch": lambda leaf: torch.from_numpy(-leaf.detach().numpy()),
    "another shape": lambda leaf: leaf.flatten(),
    "fails": lambda leaf: leaf[:, 1000],
}


@pytest.mark.parametrize("name", HIDES_NOTHING)
def test_who_applies_it_to_the_guess_rebuilds_the_pictures(name: str) -> None:
    truth = smooth_pictures(4)
    defense = Defense("own", update=Own(HIDES_NOTHING[name]))
    sent = defense.update(gradients_of_pictures(truth), [])
    plain = preset("leakgauge", iterations=150)
    assert adapts(plain, defense)
    knowing = adapted_settings(plain, defense, picture_network(), sent)
    errors = [error_of(settings, sent, truth) for settings in (plain, knowing)]
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.parametrize("name", NO_SLOPE)
def test_without_a_slope_no_attack_adapts(name: str) -> None:
    transform = Own(NO_SLOPE[name])
    assert not has_slope(transform.centre)
    assert transform.adapt(SquaredError()) is None
    assert not adapts(preset("leakgauge"), Defense("own", update=transform))


def test_one_that_fails_later_is_named_in_one_line() -> None:
    def change(leaf: Tensor) -> Tensor:
        if leaf.shape[-1] == 5:
            raise ValueError("five is too many")
        return -leaf

    objective = Own(change).adapt(SquaredError())
    assert isinstance(objective, DefendedGuess)
    five = {"w": torch.ones(1, 5)}
    with pytest.raises(InputError, match=r"Own cannot be applied .*: ValueError: five is too"):
        objective(five, five)


def test_the_built_in_ones_attack_as_before() -> None:
    for text in ("quantise:levels=4", "svt", "clip:l2=1", "fixed-clipping:norm=1"):
        defense = parse_defense(text, batch_size=1)
        assert not isinstance(defense.adapt(SquaredError()), DefendedGuess)
    both = Chain((SignTransform(), SignTransform()))
    assert both.adapt(SquaredError()) is None
    with pytest.raises(InputError, match="no attack adapts"):
        adapted(SquaredError(), Defense("own", update=Own(NO_SLOPE["rounded"])))
