"""Gradients as stock training of transformers makes them: padded batches, and train mode."""

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
        GPT2LMHeadModel,
        LlamaConfig,
        LlamaForCausalLM,
    )

from leakgauge.core.checks import InputError
from leakgauge.gradients import params_of
from leakgauge.integrations.hugging_face_task import causal_task, classification_task
from leakgauge.inversion.text.embeddings import read_single, recover_tokens
from leakgauge.inversion.text.recovered import score_text
from leakgauge.inversion.text.sequences import dager

PAD = 3
LENGTH = 8

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def gpt2(*, tied: bool = False, **settings: Any) -> nn.Module:
    config = GPT2Config(
        n_layer=2, n_embd=64, n_head=4, vocab_size=300, n_positions=16,
        bos_token_id=0, eos_token_id=0, tie_word_embeddings=tied, **settings,
    )  # fmt: skip
    model: nn.Module = GPT2LMHeadModel(config)
    return model


def llama() -> nn.Module:
    config = LlamaConfig(
        num_hidden_layers=2, hidden_size=64, num_attention_heads=4, intermediate_size=64,
        vocab_size=300,
    )  # fmt: skip
    model: nn.Module = LlamaForCausalLM(config)
    return model


MODELS = {"gpt2": gpt2, "tied": lambda: gpt2(tied=True), "llama": llama}


def batch(*lengths: int, left: bool) -> tuple[list[list[int]], Tensor, Tensor]:
    """Texts, and their tokens and mask, as a collator of transformers pads them."""
    rng = torch.Generator().manual_seed(5)
    rows = [torch.randint(4, 300, (one,), generator=rng).tolist() for one in lengths]
    ids = torch.full((len(rows), LENGTH), PAD)
    for place, row in zip(ids, rows, strict=True):
        place[-len(row) if left else 0 : LENGTH if left else len(row)] = torch.tensor(row)
    return rows, ids, (ids != PAD).long()


def own_gradient(model: nn.Module, **given: Tensor) -> dict[str, Tensor]:
    """The gradient of the loss that the model of transformers computes itself."""
    torch.manual_seed(0)
    loss = model(**given).loss
    names = [f"net.{name}" for name, _ in model.named_parameters()]
    grads = torch.autograd.grad(loss, list(model.parameters()))
    return {name: one[None] for name, one in zip(names, grads, strict=True)}


def attacked(model: nn.Module, grads: dict[str, Tensor], **settings: Any) -> Any:
    task = causal_task(model.eval())
    return dager(task, params_of(task.model), grads, length=LENGTH + 1, **settings)


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize(
    ("lengths", "left"), [((8, 5, 6), True), ((7, 5), True), ((8, 5, 6), False)]
)
def test_padded_batches_are_read_exactly(name: str, lengths: tuple[int, ...], left: bool) -> None:
    torch.manual_seed(1)
    model = MODELS[name]().eval()
    rows, ids, mask = batch(*lengths, left=left)
    grads = own_gradient(
        model, input_ids=ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)
    )
    found = attacked(model, grads, padding=PAD)
    assert found.confirmed, found.stopped
    assert found.stopped == ""
    assert score_text(found.sequences, ids.tolist(), skip=PAD).sequences == 1
    stripped = sorted([token for token in row if token != PAD] for row in found.sequences)
    assert stripped == sorted(rows)


@pytest.mark.parametrize("lengths", [(8, 5), (6, 5)])
def test_texts_padded_on_the_left_ask_for_the_token(lengths: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    model = gpt2().eval()
    _, ids, mask = batch(*lengths, left=True)
    grads = own_gradient(
        model, input_ids=ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)
    )
    found = attacked(model, grads)
    assert not found.confirmed
    assert "padded on the left: name their token by padding=" in found.stopped


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("trains", [False, True])
def test_train_mode_is_recognised_and_its_tokens_are_named(tied: bool, trains: bool) -> None:
    """Whatever the mode of the attacker's own copy."""
    torch.manual_seed(1)
    model = gpt2(tied=tied).train()
    rows, ids, _ = batch(8, 8, left=False)
    grads = own_gradient(model, input_ids=ids, labels=ids)
    task = causal_task(model.train(trains))
    found = dager(task, params_of(task.model), grads, length=LENGTH)
    assert found.sequences == ()
    assert "it was taken in train mode" in found.stopped
    assert "as dropout of 0.1 makes them" in found.stopped
    fed = {token for row in rows for token in row[:-1]}
    assert set(found.tokens) == fed


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_single_text_in_train_mode_is_read_from_its_embeddings(tied: bool, seed: int) -> None:
    """Dropout changes the gradients of places, but a token's row is still their sum."""
    torch.manual_seed(seed)
    model = gpt2(tied=tied).train()
    ids = torch.randint(4, 300, (1, 12))
    ids[0, 7] = ids[0, 2]  # a token that stands twice
    grads = own_gradient(model, input_ids=ids, labels=ids)
    found = attacked(model, grads)
    assert found.sequences == ((*ids[0, :-1].tolist(), -1),)
    assert not found.confirmed
    assert "it was taken in train mode" in found.stopped
    assert "show a single text in its order" in found.stopped


def test_an_encoder_in_train_mode_shows_a_single_text_and_its_last_token() -> None:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=300, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=16,
    )  # fmt: skip
    model = BertForSequenceClassification(config).train()
    ids = torch.randint(4, 300, (1, 10))
    grads = own_gradient(model, input_ids=ids, labels=torch.tensor([1]))
    assert read_single(classification_task(model), grads) == tuple(ids[0].tolist())


@pytest.mark.parametrize("tied", [False, True])
def test_several_texts_and_changed_gradients_are_not_taken_for_a_single_text(tied: bool) -> None:
    torch.manual_seed(0)
    for seed in range(10):
        torch.manual_seed(seed)
        model = gpt2(tied=tied).train()
        task = causal_task(model)
        ids = torch.randint(4, 300, (1 + seed % 3, 9))
        grads = own_gradient(model, input_ids=ids, labels=ids)
        assert bool(read_single(task, grads)) == (len(ids) == 1)
        noisy = {name: leaf + leaf.std() * torch.randn_like(leaf) for name, leaf in grads.items()}
        assert read_single(task, noisy) == ()
    rotary = llama().train()
    grads = own_gradient(rotary, input_ids=ids[:1], labels=ids[:1])
    assert read_single(causal_task(rotary), grads) == ()


def test_a_tied_embedding_names_no_token_where_precision_or_noise_hides_them() -> None:
    torch.manual_seed(0)
    model = gpt2(tied=True)
    task = causal_task(model)
    ids = torch.randint(4, 300, (2, 15))
    grads = own_gradient(model, input_ids=ids, labels=ids)
    coarse = {name: leaf.bfloat16().float() for name, leaf in grads.items()}
    with pytest.raises(InputError, match="bfloat16, hides which rows"):
        recover_tokens(task, coarse)
    noisy = {name: leaf + leaf.std() * torch.randn_like(leaf) for name, leaf in grads.items()}
    with pytest.raises(InputError, match="no row leaves the span"):
        recover_tokens(task, noisy)
