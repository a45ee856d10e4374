"""A monitor beside Opacus: the gradients that it releases, and those of single records."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from leakgauge.core.checks import require
from leakgauge.defenses.clip import ClipNorm
from leakgauge.defenses.defense import Defense
from leakgauge.defenses.noise import GaussianNoise
from leakgauge.integrations.watcher import Watcher


@contextmanager
def watching(optimizer: Any, monitor: Watcher) -> Iterator[None]:
    """Watch the training of a ``DPOptimizer``, from ``PrivacyEngine.make_private``.

    ``.grad`` then holds what the optimizer releases: the clipped sum with noise, over the expected
    batch size. The cheap measure clips the gradient of each record, and adds the noise that it
    would get alone.

    The optimizer has one place for a hook, which Opacus' accountant uses. The monitor's hook calls
    it first, and gives the place back at the end.

    Args:
        optimizer: a ``DPOptimizer``.
        monitor: of the model.

    Raises:
        InputError: the optimizer is not one of Opacus.
    """
    require(
        hasattr(optimizer, "attach_step_hook") and hasattr(optimizer, "max_grad_norm"),
        f"the optimizer is {type(optimizer).__name__}; expected the DPOptimizer that "
        "PrivacyEngine.make_private returns",
    )
    clip = optimizer.max_grad_norm
    require(
        isinstance(clip, int | float),
        "the optimizer clips by layer; the monitor knows one norm for all: use clipping='flat'",
    )
    alone = Defense(
        "opacus",
        per_example=ClipNorm(float(clip)),
        update=GaussianNoise(float(optimizer.noise_multiplier * clip)),
    )
    earlier: Callable[[Any], None] | None = optimizer.step_hook
    is_open = [True]

    def hook(stepping: Any) -> None:
        if earlier is not None:
            earlier(stepping)
        if is_open:  # another hook may keep this one in its chain
            monitor.look()

    with monitor:
        monitor.drive()
        monitor.defend_records(alone)
        optimizer.attach_step_hook(hook)
        try:
            yield
        finally:
            is_open.clear()
            if optimizer.step_hook is hook:
                optimizer.step_hook = earlier
