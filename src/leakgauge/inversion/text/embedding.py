"""The set of tokens of a batch, from the gradient of the embedding."""

import torch
from torch import nn

from leakgauge.core.checks import require
from leakgauge.core.types import Grads, Task
from leakgauge.inversion.text.layers import embedding_name


def recover_tokens(task: Task, grads: Grads, *, floor: float = 0.0) -> tuple[int, ...]:
    """Return the tokens of a batch: those whose embedding has a gradient.

    A token is missing where nothing that the loss reads depends on it: the last one of a sequence
    that a causal model is trained on, and padding.

    Args:
        task: its model embeds tokens and, as models of transformers, has ``get_input_embeddings``.
        grads: one gradient, leaf ``[1, *p]``.
        floor: rows of a gradient with noise count whose length is above this share of the longest.

    Raises:
        InputError: the embedding has no gradient here, it is tied to the output layer, or all its
            rows have a gradient.
    """
    name = embedding_name(task.model)
    require(
        name in grads,
        f"there is no gradient of {name!r}: the embedding is frozen, as with adapters; use dager, "
        "which reads the attention layers",
    )
    shared = [
        other
        for other, one in task.model.named_parameters(remove_duplicate=False)
        if other != name and one is _of(task.model, name)
    ]
    require(
        not shared,
        f"{name!r} is tied to {shared[0] if shared else ''!r}, whose outputs give every row a "
        "gradient; use dager",
    )
    lengths = grads[name][0].double().norm(dim=1)
    found = (lengths > floor * lengths.max()).nonzero().flatten()
    require(
        len(found) < len(lengths),
        f"all {len(lengths)} rows of {name!r} have a gradient, as with noise; raise floor",
    )
    return tuple(found.tolist())


def _of(model: nn.Module, name: str) -> torch.Tensor:
    return dict(model.named_parameters(remove_duplicate=False))[name]
