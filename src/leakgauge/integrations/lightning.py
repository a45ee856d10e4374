"""A callback for Lightning's ``Trainer``."""

from contextlib import ExitStack
from typing import Any

import torch

from leakgauge.core.checks import InputError
from leakgauge.core.extras import not_installed
from leakgauge.integrations.watcher import Watcher, tensors

try:
    from lightning.pytorch.callbacks import Callback
except ImportError as error:
    raise not_installed("lightning", "lightning") from error


class LightningMonitor(Callback):
    """Watches ``trainer.fit`` with a monitor: ``Trainer(callbacks=[LightningMonitor(monitor)])``.

    Gradients are seen before Lightning clips them. Batches are tuples, lists or mappings that
    begin with inputs and targets. A monitor that the caller has entered stays open.

    Args:
        monitor: monitor of the ``LightningModule`` or of a model inside it.
    """

    def __init__(self, monitor: Watcher) -> None:
        self._monitor = monitor
        self._open = ExitStack()

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to watch."""
        strategy = type(trainer.strategy).__name__
        if any(word in strategy.lower() for word in ("fsdp", "deepspeed", "modelparallel")):
            raise InputError(
                f"Lightning's {strategy} keeps parts of gradients in several processes; a monitor "
                'needs whole ones: use strategy="ddp", or one device'
            )
        if not self._monitor.is_open:
            self._open.enter_context(self._monitor)
        self._monitor.drive()

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Take note of the batch."""
        self._monitor.step(*tensors(batch))

    def on_before_optimizer_step(
        self, trainer: Any, pl_module: Any, optimizer: torch.optim.Optimizer
    ) -> None:
        """Look at the gradients of the step."""
        self._monitor.look()

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Wait for estimates, and stop watching."""
        self._open.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Stop watching at once."""
        self._open.__exit__(type(exception), exception, None)
