"""Sequences from the gradients of small language models with random weights."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of transformers, when it is imported
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        GPT2Config,
        GPT2ForSequenceClassification,
        GPT2LMHeadModel,
        LlamaConfig,
        LlamaForCausalLM,
    )

from leakgauge import InputError, Task
from leakgauge.gradients import batch_gradients, params_of
from leakgauge.integrations.hugging_face_task import adapted, causal_task, classification_task
from leakgauge.inversion.text.embeddings import recover_tokens
from leakgauge.inversion.text.recovered import RecoveredText, score_text
from leakgauge.inversion.text.sequences import dager

VOCABULARY = 400

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def gpt(seed: int, *, kind: Any = GPT2LMHeadModel, layers: int = 2, **settings: Any) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = GPT2Config(
            n_layer=layers, n_embd=64, n_head=4, vocab_size=VOCABULARY, n_positions=32,
            bos_token_id=0, eos_token_id=0, **{"tie_word_embeddings": False, **settings},
        )  # fmt: skip
        return kind(config).eval()


def text(seed: int, batch: int, length: int) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randint(1, VOCABULARY, (batch, length), generator=rng)


def gradient(task: Task, x: Tensor, y: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    params = params_of(task.model)
    return params, dict(batch_gradients(task, params, x[None], y[None]))


def attacked(task: Task, x: Tensor, y: Tensor, **settings: Any) -> RecoveredText:
    """The sequences are allowed to be longer than they are."""
    return dager(task, *gradient(task, x, y), length=x.shape[1] + 2, **settings)


def drawn_second_halves(model: nn.Module, seed: int = 0) -> nn.Module:
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, leaf in model.named_parameters():
            if "lora_B" in name:
                leaf.copy_(0.02 * torch.randn(leaf.shape, generator=rng))
    return model


@pytest.mark.slow
@pytest.mark.calibration
def test_sixteen_tokens_are_found_exactly_for_eight_seeds() -> None:
    shares = []
    for seed in range(8):
        x = text(seed, 1, 16)
        found = attacked(causal_task(gpt(seed)), x, x)
        assert found.confirmed
        shares.append(score_text(found.sequences, x.tolist()).tokens)
    assert sum(shares) / 8 >= 0.95


@pytest.mark.calibration
@pytest.mark.parametrize(
    ("batch", "length", "tied"),
    [
        (4, 8, False),
        (2, 10, True),
        pytest.param(2, 10, False, marks=pytest.mark.slow),
        pytest.param(8, 6, False, marks=pytest.mark.slow),
        pytest.param(4, 8, True, marks=pytest.mark.slow),
    ],
)
def test_batches_are_found(batch: int, length: int, tied: bool) -> None:
    x = text(batch, batch, length)
    found = attacked(causal_task(gpt(1, tie_word_embeddings=tied)), x, x)
    assert sorted(found.sequences) == sorted(map(tuple, x.tolist()))
    assert found.confirmed
    assert found.stopped == ""


def test_a_model_without_positions_and_an_encoder_are_read_too() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        llama = LlamaForCausalLM(
            LlamaConfig(
                num_hidden_layers=2, hidden_size=64, num_attention_heads=4, intermediate_size=64,
                vocab_size=VOCABULARY,
            )
        ).eval()  # fmt: skip
        bert = BertForSequenceClassification(
            BertConfig(
                num_hidden_layers=2, hidden_size=64, num_attention_heads=4, intermediate_size=64,
                vocab_size=VOCABULARY,
            )
        ).eval()  # fmt: skip
    x, y = text(0, 2, 6), torch.tensor([0, 1])
    of_llama = attacked(causal_task(llama), x, x)
    of_bert = attacked(classification_task(bert), x, y, labels=y)
    for found in (of_llama, of_bert):
        assert sorted(found.sequences) == sorted(map(tuple, x.tolist()))
        assert found.confirmed


def test_a_decoder_that_classifies() -> None:
    kind = {"kind": GPT2ForSequenceClassification, "num_labels": 2, "pad_token_id": 0}
    x, y = text(0, 2, 8), torch.tensor([1, 0])
    found = attacked(classification_task(gpt(0, layers=3, **kind), padding=0), x, y, padding=0)
    assert sorted(found.sequences) == sorted(map(tuple, x.tolist()))
    assert found.residual is None  # without the labels nothing confirms it
    x = text(0, 2, 12)
    short = attacked(classification_task(gpt(0, layers=2, **kind), padding=0), x, y, padding=0)
    assert short.sequences == ()
    assert "a last layer has a gradient only where the loss reads it" in short.stopped


def test_sequences_of_two_lengths_and_a_repeated_one() -> None:
    x = text(3, 3, 8)
    x[2] = x[0]
    y = x.clone()
    x[1, 5:], y[1, 5:] = 0, -100
    found = attacked(causal_task(gpt(2)), x, y)
    truth = [tuple(x[0].tolist())] * 2 + [tuple(x[1, :5].tolist())]
    assert sorted(found.sequences) == sorted(truth)
    assert found.confirmed


def test_too_many_tokens_are_refused() -> None:
    x = text(0, 8, 10)
    found = attacked(causal_task(gpt(0)), x, x)
    assert found.sequences == ()
    assert "has rank 63, and its inputs have 63 dimensions" in found.stopped
    assert "\n" not in found.stopped


def noisy(grads: dict[str, Tensor], std: float) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(0)
    return {k: v + std * torch.randn(v.shape, generator=rng) for k, v in grads.items()}


def test_noise_ends_it_and_nothing_is_called_exact() -> None:
    task, x = causal_task(gpt(0)), text(0, 1, 16)
    params, grads = gradient(task, x, x)
    for std in (1e-6, 1e-4, 1e-2):
        found = dager(task, params, noisy(grads, std), length=16)
        assert not found.confirmed
        assert found.sequences == ()
        assert "or the gradient has noise" in found.stopped


def test_an_attacker_who_knows_of_small_noise_reads_on() -> None:
    task, x = causal_task(gpt(0)), text(0, 1, 16)
    params, grads = gradient(task, x, x)
    small = dager(task, params, noisy(grads, 1e-6), length=16, noise=1e-6)
    assert score_text(small.sequences, x.tolist()).tokens >= 0.9
    large = dager(task, params, noisy(grads, 1e-2), length=16, noise=1e-2)
    assert score_text(large.sequences, x.tolist()).tokens < 0.1
    assert not large.confirmed
    assert large.stopped


def test_other_weights_and_other_gradients_are_not_confirmed() -> None:
    task, x = causal_task(gpt(0)), text(0, 1, 12)
    _, grads = gradient(task, x, x)
    other = causal_task(gpt(5))
    found = dager(other, params_of(other.model), grads, length=12)
    assert not found.confirmed
    assert found.stopped


def test_the_model_stays_as_it_is() -> None:
    model = gpt(0)
    before = {name: leaf.clone() for name, leaf in model.state_dict().items()}
    x = text(0, 1, 8)
    attacked(causal_task(model), x, x)
    assert all(torch.equal(leaf, before[name]) for name, leaf in model.state_dict().items())
    assert not any(one._forward_pre_hooks for one in model.modules())
    assert all(leaf.grad is None for leaf in model.parameters())


def test_the_span_is_that_of_the_true_inputs() -> None:
    """A literal check: projectors of the gradient and of the layer's inputs are the same."""
    from leakgauge.inversion.text.layers import attention_layers, inputs_of

    task, x = causal_task(gpt(0)), text(0, 1, 10)
    params, grads = gradient(task, x, x)
    for layer in attention_layers(task.model)[:2]:
        (span,) = layer.spans(grads, params, noise=0.0)
        true = inputs_of(task.model, layer, x)[0, :-1].double()  # the last has no gradient
        q, _ = torch.linalg.qr(true.T)
        assert torch.allclose(q @ q.T, span.basis.T @ span.basis, atol=1e-4)


