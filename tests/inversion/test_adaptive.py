"""Attackers who know the defense: what they compare, and that it helps them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import InputError
from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Grads
from leakgauge.defenses import Pruned, PruneTransform, SignTransform, SoftSigns, parse_defense
from leakgauge.defenses.sign import with_zeros
from leakgauge.inversion.search.adaptive import (
    TOTAL_VARIATION,
    RelativeError,
    adapted,
    adapted_settings,
)
from leakgauge.inversion.search.layer_weights import objective_of
from leakgauge.inversion.search.objective import Cosine, Objective, SquaredError
from leakgauge.inversion.search.presets import preset
from support.defenses import vib
from support.pictures import picture_network, smooth_pictures

ROWS = 3
ADAPTIVE = (Pruned(Cosine()), Pruned(SquaredError()), SoftSigns(Cosine()), RelativeError())


def gradients(name: str) -> dict[str, Tensor]:
    rng = torch_stream(0, name)
    shapes = {"w": (4, 5), "b": (4,), "s": ()}
    return {
        key: torch.randn(ROWS, *shape, generator=rng, dtype=torch.float64)
        for key, shape in shapes.items()
    }


def dead(grads: Grads) -> Grads:
    """With a parameter that has no gradient at all."""
    return {**grads, "w": torch.zeros_like(grads["w"])}


def rngs() -> list[torch.Generator]:
    return [torch_stream(0, "row", row) for row in range(ROWS)]


def literal_pruned(found: Grads, sent: Grads, row: int, whole: bool) -> dict[str, Tensor]:
    """Coordinate by coordinate."""
    kept = {
        name: [
            (float(f), float(s))
            for f, s in zip(found[name][row].flatten(), sent[name][row].flatten(), strict=True)
            if s != 0
        ]
        for name in sent
    }
    pairs = [pair for of_name in kept.values() for pair in of_name]
    ours, theirs = (sum(pair[side] ** 2 for pair in pairs) ** 0.5 for side in (0, 1))
    least = {
        name: min(abs(s) for _, s in (pairs if whole else kept[name])) * ours / theirs
        for name in sent
    }

    def left(f: float, s: float, limit: float) -> float:
        beyond = max(abs(f) - limit, 0.0)
        return f if s != 0 else (beyond if f > 0 else -beyond)

    return {
        name: torch.tensor(
            [[left(float(f), float(s), least[name]) for f, s in zip(
                found[name][row].flatten(), sent[name][row].flatten(), strict=True)]],
            dtype=torch.float64,
        ).view(1, *sent[name].shape[1:])
        for name in sent
    }  # fmt: skip


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("objective", [Cosine(), SquaredError()])
def test_pruned_compares_what_was_sent_and_what_should_have_been(
    objective: Objective, whole: bool
) -> None:
    found = gradients("found")
    sent = PruneTransform(0.6, whole)(
        {**gradients("sent"), "s": torch.full((ROWS,), 9.0).double()}, rngs()
    )
    wanted = [
        objective(
            literal_pruned(found, sent, row, whole), {k: v[row : row + 1] for k, v in sent.items()}
        )
        for row in range(ROWS)
    ]
    assert torch.allclose(Pruned(objective, whole)(found, sent), torch.cat(wanted), atol=1e-12)


def test_the_true_gradient_is_at_the_bottom() -> None:
    """Only an attacker who knows the defense sees no fault in the truth."""
    true = gradients("true")
    pruned = PruneTransform(0.7)(true, rngs())
    assert Pruned(Cosine())(true, pruned).abs().max() < 1e-12
    assert (
        Pruned(Cosine(), whole=True)(true, PruneTransform(0.7, True)(true, rngs())).abs().max()
        < 1e-12
    )
    assert Pruned(Cosine(), whole=True)(true, pruned).max() > 0.01  # not the defense it knows
    assert Cosine()(true, pruned).min() > 0.01
    signs = SignTransform()(true, rngs())
    assert SoftSigns(Cosine(), 1e-3)(true, signs).abs().max() < 1e-3
    assert Cosine()(true, signs).min() > 0.01


@pytest.mark.parametrize("batch", [1, 3])
def test_signs_of_one_bit_show_which_inputs_of_a_layer_are_0(batch: int) -> None:
    """No coordinate that is not 0 is taken for one, and the inputs that are 0 are found."""
    model = nn.Sequential(
        nn.Conv2d(2, 24, 3, stride=2), nn.ReLU(), nn.Flatten(),
        nn.Linear(216, 40), nn.ReLU(), nn.Linear(40, 10),
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(3)
        for leaf in model.parameters():
            nn.init.normal_(leaf, std=0.3)
        x, y = torch.randn(batch, 2, 8, 8), torch.arange(batch)
    cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
    found = 0
    for name, leaf in model.named_parameters():
        assert leaf.grad is not None
        true = leaf.grad[None]
        (sent,) = SignTransform(one_bit=True)({name: true}, rngs()).values()
        zeros = with_zeros(sent) == 0
        assert not (zeros & (true != 0)).any(), name
        if leaf.dim() == 2:
            assert torch.equal(zeros[0, 0], (true[0] == 0).all(0)), name
            found += int(zeros[0, 0].sum())
    assert found > 20


def test_signs_of_other_shapes_and_of_few_outputs_tell_nothing() -> None:
    """Of three outputs, an input has one sign by chance in a quarter of all cases."""
    signs = torch.randn(1, 3, 40, generator=torch_stream(0, "signs")).sign()
    assert (signs > 0).all(1).any()
    for one in (signs, torch.ones(1, 9)):
        assert torch.equal(with_zeros(one), one)


def test_inputs_with_one_sign_each_tell_nothing() -> None:
    """Where all outputs' gradients are positive, the signs are those of the inputs."""
    signs = torch.tensor([1.0, -1.0, 1.0]).expand(1, 9, 3)
    assert torch.equal(with_zeros(signs), signs)


