"""A user's own transform that anybody can compute hides nothing from who knows it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.core.types import Grads
from leakgauge.defenses import Chain, Defense, GaussianNoise, SignTransform, parse_defense
from leakgauge.defenses.coverage import undone
from leakgauge.defenses.simulated import DefendedGuess, moves_alike, slope_of
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
}
NOT_COMPUTED = {
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


def three_values(leaf: Tensor) -> Tensor:
    """Return signs where a coordinate passes the mean size of its row, else 0, without a slope."""
    flat = leaf.detach().flatten(1)
    size = flat.square().mean(1, keepdim=True).sqrt()
    return (flat.sign() * (flat.abs() > size) * size).view_as(leaf)


def test_without_a_slope_the_search_goes_as_if_it_were_the_identity() -> None:
    truth = smooth_pictures(4)
    defense = Defense("own", update=Own(three_values))
    sent = defense.update(gradients_of_pictures(truth), [])
    plain = preset("leakgauge", iterations=150)
    knowing = adapted_settings(plain, defense, picture_network(), sent)
    errors = [error_of(settings, sent, truth) for settings in (plain, knowing)]
    assert errors[1] < errors[0]


@pytest.mark.parametrize("name", NO_SLOPE)
def test_without_a_slope_it_compares_the_same_as_the_transform(name: str) -> None:
    transform = Own(NO_SLOPE[name])
    assert slope_of(transform.centre) is False
    objective = transform.adapt(SquaredError())
    assert objective is not None
    guess = {"w": torch.randn(2, 6, generator=torch.Generator().manual_seed(0))}
    assert float(objective(guess, transform(guess, [])).abs().max()) < 1e-12
    other = {"w": guess["w"].clone().requires_grad_()}
    objective(other, {"w": guess["w"] + 1}).sum().backward()
    assert other["w"].grad is not None
    passed = SquaredError()(transform(guess, []), {"w": guess["w"] + 1})
    assert objective(guess, {"w": guess["w"] + 1}).tolist() == pytest.approx(passed.tolist())
    slope = 2 * (transform(guess, [])["w"] - guess["w"] - 1)
    assert other["w"].grad.flatten().tolist() == pytest.approx(slope.flatten().tolist())


@pytest.mark.parametrize("name", NOT_COMPUTED)
def test_no_attack_adapts_to_one_that_cannot_be_computed(name: str) -> None:
    transform = Own(NOT_COMPUTED[name])
    assert slope_of(transform.centre) is None
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
        adapted(SquaredError(), Defense("own", update=Own(NOT_COMPUTED["fails"])))


def test_of_single_records_the_transform_of_each_one_is_known() -> None:
    each = Defense("own", per_example=Own(HIDES_NOTHING["other signs"]))
    assert not each.is_known
    alone = each.of_single_records()
    assert alone.is_known
    assert isinstance(alone.adapt(SquaredError()), DefendedGuess)
    sent = gradients_of_pictures(smooth_pictures(4))
    found = alone.update(sent, [])
    assert all(torch.equal(found[name], -leaf) for name, leaf in sent.items())


def test_a_chain_with_a_user_s_transform_is_computed_as_a_whole() -> None:
    chain = Chain((Own(HIDES_NOTHING["an offset"]), SignTransform()))
    objective = chain.adapt(SquaredError())
    assert isinstance(objective, DefendedGuess)
    guess = {"w": torch.randn(1, 5, generator=torch.Generator().manual_seed(0))}
    assert float(objective(guess, chain(guess, []))) == 0.0
    assert not Chain((Own(NOT_COMPUTED["fails"]), SignTransform())).is_known


@pytest.mark.parametrize("text", ["sign", "svt", "dpsgd:clip=1,noise=1", "perturb", "prune"])
def test_the_built_in_ones_are_known(text: str) -> None:
    assert parse_defense(text, batch_size=2).is_known
    assert parse_defense(text, batch_size=1).of_single_records().is_known


@pytest.mark.parametrize("name", ["other signs", "another order", "an offset"])
def test_a_transform_that_anybody_can_undo_is_doubted(name: str) -> None:
    own = Own(HIDES_NOTHING[name])
    assert moves_alike(own)
    (line,) = undone("mine:build", Defense("mine:build", update=own))
    assert line.startswith("`mine:build` changes all gradients alike")
    (line,) = undone("mine:build", Defense("mine:build", per_example=own))
    noisy = Chain((own, GaussianNoise(0.1)))
    assert [*undone("mine:build", Defense("mine:build", update=noisy))] == []


@pytest.mark.parametrize("change", [*NO_SLOPE.values(), *NOT_COMPUTED.values(), three_values])
def test_one_that_loses_something_is_not_doubted(change: Callable[[Tensor], Tensor]) -> None:
    if change is NO_SLOPE["without torch"]:
        assert moves_alike(Own(change))
    else:
        assert not moves_alike(Own(change))
