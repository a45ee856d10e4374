"""Gradients of bfloat16 and float16: read as far as precision goes, or it is the named reason."""

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of transformers, when it is imported
    from transformers import GPT2Config, GPT2LMHeadModel

from leakgauge import Task
from leakgauge.core.precision import precision_of
from leakgauge.gradients import params_of
from leakgauge.gradients.factored.base import WholeGradients
from leakgauge.gradients.factored.factors import factors
from leakgauge.integrations.hugging_face_task import adapted, causal_task
from leakgauge.inversion.exact import recover_first_layer, share_recovered
from leakgauge.inversion.text.embeddings import recover_tokens
from leakgauge.inversion.text.sequences import dager

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

COARSE = [torch.bfloat16, torch.float16]


def gpt(seed: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = GPT2Config(
            n_layer=3, n_embd=64, n_head=4, vocab_size=300, n_positions=32, bos_token_id=0,
            eos_token_id=0, tie_word_embeddings=False,
        )  # fmt: skip
        return GPT2LMHeadModel(config).eval()


def sent(task: Task, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """By plain autograd in the precision of the model."""
    own = [(n, p) for n, p in task.model.named_parameters() if p.requires_grad]
    grads = torch.autograd.grad(task.mean_loss(task.model(x), y), [p for _, p in own])
    return {name: one[None] for (name, _), one in zip(own, grads, strict=True)}


def with_adapters(model: nn.Module) -> nn.Module:
    made = adapted(model, rank=16)
    with torch.no_grad():
        for name, leaf in made.named_parameters():
            if "lora_B" in name:
                leaf.normal_(std=0.02)
    return made


@pytest.mark.calibration
@pytest.mark.parametrize("dtype", COARSE)
@pytest.mark.parametrize("cast", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_all_tokens_of_a_coarse_gradient_are_read(
    dtype: torch.dtype, cast: bool, seed: int
) -> None:
    """The attacker computes in the client's precision, or in float32."""
    model = gpt(seed).to(dtype)
    x = torch.randint(1, 300, (1, 10), generator=torch.Generator().manual_seed(seed))
    task = causal_task(model)
    grads = sent(task, x, x)
    if cast:
        task = causal_task(copy.deepcopy(model).float())
        grads = {name: leaf.float() for name, leaf in grads.items()}
    found = dager(task, params_of(task.model), grads, length=12)
    assert found.sequences == (tuple(x[0].tolist()),)
    assert found.confirmed
    assert found.stopped == ""
    assert set(recover_tokens(task, grads)) == set(x[0, :-1].tolist())


def test_coarse_adapters_are_read_too() -> None:
    task = causal_task(with_adapters(gpt(0)).bfloat16())
    x = torch.randint(1, 300, (1, 10), generator=torch.Generator().manual_seed(0))
    found = dager(task, params_of(task.model), sent(task, x, x), length=12)
    assert found.sequences == (tuple(x[0].tolist()),)
    assert found.confirmed


def test_what_coarse_numbers_hide_is_named() -> None:
    """More tokens than dimensions, and a gradient of other weights: the reason has the type."""
    model = gpt(0).bfloat16()
    task, x = causal_task(model), torch.randint(1, 300, (1, 10))
    grads = sent(task, x, x)
    noise = {name: leaf + 1e-2 * torch.randn_like(leaf) for name, leaf in grads.items()}
    for wrong in (noise, sent(causal_task(gpt(5).bfloat16()), x, x)):
        found = dager(task, params_of(task.model), wrong, length=12)
        assert not found.confirmed
        assert "bfloat16" in found.stopped
        assert "\n" not in found.stopped


def test_the_precision_is_that_of_the_numbers() -> None:
    values = torch.randn(3, 50, dtype=torch.float64)
    for dtype in (torch.float64, torch.float32, *COARSE):
        assert precision_of([values.to(dtype)]) == dtype
        assert precision_of([values.to(dtype), values.to(dtype)[:1]]) == dtype
    for dtype in COARSE:
        assert precision_of([values.to(dtype).float()]) == dtype
        assert precision_of([values.to(dtype).float(), values.float()]) == torch.float32
    assert precision_of([torch.randn(100).sign()]) == torch.float32  # too few values to say


@pytest.mark.parametrize("dtype", COARSE)
def test_exact_division_of_a_coarse_gradient(dtype: torch.dtype) -> None:
    rng = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 3)).to(dtype)
    x = torch.randn(1, 20, generator=rng).to(dtype)
    task = Task(model)
    grads = sent(task, x, torch.tensor([1]))
    for given in (grads, {name: leaf.float() for name, leaf in grads.items()}):
        found = recover_first_layer(task, params_of(model), given)
        assert len(found.x) == 1
        assert share_recovered(found.x, x, tolerance=4 * torch.finfo(dtype).eps) == 1.0


@pytest.mark.parametrize("dtype", COARSE)
def test_factors_of_a_coarse_gradient_stay_factors(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 3)).to(dtype)
    x, y = torch.randn(6, 20).to(dtype), torch.arange(6) % 3
    found = factors(Task(model), params_of(model), x, y)
    assert not any(isinstance(one, WholeGradients) for one in found.values())


@pytest.mark.parametrize("padding", [0, 1, 3])
def test_padding_does_not_change_the_loss(padding: int) -> None:
    task, x = causal_task(gpt(0), padding=padding), torch.randint(4, 300, (1, 10))
    found = dager(task, params_of(task.model), sent(task, x, x), length=12, padding=padding)
    assert found.sequences == (tuple(x[0].tolist()),)
    assert found.confirmed


@pytest.mark.parametrize("reduction", ["sum", "smooth"])
def test_last_tokens_under_another_loss_are_not_made_up(reduction: str) -> None:
    """They are read from the cross entropy of the next token, so the loss is tried out first."""
    plain, x = causal_task(gpt(0)), torch.randint(1, 300, (1, 10))

    def loss(outputs: Tensor, tokens: Tensor) -> Tensor:
        how: dict[str, Any] = (
            {"reduction": "sum"} if reduction == "sum" else {"label_smoothing": 0.2}
        )
        return functional.cross_entropy(
            outputs[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), **how
        )

    task = Task(plain.model, loss)
    found = dager(task, params_of(task.model), sent(task, x, x), length=12)
    assert found.sequences == ((*x[0, :-1].tolist(), -1),)
    assert not found.confirmed
    assert "the loss is not the mean cross entropy of the next token" in found.stopped
