"""Steps of Opacus' optimizer: a hook beside that of its accountant, and its clipping norm."""

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from leakgauge.core.checks import require
from leakgauge.core.extras import not_installed

if importlib.util.find_spec("opacus") is None:
    raise not_installed("opacus", "opacus")


@contextmanager
def each_release(optimizer: Any, look: Callable[[Any], None]) -> Iterator[None]:
    """Call a function with the optimizer at each step, when ``.grad`` holds what it releases.

    The optimizer has one place for a hook, which Opacus' accountant uses. The function is called
    after it, so that epsilon is the same. The place is given back at the end.

    Args:
        optimizer: a ``DPOptimizer``, from ``PrivacyEngine.make_private``.
        look: is called between the noise and the update.

    Raises:
        InputError: the optimizer is not one of Opacus.
    """
    require(
        hasattr(optimizer, "attach_step_hook") and hasattr(optimizer, "max_grad_norm"),
        f"the optimizer is {type(optimizer).__name__}; expected the DPOptimizer that "
        "PrivacyEngine.make_private returns",
    )
    earlier: Callable[[Any], None] | None = optimizer.step_hook
    is_open = [True]

    def hook(stepping: Any) -> None:
        if earlier is not None:
            earlier(stepping)
        if is_open:  # another hook may keep this one in its chain
            look(stepping)

    optimizer.attach_step_hook(hook)
    try:
        yield
    finally:
        is_open.clear()
        if optimizer.step_hook is hook:
            optimizer.step_hook = earlier


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