def test_the_size_of_the_guess_does_not_matter_to_a_cosine() -> None:
    found, true = gradients("found"), gradients("true")
    tripled = {name: 3 * leaf for name, leaf in found.items()}
    for objective, defense in (
        (Pruned(Cosine()), PruneTransform(0.7)),
        (SoftSigns(Cosine()), SignTransform()),
    ):
        sent = defense(true, rngs())
        assert torch.allclose(objective(found, sent), objective(tripled, sent), atol=1e-12)


def test_the_relative_error_is_the_likelihood_of_the_noise() -> None:
    """Differences of log-likelihood under N(found, std^2), by torch.distributions."""
    one, two, sent, std = gradients("one"), gradients("two"), gradients("sent"), 0.3

    def said(found: Grads) -> Tensor:
        each = [
            torch.distributions.Normal(found[k], std).log_prob(sent[k]).reshape(ROWS, -1).sum(1)
            for k in sent
        ]
        return torch.stack(each).sum(0)

    size = sum(leaf.reshape(ROWS, -1).square().sum(1) for leaf in sent.values())
    gap = (RelativeError()(two, sent) - RelativeError()(one, sent)) * size / (2 * std**2)
    assert torch.allclose(said(one) - said(two), gap)


@pytest.mark.parametrize("objective", ADAPTIVE, ids=repr)
@pytest.mark.parametrize("change", [dict, dead], ids=["plain", "dead"])
def test_rows_are_apart_and_slopes_finite(
    objective: Objective, change: Callable[[Grads], Grads]
) -> None:
    sent = PruneTransform(0.5)(gradients("sent"), rngs())
    found = {k: v.requires_grad_() for k, v in change(gradients("found")).items()}
    each = objective(found, sent)
    assert each.shape == (ROWS,)
    slopes = torch.autograd.grad(each[1], list(found.values()))
    for slope in slopes:
        assert torch.isfinite(slope).all()
        assert slope[[0, 2]].abs().max() == 0
    assert max(float(slope[1].abs().max()) for slope in slopes) > 0


@pytest.mark.parametrize("objective", [SoftSigns(SquaredError()), RelativeError()], ids=repr)
def test_slopes_are_those_of_finite_differences(objective: Objective) -> None:
    sent, found = gradients("sent"), gradients("found")

    def value(*leaves: Tensor) -> Tensor:
        return objective(dict(zip(found, leaves, strict=True)), sent)

    assert torch.autograd.gradcheck(value, [leaf.requires_grad_() for leaf in found.values()])


def attacked(objective: Objective, sent: Grads, gradient: Callable, like: Tensor) -> Tensor:
    """Signed Adam within the box, with the total variation of ``adapted_settings``."""
    x = torch.zeros_like(like).requires_grad_()
    steps = torch.optim.Adam([x], lr=0.1)
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(steps, 80)
    for _ in range(80):
        rough = x.diff(dim=-1).abs().mean() + x.diff(dim=-2).abs().mean()
        loss = objective(gradient(x), sent).sum() + TOTAL_VARIATION * len(x) * rough
        x.grad = torch.autograd.grad(loss, x)[0].sign()
        steps.step()
        slower.step()
        x.data.clamp_(-1, 1)
    return x.detach()


