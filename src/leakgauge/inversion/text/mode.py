"""What a gradient still shows where no sequence was read: its mode, and the set of its tokens."""

import torch
from torch import nn

from leakgauge.core.checks import InputError
from leakgauge.core.precision import is_coarse
from leakgauge.core.types import Grads, Task
from leakgauge.inversion.text.layers import recover_tokens

UNKNOWN_CHANGE = "the gradient was changed, or not taken at these weights"


def reason_of_change(model: nn.Module, grads: Grads, precision: torch.dtype) -> str:
    """Return why the inputs of a model may not lie in the spans of a gradient.

    Dropout behind an embedding sets a share of the numbers of its gradient to exactly 0, which
    tells train mode.

    Args:
        model: model with its layers of dropout.
        grads: one gradient, leaf ``[1, *p]``.
        precision: precision of the gradient; rounding in a coarse one gives zeros, too.
    """
    rates = [one.p for one in model.modules() if isinstance(one, nn.Dropout) and one.p > 0]
    if not rates:
        return UNKNOWN_CHANGE
    share = 0.0 if is_coarse(precision) else _zeros(model, grads)
    if share >= min(rates) / 2:
        return (
            f"it was taken in train mode: {share:.0%} of the numbers of an embedding's gradient "
            f"are exactly 0, as dropout of {max(rates):g} makes them, and the layers then read "
            "other inputs than those of any token"
        )
    return (
        f"the gradient was taken in train mode (the model has dropout of {max(rates):g}), it was "
        "changed, or not taken at these weights"
    )


def _zeros(model: nn.Module, grads: Grads) -> float:
    """Return the largest share of exact zeros in the rows of an embedding that have a gradient."""
    shares = [0.0]
    for name, part in model.named_modules():
        leaf = grads.get(f"{name}.weight") if isinstance(part, nn.Embedding) else None
        if leaf is not None:
            rows = leaf[0][leaf[0].any(dim=1)]
            shares.append(float((rows == 0).double().mean()) if len(rows) else 0.0)
    return max(shares)


def token_set(task: Task, grads: Grads) -> tuple[int, ...]:
    """Return the tokens that the embedding's gradient names; none where it names none."""
    try:
        return recover_tokens(task, grads)
    except InputError:
        return ()
