"""Whether ``torch.func`` computes the gradients of many trials at once."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from leakgauge.core.checks import InputError
from leakgauge.core.types import Grads, Params, Task
from leakgauge.core.user_code import first_line

# Torch refuses a model with any of these errors.
REFUSALS: tuple[type[Exception], ...] = (
    *(RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError),
    *(NotImplementedError, AssertionError, UserWarning),
)


class NotVectorisedError(InputError):
    """Raised where a model's gradients can be computed, and not for many trials at once.

    Attributes:
        reason: what cannot be vectorised, and why, without advice.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"{reason}, which is needed here; take a model without this operation (in Python, "
            'method="auto" allows a plain loop where a function has it)'
        )
        self.reason = reason


def gradient_function(task: Task) -> Callable[[Params, Tensor, Tensor], Grads]:
    """Return a function ``(params, x [B, ...], y [B, ...]) -> gradient`` for ``vmap``."""

    def loss(params: Params, x: Tensor, y: Tensor) -> Tensor:
        return task.mean_loss(task.outputs(x, params), y)

    of_batch: Callable[[Params, Tensor, Tensor], Grads] = grad(loss)
    return of_batch


@contextmanager
def vectorisable_kernels() -> Iterator[None]:
    """Compute attention by plain matrix products: the fused kernels have no batching rule."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def vectorises_trials(task: Task, params: Params, x: Tensor, y: Tensor, *, required: bool) -> bool:
    """Return whether ``torch.func`` runs two trials at once, with every operation batched."""
    function = vmap(gradient_function(task), in_dims=(None, 0, 0))
    try:
        with vectorisable_kernels(), warnings.catch_warnings():
            # Torch runs such an operation one trial at a time; the loop is faster.
            warnings.filterwarnings("error", message=".*performance drop")
            function(params, torch.stack([x, x]), torch.stack([y, y]))
    except REFUSALS as error:
        if required:
            reason = f"torch.func cannot vectorise {type(task.model).__name__} ({_why(error)})"
            raise NotVectorisedError(reason) from error
        return False
    return True


def _why(error: BaseException) -> str:
    """Return what stopped ``torch.func`` in a few words.

    >>> _why(UserWarning("a performance drop ... the batching rule for aten::lstm. Please file us"))
    'no batching rule for aten::lstm'
    """
    _, rule, rest = first_line(error).partition("batching rule for ")
    return f"no {rule}{rest.split()[0].rstrip('.')}" if rest.split() else first_line(error)
