"""Copies of a user's modules."""

import copy
from typing import Any

from torch import nn

from leakgauge.core.checks import InputError
from leakgauge.core.user_code import one_line


def copy_of(model: nn.Module, memo: dict[int, Any] | None = None) -> nn.Module:
    """Return ``copy.deepcopy`` of a module.

    Args:
        model: the module.
        memo: copies by id of the original, which ``copy.deepcopy`` takes as they are.

    Raises:
        InputError: it cannot be copied.
    """
    try:
        return copy.deepcopy(model, memo)
    except (RuntimeError, TypeError) as error:
        raise InputError(
            f"{type(model).__name__} cannot be copied ({one_line(error)}); remove what "
            "copy.deepcopy refuses, such as a cached output, or torch.nn.utils.weight_norm, which "
            "torch.nn.utils.parametrizations.weight_norm replaces"
        ) from error