def test_tokens_from_the_gradient_of_the_embedding() -> None:
    x = text(0, 4, 8)
    task = causal_task(gpt(0))
    _, grads = gradient(task, x, x)
    assert set(recover_tokens(task, grads)) == set(x[:, :-1].flatten().tolist())
    with pytest.raises(InputError, match="raise floor"):
        recover_tokens(task, noisy(grads, 1e-9))
    tied = causal_task(gpt(0, tie_word_embeddings=True))
    assert recover_tokens(tied, gradient(tied, x, x)[1]) == recover_tokens(task, grads)
    own = causal_task(adapted(gpt(0), rank=4))
    with pytest.raises(InputError, match="frozen, as with adapters"):
        recover_tokens(own, gradient(own, x, x)[1])


@pytest.mark.calibration
@pytest.mark.parametrize("first", [True, False])
def test_adapters_leak_as_many_tokens_as_they_have_ranks(first: bool) -> None:
    """At first the second half is zero, and its gradient alone shows the inputs."""
    x = text(0, 1, 9)  # eight inputs and a last target
    for rank, all_found in ((16, True), (4, False)):
        model = adapted(gpt(0), rank=rank)
        task = causal_task(model if first else drawn_second_halves(model))
        found = attacked(task, x, x)
        assert (score_text(found.sequences, x.tolist()).tokens == 1.0) == all_found
        assert found.confirmed == all_found
        assert all_found or (found.sequences == () and found.stopped)


def test_the_gradient_of_an_adapters_first_half_is_zero_at_first() -> None:
    task, x = causal_task(adapted(gpt(0), rank=4)), text(0, 1, 8)
    _, grads = gradient(task, x, x)
    assert grads
    assert all("lora_" in name for name in grads)
    assert not any(bool(leaf.any()) for name, leaf in grads.items() if "lora_A" in name)
    assert all(bool(leaf.any()) for name, leaf in grads.items() if "lora_B" in name)


def test_bad_gradients_are_refused_in_one_line() -> None:
    task, x = causal_task(gpt(0)), text(0, 1, 6)
    params, grads = gradient(task, x, x)
    name = next(iter(grads))
    with pytest.raises(InputError, match="one gradient, its stack's axis first"):
        dager(task, params, {name: grads[name][0]}, length=6)
    with pytest.raises(InputError, match="is not finite everywhere"):
        dager(task, params, {name: grads[name] * float("nan")}, length=6)
    plain = Task(nn.Linear(3, 2))
    with pytest.raises(InputError, match="the span check needs two"):
        dager(plain, params_of(plain.model), {}, length=6)


def test_a_score_counts_copies_and_places() -> None:
    score = score_text([[1, 2, 3]], [[1, 2, 3], [1, 2, 3], [4, 5, 0]], skip=0)
    assert (score.tokens, score.sequences, score.n) == (0.75, pytest.approx(2 / 3), 8)
    assert score.by_position == (pytest.approx(2 / 3), pytest.approx(2 / 3), 1.0)
