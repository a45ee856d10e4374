"""The attention layers of a transformer: their gradients, and the inputs that tokens give them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from leakgauge.core.checks import InputError, require
from leakgauge.core.types import Grads
from leakgauge.inversion.text.spans import Span, span_of

PROJECTIONS = (
    *("q_proj", "k_proj", "v_proj", "query", "key", "value", "q_lin", "k_lin", "v_lin"),
    *("c_attn", "query_key_value", "qkv_proj", "Wqkv"),
)
"""Names of the maps to queries, keys and values in models of Hugging Face."""

ROWS = 4096
"""Number of token sequences that pass the model at once, for each 32 tokens."""


class _ReachedError(Exception):
    """Ends a forward pass at the layer that was asked for."""


@dataclass(frozen=True, eq=False)
class AttentionLayer:
    """One attention layer: the maps that read its inputs.

    Attributes:
        name: of the module that holds the maps.
        maps: by name, each a linear map of queries, keys or values.
    """

    name: str
    maps: Mapping[str, nn.Module]

    def spans(self, grads: Grads, params: Mapping[str, Tensor], *, noise: float) -> list[Span]:
        """Return the spans of its inputs that the gradients of its weights and adapters show."""
        whole, first, adapters = [], [], []
        for name, part in self.maps.items():
            for leaf in (f"{name}.weight", f"{name}.base_layer.weight"):
                if leaf in grads:
                    gradient = grads[leaf][0]
                    whole.append(gradient if _inputs_first(part) else gradient.T)
            for leaf in grads:
                if leaf.startswith(f"{name}.lora_A."):
                    other = leaf.replace(".lora_A.", ".lora_B.")
                    first.append(grads[leaf][0].T)
                    if other in grads:
                        adapters.append((params[leaf], grads[other][0].T))
        found = [span_of(own, noise=noise, through=None) for own in (whole, first) if _any(own)]
        found += [
            span_of([gradient], noise=noise, through=down.double())
            for down, gradient in adapters
            if _any([gradient])
        ]
        return found


def attention_layers(model: nn.Module) -> list[AttentionLayer]:
    """Return the attention layers in the order in which they are registered.

    Raises:
        InputError: the model has no two attention layers with maps of a known name.
    """
    owners: dict[str, dict[str, nn.Module]] = {}
    for name, part in model.named_modules():
        owner, _, last = name.rpartition(".")
        if last in PROJECTIONS and ".lora_" not in name:
            owners.setdefault(owner, {})[name] = part
    require(
        len(owners) > 1,
        f"{type(model).__name__} has {len(owners)} attention layers with maps that are called "
        f"{', '.join(PROJECTIONS[:3])}, c_attn or alike; the span check needs two",
    )
    return [AttentionLayer(name, maps) for name, maps in owners.items()]


def embedding_name(model: nn.Module) -> str:
    """Return the name of the parameter that embeds tokens, as the model says.

    Raises:
        InputError: no part of the model has ``get_input_embeddings``.
    """
    return _name_of(model, "get_input_embeddings")


def head_name(model: nn.Module) -> str | None:
    """Return the name of the output layer over the vocabulary, or None where there is none."""
    for part in model.modules():
        asked: Callable[[], Any] | None = getattr(part, "get_output_embeddings", None)
        head = asked() if asked is not None else None
        if isinstance(head, nn.Module):
            return next((name for name, one in model.named_modules() if one is head), None)
    return None


def inputs_of(
    model: nn.Module, layer: AttentionLayer, tokens: Tensor, *, last: bool = False
) -> Tensor:
    """Return the inputs that token sequences give an attention layer.

    Args:
        model: reads tokens ``[n, t]``.
        layer: of the model.
        tokens: ``[n, t]`` int64.
        last: whether to keep the last position alone.

    Returns:
        ``[n, t, d]``, or ``[n, d]`` with ``last``.
    """
    rows = max(1, ROWS * 32 // max(32, tokens.shape[1]))
    found = []
    for chunk in torch.split(tokens, rows):
        part = next(iter(layer.maps.values()))
        with _caught(part) as seen, torch.no_grad(), suppress(_ReachedError):
            model(chunk)
        require(bool(seen), f"the model does not call its layer {layer.name!r}")
        found.append(seen[0][:, -1] if last else seen[0])
    return torch.cat(found)


@contextmanager
def _caught(part: nn.Module) -> Iterator[list[Tensor]]:
    """Collect the input of a module's first call, which ends the forward pass."""
    seen: list[Tensor] = []

    def keep(module: nn.Module, given: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        values = [one for one in (*given, *named.values()) if isinstance(one, Tensor)]
        seen.append(values[0].detach())
        raise _ReachedError

    handle = part.register_forward_pre_hook(keep, with_kwargs=True)
    try:
        yield seen
    finally:
        handle.remove()


def _name_of(model: nn.Module, method: str) -> str:
    for part in model.modules():
        asked: Callable[[], Any] | None = getattr(part, method, None)
        if asked is not None:
            weight = asked().weight
            return next(
                name
                for name, one in model.named_parameters(remove_duplicate=False)
                if one is weight
            )
    raise InputError(
        f"{type(model).__name__} does not say which layer embeds its tokens; expected a model of "
        "transformers, which has get_input_embeddings"
    )


def _inputs_first(part: nn.Module) -> bool:
    """Return whether a map's weight is ``[inputs, outputs]``, as Conv1D of transformers has it."""
    base = getattr(part, "base_layer", part)
    return not isinstance(base, nn.Linear)


def _any(gradients: list[Tensor]) -> bool:
    return any(bool(one.any()) for one in gradients)
