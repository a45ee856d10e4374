"""The match of true records' updates: what a search under the right model can reach."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Task
from leakgauge.inversion.search.between import Between
from leakgauge.inversion.search.objective import Cosine, agreement
from leakgauge.inversion.search.simulate import LocalSteps, simulated_gradients
from leakgauge.inversion.words import MATCHED
from leakgauge.training.recipe import Recipe

RATES = {"sgd": 0.05, "adam": 1e-3, "adamw": 1e-3, "rmsprop": 1e-4}
MAKES = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
}


def sent(name: str, steps: int, seed: int) -> tuple[nn.Module, dict[str, Tensor], Tensor, Tensor]:
    """Return the model before, the change by torch's own optimizer, and the true batch."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(128, 10),
    )  # fmt: skip
    x = torch.rand(4, 3, 8, 8, generator=torch_stream(seed, "x"))
    y = torch.tensor([1, 3, 3, 7])
    before = {key: leaf.clone() for key, leaf in model.state_dict().items()}
    made = MAKES[name](model.parameters(), lr=RATES[name])  # type: ignore[abstract]
    for _ in range(steps):
        made.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        made.step()
    change = {key: leaf.detach() - before[key] for key, leaf in model.named_parameters()}
    model.load_state_dict(before)
    return model, change, x, y


def gradient(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    names, leaves = zip(*model.named_parameters(), strict=True)
    grads = torch.autograd.grad(functional.cross_entropy(model(x), y), leaves)
    return {name: leaf[None] for name, leaf in zip(names, grads, strict=True)}


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "rmsprop"])
@pytest.mark.parametrize("steps", [1, 4])
def test_true_records_match_under_the_right_model_and_adam_not_as_sgd(
    name: str, steps: int
) -> None:
    for seed in range(3):
        model, change, x, y = sent(name, steps, seed)
        params = {key: leaf.detach() for key, leaf in model.named_parameters()}
        recipe = Recipe.named(name, steps=steps, lr=RATES[name])
        seen = {key: leaf[None] for key, leaf in recipe.as_gradient(params, change).items()}
        plain = gradient(model, x, y)
        if steps == 1 and name != "sgd":
            between = Between(Cosine(), recipe, params)
            right = float(agreement(plain, between.nearest(plain, seen)))
            assert right > 0.99
        elif steps == 1:
            right = float(agreement(plain, seen))
        else:
            local = LocalSteps(1, RATES[name], steps, optimizer=name)
            ours = simulated_gradients(Task(model), params, x[None], y[None], local)
            right = float(agreement({key: leaf.detach() for key, leaf in ours.items()}, seen))
        assert right > MATCHED, (name, steps, seed, right)
        if name != "sgd":
            assert float(agreement(plain, seen)) < 0.8


def test_the_agreement_counts_the_size_and_the_cosine_does_not() -> None:
    """The closed form at one size, and its largest value over all sizes: the cosine."""
    guess = {"a": torch.tensor([[1.0, 2.0]]), "b": torch.tensor([[0.5]])}
    seen = {"a": torch.tensor([[1.5, 1.0]]), "b": torch.tensor([[-0.5]])}
    cosine = 1 - float(Cosine()(guess, seen))
    sizes = torch.linspace(0, 3, 3001)
    each = [float(agreement({n: s * leaf for n, leaf in guess.items()}, seen)) for s in sizes]
    assert max(each) == pytest.approx(cosine, abs=1e-5)
    apart = sum(float((guess[n] - seen[n]).square().sum()) for n in seen)
    whole = sum(float(leaf.square().sum()) for leaf in seen.values())
    assert float(agreement(guess, seen)) == pytest.approx((1 - apart / whole) ** 0.5)
    assert float(agreement({n: -leaf for n, leaf in seen.items()}, seen)) == 0.0
    # Nesterov's first step has 1.9 times the size of a plain one, and its direction.
    nesterov = {n: 1.9 * leaf for n, leaf in guess.items()}
    assert float(Cosine()(guess, nesterov)) == pytest.approx(0, abs=1e-6)
    assert float(agreement(guess, nesterov)) < MATCHED