@pytest.mark.parametrize(
    ("defense", "objective"),
    [
        pytest.param(PruneTransform(0.95), Pruned(Cosine()), id="prune", marks=pytest.mark.slow),
        pytest.param(SignTransform(), SoftSigns(Cosine()), id="sign"),
        pytest.param(
            SignTransform(one_bit=True), SoftSigns(Cosine(), one_bit=True), id="sign:one_bit=1"
        ),
    ],
)
def test_who_knows_the_defense_rebuilds_more(defense, objective: Objective) -> None:
    model = picture_network()
    params = {name: leaf.detach() for name, leaf in model.named_parameters()}
    truth, labels = smooth_pictures(4), torch.arange(4)

    def loss(weights, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(torch.func.functional_call(model, weights, (x[None],)), y[None])

    per_record = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))

    def gradient(x: Tensor) -> Grads:
        return per_record(params, x, labels)

    sent = defense(
        {k: v.detach() for k, v in gradient(truth).items()},
        [torch_stream(0, "row", row) for row in range(4)],
    )
    static, knowing = (
        (attacked(each, sent, gradient, truth) - truth).square().mean(dim=(1, 2, 3))
        for each in (Cosine(), objective)
    )
    assert (knowing < static).all()


@pytest.mark.parametrize(
    ("text", "kind"),
    [("prune:rate=0.99", Pruned), ("sign", SoftSigns), ("noise:std=0.1", RelativeError),
     ("none", Cosine), ("clip:l2=1", Cosine), ("noise:std=0", Cosine), ("dpsgd", Cosine)],
)  # fmt: skip
def test_each_defense_has_its_attacker(text: str, kind: type) -> None:
    defense = parse_defense(text, batch_size=4)
    assert isinstance(adapted(Cosine(("w",)), defense), kind)
    assert "'w'" in repr(adapted(Cosine(("w",)), defense))


@pytest.mark.parametrize("text", ["quantise:levels=2", "perturb"])
def test_a_defense_without_an_attacker_is_refused(text: str) -> None:
    with pytest.raises(
        InputError, match=r"no attack adapts to the defense '.*attack it with static"
    ):
        adapted(Cosine(), parse_defense(text, batch_size=1))


def test_settings_take_images_as_smoother_against_a_defense() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    plain = preset("agic", total_variation=1e-4)
    changed = adapted_settings(plain, parse_defense("sign", batch_size=1), model)
    assert changed.total_variation == TOTAL_VARIATION > plain.total_variation
    assert isinstance(changed.objective, SoftSigns)
    rougher = adapted_settings(
        preset("agic", total_variation=0.2), parse_defense("sign", batch_size=1), model
    )
    assert rougher.total_variation == 0.2
    assert adapted_settings(plain, vib(), model) is plain
    table = preset("dlg")  # knows nothing of pixels
    assert adapted_settings(table, parse_defense("sign", batch_size=1), model).total_variation == 0


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("noise:std=0.02", "none"),
        ("dpsgd:clip=1,noise=0.02", "clip:l2=1"),
    ],
)
def test_faint_noise_is_ignored_and_strong_noise_is_not(text: str, same: str) -> None:
    model, plain = nn.Linear(50, 2, bias=False), preset("inverting-gradients")
    noisy, quiet = (parse_defense(one, batch_size=1) for one in (text, same))
    # The noise has the norm 0.02 * 10 = 0.2: a fifth of an update of norm 1, and two of norm 0.1.
    faint, strong = ({"weight": torch.full((1, 2, 50), value)} for value in (0.1, 0.01))
    assert adapted_settings(plain, noisy, model, faint) == adapted_settings(plain, quiet, model)
    assert adapted_settings(plain, noisy, model, strong) == adapted_settings(plain, noisy, model)
    assert adapted_settings(plain, noisy, model, faint) != adapted_settings(plain, noisy, model)


@pytest.mark.parametrize("text", ["prune:rate=0.9", "sign"])
def test_zeros_of_a_known_defense_do_not_stretch_layers(text: str) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))
    plain = preset("agic")
    assert objective_of(plain.objective, model).modified
    changed = adapted_settings(plain, parse_defense(text, batch_size=1), model).objective
    assert changed.objective.weights == plain.objective.of(model)
    assert not changed.objective.modified


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("sign", False),
        ("prune:rate=0.5", False),
        ("noise:std=0.01", True),
        ("dpsgd:clip=1,noise=0.1", False),
        ("clip:l2=1", False),
    ],
)
def test_only_a_gradient_that_kept_its_size_is_asked_for_it(text: str, kept: bool) -> None:
    """Else records were multiplied by whatever brings the size of a sign near."""
    model = nn.Linear(4, 2)
    defense = parse_defense(text, batch_size=1)
    assert preset("leakgauge").rescale
    assert adapted_settings(preset("leakgauge"), defense, model).rescale == kept


@pytest.mark.parametrize("softness", [0.0, -1.0, float("inf")])
def test_softness_is_above_zero(softness: float) -> None:
    with pytest.raises(InputError, match="expected a number above 0"):
        SoftSigns(Cosine(), softness)
