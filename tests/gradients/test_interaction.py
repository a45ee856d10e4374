"""Inner products of records' gradients, and whether a batch's gradient is their mean."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from leakgauge.core.types import Task
from leakgauge.gradients import params_of
from leakgauge.gradients.factored.factors import factors
from leakgauge.gradients.factored.linear import EmbeddingFactors, LinearFactors
from leakgauge.gradients.pooling import records_interact
from support.references.gradients import loop


def sample(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def literal_gram(task: Task, x: Tensor, y: Tensor) -> Tensor:
    grads = loop(task, params_of(task.model), x[:, None], y[:, None])
    flat = torch.cat([leaf.flatten(1) for leaf in grads.values()], 1)
    return torch.stack([torch.stack([(one * other).sum() for other in flat]) for one in flat])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("positions", [1, 4])
def test_those_of_a_linear_layer(positions: int, *, bias: bool) -> None:
    task = Task(nn.Linear(3, 2, bias=bias).double(), "mse")
    x, y = sample(5, positions, 3), sample(5, positions, 2, seed=1)
    if positions == 1:
        x, y = x[:, 0], y[:, 0]
    (found,) = factors(task, params_of(task.model), x, y).values()
    assert isinstance(found, LinearFactors)
    torch.testing.assert_close(found.gram(), literal_gram(task, x, y), rtol=1e-10, atol=1e-12)


def test_those_of_a_linear_layer_need_no_gradient(monkeypatch) -> None:
    found = LinearFactors("w", "b", sample(4, 1, 3), sample(4, 1, 2, seed=1))
    whole = torch.cat([leaf.flatten(1) for leaf in found.gradient().values()], 1)

    def made(_) -> None:
        raise AssertionError("gradients were made")

    monkeypatch.setattr(LinearFactors, "gradient", made)
    torch.testing.assert_close(found.gram(), whole @ whole.T)


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(50, 3, padding_idx=0)

    def forward(self, x: Tensor) -> Tensor:
        return self.words(x).square().sum(1)


def test_those_of_an_embedding_are_of_the_words_that_records_have(monkeypatch) -> None:
    task = Task(Words().double())
    x = torch.randint(6, (5, 7), generator=torch.Generator().manual_seed(0))
    x[:, 0] += 44
    y = torch.arange(5) % 3
    (found,) = factors(task, params_of(task.model), x, y).values()
    known = literal_gram(task, x, y)
    assert isinstance(found, EmbeddingFactors)
    heights: list[int] = []
    plain = EmbeddingFactors.gradient

    def watched(self):
        made = plain(self)
        heights.extend(leaf.shape[1] for leaf in made.values())
        return made

    monkeypatch.setattr(EmbeddingFactors, "gradient", watched)
    torch.testing.assert_close(found.gram(), known, rtol=1e-10, atol=1e-12)
    assert heights == [len(x.unique())]
    assert known[0, 1] != 0


def network(*norm: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), *norm, nn.Tanh(), nn.Linear(6, 3)).double()


def weighted(outputs: Tensor, targets: Tensor) -> Tensor:
    weight = torch.tensor([0.1, 1.0, 4.0], dtype=torch.float64)
    return functional.cross_entropy(outputs, targets, weight=weight)


MODELS = {
    "plain": (lambda: network(), functional.cross_entropy),
    "layer norm": (lambda: network(nn.LayerNorm(6)), functional.cross_entropy),
    "batch norm, eval": (lambda: network(nn.BatchNorm1d(6)).eval(), functional.cross_entropy),
    "batch norm, train": (
        lambda: network(nn.BatchNorm1d(6, track_running_stats=False)),
        functional.cross_entropy,
    ),
    "class weights": (lambda: network(), weighted),
    "a loss of each record": (
        lambda: network(),
        lambda out, y: functional.cross_entropy(out, y, reduction="none").mean(),
    ),
    "a sum": (
        lambda: network(),
        lambda out, y: functional.cross_entropy(out, y, reduction="sum"),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_records_interact_where_a_batch_is_not_their_mean(name: str) -> None:
    build, loss = MODELS[name]
    task = Task(build(), loss)
    x, y = sample(30, 4), torch.arange(30) % 3
    before, training = copy.deepcopy(task.model.state_dict()), task.model.training
    found = records_interact(task, params_of(task.model), x, y)
    together = loop(task, params_of(task.model), x[None], y[None])
    try:
        alone = loop(task, params_of(task.model), x[:, None], y[:, None])
        same = all(
            torch.allclose(leaf[0], alone[name].mean(0), rtol=1e-8, atol=1e-12)
            for name, leaf in together.items()
        )
    except ValueError:  # a batch of one cannot be normalised
        same = False
    assert found is not same
    assert task.model.training is training
    assert all(torch.equal(leaf, before[key]) for key, leaf in task.model.state_dict().items())
    assert found is (name in {"batch norm, train", "class weights", "a sum"})
