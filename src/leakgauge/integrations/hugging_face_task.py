"""Language models of Hugging Face as a ``Task``: causal, of sequences, whole or with adapters."""

import importlib
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from leakgauge.core.checks import InputError, require, require_count
from leakgauge.core.copying import copy_of
from leakgauge.core.extras import not_installed
from leakgauge.core.types import Task

IGNORED = -100
"""The label of a token that the loss leaves out, as in transformers."""


class Logits(nn.Module):
    """Returns the logits of a model of transformers, from tokens alone.

    Args:
        net: the model.
        padding: the token that fills up short sequences at their end; it is masked.
    """

    def __init__(self, net: nn.Module, *, padding: int | None) -> None:
        super().__init__()
        self.net = net
        self.padding = padding

    def forward(self, x: Tensor) -> Tensor:
        """Return logits ``[B, T, V]`` or ``[B, classes]`` of tokens ``[B, T]``."""
        mask = None if self.padding is None else (x != self.padding).long()
        outputs = self.net(input_ids=x, attention_mask=mask, use_cache=False)
        logits: Tensor = outputs.logits
        return logits


def causal_task(model: nn.Module, *, padding: int | None = None) -> Task:
    """Return the task of a causal language model: to predict each next token.

    Its records are tokens ``[n, T]`` int64, and its targets the same tokens, as labels are in
    transformers; a target of -100 or of padding does not count. The loss is the mean over all
    tokens of a batch that count. Padding at the end needs no mask: no token looks ahead.

    Args:
        model: such as ``AutoModelForCausalLM``, or one with adapters.
        padding: the token that fills up short sequences at their end.

    Raises:
        InputError: the model is not of transformers, or has no output layer over tokens.
    """
    _check(model)
    require(
        getattr(model, "get_output_embeddings", lambda: None)() is not None,
        f"{type(model).__name__} has no output layer over tokens; expected a model such as "
        "AutoModelForCausalLM",
    )
    if padding is None:
        return Task(Logits(model, padding=None), next_token_loss)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return next_token_loss(outputs, targets.masked_fill(targets == padding, IGNORED))

    return Task(Logits(model, padding=None), loss)


def classification_task(model: nn.Module, *, padding: int | None = None) -> Task:
    """Return the task of a model that classifies sequences.

    Its records are tokens ``[n, T]`` int64, and its targets classes ``[n]`` int64.

    Args:
        model: such as ``AutoModelForSequenceClassification``, or one with adapters.
        padding: the token that fills up short sequences at their end; it is masked. A mask depends
            on the data, so gradients come from a loop (``--allow-loop``). A decoder reads the last
            token before it, and needs ``config.pad_token_id`` for that.

    Raises:
        InputError: the model is not of transformers.
    """
    _check(model)
    return Task(Logits(model, padding=padding), "cross_entropy")


def adapted(
    model: nn.Module,
    *,
    rank: int = 8,
    alpha: float | None = None,
    targets: Sequence[str] | None = None,
    seed: int = 0,
) -> nn.Module:
    """Return a copy of a model with LoRA adapters as its only trainable parameters.

    At first an adapter changes nothing: its second half is zero, and so is the gradient of its
    first half.

    Args:
        model: model of transformers, not changed.
        rank: rank of each adapter.
        alpha: scale of an adapter, times rank; ``rank`` by default, a scale of 1.
        targets: names of the layers with an adapter; peft's own choice by default.
        seed: seed of the adapters' first weights.

    Raises:
        InputError: peft is not installed (extra ``hf``), or does not know the model's layers.
    """
    require_count(rank, "rank")
    _check(model)
    peft = _extra("peft")
    own = copy_of(model)
    config = peft.LoraConfig(
        r=rank,
        lora_alpha=rank if alpha is None else alpha,
        target_modules=None if targets is None else list(targets),
        fan_in_fan_out=any(type(one).__name__ == "Conv1D" for one in own.modules()),
    )
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers by old names
        torch.manual_seed(seed)
        try:
            made: nn.Module = peft.get_peft_model(own, config)
        except ValueError as error:
            line = (str(error).splitlines() or [""])[0]
            said = f"peft refuses {type(model).__name__} ({line}); set targets"
            raise InputError(said) from error
    return made.train(model.training)


def next_token_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy of the next token, over all tokens that count.

    Args:
        outputs: logits ``[B, T, V]``.
        targets: the tokens ``[B, T]``; -100 for those that do not count.

    >>> next_token_loss(torch.zeros(1, 3, 4), torch.tensor([[0, 1, 2]]))
    tensor(1.3863)
    """
    return functional.cross_entropy(
        outputs[:, :-1].flatten(0, 1), targets[:, 1:].flatten(), ignore_index=IGNORED
    )


def _check(model: Any) -> None:
    transformers = _extra("transformers")
    net = model.get_base_model() if hasattr(model, "get_base_model") else model
    require(
        isinstance(net, transformers.PreTrainedModel),
        f"the model is {type(model).__name__}; expected one of transformers, such as "
        "AutoModelForCausalLM",
    )


def _extra(name: str) -> Any:
    """Return a package of the extra, or raise an error if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise not_installed(name, "hf") from error
