"""Which optimizers of Opacus can be watched and audited."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from leakgauge.core.checks import require


def flat_clip(optimizer: Any) -> float:
    """Return the norm to which the optimizer clips the whole gradient of a record.

    Raises:
        InputError: it clips each layer on its own, or is not one of Opacus.
    """
    clip = getattr(optimizer, "max_grad_norm", 1.0)
    require(
        isinstance(clip, int | float),
        "the optimizer clips by layer; expected one norm for all of them: use clipping='flat'",
    )
    return float(clip)


def require_dp(optimizer: Any, method: str) -> None:
    """Raise ``InputError`` for an optimizer that Opacus did not make, or without a method."""
    require(
        hasattr(optimizer, method) and hasattr(optimizer, "max_grad_norm"),
        f"the optimizer is {type(optimizer).__name__}; expected the DPOptimizer that "
        "PrivacyEngine.make_private returns",
    )


def names_of(params: Sequence[Tensor], model: nn.Module | None) -> list[str]:
    """Return a name for each parameter: its own in the model, or its number and shape."""
    named = {} if model is None else {id(p): name for name, p in model.named_parameters()}
    return [
        named.get(id(p), f"{k} ({' x '.join(map(str, p.shape))})").removeprefix("_module.")
        for k, p in enumerate(params)
    ]


def check_optimizer(optimizer: Any) -> None:
    """Raise ``InputError`` for an optimizer whose training cannot be audited with canaries."""
    require_dp(optimizer, "clip_and_accumulate")
    flat_clip(optimizer)
    kinds = " ".join(one.__name__ for one in type(optimizer).__mro__)
    require(
        "FastGradientClipping" not in kinds,
        f"{type(optimizer).__name__} keeps no gradients of single records; audit the same "
        "training with grad_sample_mode='hooks'",
    )
    require(
        "AdaClip" not in kinds,
        f"{type(optimizer).__name__} changes its clipping norm; audit the same training with one",
    )
    require(
        "Distributed" not in kinds,
        f"{type(optimizer).__name__} trains in several processes; audit the same training in one",
    )
