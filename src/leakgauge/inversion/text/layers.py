"""The attention layers of a transformer: the tokens and inputs that their gradients show.

A linear map ``y = x W`` has the gradient ``sum_i x_i (dL/dy_i)^T`` over all tokens i. Its columns
span the inputs x, as long as there are fewer tokens than dimensions. Then the inputs lie in the
span, and other vectors of a discrete set hardly ever do.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from leakgauge.core.checks import InputError, require
from leakgauge.core.forward import forward
from leakgauge.core.precision import is_coarse, precision_of, rounding_norm
from leakgauge.core.types import Grads


@dataclass(frozen=True, eq=False)
class Span:
    """The span of a layer's inputs, as far as one gradient shows it.

    Attributes:
        basis: orthonormal ``[rank, k]``, float64.
        through: the matrix ``[k, d]`` that the inputs pass before the gradient shows them (the
            first half of an adapter); None where it shows the inputs themselves, and k is d.
        most: the largest rank that this gradient can have, whatever the inputs.
        slack: distance that noise may move an input out of the span, relative to its length.
    """

    basis: Tensor
    through: Tensor | None
    most: int
    slack: float

    @property
    def rank(self) -> int:
        """The number of dimensions of the span."""
        return len(self.basis)

    @property
    def full(self) -> bool:
        """Whether the gradient has no room for another dimension, so the span may lack some."""
        return self.rank >= self.most

    def of(self, inputs: Tensor) -> Tensor:
        """Return inputs ``[..., d]`` as the gradient shows them ``[..., k]``, float64."""
        inputs = inputs.double()
        return inputs if self.through is None else inputs @ self.through.T

    def distance(self, inputs: Tensor) -> Tensor:
        """Return the distance of inputs ``[..., d]`` from the span, relative to their lengths.

        >>> span = Span(torch.eye(3, dtype=torch.float64)[:1], None, 3, 0.0)
        >>> span.distance(torch.tensor([[2.0, 0.0, 0.0], [3.0, 0.0, 4.0]])).tolist()
        [0.0, 0.8]
        """
        shown = self.of(inputs)
        outside = (shown - shown @ self.basis.T @ self.basis).norm(dim=-1)
        relative: Tensor = outside / shown.norm(dim=-1).clamp_min(torch.finfo(torch.float64).tiny)
        return relative


def span_of(
    gradients: Sequence[Tensor],
    *,
    noise: float = 0.0,
    through: Tensor | None,
    precision: torch.dtype | None = None,
) -> Span:
    """Return the span of the inputs of maps that share them.

    A singular value counts above ``sqrt(max(k, m)) * eps`` of the largest: sums in a precision eps
    (float32 or finer), at random, add less; and, where the gradient has noise, above the largest
    singular value that the noise alone has, about ``noise * (sqrt(k) + sqrt(m))``. Storing the
    gradient in a coarser type adds noise, too. The noise then turns the span by no more than the
    latter over the smallest value that counts (Davis and Kahan): its ``slack``.

    Args:
        gradients: gradients of the weights, each ``[k, m]`` with the inputs' axis first.
        noise: standard deviation of the noise in each entry.
        through: see ``Span``.
        precision: the precision of the gradient; None for that of its type.
    """
    stacked = torch.cat(list(gradients), dim=1)
    k, m = stacked.shape
    precision = precision or stacked.dtype
    u, values, _ = torch.linalg.svd(stacked.double(), full_matrices=False)
    of_noise = noise * (k**0.5 + m**0.5)
    sums = precision
    if is_coarse(precision):
        of_noise, sums = of_noise + rounding_norm(stacked, precision), torch.float32
    rounding = max(k, m) ** 0.5 * torch.finfo(sums).eps * float(values[0])
    rank = int((values > max(rounding, of_noise)).sum())
    slack = of_noise / float(values[rank - 1]) if rank else 0.0
    return Span(u[:, :rank].T.contiguous(), through, min(k, m), slack)


def dimensions(inputs: Tensor) -> int:
    """Return the dimension of the space that vectors ``[n, k]`` fill.

    A layer norm takes one dimension away, for example.

    >>> dimensions(torch.tensor([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0], [1.0, 0.0, -1.0]]))
    2
    """
    values = torch.linalg.eigvalsh(inputs.double().T @ inputs.double())
    floor = max(inputs.shape) * torch.finfo(torch.float32).eps * max(float(values[-1]), 0.0) ** 0.5
    precision = precision_of([inputs])
    if is_coarse(precision):
        floor = max(floor, rounding_norm(inputs, precision))
    return int((values > floor**2).sum())


PROJECTIONS = (
    *("q_proj", "k_proj", "v_proj", "query", "key", "value", "q_lin", "k_lin", "v_lin"),
    *("c_attn", "query_key_value", "qkv_proj", "Wqkv"),
)
"""Names of the maps to queries, keys and values in models of Hugging Face."""

ROWS = 4096
"""Number of token sequences that pass the model at once, for each 32 tokens."""


class _ReachedError(Exception):
    """Ends a forward pass at the requested layer."""


@dataclass(frozen=True, eq=False)
class AttentionLayer:
    """One attention layer: the maps that read its inputs.

    Attributes:
        name: name of the module that holds the maps.
        maps: linear maps of queries, keys and values, by name.
    """

    name: str
    maps: Mapping[str, nn.Module]

    def spans(
        self,
        grads: Grads,
        params: Mapping[str, Tensor],
        *,
        noise: float,
        precision: torch.dtype | None = None,
    ) -> list[Span]:
        """Return the spans of its inputs that the gradients of its weights and adapters show."""
        whole, first, adapters = [], [], []
        for name, part in self.maps.items():
            for leaf in (f"{name}.weight", f"{name}.base_layer.weight"):
                if leaf in grads:
                    # A map such as Conv1D of transformers has a weight [inputs, outputs].
                    linear = isinstance(getattr(part, "base_layer", part), nn.Linear)
                    whole.append(grads[leaf][0].T if linear else grads[leaf][0])
            for leaf in grads:
                if leaf.startswith(f"{name}.lora_A."):
                    other = leaf.replace(".lora_A.", ".lora_B.")
                    first.append(grads[leaf][0].T)
                    if other in grads:
                        adapters.append((params[leaf], grads[other][0].T))
        made = partial(span_of, noise=noise, precision=precision)
        found = [made(own, through=None) for own in (whole, first) if _any(own)]
        found += [
            made([gradient], through=down.double())
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
    for part in model.modules():
        asked: Callable[[], Any] | None = getattr(part, "get_input_embeddings", None)
        if asked is not None:
            weight = asked().weight
            named = model.named_parameters(remove_duplicate=False)
            return next(name for name, one in named if one is weight)
    raise InputError(
        f"{type(model).__name__} does not say which layer embeds its tokens; expected a model of "
        "transformers, which has get_input_embeddings"
    )


def embedding_of(model: nn.Module) -> Tensor:
    """Return the embedding of each token, ``[V, d]``."""
    return dict(model.named_parameters(remove_duplicate=False))[embedding_name(model)]


def head_name(model: nn.Module) -> str | None:
    """Return the name of the output layer over the vocabulary, or None without one."""
    for part in model.modules():
        asked: Callable[[], Any] | None = getattr(part, "get_output_embeddings", None)
        head = asked() if asked is not None else None
        if isinstance(head, nn.Module):
            return next((name for name, one in model.named_modules() if one is head), None)
    return None


def inputs_of(
    model: nn.Module, layer: AttentionLayer, tokens: Tensor, *, last: bool = False
) -> Tensor:
    """Return the inputs ``[n, t, d]`` that token sequences ``[n, t]`` give an attention layer.

    With ``last`` it is the last position alone, ``[n, d]``.
    """
    rows = max(1, ROWS * 32 // max(32, tokens.shape[1]))
    found = []
    for chunk in torch.split(tokens, rows):
        part = next(iter(layer.maps.values()))
        with _caught(part) as seen, torch.no_grad(), suppress(_ReachedError):
            forward(model, chunk)
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


def _any(gradients: list[Tensor]) -> bool:
    return any(bool(one.any()) for one in gradients)
