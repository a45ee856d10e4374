"""The model inside of what wraps it."""

from torch import nn

from leakgauge.core.checks import InputError

_INSIDE = ("_module", "module")
"""Where Opacus' GradSampleModule, and DistributedDataParallel, keep the model."""

_WRAPPERS = (
    "GradSampleModule",
    "AbstractGradSampleModule",
    "DistributedDataParallel",
    "DataParallel",
)
_SHARDED = ("FullyShardedDataParallel", "DeepSpeedEngine", "FSDPModule")


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside of Opacus' or PyTorch's wrappers, whose names have no prefix.

    Raises:
        InputError: the model is compiled or sharded, or is no model.

    >>> inner = nn.Linear(2, 1)
    >>> unwrapped(nn.DataParallel(inner)) is inner
    True
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"model is {type(model).__name__}; expected a torch.nn.Module")
    names = {one.__name__ for one in type(model).__mro__}
    if hasattr(model, "_orig_mod"):
        raise InputError(
            "the model is compiled, and a compiled model runs no hooks; watch it without "
            "torch.compile for the steps that you ask about"
        )
    if names & set(_SHARDED):
        raise InputError(
            f"the model is a {type(model).__name__}, whose processes hold parts of gradients; "
            "watch it with plain data parallelism, or on one device"
        )
    if names & set(_WRAPPERS):
        for key in _INSIDE:
            inside = getattr(model, key, None)
            if isinstance(inside, nn.Module):
                return unwrapped(inside)
    return model
