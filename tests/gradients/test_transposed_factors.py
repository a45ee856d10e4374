"""Factors of transformers' Conv1D, whose weight is [in, out], against plain autograd."""

import math
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from leakgauge import Monitor
from leakgauge.core.types import Task
from leakgauge.gradients import params_of, per_example_gradients
from leakgauge.gradients.factored.base import Factors
from leakgauge.gradients.factored.factors import factors
from tokens.monitor.test_cheap import literal

transformers = pytest.importorskip("transformers")


def gpt2(**settings: Any) -> nn.Module:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=2, n_embd=12, n_head=2, vocab_size=20, n_positions=8, num_labels=3, **settings
    )
    config.pad_token_id = 0
    model: nn.Module = transformers.GPT2ForSequenceClassification(config)
    return model.eval()


class Logits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gpt2 = gpt2()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.gpt2(input_ids=x).logits
        return logits


def records(count: int = 6) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randint(1, 20, (count, 7)), torch.randint(3, (count,))


@pytest.fixture(scope="module")
def found() -> tuple[dict[str, Factors], dict[str, Tensor]]:
    """The factors of a GPT-2 of transformers, and the gradient of each record by autograd."""
    task = Task(Logits().double())
    x, y = records()
    leaves = dict(task.model.named_parameters())
    rows = [
        torch.autograd.grad(
            functional.cross_entropy(task.model(one[None]), label[None]), list(leaves.values())
        )
        for one, label in zip(x, y, strict=True)
    ]
    exact = {
        name: torch.stack(leaf) for name, leaf in zip(leaves, zip(*rows, strict=True), strict=True)
    }
    return factors(task, params_of(task.model), x, y), exact


MAPS = [f"gpt2.transformer.h.{i}.{name}" for i in (0, 1) for name in ("attn.c_attn", "mlp.c_proj")]


@pytest.mark.parametrize("name", MAPS)
def test_gradients_norms_ranges_and_products_are_those_of_autograd(
    name: str, found: tuple[dict[str, Factors], dict[str, Tensor]]
) -> None:
    one, weight = found[0][name], found[1][f"{name}.weight"]
    assert type(one).__name__ == "LinearFactors"
    whole = torch.cat([found[1][key].flatten(1) for key in one.gradient()], dim=1)
    for key, leaf in one.gradient().items():
        torch.testing.assert_close(leaf, found[1][key])
    for p in (1, 2, math.inf):
        torch.testing.assert_close(one.norms(p), torch.linalg.vector_norm(whole, p, dim=1))
    torch.testing.assert_close(one.range(), whole.amax(1) - whole.amin(1))
    torch.testing.assert_close(one.gram(), whole @ whole.T)
    assert one.shape == tuple(weight.mT.shape[1:])
    kernels = torch.randn(2, one.in_features, dtype=torch.float64)
    torch.testing.assert_close(one.project(kernels), weight.mT @ kernels.T)


def test_a_monitor_counts_attention_and_layers_of_gpt2() -> None:
    model = gpt2()
    names = [name for name, part in model.named_modules() if type(part).__name__ == "Conv1D"]
    assert len(names) == 8
    x, y = records(12)
    rows = []
    watched = [leaf for name in names for leaf in model.get_submodule(name).parameters()]
    for one, label in zip(x, y, strict=True):
        loss = functional.cross_entropy(model(input_ids=one[None]).logits, label[None])
        rows.append(torch.cat([leaf.flatten() for leaf in torch.autograd.grad(loss, watched)]))
    counts = torch.stack([torch.bincount(one, minlength=20) for one in x]).float()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Monitor(model, checkpoints=0, layers=names) as monitor:
        functional.cross_entropy(model(input_ids=x).logits, y).backward()
        optimizer.step()
    assert not monitor.notes
    assert monitor.records[0]["cheap"] == pytest.approx(literal(rows, counts), abs=1e-4)


def test_a_monitor_leaves_out_an_embedding_that_is_tied_to_the_outputs() -> None:
    """Its gradient has a part of the outputs, which the embedding's calls do not show."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=1, n_embd=12, n_head=2, vocab_size=20, n_positions=8)
    model = transformers.GPT2LMHeadModel(config).eval()
    x, _ = records()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Monitor(model, checkpoints=0) as monitor:
        model(input_ids=x, labels=x).loss.backward()
        optimizer.step()
    assert len(monitor.records) == 1
    assert "'transformer.wte'" in monitor.notes[0]
    assert "c_attn" not in monitor.notes[0]


@pytest.mark.slow
def test_another_class_of_that_name_has_no_factors_and_transformers_stays_unloaded() -> None:
    class Conv1D(nn.Linear):
        """A layer of a user."""

    task = Task(nn.Sequential(Conv1D(3, 2)))
    x, y = torch.randn(4, 3), torch.tensor([0, 1, 0, 1])
    params = params_of(task.model)
    (one,) = factors(task, params, x, y).values()
    assert type(one).__name__ == "WholeGradients"
    exact = per_example_gradients(task, params, x, y)
    assert all(torch.allclose(leaf, exact[key]) for key, leaf in one.gradient().items())
    code = (
        "import sys, leakgauge.gradients.factored.products; sys.exit('transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
